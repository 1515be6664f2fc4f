//! Putting a connection back into the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::{
    NO_QUEUE, OPTION_SACK, OPTION_TIMESTAMPS, OPTION_WSCALE, Parts, RECV_QUEUE, REPAIR_OFF,
    REPAIR_OFF_NO_WP, REPAIR_ON, SEND_QUEUE, get, set, state::CLOSE, unrouted, use_queue,
};
use crate::error::check;
use crate::sockopt;
use crate::tcp::address;

/// Option kinds that `TCP_REPAIR_OPTIONS` takes (include/net/tcp.h, `TCPOPT_*`).
const TCPOPT_MSS: u32 = 2;
const TCPOPT_WINDOW: u32 = 3;
const TCPOPT_SACK_PERM: u32 = 4;
const TCPOPT_TIMESTAMP: u32 = 8;

/// Bounds of `TCP_MAXSEG` (include/net/tcp.h).
const TCP_MIN_MSS: u32 = 88;
const MAX_TCP_WINDOW: u32 = 32_767;

/// Bytes written to a queue at a time, halved where the kernel has no memory for them.
const CHUNK: usize = 64 << 10;

/// A byte takes no more of a buffer than so many, where it lies with others, and a few as much as so many.
const AMPLE: libc::c_int = 8;
const OVERHEAD: libc::c_int = 64 << 10;

/// `TCP_RTO_MAX_MS` (include/uapi/linux/tcp.h, Linux 6.15), and the least that it takes.
const TCP_RTO_MAX_MS: libc::c_int = 44;
const LEAST_RTO_MAX: libc::c_int = 1000;

/// Puts a connection back into the socket that [`take`](super::take) took it from. Its peer's packets may reach the
/// kernel again when this has returned. The socket may also be a placeholder that the kernel has ended. That there is no
/// route to the peer now, or that no interface has the local address, is no hindrance: as with any connection, what is
/// sent is lost until there is again.
///
/// With timestamps the peer's window is one byte less, until a segment of the peer's says what it is: the caller may pass
/// one first, so that the kernel sees the window close if that is what comes next.
///
/// Returns how many bytes at the end of the send queue, none of them ever sent, the socket has no room for:
/// the caller writes them when it has.
///
/// If the peer's FIN was received ([`Parts::peer_closed`]), the kernel has to receive it again: the caller
/// passes it a segment with FIN and ACK of sequence number `rcv_nxt - 1`. A FIN of ours is sent again by
/// this: to the peer it is a retransmission.
///
/// # Errors
/// `PermissionDenied` without the privilege; `AddrNotAvailable` if another socket has the connection's
/// addresses; `InvalidInput` if the parts do not fit each other;
/// `OutOfMemory` if the kernel has no memory for the queues (`tcp_mem` in tcp(7)), or they do not fit the socket's buffers,
/// however large these may be made. The socket is then unconnected and in repair mode as before, and this may be tried
/// again.
pub fn put_back(socket: impl AsFd, parts: &Parts) -> io::Result<usize> {
    let socket = socket.as_fd();
    check_parts(parts)?;
    repair_if_ended(socket)?;
    let restored = restore(socket, parts);
    if restored.is_err() {
        // In repair mode this is silent; there may be nothing to disconnect.
        address::disconnect(socket)?;
    }
    let unsent = restored?;
    leave(socket, parts.reuse_address)?;
    write_all(socket, parts, unsent)
}

/// Writes what [`put_back`] or [`resume`] had no room for: that many bytes at the end of the send queue. Returns how many
/// there is still no room for.
///
/// # Errors
/// Errors of the kernel's.
pub fn write_rest(socket: impl AsFd, parts: &Parts, left: usize) -> io::Result<usize> {
    let queue = &parts.send_queue;
    write_all(socket.as_fd(), parts, &queue[queue.len().saturating_sub(left)..])
}

