//! Connections taken out of the kernel and put back (`TCP_REPAIR`, tcp(7)).
//!
//! [`take`] reads all that the kernel shows of a connection and ends the kernel's part in it, unnoticed by
//! the peer; [`put_back`] makes the same descriptor the kernel's end of it again. In between the socket is
//! closed as far as the kernel is concerned: epoll reports `HUP`, and `recv` and `send` fail.
//!
//! Repair mode does not stop a connection: the kernel goes on acknowledging, sending and timing out until
//! [`take`] has disconnected the socket. So the peer's packets must be kept away from the kernel *before*
//! `take`, and until `put_back` has returned; otherwise the kernel answers those that come in between with
//! a reset. While they are kept away nothing that `take` reads can change but by the kernel's own timers,
//! which it notices.
//!
//! In between [`reserve`] can make the socket a placeholder, which keeps the connection's ports and addresses from
//! others: it seems to be connected, and has nothing in its queues. [`dissolve`] takes it out again, with what was written
//! to it meanwhile. [`discard`] makes the kernel forget it.
//!
//! A socket in repair mode lets its program do what needs the privilege otherwise: [`release`] checks it before the program
//! has it alone again.
//!
//! What the kernel does not show, and what it does not accept, is in the table of `tcp::repair`.
//!
//! All of this needs `CAP_NET_ADMIN` in the user namespace of the socket's network namespace.

mod placeholder;
mod put_back;
mod stand_in;
mod take;
mod unrouted;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::sockopt;

pub use placeholder::{discard, dissolve, is_placeholder, is_repaired, release, reserve};
pub use put_back::{put_back, put_back_paused, resume, write_rest};
pub use stand_in::SEQUENCE as PLACEHOLDER_SEQUENCE;
pub use take::{take, take_once};

/// `TCP_REPAIR_QUEUE` (include/uapi/linux/tcp.h).
const NO_QUEUE: libc::c_int = 0;
const RECV_QUEUE: libc::c_int = 1;
const SEND_QUEUE: libc::c_int = 2;

const REPAIR_ON: libc::c_int = 1;
/// Off, with a window probe.
const REPAIR_OFF: libc::c_int = 0;
/// Off, without the window probe that 0 would send.
const REPAIR_OFF_NO_WP: libc::c_int = -1;

/// `TCPI_OPT_TIMESTAMPS`: timestamps were agreed to.
pub const OPTION_TIMESTAMPS: u8 = 1;
/// `TCPI_OPT_SACK`: selective acknowledgments were agreed to.
pub const OPTION_SACK: u8 = 2;
/// `TCPI_OPT_WSCALE`: window scaling was agreed to.
pub const OPTION_WSCALE: u8 = 4;
/// `TCPI_OPT_ECN`: congestion notification was agreed to.
pub const OPTION_ECN: u8 = 8;

/// States of a connection, as the kernel numbers them (include/net/tcp_states.h).
pub mod state {
    /// ESTABLISHED.
    pub const ESTABLISHED: u8 = 1;
    /// FIN-WAIT-1.
    pub const FIN_WAIT1: u8 = 4;
    /// FIN-WAIT-2.
    pub const FIN_WAIT2: u8 = 5;
    /// CLOSED (`TCP_CLOSE`).
    pub const CLOSE: u8 = 7;
    /// CLOSE-WAIT.
    pub const CLOSE_WAIT: u8 = 8;
    /// LAST-ACK.
    pub const LAST_ACK: u8 = 9;
    /// CLOSING.
    pub const CLOSING: u8 = 11;
}

/// `struct tcp_repair_window`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Window {
    /// Sequence number of the last window update.
    pub snd_wl1: u32,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// Largest window that the peer offered, in bytes.
    pub max_window: u32,
    /// Our window in bytes, from `rcv_wup` on.
    pub rcv_wnd: u32,
    /// `rcv_nxt` when the window was last announced.
    pub rcv_wup: u32,
}

// SAFETY: integers only (linux/tcp.h).
unsafe impl sockopt::Plain for Window {}

impl Window {
    /// As the kernel takes it back. Without memory for what arrives, Linux 6.6 and later withdraw the window that was
    /// offered (`ICSK_ACK_NOMEM`), and the last update may have come behind it: `tcp_repair_set_window` refuses that. An
    /// older segment may update the peer's window then, until the next one does.
    fn put_right(mut self) -> Window {
        let edge = self.rcv_wup.wrapping_add(self.rcv_wnd);
        let beyond = self.snd_wl1.wrapping_sub(edge) as i32;
        if beyond > 0 {
            self.snd_wl1 = edge;
        }
        self
    }
}

