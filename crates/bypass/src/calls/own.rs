//! Functions of the layer's own, for programs that know of it: wharf's RDMA device does.

use std::ffi::c_void;

use handoff::ring::Piece;
use libc::{c_int, iovec, size_t, ssize_t};

use super::transfer::places;
use crate::connection::{self, Lay, Receiving, Sink, Source, Take, Waiting};
use crate::os;

/// The connection of this descriptor is to go to the NIC now, as by the policy `at_accept`, and again whenever that would
/// have it go after it has come back: the program has done what it wanted done at the kernel. 0, or -1 and `ENOTCONN` for
/// what is no connection that the layer looks at.
#[unsafe(no_mangle)]
pub extern "C" fn wharf_hand_off(fd: c_int) -> c_int {
    let Some(connection) = connection::at(fd) else { return os::fail(libc::ENOTCONN) as c_int };
    let errno = os::errno();
    connection.is_to_go();
    os::set_errno(errno);
    0
}

/// Whether the connection of this descriptor is not at the kernel: its bytes are read and written in memory. It is 0 or 1.
#[unsafe(no_mangle)]
pub extern "C" fn wharf_is_handed_off(fd: c_int) -> c_int {
    connection::at(fd).is_some_and(connection::Connection::is_away).into()
}

const NOWHERE: [iovec; 2] = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2];

/// What takes bytes where they lie, in two parts: its first argument is that of [`wharf_receive`].
pub type Taker = unsafe extern "C" fn(context: *mut c_void, parts: *const iovec);

/// Bytes that are taken where they lie.
struct InPlace {
    taker: Taker,
    context: *mut c_void,
    parts: [iovec; 2],
}

impl Take for InPlace {
    fn copy(&mut self, pieces: [Piece<'_>; 2]) -> Result<usize, c_int> {
        self.parts = places(pieces);
        Ok(self.parts.iter().map(|part| part.iov_len).sum())
    }

    fn give(&mut self) -> Result<usize, c_int> {
        // SAFETY: the promise of whoever calls `wharf_receive`; the parts are the ring's, whose memory is kept.
        unsafe { (self.taker)(self.context, self.parts.as_ptr()) };
        Ok(self.parts.iter().map(|part| part.iov_len).sum())
    }
}

/// Has `taker` take at most so many bytes of the connection of this descriptor where they lie, without a wait. It is called
/// once at most, and takes all that it is shown, which nothing changes before it returns; it makes no call on the connection.
/// How many bytes; 0 at the end of the stream; or -1 and an error: `EAGAIN` if there is nothing, `ENOTCONN` if the kernel has
/// the connection, or there is none.
///
/// # Safety
/// `taker` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wharf_receive(
    fd: c_int,
    most: size_t,
    taker: Taker,
    context: *mut c_void,
) -> ssize_t {
    let mut take = InPlace { taker, context, parts: NOWHERE };
    let connection = connection::at(fd).filter(|connection| connection.is_away());
    let received = connection.and_then(|connection| {
        let waiting = Waiting::to_receive(connection, fd, libc::MSG_DONTWAIT);
        connection.receive(Sink::InPlace(most, &mut take), Receiving::default(), &waiting)
    });
    received.unwrap_or_else(|| os::fail(libc::ENOTCONN))
}

/// What writes bytes where they are sent from, in two parts of which it fills the first before the second, and says how many
/// it has written: its first argument is that of [`wharf_transmit`].
pub type Writer = unsafe extern "C" fn(context: *mut c_void, parts: *const iovec) -> size_t;

/// Bytes that are written where they are sent from.
struct LaidInPlace {
    writer: Writer,
    keeper: Taker,
    context: *mut c_void,
    parts: [iovec; 2],
}

impl Lay for LaidInPlace {
    fn lay(&mut self, pieces: [Piece<'_>; 2]) -> usize {
        self.parts = places(pieces);
        // SAFETY: the promise of whoever calls `wharf_transmit`; the parts are free bytes of the ring, which this thread has, and
        // whose memory is kept.
        let mut left = unsafe { (self.writer)(self.context, self.parts.as_ptr()) };
        for part in &mut self.parts {
            part.iov_len = part.iov_len.min(left);
            left -= part.iov_len;
        }
        self.parts.iter().map(|part| part.iov_len).sum()
    }

    fn keep(&mut self) {
        if self.parts[0].iov_len > 0 {
            // SAFETY: the same.
            unsafe { (self.keeper)(self.context, self.parts.as_ptr()) };
        }
    }
}

/// Has `writer` write at most so many bytes of the connection of this descriptor where they are sent from, without a wait. It is
/// called once at most; what it has written is sent when it has returned, all or, if the connection has left the NIC
/// meanwhile, nothing: then `keeper` is shown the same bytes where they lie, to have them written to the connection before
/// all others. Neither makes a call on the connection. How many bytes are sent; or -1 and an error: `EAGAIN` if there is no
/// room, `ENOTCONN` if the kernel has the connection, or there is none, or as send(2).
///
/// # Safety
/// `writer` and `keeper` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wharf_transmit(
    fd: c_int,
    most: size_t,
    writer: Writer,
    keeper: Taker,
    context: *mut c_void,
) -> ssize_t {
    let mut laid = LaidInPlace { writer, keeper, context, parts: NOWHERE };
    let connection = connection::at(fd).filter(|connection| connection.is_away());
    let sent = connection.and_then(|connection| {
        let waiting = Waiting::to_send(connection, fd, libc::MSG_DONTWAIT);
        connection.send(Source::InPlace(most, &mut laid), false, &waiting)
    });
    match sent {
        Some(Ok(count)) => count as ssize_t,
        Some(Err(error)) => os::fail(error),
        None => os::fail(libc::ENOTCONN),
    }
}
