//! From the stream to memory: FPDUs, segments, and what is told when they are placed.

use super::QueuePair;
use super::fail::Failure;
use super::parked::passes;
use super::state::State;
use super::stream::Stream;
use crate::ddp::{self, Header};
use crate::memory::{BATCH_MAX, Memory, Owner, Pieces, Placed, Source};
use crate::mpa::deframe::Cursor;
use crate::rdmap::atomic;
use crate::rdmap::terminate::{Cause, Failed, Llp, Operation, TERMINATE_MAX};
use crate::rdmap::{ControlError, Opcode, ReadRequest};
use crate::status::Status;
use crate::verbs::event::Event;
use crate::verbs::region::Granted;
use crate::verbs::scratch::{Delivered, Delivery, Scratch};
use crate::verbs::send_queue::Progress;
use crate::verbs::shared::Shared;

/// Header and payload of the longest message that is read as a whole: an Atomic Request.
pub(super) const SMALL: usize = ddp::UNTAGGED_LEN + atomic::Request::LEN;
const _: () = assert!(SMALL >= ddp::UNTAGGED_LEN + ReadRequest::LEN);
const _: () = assert!(SMALL >= ddp::UNTAGGED_LEN + TERMINATE_MAX);
/// More pieces than a segment has as a rule: markers, and the elements of a receive.
const PIECES_OF_SEGMENT: usize = 192;

/// What a call of `receive` works with.
pub(super) struct Inbound<'a, M> {
    pub(super) shared: &'a mut Shared,
    pub(super) scratch: &'a mut Scratch,
    pub(super) slices: &'a [&'a [u8]],
    pub(super) memory: &'a mut M,
    /// The payload of the segment at hand was placed while the segment waited.
    pub(super) is_placed: bool,
}

/// A segment: its header, and where its payload is.
#[derive(Clone, Copy)]
pub(super) struct Segment<'a> {
    pub(super) header: Header,
    pub(super) opcode: Opcode,
    /// Bytes of payload.
    pub(super) len: usize,
    /// The payload, as far as it is read as a whole.
    pub(super) payload: &'a [u8],
}

impl Segment<'_> {
    /// The segment, as a Terminate message repeats it (RFC 5040 section 4.8).
    pub(super) fn failed(&self) -> Failed {
        Failed::new((self.header.len() + self.len) as u16, self.header, None)
    }

    /// An error about this segment.
    pub(super) fn refuse(&self, cause: impl Into<Cause>) -> Failure {
        Failure { failed: Some(self.failed()), ..Failure::new(cause.into()) }
    }
}

/// Outcome of a look for the next FPDU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// It is done with: placed, or kept.
    Taken,
    /// It is not all there.
    Partial,
    /// It is to be kept, and there is no room.
    NoRoom,
}

/// A part of a segment's payload.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Bytes of the ULPDU before it.
    pub(super) skip: usize,
    pub(super) len: usize,
    /// It ends its message.
    pub(super) is_last: bool,
    pub(super) owner: Owner,
}

impl<M: Memory> Inbound<'_, M> {
    /// Whether another segment might make more pieces than one call takes.
    fn is_full(&self) -> bool {
        self.scratch.placed.len() + PIECES_OF_SEGMENT > BATCH_MAX
    }

    /// The FPDU that was taken last is to be taken again.
    fn uncount(&mut self) {
        let counters = &mut self.shared.counters;
        counters.fpdus_in -= 1;
        counters.fpdus_in_pieces -= u64::from(self.scratch.spans.len() != 1);
    }

    /// A part of the payload is to be placed there.
    pub(super) fn put(&mut self, part: Part, to: Granted) {
        let (mut skip, mut left, mut offset) = (part.skip, part.len, to.offset);
        for span in &self.scratch.spans {
            let mut span = *span;
            let skipped = skip.min(span.len as usize);
            skip -= skipped;
            span.start += skipped as u32;
            span.len = (span.len - skipped as u32).min(left.min(u32::MAX as usize) as u32);
            if span.len == 0 {
                continue;
            }
            left -= span.len as usize;
            self.scratch.placed.push(Placed {
                memory: to.memory,
                offset,
                from: Source::Stream(span),
                ends_message: part.is_last && left == 0,
                owner: part.owner,
            });
            offset += u64::from(span.len);
            if left == 0 {
                break;
            }
        }
        debug_assert_eq!(left, 0);
    }

    /// A value is to be placed there, in the byte order of this machine.
    pub(super) fn put_value(&mut self, value: u64, to: Granted, owner: Owner) {
        let index = self.scratch.values.len() as u32;
        self.scratch.values.push(value.to_ne_bytes());
        let Granted { memory, offset } = to;
        let from = Source::Value(index);
        self.scratch.placed.push(Placed { memory, offset, from, ends_message: true, owner });
    }

    /// Something is to be told when all before it is placed (RFC 5041 section 5.3: placed before delivered).
    pub(super) fn deliver(&mut self, what: Delivered) {
        let after = self.scratch.placed.len();
        self.scratch.deliveries.push(Delivery { after, what });
    }
}

