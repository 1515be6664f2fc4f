//! Messages as FPDUs.

use alloc::collections::VecDeque;

use super::{Outbound, Pause};
use crate::ddp::{
    QUEUE_ATOMIC, QUEUE_READ, QUEUE_SEND, QUEUE_TERMINATE, TAGGED_LEN, Tagged, UNTAGGED_LEN,
    Untagged,
};
use crate::memory::{Extent, Handle, Memory};
use crate::mpa::Rtr;
use crate::rdmap::terminate::{Failed, TERMINATE_MAX, Terminate};
use crate::rdmap::{IMMEDIATE_LEN, Opcode, ReadRequest, atomic};
use crate::status::Status;
use crate::verbs::access::Access;
use crate::verbs::qp::QueuePair;
use crate::verbs::qp::fail::Failure;
use crate::verbs::qp::outstanding::Outstanding;
use crate::verbs::qp::sending::{Current, Sending};
use crate::verbs::qp::stream::{Response, Stream};
use crate::verbs::scratch::{Patch, Record};
use crate::verbs::send_queue::Progress;
use crate::verbs::work::Work;

/// More extents than an FPDU has as a rule: markers, and the elements of a send.
pub(super) const EXTENTS_OF_FPDU: usize = 192;

/// Returns how many bytes of a message the next segment has, of those that are `left` and have their place from `at` on. A
/// receiver stores segment by segment, and programs wait for the last word: no segment ends within it.
fn segment_len(left: usize, room: usize, at: u64) -> usize {
    const WORD: usize = 8;
    let len = left.min(room);
    // Bytes of the word that the segment would end in.
    let begun = (at.wrapping_add(len as u64) % WORD as u64) as usize;
    let is_last = len < left && begun + (left - len) <= WORD;
    if is_last && begun < len { len - begun } else { len }
}

/// The header of a segment of an untagged message.
struct Header {
    bytes: [u8; UNTAGGED_LEN],
    len: usize,
}

impl Header {
    fn tagged(header: Tagged) -> Self {
        let mut bytes = [0; UNTAGGED_LEN];
        bytes[..TAGGED_LEN].copy_from_slice(&header.encode());
        Self { bytes, len: TAGGED_LEN }
    }

