//! One connection: its state, in two cache lines that nearly every segment needs and a rest that few do.

mod ack;
mod bits;
mod calls;
mod data;
mod duplicates;
mod freeze;
mod info;
mod input;
mod invariants;
mod lent;
mod mtu;
mod open;
mod output;
mod predict;
mod pressure;
mod rack;
mod recovery;
mod standing;
pub(crate) mod timers;
mod validate;
mod window;

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use wire::{FlowKey, Seq};

use crate::config::Config;
use crate::congestion::{Congestion, Window};
use crate::connection::duplicates::DuplicateAcks;
use crate::connection::recovery::Recovery;
use crate::counters::Counters;
use crate::flight::Flight;
use crate::options::TIMESTAMPS_LEN;
use crate::pool::Pool;
use crate::reassembly::OutOfOrder;
use crate::ring::{ReceiveRing, SendRing};
use crate::rtt::Rtt;
use crate::snapshot::{QUEUE_MAX, SEGMENT_MIN, USER_TIMEOUT_MAX};
use crate::{Block, FourTuple, Keepalive, Nanos, Reason, State};

pub(crate) use bits::Bits;
pub use calls::{ReceiveError, SendError};
pub use info::Info;
pub(crate) use input::Answer;
pub use lent::{Lend, Queue};
pub(crate) use open::our_shift;
pub(crate) use output::Planned;
pub use standing::Standing;
pub(crate) use timers::{NEVER, NOT_YET, Pending};

/// Identifies a listener of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ListenerId(pub(crate) u32);

/// What a connection uses of its stack during one call.
pub(crate) struct Context<'a> {
    pub(crate) now: Nanos,
    pub(crate) pool: &'a mut Pool,
    pub(crate) counters: &'a mut Counters,
    /// Bytes of the segment that the application is to store, and how many are in front of them.
    pub(crate) placed: &'a mut Option<(Block, u32)>,
}

/// What is read or written for every segment in order and every acknowledgment.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    // Receiving.
    pub(crate) rcv_nxt: Seq,
    /// RCV.NXT as of the last acknowledgment sent (Last.ACK.sent in RFC 7323).
    pub(crate) rcv_acked: Seq,
    /// Right edge of the window as last offered.
    pub(crate) rcv_edge: Seq,
    /// TS.Recent (RFC 7323 section 4.3).
    pub(crate) ts_recent: u32,
    pub(crate) receive: ReceiveRing,
    pub(crate) ack_deadline: Nanos,
    pub(crate) last_received: Nanos,
    /// Largest segment that came of late.
    pub(crate) rcv_mss: u16,
    /// Segments to acknowledge at once, at the beginning.
    pub(crate) quick: u8,
    pub(crate) state: State,
    // Sending.
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    pub(crate) snd_wnd: u32,
    pub(crate) snd_wl1: Seq,
    pub(crate) snd_wl2: Seq,
    /// Added to our clock in milliseconds for the timestamps that we send (RFC 7323 section 7.1).
    pub(crate) ts_offset: u32,
    /// When RCV.NXT passes this, the size of the receive window is reviewed (see `tune`).
    pub(crate) tune_at: Seq,
    pub(crate) send: SendRing,
    /// Payload of a full segment without SACK.
    pub(crate) mss: u16,
    pub(crate) bits: Bits,
    /// Window shifts of the peer and of ours.
    pub(crate) snd_shift: u8,
    pub(crate) rcv_shift: u8,
    pub(crate) pending: Pending,
    pub(crate) events: Events,
    /// Most bytes to hold for the application.
    pub(crate) buffer: u32,
}

const _: () = assert!(size_of::<Hot>() <= 128, "two cache lines");
const _: () = assert!(core::mem::offset_of!(Connection, config) == IN_ORDER, "three cache lines");
const _: () = assert!(size_of::<Connection>() < 1000, "a million idle ones in 1 GB");

/// Bytes that may be queued to send whatever the congestion window is.
const SEND_LEAST: u32 = 256 << 10;
/// Bytes at the front of a connection that an in-order segment needs.
pub(crate) const IN_ORDER: usize = 192;

