//! read(2), write(2), and the other calls that move bytes.

use libc::{c_int, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::patience;
use super::wait::wait_kernel;
use crate::connection::{Connection, Patience};
use crate::os;
use crate::real::real;
use crate::table;
use handoff::RestoreReason;

/// Most parts of a vector (UIO_MAXIOV, include/uapi/linux/uio.h).
const PARTS_MAX: usize = 1024;
/// Flags of a receiving call that the NIC serves.
const RECV_FLAGS: c_int = libc::MSG_DONTWAIT
    | libc::MSG_PEEK
    | libc::MSG_WAITALL
    | libc::MSG_NOSIGNAL
    | libc::MSG_CMSG_CLOEXEC;
/// Flags of a sending call that the NIC serves.
const SEND_FLAGS: c_int =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR | libc::MSG_CONFIRM;

/// The pieces of a vector.
///
/// # Safety
/// The program's call promises `count` parts, each of readable bytes.
unsafe fn pieces<'a>(parts: *const iovec, count: usize) -> Vec<&'a [u8]> {
    // SAFETY: the caller's promise.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    // SAFETY: the caller's promise.
    parts.iter().map(|part| unsafe { os::bytes(part.iov_base, part.iov_len) }).collect()
}

/// The same to be written.
///
/// # Safety
/// The program's call promises `count` parts, each of writable bytes.
unsafe fn pieces_mut<'a>(parts: *const iovec, count: usize) -> Vec<&'a mut [u8]> {
    // SAFETY: the caller's promise.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    // SAFETY: the caller's promise.
    parts.iter().map(|part| unsafe { os::bytes_mut(part.iov_base, part.iov_len) }).collect()
}

/// A call that receives, wherever the connection is. `kernel` is the same call of the kernel's without waiting.
fn receive(
    connection: &'static Connection,
    into: &mut [&mut [u8]],
    flags: c_int,
    mut kernel: impl FnMut(&mut [&mut [u8]], c_int) -> isize,
) -> isize {
    let fd = connection.fd();
    if flags & !RECV_FLAGS != 0 {
        // MSG_OOB, MSG_TRUNC, MSG_ERRQUEUE.
        let urgent = flags & libc::MSG_OOB != 0;
        connection.restore(if urgent { RestoreReason::Urgent } else { RestoreReason::Unserved });
    }
    let wants_all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
    let total: usize = into.iter().map(|piece| piece.len()).sum();
    let mut got = 0;
    loop {
        let result = if connection.is_away() {
            let patience = patience(fd, flags, libc::SO_RCVTIMEO);
            let mut rest = behind(into, got);
            connection.recv(&mut rest, flags & libc::MSG_PEEK != 0, patience)
        } else {
            None
        };
        let result = match result {
            Some(result) => result,
            None => {
                let Some(call) = connection.enter_kernel() else { continue };
                let settled = connection.is_settled() && got == 0;
                let mut rest = behind(into, got);
                let result = if settled {
                    drop(call);
                    return kernel(&mut rest, flags);
                } else {
                    kernel(&mut rest, (flags & !libc::MSG_WAITALL) | libc::MSG_DONTWAIT)
                };
                drop(call);
                if result > 0 {
                    connection.passed(if flags & libc::MSG_PEEK == 0 { result } else { 0 }, 0);
                }
                if result < 0 && os::errno() == libc::EAGAIN {
                    let patience = patience(fd, flags, libc::SO_RCVTIMEO);
                    match wait_kernel(connection, libc::POLLIN, patience) {
                        None => continue,
                        Some(error) => os::fail(error),
                    }
                } else {
                    result
                }
            }
        };
        if result <= 0 {
            return if got > 0 { got as isize } else { result };
        }
        got += result as usize;
        if !wants_all || got >= total {
            return got as isize;
        }
    }
}

/// What is behind the first bytes.
fn behind<'a>(into: &'a mut [&mut [u8]], mut skip: usize) -> Vec<&'a mut [u8]> {
    let mut rest = Vec::with_capacity(into.len());
    for piece in into.iter_mut() {
        let from = skip.min(piece.len());
        skip -= from;
        rest.push(&mut piece[from..]);
    }
    rest
}