    fn untagged(header: Untagged) -> Self {
        Self { bytes: header.encode(), len: UNTAGGED_LEN }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<M> Outbound<'_, M> {
    /// An FPDU of a header and bytes that are at hand.
    fn put(
        &mut self,
        stream: &mut Stream,
        header: &[u8],
        payload: &[u8],
        of: Option<u32>,
        completes: Option<u32>,
    ) -> Result<(), Pause> {
        let ulpdu = header.len() + payload.len();
        self.has_room(stream, ulpdu)?;
        let mut fpdu = stream.tx.framer.begin(self.buffer, self.at, ulpdu);
        fpdu.put(header);
        fpdu.put(payload);
        let laid = fpdu.end();
        self.laid(stream, laid, of, completes);
        Ok(())
    }

    fn has_room(&self, stream: &Stream, ulpdu: usize) -> Result<(), Pause> {
        let fits = self.buffer.len() - self.at >= stream.tx.framer.len(ulpdu);
        if fits { Ok(()) } else { Err(Pause::Room) }
    }

    fn laid(
        &mut self,
        stream: &mut Stream,
        laid: crate::mpa::framing::Laid,
        of: Option<u32>,
        completes: Option<u32>,
    ) {
        stream.tx.framer.advance(&laid);
        self.at = laid.bytes.end;
        let extents = self.scratch.extents.len();
        self.scratch.records.push(Record { laid, extents, completes, of });
    }

    /// Has the extents from `begun` on, of the read response at hand, show no effect of the atomic operations behind it. These are
    /// done when their requests come, and a response is gathered when there is room for it: their originals replace what is
    /// there. The first of several at one place has the value from before all of them.
    fn precede_atomics(&mut self, responses: &VecDeque<Response>, begun: usize)
    where
        M: Memory,
    {
        for response in responses.iter().rev() {
            let Response::Atomic { original, place, .. } = response else { continue };
            let bytes = original.to_ne_bytes();
            for extent in &self.scratch.extents[begun..] {
                let from = self.memory.locate(extent.memory, extent.offset);
                let first = from.at.max(place.at);
                let end = from.at.saturating_add(extent.len as u64).min(place.at + 8);
                if from.space != place.space || first >= end {
                    continue;
                }
                let (at, begin) = (extent.at + (first - from.at) as usize, first - place.at);
                let part =
                    Patch { at, bytes, begin: begin as usize, end: (end - place.at) as usize };
                self.scratch.patches.push(part);
            }
        }
    }

    /// An untagged message of one segment. `number` is that of the message.
    fn untagged(
        &mut self,
        stream: &mut Stream,
        (queue, opcode): (u32, Opcode),
        payload: &[u8],
        of: Option<u32>,
        completes: Option<u32>,
    ) -> Result<u32, Pause> {
        self.has_room(stream, UNTAGGED_LEN + payload.len())?;
        let msn = stream.tx.number(queue);
        let ulp = opcode.control();
        let header = Untagged { last: true, ulp, ulp_word: 0, queue, msn, offset: 0 };
        self.put(stream, &header.encode(), payload, of, completes)?;
        Ok(msn)
    }

    /// The Terminate message.
    pub(super) fn terminate(
        &mut self,
        stream: &mut Stream,
        terminate: &Terminate,
    ) -> Result<(), Pause> {
        let mut buffer = [0; TERMINATE_MAX];
        let bytes = terminate.encode(&mut buffer);
        self.untagged(stream, (QUEUE_TERMINATE, Opcode::Terminate), bytes, None, None)?;
        self.shared.counters.terminates_out += 1;
        Ok(())
    }

    /// The ready message of an initiator: of no bytes, and before all others (RFC 6581 section 9.2).
    pub(super) fn ready(&mut self, stream: &mut Stream, rtr: Rtr) -> Result<(), Pause> {
        match rtr {
            Rtr::Write => {
                let ulp = Opcode::Write.control();
                let header = Tagged { last: true, ulp, stag: 0, offset: 0 };
                self.put(stream, &header.encode(), &[], None, None)
            }
            Rtr::Send => {
                self.untagged(stream, (QUEUE_SEND, Opcode::Send), &[], None, None).map(drop)
            }
            Rtr::Read => {
                let (sink_stag, sink_offset, source_stag, source_offset) = (0, 0, 0, 0);
                let len = 0;
                let request =
                    ReadRequest { sink_stag, sink_offset, len, source_stag, source_offset };
                let of = (QUEUE_READ, Opcode::ReadRequest);
                self.untagged(stream, of, &request.encode(), None, None)?;
                let (place, is_atomic, id, received) = (None, false, 0, 0);
                stream.outstanding.push_back(Outstanding { place, is_atomic, id, received });
                Ok(())
            }
        }
    }
}

impl QueuePair {
    /// The next FPDU of the response at the head of the queue; what is left of it then.
    pub(super) fn lay_response<M: Memory>(
        &mut self,
        outbound: &mut Outbound<'_, M>,
        stream: &mut Stream,
        sent: u32,
    ) -> Result<Option<Current>, Pause> {
        let Some(response) = stream.tx.responses.front().copied() else { return Ok(None) };
        let left = match response {
            Response::Atomic { id, original, .. } => {
                let bytes = atomic::Response { id, original }.encode();
                let of = (QUEUE_ATOMIC, Opcode::AtomicResponse);
                outbound.untagged(stream, of, &bytes, None, None)?;
                None
            }
            Response::Read { request, header } => {
                let sent = self.lay_read(outbound, stream, &request, &header, sent)?;
                (sent < request.len).then_some(sent)
            }
        };
        let Some(sent) = left else {
            stream.tx.responses.pop_front();
            outbound.shared.counters.messages_out += 1;
            return Ok(None);
        };
        Ok(Some(Current::Response { sent }))
    }

