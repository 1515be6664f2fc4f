//! A connection at rest: everything of it that its peer could notice, so that it can go on elsewhere.
//!
//! A [`Snapshot`] holds no time, only distances in time from the moment at which it was taken: it may be
//! thawed by another clock. [`encode`](Snapshot::encode) and [`decode`](Snapshot::decode) make bytes of
//! it and refuse bytes that no connection could have given.

mod codec;
mod error;
mod validate;

use alloc::vec::Vec;
use core::net::SocketAddr;

use wire::Seq;

use crate::congestion::PRIVATE_WORDS;
use crate::options::Block;
use crate::{Algorithm, Keepalive, Nanos, State};

pub use crate::config::TIME_MAX;
pub use codec::{MAGIC, VERSION};
pub use error::SnapshotError;
pub use validate::{
    CWND_MAX, FLIGHTS_MAX, MSS_MIN, OUT_OF_ORDER_MAX, QUEUE_MAX, RTT_MAX, SEGMENT_MIN,
    USER_TIMEOUT_MAX,
};

/// What both ends agreed to when they met, and what does not change since (Chimney calls this the
/// constant state).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// Initial send sequence number.
    pub iss: Seq,
    /// Initial receive sequence number.
    pub irs: Seq,
    /// MSS that the peer announced, in bytes.
    pub peer_mss: u16,
    /// MSS that we announced, in bytes.
    pub our_mss: u16,
    /// Shifts of the peer's window and of ours; `None` if there is no scaling (RFC 7323 section 2).
    pub window_scale: Option<(u8, u8)>,
    /// Selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
}

/// What was sent (RFC 9293 section 3.3.1, the send sequence variables).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sending {
    /// First byte not acknowledged.
    pub una: Seq,
    /// Next byte to be sent for the first time.
    pub nxt: Seq,
    /// The peer's window in bytes, scaled, from `una` as of the last update.
    pub wnd: u32,
    /// Largest window the peer ever offered (RFC 5961 section 5.2).
    pub max_wnd: u32,
    /// Bytes that the peer has acknowledged so far, at most [`u32::MAX`]: no acknowledgment is older
    /// (RFC 5961 section 5.2 as Linux has it). Where it is not known, [`u32::MAX`].
    pub bytes_acked: u32,
    /// Sequence number of the last window update.
    pub wl1: Seq,
    /// Acknowledgment number of the last window update.
    pub wl2: Seq,
    /// Urgent pointer: one after the urgent byte, if there is urgent data not yet acknowledged.
    pub urgent: Option<Seq>,
    /// End of the last segment smaller than the MSS (Nagle's algorithm, Minshall's variant).
    pub small: Seq,
    /// Bytes from `una` on: sent and not acknowledged, then not yet sent.
    pub queue: Vec<u8>,
    /// The application has closed: a FIN follows the queue.
    pub fin: bool,
    /// What is in flight, in order, without holes from `una` to `nxt`.
    pub flight: Vec<Flight>,
}

/// A run of bytes sent at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flight {
    /// Bytes, SYN and FIN included.
    pub len: u32,
    /// Payload bytes of each of its segments; 0 if that is unknown.
    pub size: u16,
    /// How long ago it was sent last.
    pub ago: Nanos,
    /// The peer's SACK has it.
    pub sacked: bool,
    /// It is taken for lost.
    pub lost: bool,
    /// It was sent more than once.
    pub retransmitted: bool,
    /// It looks for the path's MTU (RFC 4821).
    pub probe: bool,
}