/// Values of the path in `TCP_INFO`. They are read only: the kernel measures anew after [`put_back`]. The
/// engine has a type of its own with the same fields, as this crate knows no protocol and that one no kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Path {
    /// Retransmission time-out in microseconds.
    pub rto: u32,
    /// Smoothed round-trip time in microseconds; 0 if there is none.
    pub rtt: u32,
    /// Its variation in microseconds.
    pub rttvar: u32,
    /// Smallest round-trip time in microseconds; [`u32::MAX`] if there is none.
    pub min_rtt: u32,
    /// Congestion window in segments.
    pub snd_cwnd: u32,
    /// Slow start threshold in segments; 2^31 - 1 if there is none.
    pub snd_ssthresh: u32,
    /// Payload of a full segment sent, in bytes.
    pub snd_mss: u32,
    /// Payload of a full segment received, in bytes.
    pub rcv_mss: u32,
    /// MSS that was announced to the peer, in bytes.
    pub advmss: u32,
    /// MTU of the path in bytes.
    pub pmtu: u32,
    /// How often the time-out was doubled.
    pub backoff: u8,
    /// Milliseconds since data was sent last.
    pub last_data_sent: u32,
}

/// Settings of the application that concern TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// `TCP_NODELAY`.
    pub no_delay: bool,
    /// `TCP_CORK`.
    pub cork: bool,
    /// `SO_OOBINLINE`.
    pub urgent_inline: bool,
    /// With `SO_KEEPALIVE`: `TCP_KEEPIDLE` and `TCP_KEEPINTVL` in seconds, and `TCP_KEEPCNT`.
    pub keepalive: Option<[u32; 3]>,
    /// `TCP_USER_TIMEOUT` in milliseconds; 0 for none.
    pub user_timeout: u32,
}

/// A connection in parts, as the kernel's interfaces have them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parts {
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// One of [`state`].
    pub state: u8,
    /// Sequence number after the last byte that the application wrote, and after a FIN of ours.
    pub write_seq: u32,
    /// Bytes up to `write_seq` that are not acknowledged (`SIOCOUTQ`).
    pub unacknowledged: u32,
    /// Those of them that were never sent (`SIOCOUTQNSD`).
    pub unsent: u32,
    /// Next sequence number expected; after the peer's FIN, if that has come.
    pub rcv_nxt: u32,
    /// The bytes that are not acknowledged.
    pub send_queue: Vec<u8>,
    /// The bytes that the application has not read.
    pub recv_queue: Vec<u8>,
    /// Options that both ends agreed to: [`OPTION_TIMESTAMPS`] and the others, as bits.
    pub options: u8,
    /// Shift of the peer's window.
    pub snd_wscale: u8,
    /// Shift of ours.
    pub rcv_wscale: u8,
    /// MSS that the peer announced, in bytes (`TCP_MAXSEG` in repair mode).
    pub mss_clamp: u32,
    /// No timestamp after this one was sent (`TCP_TIMESTAMP`). Its lowest bit is set if they are
    /// microseconds.
    pub timestamp: u32,
    /// Windows.
    pub window: Window,
    /// The path.
    pub path: Path,
    /// Settings of the application. [`put_back`] leaves them alone: they stay with the socket.
    pub settings: Settings,
    /// `SO_REUSEADDR`, which leaving repair mode switches off: it is set again then.
    pub reuse_address: bool,
    /// Bytes that the peer has acknowledged, and that have come in order, as the kernel has counted them (`TCP_INFO`).
    /// [`put_back`] leaves them alone: the kernel counts from 0 then.
    pub carried: [u64; 2],
}

impl Parts {
    /// Whether this end has sent its FIN, or is about to.
    pub fn closed(&self) -> bool {
        matches!(self.state, state::FIN_WAIT1 | state::FIN_WAIT2 | state::CLOSING | state::LAST_ACK)
    }

    /// Adds bytes that the application has written and nothing has sent, unless the FIN is behind them already.
    pub fn append_unsent(&mut self, bytes: &[u8]) {
        if self.closed() {
            return;
        }
        let len = bytes.len() as u32;
        self.send_queue.extend_from_slice(bytes);
        self.write_seq = self.write_seq.wrapping_add(len);
        self.unacknowledged += len;
        self.unsent += len;
    }

    /// Bytes that are not acknowledged: a FIN counts in sequence numbers and is no byte.
    fn unacknowledged_bytes(&self) -> usize {
        self.unacknowledged.saturating_sub(u32::from(self.closed())) as usize
    }

    /// Whether the peer's FIN has come.
    pub fn peer_closed(&self) -> bool {
        matches!(self.state, state::CLOSE_WAIT | state::CLOSING | state::LAST_ACK)
    }
}

fn use_queue(socket: BorrowedFd<'_>, queue: libc::c_int) -> io::Result<()> {
    set(socket, libc::TCP_REPAIR_QUEUE, &queue)
}

fn set<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    sockopt::set(socket, libc::IPPROTO_TCP, option, value)
}

fn get<T: sockopt::Plain>(socket: BorrowedFd<'_>, option: libc::c_int) -> io::Result<T> {
    sockopt::get(socket, libc::IPPROTO_TCP, option)
}
