//! A connection in repair mode that has the ends of another, and nothing else of it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use super::put_back::{send, set_sequence};
use super::{RECV_QUEUE, SEND_QUEUE, Window, set, use_queue};
use crate::tcp::address;

/// Of a placeholder: the sequence number of the first byte that is written to it, and what all its segments acknowledge.
/// Probes have the one before.
pub const SEQUENCE: u32 = 1;

/// What the peer of a placeholder takes, as the kernel sees it, in bytes: what is written is sent at once, and is seen
/// where the packets go. With no window the kernel would only ask for one, as it does to keep a connection alive.
const PEERS_WINDOW: u32 = 65_535;

/// Connects a socket in repair mode, without a packet. The first byte that is written will be of this sequence number.
pub(super) fn connect(
    socket: BorrowedFd<'_>,
    local: SocketAddr,
    remote: SocketAddr,
    first: u32,
) -> io::Result<()> {
    let [local, remote] = address::for_socket(socket, [local, remote])?;
    match local.bind(socket) {
        // It is bound since before it was taken.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
        other => other?,
    }
    set_sequence(socket, SEND_QUEUE, first)?;
    set_sequence(socket, RECV_QUEUE, SEQUENCE)?;
    remote.connect(socket)?;
    let window = Window {
        snd_wl1: SEQUENCE,
        snd_wnd: PEERS_WINDOW,
        max_window: PEERS_WINDOW,
        rcv_wnd: PEERS_WINDOW,
        rcv_wup: SEQUENCE,
    };
    set(socket, libc::TCP_REPAIR_WINDOW, &window)
}

/// Makes a socket from which the connection between these ends was taken send at once when it is connected again: it has not
/// forgotten until when its pace has it wait (`tcp_wstamp_ns`, which `tcp_disconnect` leaves). What is written in repair mode
/// sets that to now (`tcp_write_xmit`). No packet leaves; the socket is unconnected afterwards.
///
/// # Errors
/// As [`connect`]; the socket may be connected then.
pub(super) fn forget_pace(
    socket: BorrowedFd<'_>,
    local: SocketAddr,
    remote: SocketAddr,
) -> io::Result<()> {
    // With the byte its sequence numbers are those of a placeholder to which nothing was written: `dissolve` gives no byte of
    // it if this process is killed here.
    connect(socket, local, remote, SEQUENCE - 1)?;
    use_queue(socket, SEND_QUEUE)?;
    send(socket, &[0])?;
    address::disconnect(socket)
}
