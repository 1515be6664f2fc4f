//! Processing of messages that waited for a receive.

use super::QueuePair;
use super::fail::Failure;
use super::inbound::{Inbound, SMALL};
use super::stream::Stream;
use crate::memory::Memory;
use crate::mpa::deframe::Span;
use crate::verbs::scratch::Scratch;
use crate::verbs::shared::Shared;

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
        while let Some((ulpdu, is_placed)) = stream.rx.parked.next() {
            let (order, slices) = (stream.rx.order, [&ulpdu[..]]);
            scratch.spans.clear();
            scratch.spans.push(Span { slice: 0, start: 0, len: ulpdu.len() as u32 });
            let mut inbound = Inbound { shared, scratch, slices: &slices, memory, is_placed };
            self.is_waiting = false;
            let first = &ulpdu[..ulpdu.len().min(SMALL)];
            let taken = self.segment(&mut inbound, stream, first, ulpdu.len());
            if self.is_waiting {
                stream.rx.order = order;
                stream.rx.parked.put_back(ulpdu, is_placed);
                break;
            }
            // What came before an error was well, and is placed and told first.
            self.settle(&mut inbound, stream)?;
            taken?;
            stream.rx.parked.has_taken(ulpdu.len());
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
