//! sendfile(2) and splice(2): bytes between a connection and another file. They go between that and the ring, with no
//! copy in the program's memory.

use libc::{c_int, c_uint, iovec, off_t, off64_t, size_t, ssize_t};

use super::pipes;
use super::poll::wait_kernel;
use super::stream::{fails, is_late, keep_late, wait_for};
use crate::cancel;
use crate::connection::{self, Connection, Patience, Receiving, Sink, Source, Take, Waiting};
use crate::os;
use crate::real::real;
use handoff::ring::Piece;

/// Bytes that the kernel moves at once of a connection that may leave in between.
const PIECE: usize = 256 << 10;
/// Most bytes that a call moves (MAX_RW_COUNT).
const MOST: usize = 0x7fff_f000;

/// Where bytes of a ring lie, as the kernel is told.
pub(super) fn places(pieces: [Piece<'_>; 2]) -> [iovec; 2] {
    pieces.map(|piece| iovec {
        iov_base: piece.words.as_ptr().cast::<u8>().wrapping_add(piece.at).cast_mut().cast(),
        iov_len: piece.len,
    })
}

/// The error of a file that cannot be read from a place, as sendfile(2) has it.
fn file_error(has_offset: bool) -> c_int {
    match os::errno() {
        libc::EISDIR => libc::EINVAL,
        // Pipes and sockets.
        libc::ESPIPE if !has_offset => libc::EINVAL,
        error => error,
    }
}

/// Whether a file ends before this place.
fn has_no_more(file: c_int, at: i64) -> bool {
    let mut byte = 0_u8;
    // SAFETY: one byte may be written.
    let got = unsafe { libc::pread64(file, (&raw mut byte).cast(), 1, at) };
    got == 0
}

/// sendfile(2) by this connection's descriptor of a file from this place on, which moves with what was sent. `kernel` is
/// the kernel's.
fn send_file(
    connection: &'static Connection,
    (to, from): (c_int, c_int),
    (at, has_offset): (&mut i64, bool),
    count: usize,
    mut kernel: impl FnMut(&mut i64, usize) -> isize,
) -> isize {
    let waiting = Waiting::to_send(connection, to, 0);
    let begin = *at;
    let (mut sent, mut is_end) = (0, false);
    while sent < count && !is_end && !waiting.is_interrupted() {
        *at = begin + sent as i64;
        let place = *at;
        if connection.sends_no_more() && has_no_more(from, place) {
            // What there is nothing to send for, the next call is told.
            break;
        }
        let mut fill = |pieces: [Piece<'_>; 2]| {
            let places = places(pieces);
            // SAFETY: the free bytes of the ring may be written: this thread has it, and the NIC reads none of them yet.
            let got = unsafe { libc::preadv64(from, places.as_ptr(), 2, place) };
            let got = usize::try_from(got).map_err(|_| file_error(has_offset))?;
            is_end = got < places.iter().map(|place| place.iov_len).sum();
            Ok(got)
        };
        let result = if connection.is_away() {
            connection.send(Source::Fill(count - sent, &mut fill), false, &waiting)
        } else {
            None
        };
        let result = match result {
            Some(Ok(put)) => put as isize,
            Some(Err(error)) => fails(error, 0, sent),
            None if connection.has_late() && sent > 0 => break,
            None => {
                if let Some(error) = connection.take_late() {
                    return fails(error, 0, 0);
                }
                is_end = false;
                if sent > 0 && waiting.patience() != Patience::None {
                    let patience = waiting.patience();
                    if wait_kernel(connection, to, libc::POLLOUT, patience).is_some() {
                        break;
                    }
                }
                let Some(call) = connection.enter_kernel() else { continue };
                let piece = PIECE.min(count - sent);
                let result = kernel(at, piece);
                drop(call);
                connection.passed(0, result);
                // The file has no more, or the wait has ended.
                is_end = result > 0 && (result as usize) < piece;
                result
            }
        };
        if result <= 0 {
            if sent == 0 {
                return result;
            }
            if result < 0 {
                keep_late(connection);
            }
            break;
        }
        sent += result as usize;
        waiting.moves();
    }
    *at = begin + sent as i64;
    sent as isize
}

/// sendfile(2) to a connection whose calls are not the kernel's as they are. `None` if it is the kernel's to refuse.
fn send_file_here(
    connection: &'static Connection,
    (to, from): (c_int, c_int),
    offset: Option<&mut i64>,
    count: usize,
    kernel: impl Fn(*mut i64, usize) -> isize,
) -> Option<isize> {
    let has_offset = offset.is_some();
    // SAFETY: it takes integers.
    let own = || unsafe { libc::lseek64(from, 0, libc::SEEK_CUR) };
    let mut at = offset.as_deref().map_or_else(own, |offset| *offset);
    if at < 0 || count == 0 {
        // What that is, the kernel says: it sends nothing.
        return None;
    }
    let (begin, count) = (at, count.min(MOST));
    let (fds, place) = ((to, from), (&mut at, has_offset));
    let result = send_file(connection, fds, place, count, |at, most| kernel(at, most));
    match offset {
        Some(offset) => *offset = at,
        // SAFETY: it takes integers.
        None if at != begin => drop(unsafe { libc::lseek64(from, at, libc::SEEK_SET) }),
        None => {}
    }
    Some(result)
}

/// sendfile(2) to a connection.
///
/// # Safety
/// As sendfile(2).
#[inline(never)]
unsafe fn send_file_known(
    connection: &'static Connection,
    (to, from): (c_int, c_int),
    at: *mut off64_t,
    count: usize,
    kernel: impl Fn(*mut off64_t, usize) -> isize,
) -> isize {
    if let Some(call) = connection.plain() {
        return call.after(kernel(at, count));
    }
    // SAFETY: the caller's promise.
    let offset = unsafe { at.as_mut() };
    let result = send_file_here(connection, (to, from), offset, count, &kernel);
    result.unwrap_or_else(|| kernel(at, count))
}

/// # Safety
/// As sendfile(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    at: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the program's call.
    unsafe { sendfile64(to, from, at, count) }
}

