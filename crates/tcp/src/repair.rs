//! A connection as Linux gives and takes it (`TCP_REPAIR`, tcp(7)), and the way from there to a
//! [`Snapshot`] and back.
//!
//! A [`Repair`] is pure data: what the kernel's socket options have, in the kernel's units. To read them from
//! a socket and to set them is for its user.
//!
//! | what | from the kernel | to the kernel |
//! |---|---|---|
//! | addresses, sequence numbers, both queues, what of them was sent | kept | kept |
//! | MSS, window scales, SACK, timestamps as agreed | kept | kept |
//! | our timestamp clock | kept, up to 3 ms later, and more where the kernel's pace is slow | kept, up to 1 ms later |
//! | windows of both sides | kept | kept |
//! | bytes acknowledged so far (no acknowledgment is older) | unknown: as many as the largest window | lost: none |
//! | state | kept | kept; the peer's FIN has to be given to the kernel again |
//! | socket options | kept | they stay with the socket |
//! | ECN as agreed | kept | lost: marks are no longer echoed |
//! | initial sequence numbers | unknown: one before what is known | of no use |
//! | the peer's last timestamp | unknown, unless it was seen: 0 is echoed until the next segment | told by a segment of the peer's ([`Repair::ts_recent`]) |
//! | out-of-order data | lost: the peer sends it again, though SACK has reported it (RFC 2018 section 8) | told likewise ([`Repair::behind_hole`]) |
//! | which bytes in flight the peer has (SACK) | unknown | told likewise ([`Repair::sacked`]) |
//! | which of them are lost, which were sent twice | unknown: all were sent once, at the time of the last | lost: all were sent once, now |
//! | round-trip time, its variation and minimum, back-off | kept; echoes of earlier timestamps measure nothing | lost: 1 s until it is measured anew |
//! | congestion window and threshold | kept | lost: 10 segments, slow start |
//! | congestion control's kind and what it remembers, recovery in progress, reordering seen | unknown: a new CUBIC | lost: the socket's kind, new |
//! | urgent pointers | there is none: it is not taken in that state | lost: the byte is one of the stream |
//! | timers | started anew; where SACK was agreed to, a tail loss probe comes in place of the time-out | started anew |
//! | path MTU | kept | the route's |

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

use wire::Seq;

use crate::config::{MILLISECOND, SECOND};
use crate::congestion::PRIVATE_WORDS;
use crate::connection::timers::{PROBE_SLACK, WORST_DELAYED_ACK};
use crate::options::Block;
use crate::snapshot::{
    Agreed, CWND_MAX, Control, Flight, Moment, RTT_MAX, Receiving, RecoveryState, RoundTrip,
    Sending, SnapshotError, SocketOptions, Timers,
};
use crate::{Algorithm, Nanos, Snapshot, State};

const MICROSECOND: Nanos = 1_000;
/// Bytes of a receive buffer at least: a window that is closed, or nearly, says nothing of it.
const LEAST_BUFFER: u32 = 64 << 10;

/// `TCP_INFINITE_SSTHRESH` (include/net/tcp.h).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;

/// `struct tcp_repair_window` (include/uapi/linux/tcp.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RepairWindow {
    /// Sequence number of the last window update.
    pub snd_wl1: Seq,
    /// The peer's window in bytes, from the first unacknowledged byte on.
    pub snd_wnd: u32,
    /// Largest window that the peer offered, in bytes.
    pub max_window: u32,
    /// Our window in bytes, from `rcv_wup` on.
    pub rcv_wnd: u32,
    /// Acknowledgment number of the segment that announced it.
    pub rcv_wup: Seq,
}

/// What `struct tcp_info` has of the path (include/uapi/linux/tcp.h). It is read only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RepairPath {
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