/// What was received (RFC 9293 section 3.3.1, the receive sequence variables).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receiving {
    /// Next byte expected.
    pub nxt: Seq,
    /// Acknowledgment number of the last segment sent.
    pub acked: Seq,
    /// Right edge of the window as last offered: it never shrinks.
    pub edge: Seq,
    /// Most bytes to hold.
    pub buffer: u32,
    /// Bytes before `nxt` that the application has not read.
    pub queue: Vec<u8>,
    /// What lies behind holes: where, and what. A FIN behind a hole is the last sequence number of the last
    /// of them, and no byte of it; where it is not, SACK does not report it.
    pub out_of_order: Vec<(Block, Vec<u8>)>,
    /// Those blocks in the order in which SACK reports them: the latest first (RFC 2018 section 4).
    pub recent: Vec<Block>,
    /// The peer has closed; its FIN stands here.
    pub fin: Option<Seq>,
    /// Urgent pointer: one after the urgent byte, while that was not read.
    pub urgent: Option<Seq>,
    /// The last timestamp to be echoed, 0 if none is known, and how long ago it came (RFC 7323 section
    /// 4.3).
    pub ts_recent: (u32, Nanos),
    /// Largest segment that came, in bytes.
    pub mss: u16,
    /// A congestion mark is being echoed (RFC 3168 section 6.1.3).
    pub ecn_echo: bool,
}

/// Round-trip time (RFC 6298).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundTrip {
    /// Smoothed round-trip time; 0 before the first measurement.
    pub srtt: Nanos,
    /// Its variation.
    pub rttvar: Nanos,
    /// Smallest of late (RFC 8985 section 6.1).
    pub min: Nanos,
    /// How often the time-out was doubled since the last measurement.
    pub backoff: u8,
}

/// Congestion control and loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    /// Which algorithm the words in `private` belong to.
    pub algorithm: Algorithm,
    /// Congestion window in bytes.
    pub cwnd: u32,
    /// Slow start threshold in bytes.
    pub ssthresh: u32,
    /// What the algorithm remembers.
    pub private: [u64; PRIVATE_WORDS],
    /// Recovery in progress.
    pub recovery: RecoveryState,
    /// It ends when this is acknowledged.
    pub recovery_point: Seq,
    /// Duplicate acknowledgments in a row, for peers without SACK.
    pub duplicates: u32,
    /// Reordering was seen (RFC 8985 section 6.2).
    pub reordering: bool,
    /// How long reordering is waited for, as far as that was learnt (RACK.reo_wnd); 0 if it was not.
    pub reorder_window: Nanos,
}

/// Which kind of loss recovery a connection is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum RecoveryState {
    /// None.
    #[default]
    Open = 0,
    /// Fast recovery.
    Recovery = 1,
    /// After a retransmission time-out.
    Loss = 2,
    /// The window is being reduced because of congestion marks.
    Marked = 3,
}

/// Timers that run, as the time that is left to them; 0 if it is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timers {
    /// Retransmission (RFC 6298 section 5).
    pub retransmit: Option<Nanos>,
    /// Tail loss probe (RFC 8985 section 7).
    pub tail_probe: Option<Nanos>,
    /// End of the wait for reordered segments (RFC 8985 section 6.2).
    pub reorder: Option<Nanos>,
    /// Zero-window probe (RFC 9293 section 3.8.6.1).
    pub persist: Option<Nanos>,
    /// Delayed acknowledgment.
    pub delayed_ack: Option<Nanos>,
    /// Keepalive.
    pub keepalive: Option<Nanos>,
    /// End of TIME-WAIT, or of FIN-WAIT-2 without an application.
    pub time_wait: Option<Nanos>,
}

/// Socket options, as the application has set them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketOptions {
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// SO_OOBINLINE.
    pub urgent_inline: bool,
    /// Keepalive.
    pub keepalive: Option<Keepalive>,
    /// User timeout; 0 for none.
    pub user_timeout: Nanos,
}

