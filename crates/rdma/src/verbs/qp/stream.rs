//! A stream in full operation: what is known of both directions.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::close::Close;
use super::outstanding::Outstanding;
use super::parked::Parked;
use super::sending::Current;
use crate::ddp::sequence::Sequence;
use crate::ddp::{QUEUES, Untagged};
use crate::memory::Location;
use crate::mpa::deframe::Deframer;
use crate::mpa::framing::Framer;
use crate::mpa::layout::mulpdu;
use crate::mpa::{Negotiated, Role, Rtr};
use crate::rdmap::terminate::Terminate;
use crate::rdmap::{Opcode, ReadRequest};
use crate::verbs::work::Sge;

/// Both directions.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) rx: Rx,
    pub(super) tx: Tx,
    /// Reads and atomics whose responses have not come, in the order of their requests.
    pub(super) outstanding: VecDeque<Outstanding>,
    /// Most of those.
    pub(super) ord: usize,
}

/// What is received.
#[derive(Debug)]
pub(super) struct Rx {
    pub(super) deframer: Deframer,
    pub(super) sequence: Sequence,
    /// The receive that a message is coming for.
    pub(super) incoming: Option<Incoming>,
    /// Receives whose messages have come and could not be placed. Empty but when a stream fails.
    pub(super) lost: Vec<u64>,
    /// The elements of the receive at hand.
    pub(super) sges: Vec<Sge>,
    pub(super) order: InOrder,
    /// Messages that wait for a receive.
    pub(super) parked: Parked,
    /// The ready message that the initiator sends first, until it has come.
    pub(super) rtr: Option<Rtr>,
    /// Nothing has come yet.
    pub(super) is_new: bool,
    /// Most requests at once.
    pub(super) ird: usize,
}

/// Facts about the messages before, by which the next one is judged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InOrder {
    /// A tagged message that has begun and not ended.
    pub(super) tagged: Option<Opcode>,
    /// Bytes of the write that is coming, or was the last message.
    pub(super) written: u64,
    /// The last message was a write.
    pub(super) after_write: bool,
}

/// A receive that a message is coming for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    pub(super) wr_id: u64,
    pub(super) opcode: Opcode,
    /// Bytes that fit.
    pub(super) room: u64,
    /// Bytes that have come.
    pub(super) received: u32,
    /// The element that is filled, and how far.
    pub(super) sge: usize,
    pub(super) sge_offset: u32,
}

/// What is sent.
#[derive(Debug)]
pub(super) struct Tx {
    pub(super) framer: Framer,
    markers: bool,
    pub(super) mulpdu: usize,
    /// The number of the next message of each queue.
    pub(super) msn: [u32; QUEUES],
    /// A message of which a part is in the stream.
    pub(super) current: Option<Current>,
    /// What the peer has asked for, in order.
    pub(super) responses: VecDeque<Response>,
    /// Responses and own messages take turns.
    pub(super) responds_next: bool,
    /// A responder sends nothing before the initiator has (RFC 5044 section 7.1).
    pub(super) held: bool,
    /// The ready message, until it is sent.
    pub(super) rtr: Option<Rtr>,
    /// What is to be sent last.
    pub(super) terminate: Option<Terminate>,
    /// The application closes: what was posted is the last.
    pub(super) closing: bool,
    /// Nothing follows, and the stream is to be closed so.
    pub(super) close: Option<Close>,
    /// The owner of the stream knows.
    pub(super) close_told: bool,
    /// The work that was found waiting last, so that it is counted once.
    pub(super) waiting: Option<u32>,
}

/// What the peer has asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Response {
    Read {
        request: ReadRequest,
        header: Untagged,
    },
    Atomic {
        id: u32,
        original: u64,
        /// The word that it has changed.
        place: Location,
    },
}

impl Stream {
    pub(super) fn new(negotiated: &Negotiated, emss: usize, sges: usize) -> Self {
        let Negotiated { role, markers_in, markers_out, crc, ird, ord, rtr } = *negotiated;
        let is_responder = role == Role::Responder;
        let (ird, ord) = (usize::from(ird), usize::from(ord));
        Self {
            rx: Rx {
                deframer: Deframer::new(markers_in, crc),
                sequence: Sequence::default(),
                incoming: None,
                lost: Vec::new(),
                sges: Vec::with_capacity(sges),
                order: InOrder::default(),
                parked: Parked::default(),
                rtr: rtr.filter(|_| is_responder),
                is_new: true,
                ird,
            },
            tx: Tx {
                framer: Framer::new(markers_out, crc),
                markers: markers_out,
                mulpdu: mulpdu(emss, markers_out),
                msn: [1; QUEUES],
                current: None,
                // One more for a read as the ready message.
                responses: VecDeque::with_capacity(ird + 1),
                responds_next: true,
                held: is_responder,
                rtr: rtr.filter(|_| !is_responder),
                terminate: None,
                closing: false,
                close: None,
                close_told: false,
                waiting: None,
            },
            outstanding: VecDeque::with_capacity(ord + 1),
            ord,
        }
    }
}

impl Stream {
    /// The read that the next response is for. Responses come in the order of requests (RFC 5040 section 5.5).
    pub(super) fn oldest_read(&self) -> Option<(usize, Outstanding)> {
        self.outstanding.iter().copied().enumerate().find(|(_, of)| !of.is_atomic)
    }

    /// The atomic with this number.
    pub(super) fn atomic(&self, id: u32) -> Option<(usize, Outstanding)> {
        self.outstanding.iter().copied().enumerate().find(|(_, of)| of.is_atomic && of.id == id)
    }

    /// Requests of the application's.
    pub(super) fn requests(&self) -> usize {
        self.outstanding.iter().filter(|of| of.place.is_some()).count()
    }
}

impl Tx {
    pub(super) fn set_emss(&mut self, emss: usize) {
        self.mulpdu = mulpdu(emss, self.markers);
    }

    /// The number of the next message of this queue, which is now another (RFC 5041 section 4.3).
    pub(super) fn number(&mut self, queue: u32) -> u32 {
        let next = &mut self.msn[queue as usize % QUEUES];
        let number = *next;
        *next = next.wrapping_add(1);
        number
    }
}