/// A call that sends, wherever the connection is. `kernel` is the same call of the kernel's without waiting.
fn send_all(
    connection: &'static Connection,
    from: &[&[u8]],
    flags: c_int,
    mut kernel: impl FnMut(&[&[u8]], c_int) -> isize,
) -> isize {
    let fd = connection.fd();
    if flags & !SEND_FLAGS != 0 {
        connection.restore(match flags {
            flags if flags & libc::MSG_OOB != 0 => RestoreReason::Urgent,
            flags if flags & libc::MSG_ZEROCOPY != 0 => RestoreReason::ZeroCopy,
            _ => RestoreReason::Unserved,
        });
    }
    let total: usize = from.iter().map(|piece| piece.len()).sum();
    let mut sent = 0;
    loop {
        let rest = rest(from, sent);
        let result = if connection.is_away() {
            let patience = patience(fd, flags, libc::SO_SNDTIMEO);
            connection.send(&rest, flags & libc::MSG_MORE != 0, patience)
        } else {
            None
        };
        let result = match result {
            Some(Ok(count)) => count as isize,
            Some(Err(error)) => {
                if error == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 && sent == 0 {
                    // SAFETY: it takes integers.
                    unsafe { libc::raise(libc::SIGPIPE) };
                }
                os::fail(error)
            }
            None => {
                let Some(call) = connection.enter_kernel() else { continue };
                if connection.is_settled() && sent == 0 {
                    drop(call);
                    return kernel(&rest, flags);
                }
                let result = kernel(&rest, flags | libc::MSG_DONTWAIT);
                drop(call);
                if result >= 0 {
                    connection.passed(0, result);
                }
                if result < 0 && os::errno() == libc::EAGAIN {
                    let patience = patience(fd, flags, libc::SO_SNDTIMEO);
                    match wait_kernel(connection, libc::POLLOUT, patience) {
                        None => continue,
                        Some(error) => os::fail(error),
                    }
                } else {
                    result
                }
            }
        };
        if result < 0 {
            return if sent > 0 { sent as isize } else { result };
        }
        sent += result as usize;
        if sent >= total || patience(fd, flags, libc::SO_SNDTIMEO) == Patience::None {
            return sent as isize;
        }
    }
}

fn rest<'a>(from: &[&'a [u8]], mut skip: usize) -> Vec<&'a [u8]> {
    let mut all = Vec::with_capacity(from.len());
    for piece in from {
        let at = skip.min(piece.len());
        skip -= at;
        all.push(&piece[at..]);
    }
    all
}

fn kernel_recv(fd: c_int, into: &mut [&mut [u8]], flags: c_int) -> isize {
    let mut parts: Vec<iovec> = into
        .iter_mut()
        .map(|piece| iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() })
        .collect();
    // SAFETY: all-zero is a valid msghdr.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    // SAFETY: `message` points to live memory of the lengths that it names.
    unsafe { real!(recvmsg(fd, &raw mut message, flags): fn(c_int, *mut msghdr, c_int) -> ssize_t) }
}

fn kernel_send(fd: c_int, from: &[&[u8]], flags: c_int) -> isize {
    let mut parts: Vec<iovec> = from
        .iter()
        .map(|piece| iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() })
        .collect();
    // SAFETY: all-zero is a valid msghdr.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    // SAFETY: `message` points to live memory of the lengths that it names.
    unsafe {
        real!(sendmsg(fd, &raw const message, flags): fn(c_int, *const msghdr, c_int) -> ssize_t)
    }
}

/// Receives on a connection as the program asks.
pub(super) fn recv_pieces(
    connection: &'static Connection,
    into: &mut [&mut [u8]],
    flags: c_int,
) -> isize {
    let fd = connection.fd();
    receive(connection, into, flags, |into, flags| kernel_recv(fd, into, flags))
}

/// Sends on a connection as the program asks.
pub(super) fn send_pieces(connection: &'static Connection, from: &[&[u8]], flags: c_int) -> isize {
    let fd = connection.fd();
    send_all(connection, from, flags, |from, flags| kernel_send(fd, from, flags))
}