    /// Lays out a segment of a read response, of which `sent` bytes are laid out, and returns how many are then. The region is
    /// looked up for each segment, as it may be gone since.
    fn lay_read<M: Memory>(
        &mut self,
        outbound: &mut Outbound<'_, M>,
        stream: &mut Stream,
        request: &ReadRequest,
        header: &Untagged,
        sent: u32,
    ) -> Result<u32, Pause> {
        let left = (request.len - sent) as usize;
        let offset = request.sink_offset.wrapping_add(u64::from(sent));
        let len = segment_len(left, stream.tx.mulpdu - TAGGED_LEN, offset);
        let last = len == left;
        let ulp = Opcode::ReadResponse.control();
        let tagged = Tagged { last, ulp, stag: request.sink_stag, offset };
        if len == 0 {
            outbound.put(stream, &tagged.encode(), &[], None, None)?;
            return Ok(sent);
        }
        outbound.has_room(stream, TAGGED_LEN + len)?;
        let source = request.source_offset.wrapping_add(u64::from(sent));
        // Access may have ended since the request came (RFC 5042).
        let regions = &outbound.shared.regions;
        let granted = regions.check(
            self.asker(),
            request.source_stag,
            source,
            len as u64,
            Access::REMOTE_READ,
        );
        let granted = granted.map_err(|denied| {
            let header = crate::ddp::Header::Untagged(*header);
            let segment_len = (UNTAGGED_LEN + ReadRequest::LEN) as u16;
            let failed = Some(Failed::new(segment_len, header, Some(*request)));
            Pause::Failed(Failure { failed, ..Failure::new(denied.of_request()) })
        })?;
        let mut fpdu = stream.tx.framer.begin(outbound.buffer, outbound.at, TAGGED_LEN + len);
        fpdu.put(&tagged.encode());
        let extents = &mut outbound.scratch.extents;
        let begun = extents.len();
        let mut offset = granted.offset;
        fpdu.leave(len, |at, len| {
            extents.push(Extent { memory: granted.memory, offset, at, len });
            offset += len as u64;
        });
        let laid = fpdu.end();
        outbound.precede_atomics(&stream.tx.responses, begun);
        outbound.laid(stream, laid, None, None);
        Ok(sent + len as u32)
    }

    /// The next FPDU of a piece of work; what is left of it then.
    pub(super) fn lay_work<M>(
        &mut self,
        outbound: &mut Outbound<'_, M>,
        stream: &mut Stream,
        sending: Sending,
    ) -> Result<Option<Current>, Pause> {
        let place = sending.place;
        let entry = *self.sq.entry(place);
        match entry.work {
            Work::WriteImmediate { immediate, .. } if sending.immediate => {
                let opcode = match entry.flags.solicited {
                    false => Opcode::Immediate,
                    true => Opcode::ImmediateSolicited,
                };
                let mut bytes = [0; IMMEDIATE_LEN];
                bytes[..immediate.len()].copy_from_slice(&immediate);
                let of = (QUEUE_SEND, opcode);
                let msn = outbound.untagged(stream, of, &bytes, Some(place), Some(place))?;
                self.sq.entry_mut(place).msn = msn;
                Ok(None)
            }
            Work::Send { .. } | Work::Write { .. } | Work::WriteImmediate { .. } => {
                self.lay_payload(outbound, stream, sending)
            }
            Work::Read { stag, offset } => {
                let sink = self.sq.sges(place).first().copied().unwrap_or_default();
                let request = ReadRequest {
                    sink_stag: sink.lkey,
                    sink_offset: sink.addr,
                    len: entry.len,
                    source_stag: stag,
                    source_offset: offset,
                };
                self.check_sink(outbound, place)?;
                let of = (QUEUE_READ, Opcode::ReadRequest);
                let some = Some(place);
                let msn = outbound.untagged(stream, of, &request.encode(), some, some)?;
                self.request_sent(stream, place, msn, false);
                Ok(None)
            }
            Work::Atomic { stag, offset, operation } => {
                self.check_sink(outbound, place)?;
                // The number of the message to come names the request as well.
                let id = stream.tx.msn[QUEUE_READ as usize];
                let request = atomic::Request { id, stag, offset, operation };
                let of = (QUEUE_READ, Opcode::AtomicRequest);
                let some = Some(place);
                let msn = outbound.untagged(stream, of, &request.encode(), some, some)?;
                self.request_sent(stream, place, msn, true);
                Ok(None)
            }
            Work::Bind(_) | Work::FastRegister(_) | Work::LocalInvalidate { .. } => Ok(None),
        }
    }

    /// What comes back must have a place: the application hears of it before the peer is asked.
    fn check_sink<M>(&self, outbound: &Outbound<'_, M>, place: u32) -> Result<(), Pause> {
        let Some(sink) = self.sq.sges(place).first().filter(|sink| sink.len > 0) else {
            return Ok(());
        };
        let (asker, len) = (self.asker(), u64::from(sink.len));
        let regions = &outbound.shared.regions;
        let checked = regions.check_local(asker, sink.lkey, sink.addr, len, Access::LOCAL_WRITE);
        checked.map(drop).map_err(|_| self.fails(place, Status::LocalProtection))
    }

