//! Records of a trace of one connection: [`Stack::trace`](crate::Stack::trace) switches it on.

use wire::{Flags, Seq, icmp};

use crate::connection::Info;
use crate::options::Options;
use crate::segment::{FourTuple, Segment, Transmit};
use crate::snapshot::RecoveryState;
use crate::{Nanos, Reason, State};

/// Records that wait to be fetched, at most. What comes then is dropped and counted: a peer that is faster
/// than the reader of the trace costs no memory.
pub const QUEUE_MAX: usize = 2048;

/// Something that happened, and what the connection was like afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it happened, on the stack's clock.
    pub at: Nanos,
    /// The two ends.
    pub path: FourTuple,
    /// Records right before this one that were dropped, as the queue was full.
    pub dropped: u32,
    /// What happened.
    pub event: Event,
    /// The connection afterwards; `None` where there is none, as for a segment that a listener or a reset
    /// answers.
    pub after: Option<Info>,
}

/// What a record is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A segment came.
    Received(Header),
    /// A segment went out.
    Sent {
        /// The segment.
        header: Header,
        /// Some of its sequence space was sent before.
        retransmission: bool,
    },
    /// A timer ran out.
    Timer(Timer),
    /// An ICMP message came that quotes a segment of the connection.
    Icmp(icmp::Error),
    /// So many bytes in flight are now taken for lost.
    Lost {
        /// Bytes of sequence space.
        bytes: u32,
    },
    /// Loss recovery went on to another phase, or one recovery ended and the next began at once.
    Recovery {
        /// The phase before.
        from: RecoveryState,
        /// The phase now.
        to: RecoveryState,
    },
    /// The connection went on to another state.
    State {
        /// The state before; CLOSED for a connection that has just begun.
        from: State,
        /// The state now.
        to: State,
        /// Why it is over, where it is.
        end: Option<Reason>,
    },
}

/// The header of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: Seq,
    /// Acknowledgment number; meaningful with [`Flags::ACK`].
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Window field, as it stands in the header.
    pub window: u16,
    /// Bytes of payload.
    pub len: u32,
    /// Payload bytes of each packet of an aggregate or a super-packet; 0 for a plain segment.
    pub gso_size: u16,
    /// Options.
    pub options: Options,
}

impl From<&Segment<'_>> for Header {
    fn from(segment: &Segment<'_>) -> Self {
        Header {
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            len: segment.payload_len(),
            gso_size: segment.gso_size,
            options: segment.options,
        }
    }
}

impl From<&Transmit<'_>> for Header {
    fn from(transmit: &Transmit<'_>) -> Self {
        Header {
            seq: transmit.seq,
            ack: transmit.ack,
            flags: transmit.flags,
            window: transmit.window,
            len: u32::try_from(transmit.payload_len()).unwrap_or(u32::MAX),
            gso_size: transmit.gso_size,
            options: Options::parse(transmit.options.as_slice()),
        }
    }
}

/// A timer that ran out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// Retransmission time-out (RFC 6298).
    Retransmission,
    /// Tail loss probe (RFC 8985 section 7).
    TailProbe,
    /// Reordering was waited for, and is no longer (RFC 8985 section 6.2, step 5).
    Reordering,
    /// The peer's window has stayed closed, or too small (RFC 9293 section 3.8.6.1).
    Persist,
    /// A delayed acknowledgment (RFC 9293 section 3.8.6.3).
    DelayedAck,
    /// Keep-alive (RFC 9293 section 3.8.4).
    Keepalive,
    /// The end of FIN-WAIT-2 without an application, or of TIME-WAIT (RFC 9293 section 3.4.2).
    Linger,
}
