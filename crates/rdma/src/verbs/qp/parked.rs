//! Messages that wait for a receive, and all of the peer's requests behind them. They are kept as ULPDUs, so that the responses
//! that follow them in the stream are not kept from the application: it may wait for one of these before it posts a receive.
//!
//! ```text
//!   stream ── Send ── Write ── Read Response ── Send ──>   Read Response is placed and told,
//!                                                          Send, Write, Send wait in their order
//! ```
//!
//! RFC 5041 and RFC 5040 know no message that waits: a Send without a receive ends the stream. Where one waits (see
//! [`Rnic::let_wait`](crate::Rnic::let_wait)) it has not been delivered yet, and neither has what follows it. A response is
//! delivered all the same, which the order of RFC 5041, section 5.3, does not allow: a program that waits for the response before
//! it posts a receive would wait for ever. So that the response shows no less than it would in its order, the payloads of the
//! writes that wait are placed before it ([`ahead`](super::ahead)).

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
    /// Each ULPDU, and whether its payload is placed.
    ulpdus: VecDeque<(Box<[u8]>, bool)>,
    bytes: usize,
    /// ULPDUs that waited, and were taken: the number of the first that waits.
    taken: u64,
    /// Number of the first ULPDU that was not looked at for writes.
    new: u64,
    /// Effects of ULPDUs that were looked at, with their numbers.
    effects: VecDeque<(u64, Effect)>,
    /// There is no room for the next.
    is_full: bool,
}

/// An effect of a message that writes behind it do not precede.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// A Send invalidates this STag.
    Invalidates(u32),
    /// An atomic operation changes the word at this tagged offset.
    Changes { stag: u32, offset: u64 },
}

/// Outcome of a look at a ULPDU that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// It is a write, whose payload is placed.
    Placed,
    /// It is another message, with its effect. Writes behind it may be placed.
    Passed(Option<Effect>),
    /// It stays as it is, with all behind it.
    Stays,
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

    /// Takes the first ULPDU out, to be processed now, and says whether its payload is placed.
    pub(super) fn next(&mut self) -> Option<(Box<[u8]>, bool)> {
        self.is_full = false;
        self.ulpdus.pop_front()
    }

    /// Puts a ULPDU back in front: it still waits.
    pub(super) fn put_back(&mut self, ulpdu: Box<[u8]>, is_placed: bool) {
        self.ulpdus.push_front((ulpdu, is_placed));
    }

    /// Counts a ULPDU of this length that has been processed. If it has ended the stream, no ULPDU waits any more.
    pub(super) fn has_taken(&mut self, len: usize) {
        self.bytes = self.bytes.saturating_sub(len);
        self.taken += 1;
        self.new = self.new.max(self.taken);
        while self.effects.front().is_some_and(|(number, _)| *number < self.taken) {
            self.effects.pop_front();
        }
    }

    pub(super) fn clear(&mut self) {
        self.ulpdus.clear();
        self.effects.clear();
        (self.bytes, self.is_full) = (0, false);
        self.new = self.taken;
    }

    /// Returns true if there is a ULPDU that was not looked at for writes.
    pub(super) fn has_new(&self) -> bool {
        self.new - self.taken < self.ulpdus.len() as u64
    }

    /// Takes out the bytes of the first ULPDU that was not looked at; [`has_looked`](Self::has_looked) puts them back.
    pub(super) fn take_new(&mut self) -> Option<Box<[u8]>> {
        let (ulpdu, _) = self.ulpdus.get_mut((self.new - self.taken) as usize)?;
        Some(core::mem::take(ulpdu))
    }

    pub(super) fn has_looked(&mut self, ulpdu: Box<[u8]>, look: Look) {
        if let Some(slot) = self.ulpdus.get_mut((self.new - self.taken) as usize) {
            *slot = (ulpdu, look == Look::Placed);
        }
        if let Look::Passed(Some(effect)) = look {
            self.effects.push_back((self.new, effect));
        }
        self.new += u64::from(look != Look::Stays);
    }

    /// Effects of the ULPDUs in front of the first that was not looked at.
    pub(super) fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.effects.iter().map(|(_, effect)| effect)
    }

    /// Number of Atomic Requests among those.
    pub(super) fn atomics(&self) -> usize {
        self.effects().filter(|effect| matches!(effect, Effect::Changes { .. })).count()
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
        self.ulpdus.push_back((ulpdu.into_boxed_slice(), false));
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