/// What else decides about the next segments: a connection without it, all zero, goes on as well, but
/// not exactly as it would have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moment {
    /// Segments still to be acknowledged at once.
    pub quick: u8,
    /// Acknowledgments wait for data to go with.
    pub interactive: bool,
    /// Data has come since data was sent.
    pub unanswered: bool,
    /// Most bytes in flight in this round, and where it ends.
    pub round: (u32, Seq),
    /// The congestion window bounded what was sent.
    pub cwnd_limited: bool,
    /// The next new data carries CWR, as the window was reduced (RFC 3168 section 6.1.2).
    pub cwr_due: bool,
    /// A SYN or SYN-ACK is to be sent.
    pub syn_due: bool,
    /// A probe is to be sent.
    pub probe_due: bool,
    /// What is less than a segment is to be sent.
    pub push_small: bool,
    /// The next acknowledgment reports this duplicate (RFC 2883).
    pub duplicate: Option<Block>,
    /// Retransmissions in a row.
    pub retransmits: u8,
    /// Since when.
    pub retransmitted_ago: Nanos,
    /// Keepalive probes without an answer.
    pub keepalive_probes: u8,
    /// When the last segment came.
    pub received_ago: Nanos,
    /// When the last data was sent.
    pub sent_ago: Nanos,
    /// When the last challenge was sent (RFC 5961 section 7).
    pub challenged_ago: Option<Nanos>,
    /// Since when the peer's window lets nothing go.
    pub stalled_ago: Nanos,
    /// When the smallest round trip was measured.
    pub min_ago: Nanos,
    /// Where in what is received it is looked again whether the receive window is large enough, and when
    /// that was done last.
    pub tuned: (Seq, Nanos),
    /// Smallest MTU that does not pass; 0 if none is known.
    pub mtu_high: u16,
    /// A larger MTU that is being tried, and the end of the segment that tries it (RFC 4821 section 7).
    pub mtu_probe: Option<(u16, Seq)>,
    /// When the last of them was sent, or the last message came that a packet was too big.
    pub mtu_tried_ago: Nanos,
    /// Congestion window and threshold before the last reduction; 0 and 0 if there was none.
    pub prior: (u32, u32),
    /// It can be taken back.
    pub undo: bool,
    /// Congestion control has reduced its window for this recovery.
    pub reduced: bool,
    /// First byte not acknowledged when the reduction began.
    pub undo_from: Seq,
    /// Retransmitted bytes of which no duplicate was reported.
    pub undo_bytes: u32,
    /// Timestamp of the first retransmission (RFC 3522).
    pub undo_ts: Option<u32>,
    /// prr_delivered and prr_out (RFC 6937 section 3).
    pub prr: (u32, u32),
    /// RecoverFS (RFC 6937 section 3).
    pub prr_flight: u32,
    /// F-RTO is deciding (RFC 5682).
    pub frto: bool,
    /// New data goes before retransmissions, for F-RTO.
    pub frto_new: bool,
    /// RACK.xmit_ts, as the time since (RFC 8985 section 5.3).
    pub rack_ago: Option<Nanos>,
    /// RACK.end_seq.
    pub rack_end: Seq,
    /// RACK.rtt.
    pub rack_rtt: Nanos,
    /// RACK.fack.
    pub fack: Seq,
    /// RACK.reo_wnd_persist.
    pub reorder_persist: u8,
    /// RACK.dsack_round.
    pub duplicate_round: Option<Seq>,
    /// TLP.end_seq (RFC 8985 section 7.1).
    pub tlp_end: Option<Seq>,
    /// TLP.is_retrans.
    pub tlp_retransmitted: bool,
    /// A tail probe is to be sent: from where, and how much.
    pub tail_probe: Option<(Seq, u32)>,
    /// The urgent byte was read, ahead of what comes before it.
    pub urgent_read: bool,
    /// Duplicate acknowledgments that are to be sent (RFC 5681 section 4.2), and how many of RCV.NXT as it
    /// is have gone singly, or will: at most three, counted with SACK only.
    pub dup_acks: (u16, u8),
    /// Timestamps before this one were sent by a clock that may have been behind `ts_now`'s: their echoes measure no
    /// round trip. `None` once a later one was echoed.
    pub first_timestamp: Option<u32>,
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// State.
    pub state: State,
    /// What was agreed.
    pub agreed: Agreed,
    /// Payload bytes of a full segment, options taken off.
    pub mss: u16,
    /// MTU of the path in bytes, as far as it is known.
    pub path_mtu: u16,
    /// Timestamp that we would have sent at this moment (RFC 7323 section 5.4).
    pub ts_now: u32,
    /// What was sent.
    pub send: Sending,
    /// What was received.
    pub receive: Receiving,
    /// Round-trip time.
    pub round_trip: RoundTrip,
    /// Congestion control.
    pub control: Control,
    /// Timers.
    pub timers: Timers,
    /// Socket options.
    pub socket_options: SocketOptions,
    /// What holds for a round trip or so.
    pub moment: Moment,
}