/// Prepares a socket whose placeholder the kernel has ended, by keepalive for example, as no peer answers there: it is
/// out of repair mode and shut down, with an error that is not the connection's. Others stay as they are.
fn repair_if_ended(socket: BorrowedFd<'_>) -> io::Result<()> {
    let repairs: libc::c_int = get(socket, libc::TCP_REPAIR)?;
    if repairs != 0 || crate::tcp::state(socket)? != CLOSE {
        return Ok(());
    }
    set(socket, libc::TCP_REPAIR, &REPAIR_ON)?;
    address::disconnect(socket)?;
    let _: libc::c_int = sockopt::get(socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok(())
}

/// Leaves repair mode without a packet.
pub(super) fn leave(socket: BorrowedFd<'_>, reuse_address: bool) -> io::Result<()> {
    use_queue(socket, NO_QUEUE)?;
    set(socket, libc::TCP_REPAIR, &REPAIR_OFF_NO_WP)?;
    let reuse = libc::c_int::from(reuse_address);
    sockopt::set(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &reuse)
}

/// The first half of [`put_back`]: the kernel has the connection, and hears its peer, but sends nothing of its own before
/// [`resume`]. Until then the socket is in repair mode, so that nothing else may use it.
///
/// # Errors
/// As [`put_back`].
pub fn put_back_paused(socket: impl AsFd, parts: &Parts) -> io::Result<()> {
    let socket = socket.as_fd();
    check_parts(parts)?;
    repair_if_ended(socket)?;
    let restored = restore(socket, parts);
    if restored.is_err() {
        // In repair mode this is silent; there may be nothing to disconnect.
        address::disconnect(socket)?;
    }
    restored?;
    use_queue(socket, NO_QUEUE)
}

/// The second half: asks the peer where it stands (a window probe), and sends what was never sent, without waiting for
/// more (`TCP_NODELAY`): the peer may have it already, and acknowledges nothing of it before all is sent again.
///
/// Returns, as [`put_back`], how many bytes the socket has no room for.
///
/// # Errors
/// Errors of the kernel's.
pub fn resume(socket: impl AsFd, parts: &Parts) -> io::Result<usize> {
    let socket = socket.as_fd();
    set(socket, libc::TCP_REPAIR, &REPAIR_OFF)?;
    let reuse = libc::c_int::from(parts.reuse_address);
    sockopt::set(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &reuse)?;
    let unsent = never_sent(parts);
    if unsent.is_empty() {
        return write_all(socket, parts, unsent);
    }
    let no_delay: libc::c_int = get(socket, libc::TCP_NODELAY)?;
    set(socket, libc::TCP_NODELAY, &1)?;
    let left = write_all(socket, parts, unsent);
    set(socket, libc::TCP_NODELAY, &no_delay)?;
    left
}

/// Writes what was never sent, and the FIN behind it. Returns how many bytes there was no room for.
fn write_all(socket: BorrowedFd<'_>, parts: &Parts, unsent: &[u8]) -> io::Result<usize> {
    let written = match unsent {
        [] => 0,
        unsent => with_any_unsent(socket, || {
            let mut written = with_short_timeout(socket, || write(socket, unsent))?;
            let whole = parts.send_queue.len();
            while written < unsent.len() && enlarge(socket, SEND_QUEUE, whole)? {
                written += write(socket, &unsent[written..])?;
            }
            Ok(written)
        })?,
    };
    if parts.closed() && written == unsent.len() {
        // SAFETY: shutdown takes integers and touches no memory of ours.
        check(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_WR) })?;
    }
    Ok(unsent.len() - written)
}

/// Does it while the kernel takes bytes however many are unsent: the application, which may want few to be
/// (`TCP_NOTSENT_LOWAT`), has written them already.
fn with_any_unsent<T>(
    socket: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let before: libc::c_int = get(socket, libc::TCP_NOTSENT_LOWAT)?;
    set(socket, libc::TCP_NOTSENT_LOWAT, &-1)?;
    let done = work();
    set(socket, libc::TCP_NOTSENT_LOWAT, &before)?;
    done
}

/// The bytes of the send queue that were never sent. If there are any, the FIN was not sent either.
fn never_sent(parts: &Parts) -> &[u8] {
    let fin = u32::from(parts.closed());
    let count = parts.unsent.saturating_sub(fin) as usize;
    &parts.send_queue[parts.send_queue.len() - count..]
}

