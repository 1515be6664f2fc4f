//! State and measurements of a connection: TCP_INFO.

use crate::connection::Connection;
use crate::connection::timers::Pending;
use crate::snapshot::RecoveryState;
use crate::{Nanos, State};

/// What [`Connection::info`] returns: bytes, nanoseconds and counts. The names are those of `struct tcp_info`
/// where it has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// State.
    pub state: State,
    /// Loss recovery.
    pub recovery: RecoveryState,
    /// Smoothed round-trip time; 0 before the first measurement.
    pub rtt: Nanos,
    /// Its variation.
    pub rttvar: Nanos,
    /// Smallest round-trip time of late.
    pub min_rtt: Nanos,
    /// Retransmission time-out, back-off included.
    pub rto: Nanos,
    /// How often it was doubled (back-off, RFC 6298 section 5.5).
    pub backoff: u8,
    /// Retransmissions of the same data in a row.
    pub retransmits: u8,
    /// Zero-window or keepalive probes without an answer.
    pub probes: u8,
    /// Payload of a full segment.
    pub snd_mss: u16,
    /// Largest segment that came.
    pub rcv_mss: u16,
    /// MSS that was announced to the peer.
    pub advmss: u16,
    /// MTU of the path as far as it is known.
    pub pmtu: u16,
    /// Congestion window in bytes.
    pub snd_cwnd: u32,
    /// Slow start threshold in bytes; [`u32::MAX`] before the first loss.
    pub snd_ssthresh: u32,
    /// The peer's window in bytes.
    pub snd_wnd: u32,
    /// The window that was offered to the peer, in bytes.
    pub rcv_wnd: u32,
    /// Most bytes that are held for the application.
    pub rcv_space: u32,
    /// Bytes sent and not acknowledged.
    pub unacked: u32,
    /// Of these, bytes that the peer has by SACK.
    pub sacked: u32,
    /// Of these, bytes taken for lost and not sent again yet.
    pub lost: u32,
    /// Of these, bytes sent more than once that the peer does not have by SACK.
    pub retransmitted: u32,
    /// Bytes believed to be in the network.
    pub in_flight: u32,
    /// Bytes of the queue that were never sent.
    pub notsent: u32,
    /// Reordering was seen on the path.
    pub reordering: bool,
    /// Timestamps were agreed to.
    pub timestamps: bool,
    /// SACK was agreed to.
    pub sack: bool,
    /// ECN was agreed to.
    pub ecn: bool,
    /// Window shifts of the peer and of ours, if scaling was agreed to.
    pub window_scale: Option<(u8, u8)>,
}

impl Connection {
    /// State and measurements at the moment.
    pub fn info(&self) -> Info {
        let bits = self.hot.bits;
        let (retransmits, probes) = match self.hot.pending {
            Pending::Persist => (0, self.retransmits),
            _ => (self.retransmits, self.keepalive_probes),
        };
        Info {
            state: self.hot.state,
            recovery: self.recovery.state,
            rtt: self.rtt.srtt,
            rttvar: self.rtt.rttvar,
            min_rtt: self.rtt.min,
            rto: self.rtt.rto(&self.config),
            backoff: self.rtt.backoff,
            retransmits,
            probes,
            snd_mss: self.hot.mss,
            rcv_mss: self.hot.rcv_mss,
            advmss: self.our_mss(),
            pmtu: self.path_mtu,
            snd_cwnd: self.window.cwnd,
            snd_ssthresh: self.window.ssthresh,
            snd_wnd: self.hot.snd_wnd,
            rcv_wnd: self.hot.rcv_edge - self.hot.rcv_nxt,
            rcv_space: self.hot.buffer,
            unacked: self.flight.outstanding(),
            sacked: self.flight.sacked(),
            lost: self.flight.lost(),
            retransmitted: self.flight.retransmitted_len(),
            in_flight: self.in_flight(),
            notsent: self.unsent_len(),
            reordering: self.recovery.reordering,
            timestamps: bits.timestamps(),
            sack: bits.sack(),
            ecn: bits.ecn(),
            window_scale: self.scaled.then_some((self.hot.snd_shift, self.hot.rcv_shift)),
        }
    }
}
