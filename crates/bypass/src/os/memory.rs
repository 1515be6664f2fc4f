//! Memory that is the layer's for as long as the process lives. None of it is malloc(3)'s, which a handler of a signal may
//! have interrupted.

use std::sync::atomic::AtomicU64;

use libc::{c_int, c_void};

/// Maps memory that wharf shares, for as long as the process lives.
pub(crate) fn map(fd: c_int, bytes: usize) -> Option<&'static [AtomicU64]> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks an unused range.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // A dump of this process, should it crash, would go through all of it.
    // SAFETY: the range was mapped above, and MADV_DONTDUMP changes no contents.
    let _ = unsafe { libc::madvise(start, bytes, libc::MADV_DONTDUMP) };
    // SAFETY: mapped above, page-aligned, so long, and never unmapped. wharf has sealed its size. All access is by
    // atomic words, whose every value is valid.
    Some(unsafe { std::slice::from_raw_parts(start.cast(), bytes / size_of::<AtomicU64>()) })
}

/// Maps zeroed memory that this process and its children share.
pub(crate) fn map_shared(bytes: usize) -> Option<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks an unused range.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start)
}

/// Unmaps it.
///
/// # Safety
/// It was mapped for so many bytes, and nobody has a reference into it.
pub(crate) unsafe fn unmap(at: *mut c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(at, bytes) };
}

/// Zeroed pages of this process alone; a child of fork(2) has a copy.
fn map_own(bytes: usize) -> Option<*mut c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks an unused range.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED).then_some(start)
}

const PAGE: usize = 4096;

/// Keeps it for as long as the process lives, in pages of its own. `None` if there is no memory.
pub(crate) fn keep<T>(value: T) -> Option<&'static T> {
    const { assert!(align_of::<T>() <= PAGE) };
    let place: *mut T = map_own(size_of::<T>().max(1))?.cast();
    // SAFETY: pages that were mapped above, aligned and large enough, which nobody else has and which are never unmapped.
    unsafe {
        place.write(value);
        Some(&*place)
    }
}

/// Keeps so many, each made of its number.
pub(crate) fn keep_each<T>(len: usize, make: impl Fn(usize) -> T) -> Option<&'static [T]> {
    const { assert!(align_of::<T>() <= PAGE) };
    let bytes = len.checked_mul(size_of::<T>())?.max(1);
    let start: *mut T = map_own(bytes)?.cast();
    // SAFETY: pages that were mapped above, aligned and large enough, which nobody else has and which are never unmapped.
    unsafe {
        (0..len).for_each(|at| start.add(at).write(make(at)));
        Some(std::slice::from_raw_parts(start, len))
    }
}
