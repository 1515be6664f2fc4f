//! Placement of writes that wait behind a message without a receive, ahead of their delivery.
//!
//! ```text
//!   waits: Send ── Write ── Send with Immediate        passes: Read Response
//!                    └── payload placed, order kept       └── placed and delivered
//! ```
//!
//! RFC 5041 section 5.3: messages are delivered in the order in which they were sent, while their payloads may be placed in any
//! order. The peer may have sent a response because it has sent a write before: a program that sees the response sees the write.
//!
//! A write stays where it is, with all behind it, if it is not granted now, or if one of these is in front of it: a Send that
//! invalidates its STag, or an Atomic Request for a word that it writes.

use super::QueuePair;
use super::fail::Failure;
use super::inbound::{Inbound, Part};
use super::parked::{Effect, Look};
use super::stream::Stream;
use crate::ddp::{self, Header, Tagged};
use crate::memory::{Location, Memory, Owner};
use crate::mpa::deframe::Span;
use crate::rdmap::{Opcode, atomic};
use crate::verbs::access::Access;
use crate::verbs::region::Granted;

impl QueuePair {
    /// Places the payload of writes that wait, before the ULPDU at hand passes them.
    pub(super) fn place_ahead<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
    ) -> Result<(), Failure> {
        if !stream.rx.parked.has_new() {
            return Ok(());
        }
        // What came before them is placed first.
        self.settle(inbound, stream)?;
        let at_hand = core::mem::take(&mut inbound.scratch.spans);
        while let Some(ulpdu) = stream.rx.parked.take_new() {
            let look = self.look(inbound, stream, &ulpdu);
            stream.rx.parked.has_looked(ulpdu, look);
            if look == Look::Stays {
                break;
            }
        }
        inbound.scratch.spans = at_hand;
        Ok(())
    }

    fn look<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        ulpdu: &[u8],
    ) -> Look {
        // An error is reported when the ULPDU has its turn, and ends the stream: nothing behind it is placed.
        let Some(Ok(header)) = Header::parse(ulpdu) else { return Look::Stays };
        let Ok(opcode) = Opcode::parse(header.ulp()) else { return Look::Stays };
        let payload = &ulpdu[header.len()..];
        let queue = match header {
            Header::Tagged(_) => None,
            Header::Untagged(header) => Some(header.queue),
        };
        if opcode.queue() != queue {
            return Look::Stays;
        }
        match header {
            Header::Tagged(header) if opcode == Opcode::Write => {
                let is_placed =
                    payload.is_empty() || self.place_write(inbound, stream, ulpdu, &header);
                if is_placed { Look::Placed } else { Look::Stays }
            }
            // Responses do not wait.
            Header::Tagged(_) => Look::Stays,
            Header::Untagged(header) if opcode.invalidates() => {
                Look::Passed(Some(Effect::Invalidates(header.ulp_word)))
            }
            Header::Untagged(_) if opcode == Opcode::AtomicRequest => {
                let request = payload.as_array().and_then(atomic::Request::parse);
                // More than the peer may ask for at once is an error.
                let has_room = stream.rx.parked.atomics() < stream.rx.ird;
                request.filter(|_| has_room).map_or(Look::Stays, |request| {
                    let atomic::Request { stag, offset, .. } = request;
                    Look::Passed(Some(Effect::Changes { stag, offset }))
                })
            }
            Header::Untagged(_) => Look::Passed(None),
        }
    }

    /// Returns true if the payload of a write is placed.
    fn place_write<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        ulpdu: &[u8],
        header: &Tagged,
    ) -> bool {
        let (skip, len) = (ddp::TAGGED_LEN, ulpdu.len() - ddp::TAGGED_LEN);
        let (asker, needed) = (self.asker(), Access::REMOTE_WRITE);
        let Inbound { shared, scratch, memory, .. } = inbound;
        let regions = &shared.regions;
        let granted = regions.check(asker, header.stag, header.offset, len as u64, needed);
        let Ok(granted) = granted else { return false };
        let locate = |of: Granted| memory.locate(of.memory, of.offset);
        let to = locate(granted);
        let is_apart = |effect: &Effect| match *effect {
            Effect::Invalidates(stag) => stag != header.stag,
            Effect::Changes { stag, offset } => regions
                .check(asker, stag, offset, 8, Access::REMOTE_ATOMIC)
                .is_ok_and(|word| !overlap((to, len as u64), (locate(word), 8))),
        };
        if !stream.rx.parked.effects().all(is_apart) {
            return false;
        }
        scratch.spans.clear();
        scratch.spans.push(Span { slice: 0, start: 0, len: ulpdu.len() as u32 });
        let slices = [ulpdu];
        let mut inbound =
            Inbound { shared, scratch, slices: &slices, memory: &mut **memory, is_placed: false };
        let part = Part { skip, len, is_last: header.last, owner: Owner::Peer };
        inbound.put(part, granted);
        self.settle(&mut inbound, stream).is_ok()
    }
}

fn overlap((a, a_len): (Location, u64), (b, b_len): (Location, u64)) -> bool {
    a.space == b.space && a.at < b.at.saturating_add(b_len) && b.at < a.at.saturating_add(a_len)
}