fn check_parts(parts: &Parts) -> io::Result<()> {
    let fits = parts.unacknowledged_bytes() == parts.send_queue.len()
        && parts.unsent <= parts.unacknowledged;
    if fits { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// All that is done in repair mode. Returns the bytes that were never sent.
fn restore<'a>(socket: BorrowedFd<'_>, parts: &'a Parts) -> io::Result<&'a [u8]> {
    // A FIN of ours is not part of what is restored, acknowledged or not.
    let fin = u32::from(parts.closed());
    let snd_una = parts.write_seq.wrapping_sub(fin + parts.send_queue.len() as u32);
    let unsent = never_sent(parts);
    let sent = &parts.send_queue[..parts.send_queue.len() - unsent.len()];
    let rcv_nxt = parts.rcv_nxt.wrapping_sub(u32::from(parts.peer_closed()));
    let first_unread = rcv_nxt.wrapping_sub(parts.recv_queue.len() as u32);

    unrouted::bind(socket, parts.local)?;
    set_sequence(socket, SEND_QUEUE, snd_una)?;
    set_sequence(socket, RECV_QUEUE, first_unread)?;
    // The kernel computes the size of its segments when it connects, and not again when the peer's MSS is
    // set: without this it would send 536 bytes at a time.
    let user_mss = parts.mss_clamp.clamp(TCP_MIN_MSS, MAX_TCP_WINDOW) as libc::c_int;
    set(socket, libc::TCP_MAXSEG, &user_mss)?;
    unrouted::connect(socket, parts.remote)?;
    set(socket, libc::TCP_MAXSEG, &0)?;
    set_options(socket, parts)?;
    if parts.options & OPTION_TIMESTAMPS != 0 {
        set(socket, libc::TCP_TIMESTAMP, &(parts.timestamp as libc::c_int))?;
    }
    fill(socket, RECV_QUEUE, &parts.recv_queue)?;
    if !sent.is_empty() {
        with_short_timeout(socket, || fill(socket, SEND_QUEUE, sent))?;
    }
    let mut window = parts.window.put_right();
    if parts.peer_closed() && window.rcv_wup == parts.rcv_nxt {
        // The FIN was acknowledged, and will be acknowledged again.
        window.rcv_wup = rcv_nxt;
        window.rcv_wnd = window.rcv_wnd.saturating_add(1);
    }
    if parts.options & OPTION_TIMESTAMPS != 0 {
        // Since it connected, the kernel's header prediction is of timestamps and a peer's window of 0
        // (tcp_finish_connect), and it takes the first 0 for one that changes nothing: what it knew goes on behind the
        // acknowledgment, and is sent beyond the window. Any other window that is new to it puts that right.
        window.snd_wnd = window.snd_wnd.saturating_sub(1);
    }
    set(socket, libc::TCP_REPAIR_WINDOW, &window)?;
    Ok(unsent)
}

pub(super) fn set_sequence(
    socket: BorrowedFd<'_>,
    queue: libc::c_int,
    sequence: u32,
) -> io::Result<()> {
    use_queue(socket, queue)?;
    set(socket, libc::TCP_QUEUE_SEQ, &(sequence as libc::c_int))
}

/// Sets the options, each by a `struct tcp_repair_opt`.
fn set_options(socket: BorrowedFd<'_>, parts: &Parts) -> io::Result<()> {
    let mss = [TCPOPT_MSS, parts.mss_clamp];
    // In place of one that was not agreed to, the MSS once more: one call sets all.
    let agreed = |option, value| if parts.options & option != 0 { value } else { mss };
    let shifts = u32::from(parts.snd_wscale) | u32::from(parts.rcv_wscale) << 16;
    let options = [
        mss,
        agreed(OPTION_WSCALE, [TCPOPT_WINDOW, shifts]),
        agreed(OPTION_SACK, [TCPOPT_SACK_PERM, 0]),
        agreed(OPTION_TIMESTAMPS, [TCPOPT_TIMESTAMP, 0]),
    ];
    set(socket, libc::TCP_REPAIR_OPTIONS, &options)
}

/// Does this, which starts the retransmission timer. As no round trip was measured, the kernel would wait for three
/// seconds (`TCP_TIMEOUT_FALLBACK` in `tcp_init_metrics`); so it waits for one (RFC 6298 section 2). Kernels before Linux
/// 6.15 have no bound for that.
fn with_short_timeout<T>(
    socket: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let Ok(before) = get::<libc::c_int>(socket, TCP_RTO_MAX_MS) else { return work() };
    set(socket, TCP_RTO_MAX_MS, &LEAST_RTO_MAX)?;
    let done = work();
    set(socket, TCP_RTO_MAX_MS, &before)?;
    done
}

/// Fills a queue of a socket in repair mode.
fn fill(socket: BorrowedFd<'_>, queue: libc::c_int, whole: &[u8]) -> io::Result<()> {
    let mut bytes = whole;
    if bytes.is_empty() {
        return Ok(());
    }
    use_queue(socket, queue)?;
    let mut chunk = CHUNK;
    while !bytes.is_empty() {
        match send(socket, &bytes[..chunk.min(bytes.len())]) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if !is_full(&error) => return Err(error),
            Err(_) if chunk > 1024 => chunk /= 2,
            Err(error) => {
                if !enlarge(socket, queue, whole.len())? {
                    return Err(io::Error::new(io::ErrorKind::OutOfMemory, error));
                }
                chunk = CHUNK;
            }
        }
    }
    Ok(())
}

/// Enlarges a buffer, by room for a queue of `whole` bytes. Returns whether it was enlarged: one that has room for far more
/// is not what the kernel lacks, but memory (`tcp_mem`).
fn enlarge(socket: BorrowedFd<'_>, queue: libc::c_int, whole: usize) -> io::Result<bool> {
    let (force, option) = if queue == SEND_QUEUE {
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
    } else {
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
    };
    let before: libc::c_int = sockopt::get(socket, libc::SOL_SOCKET, option)?;
    // The kernel doubles the value, for its own overhead.
    let more = libc::c_int::try_from(whole).unwrap_or(libc::c_int::MAX);
    if before >= more.saturating_add(OVERHEAD).saturating_mul(AMPLE) {
        return Ok(false);
    }
    sockopt::set(socket, libc::SOL_SOCKET, force, &before.saturating_add(more))?;
    let after: libc::c_int = sockopt::get(socket, libc::SOL_SOCKET, option)?;
    Ok(after > before)
}

/// Writes as much as there is room for, as the application would. Returns how much that was.
fn write(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match send(socket, &bytes[written..]) {
            Ok(taken) => written += taken,
            Err(error) if is_full(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// Whether the socket has no room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN | libc::ENOBUFS))
}

pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: `bytes` is readable for its length; the kernel copies it.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
