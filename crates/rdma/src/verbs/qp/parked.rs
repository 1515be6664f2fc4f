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

use crate::ddp::{Header, QUEUE_ATOMIC, QUEUE_TERMINATE};
use crate::mpa::deframe::Span;
use crate::rdmap::Opcode;

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

    /// Takes the first ULPDU out, to be processed now.
    pub(super) fn next(&mut self) -> Option<Box<[u8]>> {
        self.is_full = false;
        self.ulpdus.pop_front()
    }

    /// Puts a ULPDU back in front: it still waits.
    pub(super) fn put_back(&mut self, ulpdu: Box<[u8]>) {
        self.ulpdus.push_front(ulpdu);
    }

    /// Counts a ULPDU of this length that has been processed. If it has ended the stream, no ULPDU waits any more.
    pub(super) fn has_taken(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_sub(len);
        self.taken += 1;
    }

    pub(super) fn clear(&mut self) {
        self.ulpdus.clear();
        (self.bytes, self.is_full) = (0, false);
    }

    /// Keeps a ULPDU; false if there is no room.
    pub(super) fn keep(&mut self, spans: &[Span], slices: &[&[u8]]) -> bool {
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

/// Returns true if a ULPDU that begins so passes those that wait: a response to what this side has asked for, or the Terminate
/// message, behind which nothing comes. If it waited as well, its cause would be lost with the stream.
pub(super) fn passes(bytes: &[u8]) -> bool {
    match Header::parse(bytes) {
        Some(Ok(Header::Tagged(header))) => Opcode::parse(header.ulp) == Ok(Opcode::ReadResponse),
        Some(Ok(Header::Untagged(header))) => {
            matches!(header.queue, QUEUE_ATOMIC | QUEUE_TERMINATE)
        }
        _ => false,
    }
}