/// What has happened to a connection since its events were last taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Events(u8);

impl Events {
    /// An active open has succeeded.
    pub const CONNECTED: Events = Events(1);
    /// A listener has a new connection.
    pub const ACCEPTED: Events = Events(2);
    /// There is data to read, or the peer has closed.
    pub const READABLE: Events = Events(4);
    /// There is room again for data to send.
    pub const WRITABLE: Events = Events(8);
    /// There is an urgent byte (RFC 9293 section 3.8.5).
    pub const URGENT: Events = Events(16);
    /// It is over; [`Connection::end`] has the reason.
    pub const CLOSED: Events = Events(32);
    /// The peer has acknowledged data, on a connection that was [asked](crate::Socket::tell_acknowledged) to tell.
    pub const ACKNOWLEDGED: Events = Events(64);

    /// Whether any of `other` is set.
    #[inline]
    pub fn any(self, other: Events) -> bool {
        self.0 & other.0 != 0
    }

    /// Both together.
    pub const fn with(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }

    /// Whether nothing has happened.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn add(&mut self, other: Events) {
        self.0 |= other.0;
    }
}

/// The two ends, IPv4 addresses mapped into IPv6 (RFC 4291 section 2.5.5.2): what is compared for every
/// packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    local: [u32; 4],
    remote: [u32; 4],
    ports: u32,
}

impl Key {
    pub(crate) fn new(path: &FourTuple) -> Key {
        Key {
            local: number(path.local.ip()),
            remote: number(path.remote.ip()),
            ports: u32::from(path.local.port()) << 16 | u32::from(path.remote.port()),
        }
    }

    #[inline]
    pub(crate) fn words(&self) -> [u64; 5] {
        let both = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let ([a, b, c, d], [e, f, g, h]) = (self.local, self.remote);
        [both(a, b), both(c, d), both(e, f), both(g, h), u64::from(self.ports)]
    }

    /// What tables hash: mapped IPv4 addresses are IPv6 addresses.
    #[inline]
    pub(crate) fn flow(&self) -> FlowKey {
        let [a, b, c, d, _] = self.words();
        FlowKey { addresses: [a, b, c, d], ports: self.ports, ipv6: true, udp: false }
    }

    pub(crate) fn path(&self) -> FourTuple {
        FourTuple {
            local: SocketAddr::new(address(self.local), (self.ports >> 16) as u16),
            remote: SocketAddr::new(address(self.remote), self.ports as u16),
        }
    }

    pub(crate) fn is_v6(&self) -> bool {
        address(self.remote).is_ipv6()
    }
}

#[inline]
fn number(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(v4) => [0, 0, 0xffff, v4.to_bits()],
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            [(bits >> 96) as u32, (bits >> 64) as u32, (bits >> 32) as u32, bits as u32]
        }
    }
}

#[inline]
fn address([a, b, c, d]: [u32; 4]) -> IpAddr {
    if (a, b, c) == (0, 0, 0xffff) {
        IpAddr::V4(d.into())
    } else {
        let high = u128::from(a) << 32 | u128::from(b);
        let low = u128::from(c) << 32 | u128::from(d);
        IpAddr::V6((high << 64 | low).into())
    }
}