/// A connection as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repair {
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// State.
    pub state: State,
    /// After the last byte that the application wrote, and after a FIN of ours (`TCP_QUEUE_SEQ` of the
    /// send queue).
    pub write_seq: Seq,
    /// Sequence space up to `write_seq` that is not acknowledged (`SIOCOUTQ`).
    pub unacknowledged: u32,
    /// The part of that which was never sent (`SIOCOUTQNSD`).
    pub unsent: u32,
    /// Next sequence number expected, after the peer's FIN if that came (`TCP_QUEUE_SEQ` of the receive
    /// queue).
    pub rcv_nxt: Seq,
    /// The bytes that are not acknowledged.
    pub send_queue: Vec<u8>,
    /// The bytes that the application has not read.
    pub recv_queue: Vec<u8>,
    /// Timestamps were agreed to (`TCPOPT_TIMESTAMP` of `TCP_REPAIR_OPTIONS`, as are the next ones).
    pub timestamps: bool,
    /// Selective acknowledgments were agreed to.
    pub sack: bool,
    /// Shifts of the peer's window and of ours, if scaling was agreed to.
    pub window_scale: Option<(u8, u8)>,
    /// MSS that the peer announced, in bytes.
    pub mss_clamp: u16,
    /// Congestion notification was agreed to. There is no socket option that sets it.
    pub ecn: bool,
    /// No timestamp after this one was sent (`TCP_TIMESTAMP`). Its lowest bit is set if they are
    /// microseconds; [`Snapshot::to_repair`] leaves it zero.
    pub timestamp: u32,
    /// The peer's last timestamp. The kernel neither reports nor takes it; it is known to those who have seen
    /// the peer's last segment.
    pub ts_recent: Option<u32>,
    /// Windows.
    pub window: RepairWindow,
    /// The path.
    pub path: RepairPath,
    /// Socket options.
    pub socket_options: SocketOptions,
    /// Bytes received behind a hole: runs of them, each with the sequence number of its first. The kernel neither reports
    /// nor takes them, but can be given them as segments of the peer's.
    pub behind_hole: Vec<(Seq, Vec<u8>)>,
    /// What the peer has of what it has not acknowledged (RFC 2018). It can be told to the kernel likewise.
    pub sacked: Vec<Block>,
    /// The application has shut it down for reading. That is no part of a [`Snapshot`]: the engine has no use for it.
    pub is_deaf: bool,
}

/// What a connection has that the kernel cannot be given by `TCP_REPAIR`, as far as this one has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// The measured round-trip time.
    pub round_trip: bool,
    /// A congestion window that is another than that of a new connection, or was ever reduced.
    pub congestion: bool,
    /// Bytes in flight of which more is known than that they were sent: the peer has them, they are lost,
    /// or they were sent again.
    pub scoreboard: u32,
    /// Bytes received behind a hole. If SACK was agreed to, it has reported them to the peer. A FIN
    /// behind a hole is lost with them.
    pub out_of_order: u32,
    /// The peer's last timestamp.
    pub ts_recent: bool,
    /// Explicit congestion notification.
    pub ecn: bool,
    /// An urgent pointer, of either direction.
    pub urgent: bool,
}

/// Why a connection cannot go to the kernel, or come from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RepairError {
    /// There is no `TCP_REPAIR` for connections in this state.
    State(State),
    /// The queues are not as long as the sequence numbers ask.
    Queues,
    /// The values contradict each other.
    Contradiction(SnapshotError),
}

