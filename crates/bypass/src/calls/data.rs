//! read(2), write(2), and the other calls that move bytes.

use libc::{c_int, c_void, iovec, size_t, sockaddr, socklen_t, ssize_t};

use super::stream::{recv_at, recv_pieces, send_pieces};
use crate::os;
use crate::real::real;
use crate::table;

/// Most parts of a vector (UIO_MAXIOV, include/uapi/linux/uio.h).
pub(super) const PARTS_MAX: usize = 1024;

/// The pieces of a vector.
///
/// # Safety
/// The program's call promises `count` parts, each of readable bytes.
pub(super) unsafe fn pieces<'a>(parts: *const iovec, count: usize) -> Vec<&'a [u8]> {
    // SAFETY: the caller's promise.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    // SAFETY: the caller's promise.
    parts.iter().map(|part| unsafe { os::bytes(part.iov_base, part.iov_len) }).collect()
}

/// The same to be written.
///
/// # Safety
/// The program's call promises `count` parts, each of writable bytes.
pub(super) unsafe fn pieces_mut<'a>(parts: *const iovec, count: usize) -> Vec<&'a mut [u8]> {
    // SAFETY: the caller's promise.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    // SAFETY: the caller's promise.
    parts.iter().map(|part| unsafe { os::bytes_mut(part.iov_base, part.iov_len) }).collect()
}

/// # Safety
/// As read(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    match table::get(fd) {
        // As sock_read_iter: that is asked of no protocol.
        Some(_) if len == 0 => 0,
        // SAFETY: the program's promise.
        Some(connection) => recv_pieces(connection, &mut [unsafe { os::bytes_mut(into, len) }], 0),
        // SAFETY: the program's call.
        None => unsafe { real!(read(fd, into, len): fn(c_int, *mut c_void, size_t) -> ssize_t) },
    }
}

/// # Safety
/// As write(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    match table::get(fd) {
        // SAFETY: the program's promise.
        Some(connection) => send_pieces(connection, &[unsafe { os::bytes(from, len) }], 0),
        // SAFETY: the program's call.
        None => unsafe { real!(write(fd, from, len): fn(c_int, *const c_void, size_t) -> ssize_t) },
    }
}

/// # Safety
/// As readv(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    match (table::get(fd), usize::try_from(count)) {
        (Some(connection), Ok(count)) if count <= PARTS_MAX && count > 0 => {
            // SAFETY: the program's promise.
            let mut into = unsafe { pieces_mut(parts, count) };
            if into.iter().all(|piece| piece.is_empty()) {
                return 0;
            }
            recv_pieces(connection, &mut into, 0)
        }
        // SAFETY: the program's call.
        _ => unsafe { real!(readv(fd, parts, count): fn(c_int, *const iovec, c_int) -> ssize_t) },
    }
}

/// # Safety
/// As writev(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    match (table::get(fd), usize::try_from(count)) {
        (Some(connection), Ok(count)) if count <= PARTS_MAX && count > 0 => {
            // SAFETY: the program's promise.
            let from = unsafe { pieces(parts, count) };
            if from.iter().all(|piece| piece.is_empty()) {
                return 0;
            }
            send_pieces(connection, &from, 0)
        }
        // SAFETY: the program's call.
        _ => unsafe { real!(writev(fd, parts, count): fn(c_int, *const iovec, c_int) -> ssize_t) },
    }
}

/// # Safety
/// As recv(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    match table::get(fd) {
        Some(connection) => {
            // SAFETY: the program's promise.
            unsafe { recv_at(connection, into, len, flags) }
        }
        // SAFETY: the program's call.
        None => unsafe {
            real!(recv(fd, into, len, flags): fn(c_int, *mut c_void, size_t, c_int) -> ssize_t)
        },
    }
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
    match table::get(fd) {
        // SAFETY: the program's promise.
        Some(connection) => send_pieces(connection, &[unsafe { os::bytes(from, len) }], flags),
        // SAFETY: the program's call.
        None => unsafe {
            real!(send(fd, from, len, flags): fn(c_int, *const c_void, size_t, c_int) -> ssize_t)
        },
    }
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
    if let Some(connection) = table::get(fd) {
        if !from_len.is_null() && !from.is_null() {
            // SAFETY: the program's promise. A connected socket gives no name (tcp_recvmsg).
            unsafe { *from_len = 0 };
        }
        // SAFETY: the program's promise.
        return unsafe { recv_at(connection, into, len, flags) };
    }
    // SAFETY: the program's call.
    unsafe {
        real!(recvfrom(fd, into, len, flags, from, from_len):
            fn(c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t)
    }
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
    if let Some(connection) = table::get(fd) {
        // The name of a connected stream's peer is of no use (tcp_sendmsg).
        // SAFETY: the program's promise.
        return send_pieces(connection, &[unsafe { os::bytes(from, len) }], flags);
    }
    // SAFETY: the program's call.
    unsafe {
        real!(sendto(fd, from, len, flags, to, to_len):
            fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t)
    }
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