/// A connection: the transmission control block of RFC 9293.
#[derive(Debug)]
#[repr(C)]
pub struct Connection {
    pub(crate) hot: Hot,
    pub(crate) key: Key,
    /// Longest time that an acknowledgment is held back, in nanoseconds.
    pub(crate) delayed_ack: u32,
    /// Deadlines, or [`NEVER`].
    pub(crate) retransmit_deadline: Nanos,
    pub(crate) slow_deadline: Nanos,
    /// The deadline that the stack's heap has for it.
    pub(crate) armed: Nanos,
    // An in-order segment needs the fields up to here.
    pub(crate) config: Arc<Config>,
    pub(crate) flight: Flight,
    pub(crate) window: Window,
    pub(crate) rtt: Rtt,
    pub(crate) recovery: Recovery,
    pub(crate) congestion: Congestion,
    pub(crate) out_of_order: OutOfOrder,
    /// The next acknowledgment reports this duplicate (RFC 2883).
    pub(crate) duplicate: Option<Block>,
    pub(crate) dup_acks: DuplicateAcks,
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
    pub(crate) max_snd_wnd: u32,
    /// Sequence space behind the SYN that the peer has acknowledged, as far as 32 bits count (RFC 4898,
    /// ThruOctetsAcked).
    pub(crate) bytes_acked: u32,
    pub(crate) peer_mss: u16,
    pub(crate) path_mtu: u16,
    /// See [`Standing::ts_ahead`].
    pub(crate) ts_ahead: u32,
    pub(crate) listener: Option<ListenerId>,
    pub(crate) end: Option<Reason>,
    /// The state in which it was then.
    pub(crate) ended_in: State,
    /// End of the last segment below the MSS (Nagle's algorithm, Minshall's variant).
    pub(crate) snd_small: Seq,
    /// Where the peer's FIN stands.
    pub(crate) fin_at: Option<Seq>,
    /// One after the urgent byte, each way.
    pub(crate) snd_urgent: Option<Seq>,
    pub(crate) rcv_urgent: Option<Seq>,
    pub(crate) keepalive: Option<Keepalive>,
    pub(crate) keepalive_probes: u8,
    pub(crate) urgent_inline: bool,
    /// The urgent byte was read, and is to be passed over.
    pub(crate) urgent_read: bool,
    pub(crate) scaled: bool,
    /// Most bytes that were in flight in this round, and where the round ends.
    pub(crate) most_out: u32,
    pub(crate) round_end: Seq,
    /// Retransmissions in a row, and when the first of them went.
    pub(crate) retransmits: u8,
    pub(crate) retransmit_since: Nanos,
    pub(crate) user_timeout: Nanos,
    pub(crate) last_sent: Nanos,
    pub(crate) last_challenge: Nanos,
    /// Since when the peer's window has let nothing be sent.
    pub(crate) stalled_since: Nanos,
    /// When the size of the receive window was last reviewed.
    pub(crate) tune_since: Nanos,
    pub(crate) mtu: crate::connection::mtu::Search,
    /// See [`Moment::first_timestamp`](crate::snapshot::Moment::first_timestamp).
    pub(crate) first_timestamp: Option<u32>,
    /// A tail loss probe that retransmits the end: from where, and how many bytes.
    pub(crate) tail_probe: Option<(Seq, u32)>,
    /// `send` took less than it was given.
    pub(crate) wants_space: bool,
    /// It stands in the stack's queue of those that wait for memory.
    pub(crate) waits: bool,
    /// An ICMP error came while the connection was being opened.
    pub(crate) unreachable: bool,
    /// Memory that is set apart for what the peer may send.
    pub(crate) promised: u32,
    /// Bytes received that the application has memory for, if the queues are lent.
    pub(crate) room: u32,
    /// A larger window was wanted than there is room for.
    pub(crate) wants_room: bool,
}

/// A peer that asks for less gets segments of this size, as from Linux (TCP_MIN_MSS): RFC 9293 sets no
/// bound, and 40 bytes of options must fit.
const MSS_LEAST: u16 = SEGMENT_MIN;

/// Bytes of IP and TCP header without options.
fn headers_len(key: &Key) -> u16 {
    if key.is_v6() { 60 } else { 40 }
}