    fn request_sent(&mut self, stream: &mut Stream, place: u32, msn: u32, is_atomic: bool) {
        let entry = self.sq.entry_mut(place);
        entry.progress = Progress::Waiting;
        entry.msn = msn;
        let outstanding = Outstanding { place: Some(place), is_atomic, id: msn, received: 0 };
        stream.outstanding.push_back(outstanding);
    }

    /// A segment of a Send or a write.
    #[inline]
    fn lay_payload<M>(
        &mut self,
        outbound: &mut Outbound<'_, M>,
        stream: &mut Stream,
        mut sending: Sending,
    ) -> Result<Option<Current>, Pause> {
        let place = sending.place;
        let entry = *self.sq.entry(place);
        let left = (entry.len - sending.sent) as usize;
        let is_tagged = !matches!(entry.work, Work::Send { .. });
        let header_len = if is_tagged { TAGGED_LEN } else { UNTAGGED_LEN };
        let sent = u64::from(sending.sent);
        // Where a Send is placed is not known here: receives are aligned as a rule.
        let at = match entry.work {
            Work::Write { offset, .. } | Work::WriteImmediate { offset, .. } => {
                offset.wrapping_add(sent)
            }
            _ => sent,
        };
        let len = segment_len(left, stream.tx.mulpdu - header_len, at);
        let last = len == left;
        outbound.has_room(stream, header_len + len)?;
        let header = match entry.work {
            Work::Write { stag, offset } | Work::WriteImmediate { stag, offset, .. } => {
                let ulp = Opcode::Write.control();
                let offset = offset.wrapping_add(sent);
                Header::tagged(Tagged { last, ulp, stag, offset })
            }
            work => {
                let invalidate = match work {
                    Work::Send { invalidate } => invalidate,
                    _ => None,
                };
                let opcode = Opcode::send(entry.flags.solicited, invalidate.is_some());
                // The message has its number from its first segment on.
                if sending.sent == 0 {
                    self.sq.entry_mut(place).msn = stream.tx.msn[QUEUE_SEND as usize];
                }
                Header::untagged(Untagged {
                    last,
                    ulp: opcode.control(),
                    ulp_word: invalidate.unwrap_or(0),
                    queue: QUEUE_SEND,
                    msn: stream.tx.msn[QUEUE_SEND as usize],
                    offset: sending.sent,
                })
            }
        };
        let begun = outbound.scratch.extents.len();
        let Outbound { shared, scratch, buffer, at, .. } = &mut *outbound;
        let mut fpdu = stream.tx.framer.begin(buffer, *at, header_len + len);
        fpdu.put(header.bytes());
        if let Some(bytes) = self.sq.inline(place) {
            fpdu.put(&bytes[sending.sent as usize..][..len]);
        } else {
            let sges = self.sq.sges(place);
            let mut more = len;
            while more > 0 {
                let Some(sge) = sges.get(sending.sge) else { break };
                let now = more.min((sge.len - sending.sge_offset) as usize);
                if now == 0 {
                    (sending.sge, sending.sge_offset) = (sending.sge + 1, 0);
                    continue;
                }
                let addr = sge.addr.checked_add(u64::from(sending.sge_offset));
                let granted = addr.and_then(|addr| {
                    let needed = Access::LOCAL_READ;
                    let asker = self.asker();
                    shared.regions.check_local(asker, sge.lkey, addr, now as u64, needed).ok()
                });
                let Some(granted) = granted else {
                    scratch.extents.truncate(begun);
                    return Err(self.fails(place, Status::LocalProtection));
                };
                let (memory, mut offset): (Handle, u64) = (granted.memory, granted.offset);
                fpdu.leave(now, |at, len| {
                    scratch.extents.push(Extent { memory, offset, at, len });
                    offset += len as u64;
                });
                sending.sge_offset += now as u32;
                more -= now;
            }
        }
        let laid = fpdu.end();
        let has_immediate = matches!(entry.work, Work::WriteImmediate { .. });
        let completes = (last && !has_immediate).then_some(place);
        outbound.laid(stream, laid, Some(place), completes);
        sending.sent += len as u32;
        if !last {
            return Ok(Some(Current::Work(sending)));
        }
        if !is_tagged {
            stream.tx.number(QUEUE_SEND);
        }
        Ok(has_immediate.then_some(Current::Work(Sending { immediate: true, ..sending })))
    }
}
