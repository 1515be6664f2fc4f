//! read(2), write(2), and the other calls that move bytes.

use libc::{c_int, c_void, iovec, size_t, sockaddr, socklen_t, ssize_t};

use super::stream::{receive_parts, send_parts};
use crate::connection::{self, Parts};
use crate::real::real;

/// Most parts of a vector (UIO_MAXIOV, include/uapi/linux/uio.h).
pub(super) const PARTS_MAX: usize = 1024;

/// The parts of a vector.
///
/// # Safety
/// The program's call promises `count` parts.
pub(super) unsafe fn vector<'a>(parts: *const iovec, count: usize) -> &'a [iovec] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(parts, count) }
}

fn part(at: *const c_void, len: size_t) -> [iovec; 1] {
    [iovec { iov_base: at.cast_mut(), iov_len: len }]
}

/// # Safety
/// As read(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    let kernel = || {
        // SAFETY: the program's call.
        unsafe { real!(read(fd, into, len): fn(c_int, *mut c_void, size_t) -> ssize_t) }
    };
    let Some(connection) = connection::at(fd) else { return kernel() };
    if let Some(call) = connection.plain() {
        return call.received(kernel());
    }
    if len == 0 {
        // As sock_read_iter: that is asked of no protocol.
        return 0;
    }
    let part = part(into, len);
    // SAFETY: the program's promise.
    receive_parts(connection, fd, unsafe { Parts::new(&part) }, 0)
}

/// # Safety
/// As write(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    let kernel = || {
        // SAFETY: the program's call.
        unsafe { real!(write(fd, from, len): fn(c_int, *const c_void, size_t) -> ssize_t) }
    };
    let Some(connection) = connection::at(fd) else { return kernel() };
    if let Some(call) = connection.plain() {
        return call.sent(kernel());
    }
    let part = part(from, len);
    // SAFETY: the program's promise.
    send_parts(connection, fd, unsafe { Parts::new(&part) }, 0)
}

/// # Safety
/// As readv(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    match (connection::at(fd), usize::try_from(count)) {
        (Some(connection), Ok(count)) if count <= PARTS_MAX && count > 0 => {
            // SAFETY: the program's promise.
            let into = unsafe { Parts::new(vector(parts, count)) };
            if into.len() == 0 {
                return 0;
            }
            receive_parts(connection, fd, into, 0)
        }
        // SAFETY: the program's call.
        _ => unsafe { real!(readv(fd, parts, count): fn(c_int, *const iovec, c_int) -> ssize_t) },
    }
}

/// # Safety
/// As writev(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    match (connection::at(fd), usize::try_from(count)) {
        (Some(connection), Ok(count)) if count <= PARTS_MAX && count > 0 => {
            // SAFETY: the program's promise.
            let from = unsafe { Parts::new(vector(parts, count)) };
            if from.len() == 0 {
                return 0;
            }
            send_parts(connection, fd, from, 0)
        }
        // SAFETY: the program's call.
        _ => unsafe { real!(writev(fd, parts, count): fn(c_int, *const iovec, c_int) -> ssize_t) },
    }
}

/// # Safety
/// As recv(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let kernel = || {
        // SAFETY: the program's call.
        unsafe {
            real!(recv(fd, into, len, flags): fn(c_int, *mut c_void, size_t, c_int) -> ssize_t)
        }
    };
    let Some(connection) = connection::at(fd) else { return kernel() };
    if let Some(call) = connection.plain() {
        return call.received(kernel());
    }
    let part = part(into, len);
    // SAFETY: the program's promise. With `MSG_TRUNC` it may be no memory at all (tcp(7)), and nothing is written.
    receive_parts(connection, fd, unsafe { Parts::new(&part) }, flags)
}

/// # Safety
/// As send(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let kernel = || {
        // SAFETY: the program's call.
        unsafe {
            real!(send(fd, from, len, flags): fn(c_int, *const c_void, size_t, c_int) -> ssize_t)
        }
    };
    let Some(connection) = connection::at(fd) else { return kernel() };
    if let Some(call) = connection.plain() {
        return call.sent(kernel());
    }
    let part = part(from, len);
    // SAFETY: the program's promise.
    send_parts(connection, fd, unsafe { Parts::new(&part) }, flags)
}

/// # Safety
/// As recvfrom(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let kernel = || {
        // SAFETY: the program's call.
        unsafe {
            real!(recvfrom(fd, into, len, flags, from, from_len):
                fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t)
        }
    };
    let Some(connection) = connection::at(fd) else { return kernel() };
    if let Some(call) = connection.plain() {
        return call.received(kernel());
    }
    if !from_len.is_null() && !from.is_null() {
        // SAFETY: the program's promise. A connected socket gives no name (tcp_recvmsg).
        unsafe { *from_len = 0 };
    }
    let part = part(into, len);
    // SAFETY: as in `recv`.
    receive_parts(connection, fd, unsafe { Parts::new(&part) }, flags)
}

/// # Safety
/// As sendto(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    let kernel = || {
        // SAFETY: the program's call.
        unsafe {
            real!(sendto(fd, from, len, flags, to, to_len):
                fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t)
        }
    };
    let Some(connection) = connection::at(fd) else { return kernel() };
    if let Some(call) = connection.plain() {
        return call.sent(kernel());
    }
    // The name of a connected stream's peer is of no use (tcp_sendmsg).
    let part = part(from, len);
    // SAFETY: the program's promise.
    send_parts(connection, fd, unsafe { Parts::new(&part) }, flags)
}

/// # Safety
/// As `__read_chk` of glibc (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    if len > room {
        // What glibc's own ends the program with.
        // SAFETY: the program's call.
        return unsafe {
            real!(__read_chk(fd, into, len, room): fn(c_int, *mut c_void, size_t, size_t) -> ssize_t)
        };
    }
    // SAFETY: the program's call.
    unsafe { read(fd, into, len) }
}

/// # Safety
/// As `__recv_chk` of glibc (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if len > room {
        // SAFETY: the program's call.
        return unsafe {
            real!(__recv_chk(fd, into, len, room, flags):
                fn(c_int, *mut c_void, size_t, size_t, c_int) -> ssize_t)
        };
    }
    // SAFETY: the program's call.
    unsafe { recv(fd, into, len, flags) }
}

/// # Safety
/// As `__recvfrom_chk` of glibc (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if len > room {
        // SAFETY: the program's call.
        return unsafe {
            real!(__recvfrom_chk(fd, into, len, room, flags, from, from_len):
                fn(c_int, *mut c_void, size_t, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t)
        };
    }
    // SAFETY: the program's call.
    unsafe { recvfrom(fd, into, len, flags, from, from_len) }
}