impl Connection {
    /// A connection that nothing was sent or received on yet.
    pub(crate) fn new(path: &FourTuple, config: Arc<Config>, iss: Seq, ts_offset: u32) -> Self {
        let key = Key::new(path);
        let mut connection = Connection {
            hot: Hot {
                rcv_nxt: Seq(0),
                rcv_acked: Seq(0),
                rcv_edge: Seq(0),
                ts_recent: 0,
                receive: ReceiveRing::default(),
                ack_deadline: NEVER,
                last_received: NOT_YET,
                rcv_mss: 536,
                quick: 16,
                state: State::Closed,
                snd_una: iss,
                snd_nxt: iss,
                snd_wnd: 0,
                snd_wl1: Seq(0),
                snd_wl2: Seq(0),
                ts_offset,
                tune_at: Seq(0),
                send: SendRing::default(),
                mss: 0,
                bits: Bits::default(),
                snd_shift: 0,
                rcv_shift: 0,
                pending: Pending::None,
                events: Events::default(),
                buffer: config.receive_buffer.min(QUEUE_MAX as u32),
            },
            // RFC 9293 section 3.7.1 (MUST-15): what holds if the peer announces no MSS.
            peer_mss: if key.is_v6() { 1220 } else { 536 },
            path_mtu: config.mtu.max(MSS_LEAST + headers_len(&key)),
            key,
            flight: Flight::default(),
            window: Window { cwnd: 0, ssthresh: u32::MAX, mss: 0 },
            rtt: Rtt::default(),
            recovery: Recovery::default(),
            congestion: Congestion::new(config.congestion),
            out_of_order: OutOfOrder::default(),
            duplicate: None,
            dup_acks: DuplicateAcks::default(),
            iss,
            irs: Seq(0),
            max_snd_wnd: 0,
            ts_ahead: 0,
            bytes_acked: 0,
            listener: None,
            end: None,
            ended_in: State::Closed,
            snd_small: iss,
            fin_at: None,
            snd_urgent: None,
            rcv_urgent: None,
            keepalive: config.keepalive.map(Keepalive::bounded),
            keepalive_probes: 0,
            urgent_inline: config.urgent_inline,
            urgent_read: false,
            scaled: false,
            most_out: 0,
            round_end: iss,
            retransmits: 0,
            retransmit_since: NOT_YET,
            user_timeout: config.user_timeout.min(USER_TIMEOUT_MAX),
            retransmit_deadline: NEVER,
            delayed_ack: u32::try_from(config.delayed_ack).unwrap_or(u32::MAX),
            armed: NEVER,
            slow_deadline: NEVER,
            last_sent: NOT_YET,
            last_challenge: NOT_YET,
            stalled_since: NOT_YET,
            tune_since: NOT_YET,
            mtu: crate::connection::mtu::Search::default(),
            first_timestamp: None,
            tail_probe: None,
            wants_space: false,
            waits: false,
            unreachable: false,
            promised: 0,
            room: 0,
            wants_room: false,
            config,
        };
        connection.hot.bits.set_no_delay(connection.config.no_delay);
        connection.update_mss();
        connection
    }