impl QueuePair {
    /// See [`Rnic::receive`](crate::Rnic::receive).
    pub(crate) fn receive<M: Memory>(
        &mut self,
        shared: &mut Shared,
        slices: &[&[u8]],
        memory: &mut M,
    ) -> usize {
        let mut cursor = Cursor::new(slices);
        let all = cursor.left;
        self.is_waiting = false;
        let Some(mut stream) = self.stream.take() else {
            shared.counters.discarded_bytes += all as u64;
            return all;
        };
        let mut scratch = core::mem::take(&mut shared.scratch);
        let mut failure = self.unpark((shared, &mut scratch), &mut stream, memory).err();
        let mut inbound =
            Inbound { shared, scratch: &mut scratch, slices, memory, is_placed: false };
        while failure.is_none() && self.takes() {
            let before = (cursor, stream.rx.deframer.clone());
            match self.next(&mut inbound, &mut stream, &mut cursor) {
                Ok(Next::Taken) if inbound.is_full() => {
                    failure = self.settle(&mut inbound, &mut stream).err();
                }
                Ok(Next::Taken) => {}
                Ok(Next::Partial) => break,
                // It is as if it had not come yet: there is nothing of it but its FPDU.
                Ok(Next::NoRoom) => {
                    (cursor, stream.rx.deframer) = before;
                    inbound.uncount();
                    break;
                }
                Err(found) => failure = Some(found),
            }
        }
        // What came before an error was well, and is placed and told first.
        let failure = self.settle(&mut inbound, &mut stream).err().or(failure);
        shared.scratch = scratch;
        if let Some(failure) = failure {
            self.fail(shared, &mut stream, failure);
        }
        self.check_overrun(shared, &mut stream);
        self.is_waiting = !stream.rx.parked.is_empty();
        shared.counters.receive_waits += u64::from(self.is_waiting);
        if !self.takes() {
            // RFC 5040 section 5.4: what comes after a Terminate, or an error, is not looked at.
            shared.counters.discarded_bytes += cursor.left as u64;
            cursor.left = 0;
        }
        self.stream = Some(stream);
        all - cursor.left
    }

    /// Whether what arrives is looked at.
    pub(super) fn takes(&self) -> bool {
        matches!(self.state, State::Rts | State::Sqd)
    }