/// # Safety
/// As read(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    match table::get(fd) {
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
            recv_pieces(connection, &mut unsafe { pieces_mut(parts, count) }, 0)
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
            send_pieces(connection, &unsafe { pieces(parts, count) }, 0)
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
            recv_pieces(connection, &mut [unsafe { os::bytes_mut(into, len) }], flags)
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
        return recv_pieces(connection, &mut [unsafe { os::bytes_mut(into, len) }], flags);
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
/// As recvmsg(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if let Some(connection) = table::get(fd) {
        // SAFETY: the program's promise.
        return unsafe { recv_message(connection, message, flags) };
    }
    // SAFETY: the program's call.
    unsafe { real!(recvmsg(fd, message, flags): fn(c_int, *mut msghdr, c_int) -> ssize_t) }
}

/// # Safety
/// As recvmsg(2).
unsafe fn recv_message(
    connection: &'static Connection,
    message: *mut msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the program's promise.
    let header = unsafe { &mut *message };
    if header.msg_iovlen > PARTS_MAX {
        return os::fail(libc::EMSGSIZE);
    }
    let mut into = match header.msg_iovlen {
        0 => Vec::new(),
        // SAFETY: the program's promise.
        count => unsafe { pieces_mut(header.msg_iov, count) },
    };
    let result = recv_pieces(connection, &mut into, flags);
    if result >= 0 {
        (header.msg_namelen, header.msg_controllen, header.msg_flags) = (0, 0, 0);
    }
    result
}

/// # Safety
/// As sendmsg(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if let Some(connection) = table::get(fd) {
        // SAFETY: the program's promise.
        return unsafe { send_message(connection, message, flags) };
    }
    // SAFETY: the program's promise.
    unsafe { super::process::passes(message) };
    // SAFETY: the program's call.
    unsafe { real!(sendmsg(fd, message, flags): fn(c_int, *const msghdr, c_int) -> ssize_t) }
}

/// # Safety
/// As sendmsg(2).
unsafe fn send_message(
    connection: &'static Connection,
    message: *const msghdr,
    flags: c_int,
) -> isize {
    // SAFETY: the program's promise.
    let header = unsafe { &*message };
    if header.msg_iovlen > PARTS_MAX {
        return os::fail(libc::EMSGSIZE);
    }
    if header.msg_controllen > 0 {
        // Time stamps and the like.
        connection.restore(RestoreReason::Unserved);
        // SAFETY: the program's call.
        return unsafe {
            real!(sendmsg(connection.fd(), message, flags): fn(c_int, *const msghdr, c_int) -> ssize_t)
        };
    }
    let from = match header.msg_iovlen {
        0 => Vec::new(),
        // SAFETY: the program's promise.
        count => unsafe { pieces(header.msg_iov, count) },
    };
    send_pieces(connection, &from, flags)
}

/// # Safety
/// As recvmmsg(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: libc::c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if let (Some(connection), true) = (table::get(fd), count > 0) {
        // One at least, and none that is waited for behind it.
        // SAFETY: the program's promise.
        let first = unsafe { &mut *messages };
        // SAFETY: the program's promise.
        let result = unsafe {
            recv_message(connection, &raw mut first.msg_hdr, flags & !libc::MSG_WAITFORONE)
        };
        if result < 0 {
            return -1;
        }
        first.msg_len = result as libc::c_uint;
        return 1;
    }
    // SAFETY: the program's call.
    unsafe {
        real!(recvmmsg(fd, messages, count, flags, timeout):
            fn(c_int, *mut mmsghdr, libc::c_uint, c_int, *mut timespec) -> c_int)
    }
}

/// # Safety
/// As sendmmsg(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: libc::c_uint,
    flags: c_int,
) -> c_int {
    let Some(connection) = table::get(fd) else {
        // SAFETY: the program's call.
        return unsafe {
            real!(sendmmsg(fd, messages, count, flags):
                fn(c_int, *mut mmsghdr, libc::c_uint, c_int) -> c_int)
        };
    };
    for at in 0..count as usize {
        // SAFETY: the program's promise.
        let message = unsafe { &mut *messages.add(at) };
        // SAFETY: the program's promise.
        let result = unsafe { send_message(connection, &raw const message.msg_hdr, flags) };
        if result < 0 {
            return if at > 0 { at as c_int } else { -1 };
        }
        message.msg_len = result as libc::c_uint;
    }
    count as c_int
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
