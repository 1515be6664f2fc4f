//! What a socket of the program's says, and what it is told.

use libc::{c_int, c_long};

use crate::real::real;
use crate::trap::trap;

/// Whether `O_NONBLOCK` is set.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: F_GETFL takes no argument.
    let flags = unsafe { trap!(libc::SYS_fcntl, fd, libc::F_GETFL, 0) };
    flags >= 0 && flags as c_int & libc::O_NONBLOCK != 0
}

/// The nanoseconds of `SO_RCVTIMEO` or `SO_SNDTIMEO`, if there are any.
pub(crate) fn timeout_of(fd: c_int, option: c_int) -> Option<u64> {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: `time` is writable, and `len` its size.
    let got = unsafe {
        let (at, len) = (&raw mut time, &raw mut len);
        trap!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, option, at, len)
    };
    let nanos = time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    (got == 0 && nanos > 0).then_some(nanos)
}

/// The error that is pending on a socket, which is told by this (`SO_ERROR`).
pub(crate) fn take_error(fd: c_int) -> c_int {
    int_option(fd, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0)
}

/// Whether an error is pending on a socket, which stays so.
pub(crate) fn has_error(fd: c_int) -> bool {
    let mut at = libc::pollfd { fd, events: 0, revents: 0 };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let none = std::ptr::null::<u8>();
    // SAFETY: `at` is writable, and the time readable.
    unsafe { trap!(libc::SYS_ppoll, &raw mut at, 1, &raw const now, none, 0) };
    at.revents & libc::POLLERR != 0
}

/// Whether a call that receives would not wait.
pub(crate) fn is_readable(fd: c_int) -> bool {
    let mut at = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let (now, none) = (libc::timespec { tv_sec: 0, tv_nsec: 0 }, std::ptr::null::<u8>());
    // SAFETY: `at` is writable, and the time readable.
    unsafe { trap!(libc::SYS_ppoll, &raw mut at, 1, &raw const now, none, 0) };
    at.revents != 0
}

/// Whether a socket has bytes that could be read.
pub(crate) fn has_unread(fd: c_int) -> bool {
    let mut unread: c_int = 0;
    // SAFETY: `unread` is writable.
    let got = unsafe { trap!(libc::SYS_ioctl, fd, libc::FIONREAD as c_long, &raw mut unread) };
    got == 0 && unread > 0
}

/// An option that is a number.
pub(crate) fn int_option(fd: c_int, level: c_int, option: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // By libc's own function, which takes fewer instructions than its syscall(2): dup(2) asks so.
    // SAFETY: `value` is writable, and `len` its size.
    let got = unsafe {
        let (at, len) = ((&raw mut value).cast(), &raw mut len);
        real!(getsockopt(fd, level, option, at, len):
            fn(c_int, c_int, c_int, *mut libc::c_void, *mut libc::socklen_t) -> c_int)
    };
    (got == 0).then_some(value)
}

/// The program has shut down ends of a socket: the kernel is to know. That it does is no error.
pub(crate) fn shutdown(fd: c_int, how: Option<c_int>) {
    if let Some(how) = how {
        // SAFETY: shutdown takes integers.
        unsafe { trap!(libc::SYS_shutdown, fd, how) };
    }
}

/// How many seconds close(2) waits until the peer has all (SO_LINGER), if it does: with none it is a reset.
pub(crate) fn linger(fd: c_int) -> Option<u32> {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut len = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: `linger` is writable, and `len` its size.
    let got = unsafe {
        let (at, len) = (&raw mut linger, &raw mut len);
        trap!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_LINGER, at, len)
    };
    (got == 0 && linger.l_onoff != 0).then_some(linger.l_linger.max(0) as u32)
}

/// Ends what is sent, and waits until the peer has all, so many seconds at most, or until a signal comes. The kernel does
/// that where the last descriptor of the socket is closed, and wharf and its guard have theirs for a moment longer than a
/// connection is on the NIC.
pub(crate) fn linger_until_sent(fd: c_int, seconds: u32) {
    // What is unread is the peer's loss, which is told by a reset (tcp_close).
    if is_readable(fd) {
        return;
    }
    shutdown(fd, Some(libc::SHUT_WR));
    let until = super::now() + u64::from(seconds) * 1_000_000_000;
    let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    while super::now() < until && is_closing(fd) {
        // Nothing tells when a FIN is acknowledged.
        // SAFETY: `pause` is readable, and nothing is written.
        let slept = unsafe { trap!(libc::SYS_nanosleep, &raw const pause, std::ptr::null::<u8>()) };
        if slept < 0 {
            return;
        }
    }
}

/// Ends the connection of a socket as close(2) ends it, though another process has the socket, too: with a reset if bytes are
/// unread or it `resets`, and else when all is sent (tcp_close).
pub(crate) fn end(fd: c_int, resets: bool) {
    if resets || has_unread(fd) {
        let to =
            libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
        // SAFETY: `to` is readable, and of this size.
        unsafe { trap!(libc::SYS_connect, fd, &raw const to, size_of::<libc::sockaddr>()) };
        return;
    }
    shutdown(fd, Some(libc::SHUT_RDWR));
}

/// Whether a FIN of a socket's was not acknowledged yet (the states of net/tcp_states.h that sk_stream_wait_close waits in).
fn is_closing(fd: c_int) -> bool {
    const FIN_WAIT1: u8 = 4;
    const LAST_ACK: u8 = 9;
    const CLOSING: u8 = 11;
    let mut state = 0_u8;
    let mut len = 1 as libc::socklen_t;
    // SAFETY: `state` is writable, and `len` its size: the first byte of struct tcp_info.
    let got = unsafe {
        let (at, len) = (&raw mut state, &raw mut len);
        trap!(libc::SYS_getsockopt, fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, len)
    };
    got == 0 && matches!(state, FIN_WAIT1 | LAST_ACK | CLOSING)
}

/// The ports of a socket, as the kernel has them; 0 for what it does not say.
pub(crate) fn ports(fd: c_int) -> (u16, u16) {
    (port(libc::SYS_getsockname, fd), port(libc::SYS_getpeername, fd))
}

/// Whether a socket has a peer.
pub(crate) fn has_peer(fd: c_int) -> bool {
    port(libc::SYS_getpeername, fd) != 0
}

fn port(call: libc::c_long, fd: c_int) -> u16 {
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: `address` is writable, and `len` its size.
    let got = unsafe { trap!(call, fd, &raw mut address, &raw mut len) };
    // The port lies at the same place in both kinds.
    if got == 0 { u16::from_be(address.sin6_port) } else { 0 }
}

/// Passes over bytes that a socket has; how many.
pub(crate) fn pass_over(fd: c_int, most: u32) -> u32 {
    let none = std::ptr::null::<u8>();
    let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
    // SAFETY: with MSG_TRUNC nothing is written (tcp(7)).
    let over = unsafe { trap!(libc::SYS_recvfrom, fd, none, most, flags, none, none) };
    u32::try_from(over).unwrap_or(0)
}
