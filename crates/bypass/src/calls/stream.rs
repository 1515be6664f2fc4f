//! How bytes are received and sent, wherever the connection is: the loop behind read(2), write(2) and all their kin.

use libc::{c_int, c_void, iovec, msghdr, ssize_t};

use super::wait::wait_kernel;
use crate::connection::{Connection, Patience, Receiving, Waiting};
use crate::os;
use crate::real::real;
use handoff::RestoreReason;

/// Flags of a receiving call that the NIC serves.
const RECV_FLAGS: c_int = libc::MSG_DONTWAIT
    | libc::MSG_PEEK
    | libc::MSG_WAITALL
    | libc::MSG_TRUNC
    | libc::MSG_NOSIGNAL
    | libc::MSG_CMSG_CLOEXEC;
/// Flags of a sending call that the NIC serves.
const SEND_FLAGS: c_int =
    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR | libc::MSG_CONFIRM;
/// Bytes for which a call waits in the kernel at once: until they are taken, the connection cannot move.
const PIECE: usize = 64 << 10;

/// A call that receives, wherever the connection is. `kernel` is the same call of the kernel's, with these flags.
pub(super) fn receive(
    connection: &'static Connection,
    into: &mut [&mut [u8]],
    flags: c_int,
    mut kernel: impl FnMut(&mut [&mut [u8]], c_int) -> isize,
) -> isize {
    let fd = connection.fd();
    if flags & !RECV_FLAGS != 0 {
        let urgent = flags & libc::MSG_OOB != 0;
        connection.restore(if urgent { RestoreReason::Urgent } else { RestoreReason::Unserved });
        if connection.has_ended() && flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
            // There is nothing of the kind, and never will be (tcp_recv_urg, inet_recv_error).
            return os::fail(if urgent { libc::EINVAL } else { libc::EAGAIN });
        }
    }
    let peeks = flags & libc::MSG_PEEK != 0;
    let total: usize = into.iter().map(|piece| piece.len()).sum();
    let waits_for_all = flags & libc::MSG_WAITALL != 0;
    let least = if waits_for_all && peeks { total } else { 0 };
    let waiting = Waiting::to_receive(fd, flags);
    let mut got = 0;
    // An error of the kernel's that was found while the connection moved.
    let mut late = None;
    loop {
        let result = if connection.is_away() {
            let how = Receiving { peeks, least, has_some: got > 0 };
            connection.recv(&mut behind(into, got), how, &waiting)
        } else {
            None
        };
        let result = match result {
            Some(result) => result,
            None => {
                let Some(call) = connection.enter_kernel() else { continue };
                if connection.is_settled() && got == 0 {
                    drop(call);
                    return kernel(into, flags);
                }
                if least > 0 && waiting.patience() != Patience::None {
                    drop(call);
                    // Nothing is taken by this, so that the connection may move meanwhile.
                    let moves = connection.moves();
                    let result = kernel(into, flags);
                    if connection.moves() == moves {
                        return result;
                    }
                    late = is_late(result);
                    continue;
                }
                if got > 0 && os::has_error(fd) {
                    return got as isize;
                }
                let mut rest = behind(into, got);
                let at_once = (flags & !libc::MSG_WAITALL) | libc::MSG_DONTWAIT;
                let result = kernel(&mut rest, at_once);
                drop(call);
                if result > 0 && !peeks {
                    connection.passed(result, 0);
                }
                if result < 0 && os::errno() == libc::EAGAIN {
                    let moves = connection.moves();
                    let waited = wait_for(connection, &waiting);
                    if connection.moves() != moves && waited != Some(libc::EINTR) {
                        late = waited.and_then(|error| is_late(os::fail(error)));
                        continue;
                    }
                    match waited {
                        // It has waited, and wants nothing (tcp_recvmsg_locked).
                        _ if total == 0 && waiting.patience() != Patience::None => 0,
                        None => continue,
                        Some(error) => os::fail(error),
                    }
                } else if result == 0
                    && total > 0
                    && let Some(error) = late.take().or_else(|| connection.take_late())
                {
                    os::fail(error)
                } else {
                    result
                }
            }
        };
        if result <= 0 {
            if result < 0 && got > 0 {
                keep_late(connection);
            }
            return if got > 0 { got as isize } else { result };
        }
        got += result as usize;
        if !waits_for_all || peeks || got >= total {
            return got as isize;
        }
    }
}

/// Waits until the kernel has something; the error that the call gives if it is not to wait longer.
fn wait_for(connection: &'static Connection, waiting: &Waiting) -> Option<c_int> {
    let patience = waiting.patience();
    if patience == Patience::Until(None) && !os::has_low_water(connection.fd()) {
        // The kernel knows which signals end a wait.
        return os::wait_readable(connection.fd());
    }
    wait_kernel(connection, libc::POLLIN, patience)
}

