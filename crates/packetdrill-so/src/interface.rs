//! `struct packetdrill_interface`, as packetdrill.h has it.

use std::ffi::{c_char, c_int, c_long, c_longlong, c_short, c_uint, c_ulong, c_void};

use libc::{epoll_event, iovec, msghdr, nfds_t, sockaddr, socklen_t, ssize_t, timeval};

/// packetdrill's first argument of each function. It is not used: a process has one engine.
pub(crate) type User = *mut c_void;

/// As in poll.h, whose layout libc's has.
#[repr(C)]
pub(crate) struct PollFd {
    pub(crate) fd: c_int,
    pub(crate) events: c_short,
    pub(crate) revents: c_short,
}

/// The table. fcntl and ioctl are variadic in C; Linux passes their third argument where it passes that
/// of a function with three, on every architecture wharf runs on (System V x86-64, AAPCS64).
#[repr(C)]
pub(crate) struct Interface {
    pub(crate) userdata: User,
    pub(crate) free: extern "C" fn(User),
    pub(crate) socket: extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    pub(crate) bind: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    pub(crate) listen: extern "C" fn(User, c_int, c_int) -> c_int,
    pub(crate) accept: unsafe extern "C" fn(User, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub(crate) connect: unsafe extern "C" fn(User, c_int, *const sockaddr, socklen_t) -> c_int,
    pub(crate) read: unsafe extern "C" fn(User, c_int, *mut c_void, usize) -> ssize_t,
    pub(crate) readv: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    pub(crate) recv: unsafe extern "C" fn(User, c_int, *mut c_void, usize, c_int) -> ssize_t,
    pub(crate) recvfrom: unsafe extern "C" fn(
        User,
        c_int,
        *mut c_void,
        usize,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    pub(crate) recvmsg: unsafe extern "C" fn(User, c_int, *mut msghdr, c_int) -> ssize_t,
    pub(crate) write: unsafe extern "C" fn(User, c_int, *const c_void, usize) -> ssize_t,
    pub(crate) writev: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> ssize_t,
    pub(crate) send: unsafe extern "C" fn(User, c_int, *const c_void, usize, c_int) -> ssize_t,
    pub(crate) sendto: unsafe extern "C" fn(
        User,
        c_int,
        *const c_void,
        usize,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
    pub(crate) sendmsg: unsafe extern "C" fn(User, c_int, *const msghdr, c_int) -> ssize_t,
    pub(crate) fcntl: extern "C" fn(User, c_int, c_int, c_long) -> c_int,
    pub(crate) ioctl: unsafe extern "C" fn(User, c_int, c_ulong, *mut c_int) -> c_int,
    pub(crate) close: extern "C" fn(User, c_int) -> c_int,
    pub(crate) shutdown: extern "C" fn(User, c_int, c_int) -> c_int,
    pub(crate) getsockopt:
        unsafe extern "C" fn(User, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub(crate) setsockopt:
        unsafe extern "C" fn(User, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub(crate) poll: unsafe extern "C" fn(User, *mut PollFd, nfds_t, c_int) -> c_int,
    pub(crate) netdev_send: unsafe extern "C" fn(User, *const c_void, usize) -> c_int,
    pub(crate) netdev_receive:
        unsafe extern "C" fn(User, *mut c_void, *mut usize, *mut c_longlong) -> c_int,
    pub(crate) usleep: extern "C" fn(User, c_uint) -> c_int,
    pub(crate) gettimeofday: unsafe extern "C" fn(User, *mut timeval, *mut c_void) -> c_int,
    pub(crate) epoll_create: extern "C" fn(User, c_int) -> c_int,
    pub(crate) epoll_ctl:
        unsafe extern "C" fn(User, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub(crate) epoll_wait:
        unsafe extern "C" fn(User, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub(crate) pipe: extern "C" fn(User, *mut c_int) -> c_int,
    pub(crate) splice:
        extern "C" fn(User, c_int, *mut i64, c_int, *mut i64, usize, c_uint) -> ssize_t,
}

/// packetdrill's `--so_flags`.
pub(crate) type Flags = *const c_char;