/// # Safety
/// As sendfile64 of glibc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile64(
    to: c_int,
    from: c_int,
    at: *mut off64_t,
    count: size_t,
) -> ssize_t {
    let kernel = |at: *mut off64_t, count: size_t| {
        // SAFETY: the program's call.
        unsafe {
            real!(sendfile64(to, from, at, count): fn(c_int, c_int, *mut off64_t, size_t) -> ssize_t)
        }
    };
    match connection::at(to) {
        None => kernel(at, count),
        // SAFETY: the program's promise.
        Some(connection) => cancel::apart(move || unsafe {
            send_file_known(connection, (to, from), at, count, kernel)
        }),
    }
}

/// splice(2) out of a pipe, as splice_to_socket: all that is there, up to `count`, and some of it if there is nothing.
/// Bytes are peeked at, and taken out of the pipe when the connection has them, which may move meanwhile.
#[inline(never)]
fn splice_out(
    connection: &'static Connection,
    (to, pipe): (c_int, c_int),
    count: usize,
    flags: c_uint,
    kernel: impl Fn(usize, c_uint) -> isize,
) -> isize {
    if let Some(call) = connection.plain() {
        return call.after(kernel(count, flags));
    }
    let more = flags & libc::SPLICE_F_MORE != 0;
    let waiting = Waiting::to_send(connection, to, 0);
    let mut moved = 0;
    loop {
        let flags = if moved > 0 { flags | libc::SPLICE_F_NONBLOCK } else { flags };
        let left = count - moved;
        let result = if connection.is_away() {
            peek_and_send(connection, pipe, left.min(PIECE), (flags, more), &waiting)
        } else {
            None
        };
        let result = match result {
            Some(result) => result,
            None if connection.has_late() && moved > 0 => break,
            None => {
                if let Some(error) = connection.take_late() {
                    return fails(error, 0, 0);
                }
                if let Err(error) = pipes::wait(pipe, libc::POLLIN, flags) {
                    return os::fail(error);
                }
                let Some(call) = connection.enter_kernel() else { continue };
                let result = kernel(left, flags);
                drop(call);
                connection.passed(0, result);
                match result {
                    ..0 => Err(os::errno()),
                    moved => Ok(moved as usize),
                }
            }
        };
        match result {
            Ok(0) => break,
            Ok(more) => moved += more,
            Err(error) if moved > 0 => {
                os::set_errno(error);
                keep_late(connection);
                break;
            }
            // The kernel has sent the signal of its own.
            Err(error) => return os::fail(error),
        }
        if moved >= count {
            break;
        }
    }
    moved as isize
}

