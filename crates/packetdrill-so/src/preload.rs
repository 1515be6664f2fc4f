//! The getsockopt() of the whole process, if this object is preloaded: packetdrill's own questions for
//! `struct tcp_info` come here.

use std::ffi::{c_int, c_void};

use libc::socklen_t;

use crate::{options, world};

/// getsockopt() for any descriptor.
///
/// # Safety
/// As for the C library's: `len` points to the number of bytes that may be written at `value`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let is_ours = world::get().is_some_and(|world| world.lock().fd(fd).is_ok());
    match (is_ours, level, name) {
        (false, _, _) => {
            // SAFETY: the caller's own arguments, handed on as they are.
            unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int }
        }
        // Of these packetdrill asks only whether they are there; the engine has nothing to say.
        (true, libc::SOL_TCP, libc::TCP_CC_INFO) => {
            // SAFETY: the caller promises that `len` points to a number.
            unsafe { *len = 0 };
            0
        }
        (true, libc::SOL_SOCKET, libc::SO_MEMINFO) => {
            // SAFETY: the caller promises `*len` bytes at `value`.
            unsafe { std::ptr::write_bytes(value.cast::<u8>(), 0, *len as usize) };
            0
        }
        (true, _, _) => {
            // SAFETY: the caller promises of the pointers what getsockopt() asks.
            unsafe { options::getsockopt(std::ptr::null_mut(), fd, level, name, value, len) }
        }
    }
}

/// Names the congestion control that sockets of the kernel are to have. A namespace that has inherited
/// another may not change its default to one that is not free for all.
const CONGESTION: &str = "WHARF_PACKETDRILL_CONGESTION";

/// socket() for any process that this object is preloaded into.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: a system call on numbers.
    let fd = unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int };
    let is_stream = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM;
    let is_tcp = is_stream && matches!(domain, libc::AF_INET | libc::AF_INET6);
    if let Some(name) = std::env::var_os(CONGESTION).filter(|_| fd >= 0 && is_tcp) {
        let name = name.as_encoded_bytes();
        // SAFETY: the name has as many bytes as are said. If the kernel does not have it, the socket
        // keeps what it has.
        unsafe {
            let name = (name.as_ptr(), name.len());
            libc::syscall(
                libc::SYS_setsockopt,
                fd,
                libc::SOL_TCP,
                libc::TCP_CONGESTION,
                name.0,
                name.1,
            );
        }
    }
    fd
}