impl fmt::Display for RepairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RepairError::State(state) => write!(f, "a connection in {state} stays where it is"),
            RepairError::Queues => f.write_str("a queue is not as long as the numbers say"),
            RepairError::Contradiction(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for RepairError {}

/// The kernel's number of a state (include/net/tcp_states.h), for those that `TCP_REPAIR` serves.
const KERNEL_STATES: [(u8, State); 6] = [
    (1, State::Established),
    (4, State::FinWait1),
    (5, State::FinWait2),
    (8, State::CloseWait),
    (9, State::LastAck),
    (11, State::Closing),
];

impl Repair {
    /// The state that the kernel numbers so, if connections can be taken out in it.
    pub fn state_from_kernel(number: u8) -> Option<State> {
        KERNEL_STATES.iter().find(|(kernels, _)| *kernels == number).map(|(_, state)| *state)
    }

    /// The kernel's number of the state.
    pub fn kernel_state(&self) -> Option<u8> {
        Repair::state_to_kernel(self.state)
    }

    /// The kernel's number of a state that a connection can be given to the kernel in; `None` of others.
    pub fn state_to_kernel(state: State) -> Option<u8> {
        KERNEL_STATES.iter().find(|(_, its)| *its == state).map(|(number, _)| *number)
    }

    /// Whether this end has closed, so that `write_seq` is after a FIN.
    fn closed(&self) -> bool {
        sends_fin(self.state)
    }

    /// First byte not acknowledged.
    fn snd_una(&self) -> Seq {
        self.write_seq + self.unacknowledged.wrapping_neg()
    }

    /// Checks that the numbers agree with the queues.
    fn check(&self) -> Result<(), RepairError> {
        self.kernel_state().ok_or(RepairError::State(self.state))?;
        let bytes = self.unacknowledged.saturating_sub(u32::from(self.closed()));
        let agree = bytes as usize == self.send_queue.len() && self.unsent <= self.unacknowledged;
        if agree { Ok(()) } else { Err(RepairError::Queues) }
    }

    fn sending(&self) -> Sending {
        let (una, window) = (self.snd_una(), &self.window);
        let nxt = self.write_seq + self.unsent.wrapping_neg();
        let ago = Nanos::from(self.path.last_data_sent) * MILLISECOND;
        let all = Flight { len: nxt - una, ago, ..Flight::default() };
        Sending {
            una,
            nxt,
            wnd: window.snd_wnd,
            max_wnd: window.max_window.max(window.snd_wnd),
            bytes_acked: u32::MAX,
            wl1: window.snd_wl1,
            wl2: una,
            urgent: None,
            small: una,
            queue: self.send_queue.clone(),
            fin: self.closed(),
            flight: if all.len == 0 { Vec::new() } else { vec![all] },
        }
    }

    fn receiving(&self) -> Receiving {
        let edge = self.window.rcv_wup + self.window.rcv_wnd;
        let offered = edge.distance(self.rcv_nxt).max(0) as u32;
        Receiving {
            nxt: self.rcv_nxt,
            acked: self.window.rcv_wup,
            edge,
            buffer: offered.saturating_add(self.recv_queue.len() as u32).max(LEAST_BUFFER),
            queue: self.recv_queue.clone(),
            out_of_order: Vec::new(),
            recent: Vec::new(),
            fin: takes_fin(self.state).then(|| self.rcv_nxt + u32::MAX),
            urgent: None,
            ts_recent: (self.ts_recent.unwrap_or(0), 0),
            mss: at_most_u16(self.path.rcv_mss),
            ecn_echo: false,
        }
    }

    fn round_trip(&self) -> RoundTrip {
        let path = &self.path;
        let nanos = |micros: u32| (Nanos::from(micros) * MICROSECOND).min(RTT_MAX);
        RoundTrip {
            srtt: nanos(path.rtt),
            rttvar: nanos(path.rttvar),
            min: if path.min_rtt == u32::MAX { 0 } else { nanos(path.min_rtt) },
            backoff: path.backoff,
        }
    }

    fn control(&self, una: Seq) -> Control {
        let path = &self.path;
        let bytes = |segments: u32| segments.saturating_mul(path.snd_mss);
        Control {
            algorithm: Algorithm::default(),
            cwnd: bytes(path.snd_cwnd.max(1)).min(CWND_MAX),
            ssthresh: match path.snd_ssthresh {
                INFINITE_SSTHRESH.. => u32::MAX,
                segments => bytes(segments.max(2)),
            },
            private: [0; PRIVATE_WORDS],
            recovery: RecoveryState::Open,
            recovery_point: una,
            duplicates: 0,
            reordering: false,
            reorder_window: 0,
        }
    }

    /// The variables of recovery, as of a connection that has seen none.
    fn moment(&self, una: Seq) -> Moment {
        let sent_ago = Nanos::from(self.path.last_data_sent) * MILLISECOND;
        // The kernel's clock is put ahead of what it has sent, by up to ten seconds where its pace is slow.
        let first_timestamp = self.timestamps.then_some(self.timestamp);
        Moment { sent_ago, fack: una, rack_end: una, first_timestamp, ..Moment::default() }
    }

    /// Timers of which nothing is known start now; those that may be overdue are due.
    fn timers(&self) -> Timers {
        let sent = self.unacknowledged > self.unsent;
        let stuck = !sent && self.unsent > 0;
        // A kernel that has measured nothing, as after a connection came back to it, waits for three.
        let rto = match self.path.rtt {
            0 => SECOND,
            _ => (Nanos::from(self.path.rto) * MICROSECOND).max(MILLISECOND),
        };
        // Connections that move again and again would never see the time-out, which starts anew: a probe tells what of
        // all that is in flight was lost (RFC 8985 section 7).
        let probes = sent && self.sack;
        Timers {
            retransmit: (sent && !probes).then_some(rto),
            tail_probe: probes.then(|| self.probe_timeout().min(rto)),
            reorder: None,
            persist: stuck.then_some(rto),
            delayed_ack: (self.window.rcv_wup != self.rcv_nxt).then_some(0),
            keepalive: self.socket_options.keepalive.map(|keepalive| keepalive.idle),
            time_wait: None,
        }
    }

    /// When a tail loss probe is due (RFC 8985 section 7.2). Without a round-trip time it is sent as if that were short:
    /// it is one segment a move.
    fn probe_timeout(&self) -> Nanos {
        let in_flight = self.unacknowledged - self.unsent;
        let delayed = match in_flight <= self.path.snd_mss && self.path.rtt > 0 {
            true => WORST_DELAYED_ACK,
            false => 0,
        };
        2 * self.round_trip().srtt + PROBE_SLACK + delayed
    }
}

impl Repair {
    /// So much time has passed since it was read, in which nobody ran the connection: our timestamp clock has gone on.
    pub fn age(&mut self, by: Nanos) {
        // Microseconds keep their mark, and milliseconds theirs.
        let ticks = match self.timestamp & 1 {
            0 => by.div_ceil(MILLISECOND) as u32,
            _ => by.div_ceil(MICROSECOND) as u32,
        };
        self.timestamp = self.timestamp.wrapping_add(ticks.wrapping_add(1) & !1);
    }
}

impl Snapshot {
    /// So much time has passed since it was taken, from one reading of a clock to another: our timestamp clock has gone
    /// on. Its offset to that clock is as before.
    pub fn run_clock(&mut self, from: Nanos, to: Nanos) {
        let ticks = |at: Nanos| (at / MILLISECOND) as u32;
        self.ts_now = self.ts_now.wrapping_add(ticks(to).wrapping_sub(ticks(from)));
    }

    /// A connection that was taken out of the kernel. The module's documentation has what is not known of
    /// it.
    ///
    /// # Errors
    /// If the parts do not fit each other.
    pub fn from_repair(repair: &Repair) -> Result<Snapshot, RepairError> {
        repair.check()?;
        let una = repair.snd_una();
        let mss = at_most_u16(repair.path.snd_mss);
        let snapshot = Snapshot {
            local: canonical(repair.local),
            remote: canonical(repair.remote),
            state: repair.state,
            agreed: Agreed {
                iss: una + u32::MAX,
                irs: repair.rcv_nxt + u32::MAX,
                peer_mss: repair.mss_clamp,
                our_mss: at_most_u16(repair.path.advmss),
                window_scale: repair.window_scale,
                sack: repair.sack,
                timestamps: repair.timestamps,
                ecn: repair.ecn,
            },
            mss,
            path_mtu: at_most_u16(repair.path.pmtu),
            ts_now: repair.timestamp,
            send: repair.sending(),
            receive: repair.receiving(),
            round_trip: repair.round_trip(),
            control: repair.control(una),
            timers: repair.timers(),
            socket_options: repair.socket_options,
            moment: repair.moment(una),
        };
        snapshot.validate().map_err(RepairError::Contradiction)?;
        Ok(snapshot)
    }

    /// The connection as the kernel takes it, and what it thereby loses.
    ///
    /// In CLOSE-WAIT, CLOSING and LAST-ACK the kernel takes it as if the peer's FIN had not come: it has to
    /// be given that FIN once more, as a segment.
    ///
    /// # Errors
    /// [`RepairError::State`] for one that is being opened, or is in TIME-WAIT;
    /// [`RepairError::Contradiction`] for a snapshot that is not [valid](Snapshot::validate).
    pub fn to_repair(&self) -> Result<(Repair, Lost), RepairError> {
        self.validate().map_err(RepairError::Contradiction)?;
        let (send, receive) = (&self.send, &self.receive);
        let closed = sends_fin(self.state);
        // An acknowledged FIN is behind `una` already.
        let fin = u32::from(closed && self.state != State::FinWait2);
        let unacknowledged = send.queue.len() as u32 + fin;
        let repair = Repair {
            is_deaf: false,
            behind_hole: receive.runs_behind_hole(),
            sacked: send.sacked(),
            local: self.local,
            remote: self.remote,
            state: self.state,
            write_seq: send.una + unacknowledged,
            unacknowledged,
            unsent: unacknowledged.saturating_sub(send.nxt - send.una),
            rcv_nxt: receive.nxt,
            send_queue: send.queue.clone(),
            recv_queue: receive.queue.clone(),
            timestamps: self.agreed.timestamps,
            sack: self.agreed.sack,
            window_scale: self.agreed.window_scale,
            mss_clamp: self.agreed.peer_mss,
            ecn: self.agreed.ecn,
            // Rounded up to an even number: timestamps must not go back.
            timestamp: self.ts_now.wrapping_add(1) & !1,
            ts_recent: (receive.ts_recent.0 != 0).then_some(receive.ts_recent.0),
            window: RepairWindow {
                snd_wl1: send.wl1,
                snd_wnd: send.wnd,
                max_window: send.max_wnd.max(send.wnd),
                rcv_wnd: receive.edge.distance(receive.acked).max(0) as u32,
                rcv_wup: receive.acked,
            },
            path: self.repair_path(),
            socket_options: self.socket_options,
        };
        repair.check()?;
        Ok((repair, self.lost_in_repair()))
    }

    fn repair_path(&self) -> RepairPath {
        let micros = |nanos: Nanos| u32::try_from(nanos / MICROSECOND).unwrap_or(u32::MAX);
        let (mss, control) = (u32::from(self.mss), &self.control);
        let ago = self.send.flight.iter().map(|flight| flight.ago).min().unwrap_or(0);
        let timers = &self.timers;
        // Or what is due in place of the time-out.
        let due = timers.retransmit.or(timers.tail_probe).or(timers.persist);
        RepairPath {
            rto: micros(due.unwrap_or(SECOND)),
            rtt: micros(self.round_trip.srtt),
            rttvar: micros(self.round_trip.rttvar),
            min_rtt: match self.round_trip.min {
                0 => u32::MAX,
                min => micros(min),
            },
            snd_cwnd: control.cwnd / mss,
            snd_ssthresh: match control.ssthresh {
                u32::MAX => INFINITE_SSTHRESH,
                bytes => bytes / mss,
            },
            snd_mss: mss,
            rcv_mss: u32::from(self.receive.mss),
            advmss: u32::from(self.agreed.our_mss),
            pmtu: u32::from(self.path_mtu),
            backoff: self.round_trip.backoff,
            last_data_sent: u32::try_from(ago / MILLISECOND).unwrap_or(u32::MAX),
        }
    }

    fn lost_in_repair(&self) -> Lost {
        let (send, receive, control) = (&self.send, &self.receive, &self.control);
        let known = |flight: &&Flight| flight.sacked || flight.lost || flight.retransmitted;
        let initial = control.cwnd == 10 * u32::from(self.mss) && control.ssthresh == u32::MAX;
        Lost {
            round_trip: self.round_trip.srtt != 0,
            congestion: !initial,
            scoreboard: send.flight.iter().filter(known).map(|flight| flight.len).sum(),
            out_of_order: receive.out_of_order.iter().map(|(_, bytes)| bytes.len() as u32).sum(),
            ts_recent: self.agreed.timestamps && receive.ts_recent.0 != 0,
            ecn: self.agreed.ecn,
            urgent: send.urgent.is_some() || receive.urgent.is_some(),
        }
    }
}

impl Receiving {
    fn runs_behind_hole(&self) -> Vec<(Seq, Vec<u8>)> {
        // A FIN may be all of a block.
        let runs = self.out_of_order.iter().filter(|(_, bytes)| !bytes.is_empty());
        runs.map(|(block, bytes)| (block.start, bytes.clone())).collect()
    }
}

impl Sending {
    /// What SACK has reported, in order.
    fn sacked(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut start = self.una;
        for flight in &self.flight {
            let end = start + flight.len;
            match blocks.last_mut() {
                Some(last) if flight.sacked && last.end == start => last.end = end,
                _ if flight.sacked => blocks.push(Block { start, end }),
                _ => {}
            }
            start = end;
        }
        blocks
    }
}

/// Whether this end has closed, in this state.
fn sends_fin(state: State) -> bool {
    matches!(state, State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck)
}

/// Whether the peer's FIN has come, in this state.
fn takes_fin(state: State) -> bool {
    matches!(state, State::CloseWait | State::Closing | State::LastAck)
}

/// An IPv6 socket has IPv4 addresses in mapped form (ipv6(7)): on the wire they are IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V4(ip), address.port()),
        IpAddr::V6(_) => address,
    }
}

fn at_most_u16(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}