/// Sends what a pipe has, and takes that out of the pipe: how much. `None` if the kernel has the connection.
fn peek_and_send(
    connection: &'static Connection,
    pipe: c_int,
    count: usize,
    (flags, more): (c_uint, bool),
    waiting: &Waiting,
) -> Option<Result<usize, c_int>> {
    let mut peeked = match pipes::peek(pipe, count, flags) {
        Ok(Some(peeked)) => peeked,
        Ok(None) => return Some(Ok(0)),
        Err(error) => return Some(Err(error)),
    };
    let (len, mut is_read) = (count.min(peeked.len()), false);
    let mut fill = |pieces: [Piece<'_>; 2]| match std::mem::replace(&mut is_read, true) {
        false => peeked.read(&places(pieces)),
        // It is read once. If the ring has not got it, it is peeked at anew.
        true => Err(libc::EAGAIN),
    };
    match connection.send(Source::Fill(len, &mut fill), more, waiting) {
        Some(Ok(put)) => {
            peeked.take(put);
            connection.moved_out(|| pipes::id(pipe), put);
            Some(Ok(put))
        }
        Some(Err(libc::EAGAIN)) if is_read => None,
        Some(Err(error)) => {
            fails(error, 0, 0);
            Some(Err(error))
        }
        None => None,
    }
}

/// A pipe that bytes of a connection go to.
struct Filled {
    into: pipes::Into,
    /// There was no room in it.
    is_full: bool,
}

impl Take for Filled {
    fn copy(&mut self, pieces: [Piece<'_>; 2]) -> Result<usize, c_int> {
        self.into.copy(&places(pieces))
    }

    fn give(&mut self) -> Result<usize, c_int> {
        let given = self.into.give();
        self.is_full = given == Err(libc::EAGAIN);
        given
    }
}

/// splice(2) into a pipe.
#[inline(never)]
fn splice_in(
    connection: &'static Connection,
    (from, pipe): (c_int, c_int),
    count: usize,
    flags: c_uint,
    kernel: impl Fn() -> isize,
) -> isize {
    if let Some(call) = connection.plain() {
        return call.after(kernel());
    }
    let waiting = Waiting::to_receive(connection, from, 0);
    // An error of the kernel's that was found while the connection moved.
    let mut late = None;
    loop {
        // As wait_for_space: before the connection is looked at.
        match pipes::has_room(pipe) {
            Ok(true) => {}
            Ok(false) if flags & libc::SPLICE_F_NONBLOCK != 0 => return os::fail(libc::EAGAIN),
            Ok(false) => {
                if let Err(error) = pipes::wait(pipe, libc::POLLOUT, flags) {
                    return os::fail(error);
                }
                continue;
            }
            Err(error) => return fails(error, 0, 0),
        }
        if connection.is_away() {
            if connection.lends(count, &waiting, || pipes::is_empty(pipe)) {
                return os::fail(libc::EAGAIN);
            }
            let mut into = match pipes::Into::begin(pipe) {
                Ok(into) => Filled { into, is_full: false },
                Err(error) => return os::fail(error),
            };
            let sink = Sink::Take(count, &mut into);
            match connection.receive(sink, Receiving::default(), &waiting) {
                // Another has filled it.
                Some(..0) if into.is_full => continue,
                Some(result) => {
                    connection.moved_into(|| pipes::id(pipe), result);
                    return result;
                }
                None => continue,
            }
        }
        let Some(call) = connection.enter_kernel() else { continue };
        // However little there is: tcp_splice_read does not look at SO_RCVLOWAT.
        let is_ready = os::is_readable(from) || os::has_unread(from);
        let result = if is_ready { kernel() } else { os::fail(libc::EAGAIN) };
        let moves = connection.moves();
        drop(call);
        // By this it may go to the NIC.
        connection.passed(result, 0);
        if is_ready {
            return match late.take().or_else(|| connection.take_late()).filter(|_| result == 0) {
                Some(error) => os::fail(error),
                None => result,
            };
        }
        let waited = wait_for(connection, from, &waiting);
        match waited {
            Some(error) if connection.moves() == moves || error == libc::EINTR => {
                return os::fail(error);
            }
            Some(error) => late = is_late(os::fail(error)),
            None => {}
        }
    }
}

/// # Safety
/// As splice(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    const FLAGS: c_uint =
        libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
    let kernel = |count: size_t, flags: c_uint| {
        // SAFETY: the program's call.
        unsafe {
            real!(splice(from, from_at, to, to_at, count, flags):
                fn(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint) -> ssize_t)
        }
    };
    // What makes no sense, the kernel says of the socket that stands for the connection, and moves nothing.
    let is_sane = count > 0 && flags & !FLAGS == 0 && from_at.is_null() && to_at.is_null();
    match (connection::at(from), connection::at(to)) {
        (Some(connection), None) if is_sane && pipes::is_pipe(to) => cancel::apart(move || {
            splice_in(connection, (from, to), count.min(MOST), flags, || kernel(count, flags))
        }),
        (None, Some(connection)) if is_sane && pipes::is_pipe(from) => cancel::apart(move || {
            splice_out(connection, (to, from), count.min(MOST), flags, kernel)
        }),
        _ => kernel(count, flags),
    }
}