    /// Takes the next FPDU, if it is all there.
    fn next<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        cursor: &mut Cursor,
    ) -> Result<Next, Failure> {
        let spans = &mut inbound.scratch.spans;
        spans.clear();
        if !stream.rx.deframer.next(inbound.slices, cursor, spans)? {
            return Ok(Next::Partial);
        }
        inbound.shared.counters.fpdus_in += 1;
        inbound.shared.counters.fpdus_in_pieces += u64::from(spans.len() != 1);
        let len: usize = spans.iter().map(|span| span.len as usize).sum();
        let first = spans.first().map_or(&[][..], |span| span.of(inbound.slices));
        if first.len() >= len.min(SMALL) {
            return self.segment_or_park(inbound, stream, first, len);
        }
        let mut bytes = [0; SMALL];
        let mut have = 0;
        for span in spans.iter() {
            let from = span.of(inbound.slices);
            let more = from.len().min(SMALL - have);
            bytes[have..have + more].copy_from_slice(&from[..more]);
            have += more;
        }
        self.segment_or_park(inbound, stream, &bytes[..have], len)
    }

    /// A segment, which waits if it finds no receive, or is behind others that do and does not pass them.
    #[inline]
    fn segment_or_park<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        bytes: &[u8],
        len: usize,
    ) -> Result<Next, Failure> {
        let (is_behind, order) = (!stream.rx.parked.is_empty(), stream.rx.order);
        let parked = if is_behind && !passes(bytes) {
            self.park(inbound, stream)
        } else {
            if is_behind {
                self.place_ahead(inbound, stream)?;
            }
            self.is_waiting = false;
            let taken = self.segment(inbound, stream, bytes, len);
            if is_behind || self.is_waiting {
                stream.rx.order = order;
            }
            if !self.is_waiting {
                return taken.map(|()| Next::Taken);
            }
            self.park(inbound, stream)
        };
        Ok(if parked { Next::Taken } else { Next::NoRoom })
    }

    /// A segment of `len` bytes that begins with `bytes`.
    #[inline]
    pub(super) fn segment<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        bytes: &[u8],
        len: usize,
    ) -> Result<(), Failure> {
        // No segment is shorter than its header: the length of the FPDU cannot be right.
        let header = Header::parse(bytes).ok_or(Failure::new(Cause::Llp(Llp::Marker)))?;
        let header = header.map_err(|error| {
            let failed = Failed::of_bytes(len as u16, bytes);
            Failure { failed, ..Failure::new(Cause::Ddp(error)) }
        })?;
        let payload = &bytes[header.len()..];
        let mut segment =
            Segment { header, opcode: Opcode::Write, len: len - header.len(), payload };
        // DDP is asked before RDMAP (RFC 5041 section 7).
        let is_first = match header {
            Header::Tagged(_) => true,
            Header::Untagged(header) => {
                stream.rx.sequence.check(&header).map_err(|error| segment.refuse(error))?
            }
        };
        segment.opcode = Opcode::parse(header.ulp()).map_err(|error| {
            segment.refuse(Cause::Operation(match error {
                ControlError::Version => Operation::Version,
                ControlError::Opcode => Operation::Opcode,
            }))
        })?;
        self.begin(inbound.shared, stream);
        match header {
            Header::Tagged(header) => {
                if segment.opcode.queue().is_some() {
                    return Err(segment.refuse(Cause::Operation(Operation::Opcode)));
                }
                self.tagged(inbound, stream, &segment, &header)?;
            }
            Header::Untagged(header) => {
                if segment.opcode.queue() != Some(header.queue) {
                    return Err(segment.refuse(Cause::Operation(Operation::Opcode)));
                }
                self.untagged(inbound, stream, &segment, &header, is_first)?;
                let taken = stream.rx.sequence.take(&header, segment.len);
                taken.map_err(|error| segment.refuse(error))?;
            }
        }
        inbound.shared.counters.messages_in += u64::from(header.is_last());
        Ok(())
    }

    /// The first FPDU lets a responder send (RFC 5044 section 7.1: it MUST NOT before).
    #[inline]
    fn begin(&mut self, shared: &mut Shared, stream: &mut Stream) {
        if !stream.rx.is_new {
            return;
        }
        stream.rx.is_new = false;
        if stream.tx.held {
            stream.tx.held = false;
            shared.events.push_back(Event::Established(self.id));
        }
    }

    /// Places what is to be placed, and tells what waits for it.
    pub(super) fn settle<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
    ) -> Result<(), Failure> {
        let Inbound { shared, scratch, slices, memory, .. } = inbound;
        let mut done = 0;
        let mut fault = None;
        for placed in scratch.placed.chunks(BATCH_MAX) {
            let pieces = Pieces { placed, slices, values: &scratch.values };
            shared.counters.place_calls += 1;
            match memory.place(pieces) {
                Ok(()) => done += placed.len(),
                Err(failed) => {
                    done += failed.done.min(placed.len() - 1);
                    fault = Some(scratch.placed[done].owner);
                    break;
                }
            }
        }
        let bytes = scratch.placed[..done].iter().map(|of| match of.from {
            Source::Stream(span) => u64::from(span.len),
            Source::Value(_) => 8,
        });
        shared.counters.placed_bytes += bytes.sum::<u64>();
        for delivery in &scratch.deliveries {
            match delivery.what {
                what if delivery.after <= done => self.tell(shared, what),
                Delivered::Receive { completion, .. } => stream.rx.lost.push(completion.wr_id),
                Delivered::Request { .. } => {}
            }
        }
        scratch.placed.clear();
        scratch.values.clear();
        scratch.deliveries.clear();
        // Memory that is gone is a local error of DDP's (RFC 5041 section 7).
        let failure = Failure::new(Cause::Ddp(ddp::Error::Catastrophic));
        match fault {
            None => Ok(()),
            Some(Owner::Peer) => Err(failure),
            Some(Owner::Receive) => Err(failure.receive(Status::LocalProtection)),
            Some(Owner::Request(place)) => Err(failure.work(place, Status::LocalProtection)),
        }
    }

    fn tell(&mut self, shared: &mut Shared, what: Delivered) {
        match what {
            Delivered::Receive { completion, solicited } => {
                self.complete_receive(shared, completion, solicited);
            }
            Delivered::Request { place } => {
                self.sq.entry_mut(place).progress = Progress::Ended(Status::Success);
                self.retire(shared);
            }
        }
    }
}