/// The error of a kernel's call, if it is one of the connection's: moving makes others.
fn is_late(result: isize) -> Option<c_int> {
    let error = os::errno();
    let is_own = matches!(error, libc::ECONNRESET | libc::ETIMEDOUT | libc::EHOSTUNREACH);
    (result < 0 && is_own).then_some(error)
}

/// What a call has met that gives what it has done before: the next call gives it.
pub(super) fn keep_late(connection: &Connection) {
    match os::errno() {
        libc::EAGAIN | libc::EINTR => {}
        error => connection.keep_late(error),
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

/// A call that sends, wherever the connection is. `kernel` is the same call of the kernel's, with these flags.
pub(super) fn send_all(
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
    let waiting = Waiting::to_send(fd, flags);
    let mut sent = 0;
    loop {
        let rest = rest(from, sent, usize::MAX);
        let result = if connection.is_away() {
            connection.send(&rest, flags & libc::MSG_MORE != 0, &waiting)
        } else {
            None
        };
        let result = match result {
            Some(Ok(count)) => count as isize,
            Some(Err(error)) => fails(error, flags, sent),
            None => {
                if let Some(error) = connection.take_late() {
                    if sent > 0 {
                        connection.keep_late(error);
                        return sent as isize;
                    }
                    return fails(error, flags, sent);
                }
                // Who has sent something hears of an error by the next call.
                let flags = if sent > 0 { flags | libc::MSG_NOSIGNAL } else { flags };
                let Some(call) = connection.enter_kernel() else { continue };
                if connection.is_settled() && sent == 0 {
                    drop(call);
                    return kernel(&rest, flags);
                }
                let mut result = kernel(&rest, flags | libc::MSG_DONTWAIT);
                drop(call);
                connection.passed(0, result);
                if result < 0 && os::errno() == libc::EAGAIN && waiting.patience() != Patience::None
                {
                    // The kernel waits, as it knows which signals end that.
                    let Some(call) = connection.enter_kernel() else { continue };
                    result = kernel(&self::rest(from, sent, PIECE), flags);
                    drop(call);
                    connection.passed(0, result);
                }
                result
            }
        };
        if result < 0 {
            if sent > 0 {
                keep_late(connection);
                return sent as isize;
            }
            return result;
        }
        sent += result as usize;
        if sent >= total || waiting.patience() == Patience::None {
            return sent as isize;
        }
    }
}

/// A sending call fails so, and with the signal of `EPIPE`.
fn fails(error: c_int, flags: c_int, sent: usize) -> isize {
    if error == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 && sent == 0 {
        // SAFETY: it takes integers.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    os::fail(error)
}

/// At most so many bytes behind the first.
fn rest<'a>(from: &[&'a [u8]], mut skip: usize, mut most: usize) -> Vec<&'a [u8]> {
    let mut all = Vec::with_capacity(from.len());
    for piece in from {
        let at = skip.min(piece.len());
        skip -= at;
        let piece = &piece[at..];
        let piece = &piece[..piece.len().min(most)];
        most -= piece.len();
        all.push(piece);
    }
    all
}

fn kernel_recv(fd: c_int, into: &mut [&mut [u8]], flags: c_int) -> isize {
    // SAFETY: all-zero is a valid msghdr.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    kernel_recv_message(fd, &mut message, into, flags)
}

/// recvmsg(2) of the kernel's into these pieces, with what else the message asks for.
pub(super) fn kernel_recv_message(
    fd: c_int,
    message: &mut msghdr,
    into: &mut [&mut [u8]],
    flags: c_int,
) -> isize {
    let mut parts: Vec<iovec> = into
        .iter_mut()
        .map(|piece| iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() })
        .collect();
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    let message = std::ptr::from_mut(message);
    // SAFETY: `message` points to live memory of the lengths that it names.
    unsafe { real!(recvmsg(fd, message, flags): fn(c_int, *mut msghdr, c_int) -> ssize_t) }
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

/// Most bytes that are passed over at once.
const CUT: usize = 1 << 20;

/// Receives so many bytes into a place that the program names, or passes over them (`MSG_TRUNC`, tcp(7)), when that may
/// be no place at all.
///
/// # Safety
/// The program's call promises `len` writable bytes, unless it has that flag.
pub(super) unsafe fn recv_at(
    connection: &'static Connection,
    into: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    if flags & libc::MSG_TRUNC != 0 {
        return recv_pieces(connection, &mut [&mut vec![0; len.min(CUT)]], flags);
    }
    // SAFETY: the caller's promise.
    recv_pieces(connection, &mut [unsafe { os::bytes_mut(into, len) }], flags)
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
