//! Socket options as typed values.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `setsockopt` with `value` as it lies in memory.
pub(crate) fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes of a live value and writes nothing.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `getsockopt`; what the kernel leaves unwritten is zero.
pub(crate) fn get<T: Plain>(fd: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to a live value of that size.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut len)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed before, and `Plain` promises that zeros and any other bits are valid.
    Ok(unsafe { value.assume_init() })
}

/// Types for which every bit pattern is valid.
///
/// # Safety
/// The type is an integer, or has integers as its only fields.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: an integer.
unsafe impl Plain for libc::c_int {}
// SAFETY: integers only (linux/if_packet.h).
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_auxdata {}
// SAFETY: integers only.
unsafe impl Plain for libc::timespec {}
// SAFETY: integers only.
unsafe impl Plain for libc::linger {}
// SAFETY: bytes.
unsafe impl Plain for [u8; 16] {}
// SAFETY: integers only (linux/tcp.h).
unsafe impl Plain for libc::tcp_info {}
// SAFETY: integers only (linux/if_xdp.h).
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers only (linux/if_xdp.h).
unsafe impl Plain for libc::xdp_options {}
// SAFETY: integers only (linux/if_xdp.h).
unsafe impl Plain for libc::xdp_statistics {}
