//! Messages that wait for a receive, and all of the peer's requests behind them. They are kept as ULPDUs, so that the responses
//! that follow them in the stream are not kept from the application: it may wait for one of these before it posts a receive.
//!
//! ```text
//!   stream ── Send ── Write ── Read Response ── Send ──>   Read Response is placed and told,
//!                                                          Send, Write, Send wait in their order
//! ```
//!
//! RFC 5041 and RFC 5040 know no message that waits: a Send without a receive ends the stream. Where one waits (see
//! [`Rnic::let_wait`](crate::Rnic::let_wait)) it has not come yet, and neither has what follows it. A response may come all
//! the same: its order with requests of the peer's is not that of any rule of RFC 5040, section 5.5.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::QueuePair;
use super::fail::Failure;
use super::inbound::{Inbound, SMALL};
use super::stream::Stream;
use crate::ddp::{Header, QUEUE_ATOMIC};
use crate::memory::Memory;
use crate::mpa::deframe::Span;
use crate::rdmap::Opcode;
use crate::verbs::scratch::Scratch;
use crate::verbs::shared::Shared;

/// Most bytes of headers and payloads that wait at a queue pair. What the peer sends beyond them is not taken from the stream.
pub const PARKED_MAX: usize = 128 << 10;

/// The ULPDUs of a stream that wait.
#[derive(Debug, Default)]
pub(super) struct Parked {
    ulpdus: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// ULPDUs that waited, and were taken.
    taken: u64,
    /// There is no room for the next.
    is_full: bool,
}

impl Parked {
    pub(super) fn is_empty(&self) -> bool {
        self.ulpdus.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn clear(&mut self) {
        self.ulpdus.clear();
        (self.bytes, self.is_full) = (0, false);
    }

    /// Keeps a ULPDU; false if there is no room.
    fn keep(&mut self, spans: &[Span], slices: &[&[u8]]) -> bool {
        let len: usize = spans.iter().map(|span| span.len as usize).sum();
        self.is_full = self.bytes + len > PARKED_MAX;
        if self.is_full {
            return false;
        }
        let mut ulpdu = alloc::vec::Vec::with_capacity(len);
        spans.iter().for_each(|span| ulpdu.extend_from_slice(span.of(slices)));
        self.bytes += len;
        self.ulpdus.push_back(ulpdu.into_boxed_slice());
        true
    }
}

/// Returns true if a ULPDU that begins so is a response: to what this side has asked for.
pub(super) fn is_response(bytes: &[u8]) -> bool {
    match Header::parse(bytes) {
        Some(Ok(Header::Tagged(header))) => Opcode::parse(header.ulp) == Ok(Opcode::ReadResponse),
        Some(Ok(Header::Untagged(header))) => header.queue == QUEUE_ATOMIC,
        _ => false,
    }
}

impl QueuePair {
    /// Keeps the ULPDU at hand behind those that wait; false if there is no room.
    pub(super) fn park<M>(&self, inbound: &Inbound<'_, M>, stream: &mut Stream) -> bool {
        stream.rx.parked.keep(&inbound.scratch.spans, inbound.slices)
    }

    /// Takes what waits, as far as there are receives by now.
    pub(super) fn unpark<M: Memory>(
        &mut self,
        (shared, scratch): (&mut Shared, &mut Scratch),
        stream: &mut Stream,
        memory: &mut M,
    ) -> Result<(), Failure> {
        stream.rx.parked.is_full = false;
        while let Some(ulpdu) = stream.rx.parked.ulpdus.pop_front() {
            let (order, slices) = (stream.rx.order, [&ulpdu[..]]);
            scratch.spans.clear();
            scratch.spans.push(Span { slice: 0, start: 0, len: ulpdu.len() as u32 });
            let mut inbound = Inbound { shared, scratch, slices: &slices, memory };
            self.is_waiting = false;
            let first = &ulpdu[..ulpdu.len().min(SMALL)];
            let taken = self.segment(&mut inbound, stream, first, ulpdu.len());
            if self.is_waiting {
                stream.rx.order = order;
                stream.rx.parked.ulpdus.push_front(ulpdu);
                break;
            }
            // What came before an error was well, and is placed and told first.
            self.settle(&mut inbound, stream)?;
            taken?;
            // If it has ended the stream, nothing waits any more.
            stream.rx.parked.bytes = stream.rx.parked.bytes.saturating_sub(ulpdu.len());
            stream.rx.parked.taken += 1;
        }
        Ok(())
    }

    /// See [`Rnic::waits_since`](crate::Rnic::waits_since).
    pub(crate) fn waits_since(&self) -> u64 {
        self.stream.as_ref().map_or(0, |stream| stream.rx.parked.taken())
    }

    /// See [`Rnic::is_full`](crate::Rnic::is_full).
    pub(crate) fn is_full(&self) -> bool {
        self.takes() && self.stream.as_ref().is_some_and(|stream| stream.rx.parked.is_full())
    }
}