    /// A vacant place of the slots.
    pub(crate) fn vacant(config: Arc<Config>) -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let path = FourTuple { local: nowhere, remote: nowhere };
        let mut connection = Connection::new(&path, config, Seq(0), 0);
        connection.hot.bits.set_vacant(true);
        connection
    }

    /// State of the connection.
    pub fn state(&self) -> State {
        self.hot.state
    }

    /// The two ends of the connection.
    pub fn path(&self) -> FourTuple {
        self.key.path()
    }

    /// Sets the urgent pointer: the urgent byte is one before `up`. `None` if there is none any more.
    pub(crate) fn set_rcv_urgent(&mut self, up: Option<Seq>) {
        self.rcv_urgent = up;
        self.hot.bits.set_urgent(up.is_some());
    }

    /// The listener that accepted it, if one did.
    pub fn listener(&self) -> Option<ListenerId> {
        self.listener
    }

    /// Why it is over; `None` while it is not.
    pub fn end(&self) -> Option<Reason> {
        // The state is in a line that is in the cache already.
        if self.hot.state == State::Closed { self.end } else { None }
    }

    /// The state before it was over. A reset is another error where only the peer has closed (tcp_reset in Linux).
    pub fn ended_in(&self) -> Option<State> {
        self.end().map(|_| self.ended_in)
    }

    /// Bytes that [`Socket::receive`](crate::Socket::receive) would give.
    pub fn readable_len(&self) -> usize {
        self.hot.receive.len() as usize
    }

    /// The bytes of which [`readable_len`](Self::readable_len) tells, from `offset` on: as many as lie in two pieces.
    pub fn unread(&self, offset: u32) -> [&[u8]; 2] {
        self.hot.receive.slices(offset, self.hot.receive.len().saturating_sub(offset))
    }

    /// Whether the peer has closed, and everything before that is read.
    pub fn is_at_end(&self) -> bool {
        self.hot.receive.is_empty()
            && match self.hot.state {
                State::CloseWait | State::Closing | State::LastAck | State::TimeWait => true,
                State::Closed => self.end.is_some(),
                _ => false,
            }
    }

    /// Bytes that [`Socket::send`](crate::Socket::send) would take; fewer where the stack is short of
    /// memory.
    pub fn send_space(&self) -> usize {
        self.send_limit().saturating_sub(self.hot.send.len()) as usize
    }

    /// Most bytes to queue: what is in flight, and as much again to follow (tcp_sndbuf_expand in Linux).
    /// A peer that reads nothing does not pin a whole send buffer.
    pub(crate) fn send_limit(&self) -> u32 {
        let twice = self.window.cwnd.saturating_mul(2);
        let most = self.config.send_buffer.min(QUEUE_MAX as u32);
        most.min(twice.max(SEND_LEAST))
    }

    /// Bytes that the application has sent and the peer has not acknowledged (SIOCOUTQ).
    pub fn unacknowledged(&self) -> usize {
        self.hot.send.len() as usize
    }

    /// Bytes that were never sent (SIOCOUTQNSD).
    pub fn unsent(&self) -> usize {
        self.unsent_len() as usize
    }

    /// Whether there is an urgent byte that was not read; also while it has not come yet.
    pub fn is_urgent(&self) -> bool {
        self.hot.bits.urgent()
    }

    /// Sequence number of the first byte in the send queue: the SYN takes none of it.
    #[inline]
    pub(crate) fn queue_start(&self) -> Seq {
        if self.hot.state <= State::SynReceived { self.iss + 1 } else { self.hot.snd_una }
    }

    /// One after the last byte of the send queue: the FIN's place.
    #[inline]
    pub(crate) fn queue_end(&self) -> Seq {
        self.queue_start() + self.hot.send.len()
    }

    /// Bytes of the queue that were never sent.
    #[inline]
    pub(crate) fn unsent_len(&self) -> u32 {
        let end = self.queue_end();
        let start = self.hot.snd_nxt.max(self.queue_start());
        if end.after(start) { end - start } else { 0 }
    }

    /// Our FIN was sent and is acknowledged.
    pub(crate) fn is_fin_acknowledged(&self) -> bool {
        self.hot.bits.fin_sent() && self.flight.is_empty()
    }

    /// The timestamp clock: a millisecond a tick (RFC 7323 section 5.4).
    #[inline]
    pub(crate) fn ts_clock(&self, now: Nanos) -> u32 {
        ((now / 1_000_000) as u32).wrapping_add(self.hot.ts_offset)
    }

    /// Bytes of IP and TCP header without options.
    pub(crate) fn headers_len(&self) -> u16 {
        headers_len(&self.key)
    }

    /// The MSS to announce (RFC 9293 section 3.7.1, MUST-67): what the first link takes, without IP and
    /// TCP header, options not counted.
    pub(crate) fn our_mss(&self) -> u16 {
        let fits = self.config.mtu.saturating_sub(self.headers_len()).max(MSS_LEAST);
        if self.config.mss == 0 { fits } else { fits.min(self.config.mss) }
    }

    /// Payload of a full segment, from the peer's MSS and the path's MTU (RFC 9293 section 3.7.1,
    /// MUST-16: options that every segment has come off). The window takes one at least.
    pub(crate) fn update_mss(&mut self) {
        let fits = self.path_mtu.saturating_sub(self.headers_len());
        let mut mss = fits.min(self.peer_mss);
        if self.config.mss != 0 {
            mss = mss.min(self.config.mss);
        }
        let options = if self.hot.bits.timestamps() { TIMESTAMPS_LEN as u16 } else { 0 };
        self.hot.mss = mss.max(MSS_LEAST) - options;
        self.window.mss = u32::from(self.hot.mss);
        self.window.cwnd = self.window.cwnd.max(self.window.mss);
    }
}
