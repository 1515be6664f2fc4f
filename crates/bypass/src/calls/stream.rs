//! How bytes are received and sent, wherever the connection is: the loop behind read(2), write(2) and all their kin. It
//! allocates nothing and waits with no lock, as a handler of a signal may make any of these calls (signal-safety(7)).

use libc::{c_int, iovec, msghdr, ssize_t};

use super::held::Held;
use super::poll::{wait_held, wait_kernel};
use crate::connection::{Connection, Parts, Patience, Receiving, Sink, Source, Waiting};
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

/// A call by this descriptor that receives, wherever the connection is. `kernel` is the same call of the kernel's, with
/// these flags.
pub(super) fn receive(
    connection: &'static Connection,
    fd: c_int,
    into: Parts<'_>,
    flags: c_int,
    mut kernel: impl FnMut(Parts<'_>, c_int) -> isize,
) -> isize {
    if let Some(call) = connection.plain() {
        return call.after(kernel(into, flags));
    }
    if flags & !RECV_FLAGS != 0 {
        let urgent = flags & libc::MSG_OOB != 0;
        let reason = if urgent { RestoreReason::Urgent } else { RestoreReason::Unserved };
        if !connection.try_restore(reason) {
            return os::fail(libc::EAGAIN);
        }
        if connection.has_ended() && flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
            // There is nothing of the kind, and never will be (tcp_recv_urg, inet_recv_error).
            return os::fail(if urgent { libc::EINVAL } else { libc::EAGAIN });
        }
    }
    let peeks = flags & libc::MSG_PEEK != 0;
    let cuts = flags & libc::MSG_TRUNC != 0;
    let total = into.len();
    let waits_for_all = flags & libc::MSG_WAITALL != 0;
    let least = if waits_for_all && peeks { total } else { 0 };
    let waiting = Waiting::to_receive(connection, fd, flags);
    let mut got = 0;
    // An error of the kernel's that was found while the connection moved.
    let mut late = None;
    loop {
        let result = if connection.is_away() {
            let how = Receiving { peeks, cuts, least, has_some: got > 0 };
            connection.receive(Sink::Parts(into.behind(got)), how, &waiting)
        } else {
            None
        };
        let result = match result {
            Some(result) => result,
            None => {
                let Some(call) = connection.enter_kernel() else { continue };
                if waiting.is_over() {
                    drop(call);
                    return if got > 0 { got as isize } else { os::fail(libc::EBADF) };
                }
                if connection.is_settled() && got == 0 {
                    drop(call);
                    return kernel(into, flags);
                }
                let moves = connection.moves();
                if least > 0 && waiting.patience() != Patience::None {
                    drop(call);
                    // Nothing is taken by this, so that the connection may move meanwhile.
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
                let at_once = (flags & !libc::MSG_WAITALL) | libc::MSG_DONTWAIT;
                let result = kernel(into.behind(got), at_once);
                drop(call);
                if result > 0 && !peeks {
                    connection.passed(result, 0);
                }
                if result < 0 && os::errno() == libc::EAGAIN {
                    let waited = wait_for(connection, fd, &waiting);
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
        waiting.moves();
        if !waits_for_all || peeks || got >= total {
            return got as isize;
        }
    }
}

/// Waits until the kernel has something, or does not have the connection; the error that the call gives if it is not to wait
/// longer. If the connection has moved since the call was in the kernel, the error may be another's.
pub(super) fn wait_for(
    connection: &'static Connection,
    fd: c_int,
    waiting: &Waiting,
) -> Option<c_int> {
    let patience = waiting.patience();
    let may_restart = patience == Patience::Until(None) && !waiting.has_moved();
    match may_restart.then(Held::begin).flatten() {
        Some(held) => wait_held(connection, fd, libc::POLLIN, &held, || waiting.is_over()),
        None => wait_kernel(connection, fd, libc::POLLIN, patience),
    }
}

/// The error of a kernel's call, if it is one of the connection's: moving makes others.
pub(super) fn is_late(result: isize) -> Option<c_int> {
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

/// A call by this descriptor that sends, wherever the connection is. `kernel` is the same call of the kernel's, with these
/// flags.
pub(super) fn send(
    connection: &'static Connection,
    fd: c_int,
    from: Parts<'_>,
    flags: c_int,
    mut kernel: impl FnMut(Parts<'_>, c_int) -> isize,
) -> isize {
    if let Some(call) = connection.plain() {
        return call.after(kernel(from, flags));
    }
    if flags & !SEND_FLAGS != 0 {
        let is_back = connection.try_restore(match flags {
            flags if flags & libc::MSG_OOB != 0 => RestoreReason::Urgent,
            flags if flags & libc::MSG_ZEROCOPY != 0 => RestoreReason::ZeroCopy,
            _ => RestoreReason::Unserved,
        });
        if !is_back {
            return os::fail(libc::EAGAIN);
        }
    }
    let total = from.len();
    let waiting = Waiting::to_send(connection, fd, flags);
    let mut sent = 0;
    loop {
        let result = if connection.is_away() {
            let more = flags & libc::MSG_MORE != 0;
            connection.send(Source::Parts(from.behind(sent)), more, &waiting)
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
                if waiting.is_over() {
                    drop(call);
                    return if sent > 0 { sent as isize } else { os::fail(libc::EBADF) };
                }
                if connection.is_settled() && sent == 0 {
                    drop(call);
                    return kernel(from, flags);
                }
                let mut result = kernel(from.behind(sent), flags | libc::MSG_DONTWAIT);
                drop(call);
                connection.passed(0, result);
                if result < 0 && os::errno() == libc::EAGAIN && waiting.patience() != Patience::None
                {
                    if waiting.patience() != Patience::Until(None) || sent > 0 {
                        match wait_kernel(connection, fd, libc::POLLOUT, waiting.patience()) {
                            Some(error) if sent == 0 => return fails(error, flags, sent),
                            Some(_) => return sent as isize,
                            None => continue,
                        }
                    }
                    // The kernel waits, as it knows which signals end that.
                    let Some(call) = connection.enter_kernel() else { continue };
                    let piece = from.limited(PIECE);
                    result = kernel(piece, flags);
                    drop(call);
                    connection.passed(0, result);
                    if result > 0 && (result as usize) < piece.len() {
                        // A signal, or the end of the connection.
                        return result;
                    }
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
        waiting.moves();
        // How it waits is asked for only where it is to go on.
        if sent >= total || waiting.is_interrupted() || waiting.patience() == Patience::None {
            return sent as isize;
        }
    }
}

/// A sending call fails so, and with the signal of `EPIPE`.
pub(super) fn fails(error: c_int, flags: c_int, sent: usize) -> isize {
    if error == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 && sent == 0 {
        // SAFETY: it takes integers.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    os::fail(error)
}

/// recvmsg(2) of the kernel's into these parts, with what else the message asks for.
pub(super) fn kernel_receive_message(
    fd: c_int,
    message: &mut msghdr,
    into: Parts<'_>,
    flags: c_int,
) -> isize {
    into.with(|parts| {
        (message.msg_iov, message.msg_iovlen) = (parts.as_ptr().cast_mut(), parts.len());
        let message = std::ptr::from_mut(message);
        // SAFETY: `message` points to memory of the lengths that it names, as the program has promised.
        unsafe { real!(recvmsg(fd, message, flags): fn(c_int, *mut msghdr, c_int) -> ssize_t) }
    })
}

/// recv(2) of the kernel's into these parts.
pub(super) fn kernel_receive(fd: c_int, into: Parts<'_>, flags: c_int) -> isize {
    into.with(|parts| match parts {
        [only] => {
            let iovec { iov_base, iov_len } = *only;
            // SAFETY: the program's promise.
            unsafe {
                real!(recv(fd, iov_base, iov_len, flags):
                    fn(c_int, *mut libc::c_void, usize, c_int) -> ssize_t)
            }
        }
        parts => {
            // SAFETY: all-zero is a valid msghdr.
            let mut message: msghdr = unsafe { std::mem::zeroed() };
            // SAFETY: they are parts of the same.
            kernel_receive_message(fd, &mut message, unsafe { Parts::new(parts) }, flags)
        }
    })
}

/// send(2) of the kernel's from these parts.
pub(super) fn kernel_send(fd: c_int, from: Parts<'_>, flags: c_int) -> isize {
    from.with(|parts| {
        if let [only] = parts {
            let iovec { iov_base, iov_len } = *only;
            // SAFETY: the program's promise.
            return unsafe {
                real!(send(fd, iov_base, iov_len, flags):
                    fn(c_int, *mut libc::c_void, usize, c_int) -> ssize_t)
            };
        }
        // SAFETY: all-zero is a valid msghdr.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts.as_ptr().cast_mut(), parts.len());
        // SAFETY: `message` points to memory of the lengths that it names, as the program has promised.
        unsafe {
            real!(sendmsg(fd, &raw const message, flags): fn(c_int, *const msghdr, c_int) -> ssize_t)
        }
    })
}

/// Receives as the program asks.
#[cold]
#[inline(never)]
pub(super) fn receive_parts(
    connection: &'static Connection,
    fd: c_int,
    into: Parts<'_>,
    flags: c_int,
) -> isize {
    receive(connection, fd, into, flags, |into, flags| kernel_receive(fd, into, flags))
}

/// Sends as the program asks.
#[cold]
#[inline(never)]
pub(super) fn send_parts(
    connection: &'static Connection,
    fd: c_int,
    from: Parts<'_>,
    flags: c_int,
) -> isize {
    send(connection, fd, from, flags, |from, flags| kernel_send(fd, from, flags))
}
