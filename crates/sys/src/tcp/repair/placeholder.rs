//! Sockets that stand for a connection that is elsewhere.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use super::put_back::leave;
use super::stand_in::{SEQUENCE, connect};
use super::state::CLOSE;
use super::take::{take, with_whole_queues};
use super::{RECV_QUEUE, REPAIR_ON, SEND_QUEUE, get, set, use_queue};
use crate::tcp::address;

/// Makes a socket from which the connection between these ends, local and remote, was [taken](super::take) a placeholder
/// of it: it seems to be connected, nothing comes to it, and no other socket gets its addresses and ports. It sends
/// nothing unless something is written to it, or it is shut down or closed, or has `SO_KEEPALIVE`; whoever has the
/// packets keeps what it sends then from the peer. It is out of repair mode, with this `SO_REUSEADDR`.
///
/// As nothing answers, the kernel ends a placeholder with `SO_KEEPALIVE` when its probes are used up, and one that
/// was written to when it has sent that often enough. It keeps the local port then, but not the connection's addresses,
/// and what was written to it is lost. [`put_back`](super::put_back) takes such a socket, too.
///
/// # Errors
/// `AddrNotAvailable` if another socket has the connection's addresses, or no interface has the local one. The socket
/// is then unconnected and in repair mode as before.
pub fn reserve(
    socket: impl AsFd,
    (local, remote): (SocketAddr, SocketAddr),
    reuse_address: bool,
) -> io::Result<()> {
    let socket = socket.as_fd();
    let connected = connect(socket, local, remote, SEQUENCE);
    if connected.is_err() {
        // In repair mode this is silent; there may be nothing to disconnect.
        address::disconnect(socket)?;
    }
    connected.and_then(|()| leave(socket, reuse_address))
}

/// Whether a socket is a placeholder, with what was written to it or without. It is out of repair mode then, with this
/// `SO_REUSEADDR`, and otherwise as before.
///
/// # Errors
/// `PermissionDenied` without the privilege.
pub fn is_placeholder(socket: impl AsFd, reuse_address: bool) -> io::Result<bool> {
    let socket = socket.as_fd();
    set(socket, libc::TCP_REPAIR, &REPAIR_ON)?;
    use_queue(socket, RECV_QUEUE)?;
    // Nothing that a placeholder received was in order.
    let rcv_nxt: libc::c_int = get(socket, libc::TCP_QUEUE_SEQ)?;
    leave(socket, reuse_address)?;
    Ok(rcv_nxt as u32 == SEQUENCE)
}

/// Takes a placeholder out of the kernel, for [`put_back`](super::put_back), as [`take`] would, by fewer calls. Returns what
/// was written to it. One that the kernel has ended stays as it is; any other connection is discarded, without a packet,
/// and nothing of it is returned.
///
/// # Errors
/// `PermissionDenied` without the privilege; as [`take`] for one that was written to.
pub fn dissolve(socket: impl AsFd) -> io::Result<Vec<u8>> {
    let socket = socket.as_fd();
    if crate::tcp::state(socket)? == CLOSE {
        return Ok(Vec::new());
    }
    set(socket, libc::TCP_REPAIR, &REPAIR_ON)?;
    let sequence = |queue| {
        use_queue(socket, queue)?;
        get::<libc::c_int>(socket, libc::TCP_QUEUE_SEQ)
    };
    // Nothing is sent while the send queue is selected.
    let (rcv_nxt, write_seq) = (sequence(RECV_QUEUE)? as u32, sequence(SEND_QUEUE)? as u32);
    if rcv_nxt == SEQUENCE && write_seq != SEQUENCE {
        return Ok(take(socket)?.send_queue);
    }
    with_whole_queues(socket, || address::disconnect(socket))?;
    // What disconnecting has left behind.
    let _: libc::c_int = crate::sockopt::get(socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok(Vec::new())
}

/// Attempts of [`discard`]: each fails only if the socket's program makes a call between two of this process's.
const ATTEMPTS: usize = 1000;
/// LISTEN, as the kernel numbers it (include/net/tcp_states.h).
const LISTEN: u8 = 10;

/// Makes the kernel forget the connection of a socket, whatever it is, without a packet. The socket is unconnected
/// then, and out of repair mode, with this `SO_REUSEADDR`: it is bound still.
///
/// While it is in repair mode and unconnected, its program may have it listen, after which it cannot leave repair mode, or
/// connect it to any peer without a handshake. Both are undone.
///
/// # Errors
/// `PermissionDenied` without the privilege; `ResourceBusy` if the program does so again and again, faster than this: then
/// [`is_repaired`] says whether the socket is in repair mode.
pub fn discard(socket: impl AsFd, reuse_address: bool) -> io::Result<()> {
    let socket = socket.as_fd();
    for _ in 0..ATTEMPTS {
        match discard_once(socket, reuse_address) {
            Ok(()) if crate::tcp::state(socket)? == CLOSE && !is_repaired(socket)? => {
                // What disconnecting has left behind.
                let _: libc::c_int = crate::sockopt::get(socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
                return Ok(());
            }
            Ok(()) => {}
            // No socket that listens enters or leaves repair mode.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                if crate::tcp::state(socket)? != LISTEN && !has_privilege(socket) {
                    return Err(error);
                }
                address::disconnect(socket)?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "its program does not leave it alone"))
}

fn discard_once(socket: BorrowedFd<'_>, reuse_address: bool) -> io::Result<()> {
    set(socket, libc::TCP_REPAIR, &REPAIR_ON)?;
    address::disconnect(socket)?;
    leave(socket, reuse_address)
}

/// Whether this thread may have a socket enter repair mode, which one that is in it already shows as well.
fn has_privilege(socket: BorrowedFd<'_>) -> bool {
    set(socket, libc::TCP_REPAIR, &REPAIR_ON).is_ok()
}

/// Whether a socket is in repair mode (`TCP_REPAIR`).
///
/// # Errors
/// The error of `getsockopt`, as for a socket that is not TCP's.
pub fn is_repaired(socket: impl AsFd) -> io::Result<bool> {
    get::<libc::c_int>(socket.as_fd(), libc::TCP_REPAIR).map(|repairs| repairs != 0)
}

/// Checks a socket before its program alone has it again: one in repair mode is [discarded](discard). Returns whether it
/// was in repair mode.
///
/// # Errors
/// As [`discard`]: it may be in repair mode then.
pub fn release(socket: impl AsFd, reuse_address: bool) -> io::Result<bool> {
    let socket = socket.as_fd();
    if !is_repaired(socket)? {
        return Ok(false);
    }
    discard(socket, reuse_address)?;
    Ok(true)
}
