//! Memory mapped into this process, unmapped on drop.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A range of readable and writable memory that this value alone unmaps.
///
/// It has only raw pointers: which bytes may be read or written, and when, is decided by the module that
/// holds it.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and this type offers no access to the
// bytes; code that dereferences the pointer argues for that access itself.
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` gives the address and the length only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory of `len` bytes, page-aligned, backed by pages on first touch.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// `len` bytes that the kernel shares through `fd` at `offset`.
    pub(crate) fn shared(fd: BorrowedFd<'_>, offset: libc::off_t, len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// `len` bytes that the kernel shares through `fd` from the beginning, backed by pages on first touch.
    pub(crate) fn shared_when_touched(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let mapping = Self::map(len, libc::MAP_SHARED | libc::MAP_NORESERVE, fd.as_raw_fd(), 0)?;
        // A dump of a process that crashes would go through all of it. That it does is no harm but time.
        // SAFETY: the range is exactly this live mapping, and MADV_DONTDUMP changes no contents.
        let _ = unsafe { libc::madvise(mapping.start.as_ptr().cast(), len, libc::MADV_DONTDUMP) };
        Ok(mapping)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without MAP_FIXED the kernel picks an unused range, so no memory that anything
        // else refers to is replaced.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Asks for huge pages, which spare the TLB; the kernel is free to ignore it.
    pub(crate) fn prefer_huge_pages(&self) {
        if cfg!(miri) {
            return;
        }
        // SAFETY: the range is exactly this live mapping, and MADV_HUGEPAGE changes no contents.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.len, libc::MADV_HUGEPAGE) };
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and is unmapped once, here. Pointers into it are
        // held only by owners of this mapping (or of an `Arc` of it), which are gone by now.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
