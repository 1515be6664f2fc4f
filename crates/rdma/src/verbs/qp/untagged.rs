//! Untagged messages: Sends and immediate data, requests, the Terminate message, and atomic responses.

use super::QueuePair;
use super::fail::Failure;
use super::inbound::{Inbound, Part, Segment};
use super::state::State;
use super::stream::{Incoming, Response, Stream};
use crate::ddp::{self, UNTAGGED_LEN, Untagged, UntaggedError};
use crate::memory::{Memory, Owner};
use crate::mpa::Rtr;
use crate::rdmap::terminate::{Cause, Failed, Operation, Protection, Terminate};
use crate::rdmap::{IMMEDIATE_LEN, Opcode, ReadRequest, atomic};
use crate::status::Status;
use crate::verbs::access::Access;
use crate::verbs::cq::{Completion, Done};
use crate::verbs::event::Event;
use crate::verbs::region::{Asker, Denied};
use crate::verbs::scratch::Delivered;

impl QueuePair {
    pub(super) fn untagged<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Untagged,
        is_first: bool,
    ) -> Result<(), Failure> {
        let after_write = core::mem::take(&mut stream.rx.order.after_write);
        match segment.opcode {
            Opcode::ReadRequest => self.read_request(inbound, stream, segment, header),
            Opcode::AtomicRequest => self.atomic_request(inbound, stream, segment, header),
            Opcode::AtomicResponse => self.atomic_response(inbound, stream, segment, header),
            Opcode::Terminate => self.terminate(inbound, stream, segment, header),
            Opcode::Immediate | Opcode::ImmediateSolicited => {
                let written = if after_write { stream.rx.order.written } else { 0 };
                self.immediate(inbound, stream, segment, header, is_first, written)
            }
            _ => self.send(inbound, stream, segment, header, is_first),
        }
    }

    /// A message that is one segment of a known length: all requests and responses are (RFC 5040 section 4.4, RFC
    /// 7306 sections 5.2 and 6.3).
    fn whole<'a, const N: usize>(
        segment: &Segment<'a>,
        header: &Untagged,
    ) -> Result<&'a [u8; N], Failure> {
        if segment.len > N {
            return Err(segment.refuse(UntaggedError::TooLong));
        }
        let whole = segment.payload.first_chunk().filter(|_| header.last && segment.len == N);
        whole.ok_or(segment.refuse(Cause::Operation(Operation::Unspecified)))
    }

    /// A segment of a Send of any kind.
    fn send<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Untagged,
        is_first: bool,
    ) -> Result<(), Failure> {
        if is_first {
            // RFC 6581 section 9.2: the ready message is not delivered.
            let is_ready = stream.rx.rtr.take() == Some(Rtr::Send);
            if is_ready && header.last && segment.len == 0 && segment.opcode == Opcode::Send {
                return Ok(());
            }
            self.take_receive(inbound, stream, segment)?;
        }
        let Some(mut incoming) = stream.rx.incoming else {
            return Err(segment.refuse(Cause::Operation(Operation::CatastrophicStream)));
        };
        if incoming.opcode != segment.opcode {
            return Err(segment.refuse(Cause::Operation(Operation::Opcode)));
        }
        if u64::from(incoming.received) + segment.len as u64 > incoming.room {
            let failure = segment.refuse(UntaggedError::TooLong);
            return Err(failure.receive(Status::LocalLength));
        }
        self.scatter(inbound, stream, segment, header, &mut incoming)?;
        incoming.received += segment.len as u32;
        stream.rx.incoming = Some(incoming);
        if header.last {
            self.sent(inbound, stream, segment, header, incoming)?;
            stream.rx.incoming = None;
        }
        Ok(())
    }

    /// The receive for a message that begins: its own queue's oldest, or the shared queue's. The next is taken when
    /// that is over: a peer that does not go on holds no more of what others share (RFC 5042).
    fn take_receive<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
    ) -> Result<(), Failure> {
        let sges = &mut stream.rx.sges;
        let taken = match self.config.srq {
            None => self.rq.take(sges),
            Some(srq) => {
                let shared = &mut *inbound.shared;
                let taken = shared.srqs.get_mut(srq).and_then(|queue| queue.take(sges));
                if let Some((_, true)) = taken {
                    shared.events.push_back(Event::SrqLimit(srq));
                }
                taken.map(|(wr_id, _)| wr_id)
            }
        };
        // RFC 5041 section 7: no buffer for the message.
        self.is_waiting = taken.is_none() && self.waits;
        let wr_id = taken.ok_or(segment.refuse(UntaggedError::NoBuffer))?;
        let room = sges.iter().map(|sge| u64::from(sge.len)).sum();
        let opcode = segment.opcode;
        let (received, sge, sge_offset) = (0, 0, 0);
        stream.rx.incoming = Some(Incoming { wr_id, opcode, room, received, sge, sge_offset });
        Ok(())
    }

    /// The payload goes into the elements of the receive, one after the other.
    fn scatter<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &Stream,
        segment: &Segment<'_>,
        header: &Untagged,
        incoming: &mut Incoming,
    ) -> Result<(), Failure> {
        // A shared queue's receives are of its own domain.
        let srq = self.config.srq.and_then(|srq| inbound.shared.srqs.get(srq));
        let pd = srq.map_or(self.config.pd, |srq| srq.pd);
        let asker = Asker { pd, qp: self.id };
        let (mut skip, mut left) = (segment.header.len(), segment.len);
        while left > 0 {
            let Some(sge) = stream.rx.sges.get(incoming.sge) else {
                debug_assert!(false, "the room was counted");
                return Err(segment.refuse(UntaggedError::TooLong));
            };
            let len = left.min((sge.len - incoming.sge_offset) as usize);
            if len == 0 {
                (incoming.sge, incoming.sge_offset) = (incoming.sge + 1, 0);
                continue;
            }
            let offset = sge.addr.checked_add(u64::from(incoming.sge_offset));
            let regions = &inbound.shared.regions;
            let granted = offset.ok_or(Denied::Wrap).and_then(|offset| {
                regions.check_local(asker, sge.lkey, offset, len as u64, Access::LOCAL_WRITE)
            });
            // The application's own fault: the peer is told no more than that.
            let granted = granted.map_err(|_| {
                let cause = Cause::Ddp(ddp::Error::Catastrophic);
                Failure::new(cause).receive(Status::LocalProtection)
            })?;
            let is_last = header.last && len == left;
            inbound.put(Part { skip, len, is_last, owner: Owner::Receive }, granted);
            (skip, left) = (skip + len, left - len);
            incoming.sge_offset += len as u32;
        }
        Ok(())
    }

    /// The last segment of a Send has come.
    fn sent<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Untagged,
        incoming: Incoming,
    ) -> Result<(), Failure> {
        let mut invalidated = None;
        if segment.opcode.invalidates() {
            // What came before was for the region as it was; from here on it is not valid (RFC 5040 section 5.3).
            self.settle(inbound, stream)?;
            let stag = header.ulp_word;
            let result = inbound.shared.regions.invalidate(self.asker(), stag, true);
            result.map_err(|denied| {
                let cause = match denied {
                    Denied::InvalidStag => Cause::Operation(Operation::CannotInvalidate),
                    _ => Cause::Protection(Protection::CannotInvalidate),
                };
                segment.refuse(cause).receive(Status::RemoteInvalidRequest)
            })?;
            invalidated = Some(stag);
        }
        let completion = Completion {
            wr_id: incoming.wr_id,
            qp: self.id,
            done: Done::Receive,
            len: incoming.received,
            invalidated,
            ..Completion::default()
        };
        let solicited = segment.opcode.is_solicited();
        inbound.deliver(Delivered::Receive { completion, solicited });
        Ok(())
    }

    /// Immediate data: a receive completes, and nothing is placed (RFC 7306 section 6).
    fn immediate<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Untagged,
        is_first: bool,
        written: u64,
    ) -> Result<(), Failure> {
        let data = Self::whole::<IMMEDIATE_LEN>(segment, header)?;
        if !is_first {
            return Err(segment.refuse(Cause::Operation(Operation::Opcode)));
        }
        self.take_receive(inbound, stream, segment)?;
        let Some(incoming) = stream.rx.incoming.take() else { return Ok(()) };
        let completion = Completion {
            wr_id: incoming.wr_id,
            qp: self.id,
            done: Done::ReceiveImmediate,
            len: u32::try_from(written).unwrap_or(u32::MAX),
            immediate: data.first_chunk().copied(),
            ..Completion::default()
        };
        let solicited = segment.opcode.is_solicited();
        inbound.deliver(Delivered::Receive { completion, solicited });
        Ok(())
    }

    /// Whether one more request may be waiting for its response: IRD is the number of buffers of the queue, and
    /// a request without one ends the stream (RFC 5040 section 5.2, RFC 5041 section 7), so that a peer cannot fill
    /// memory with them (RFC 5042).
    fn has_room(stream: &mut Stream, segment: &Segment<'_>, is_ready: bool) -> Result<(), Failure> {
        let room = stream.rx.ird.max(usize::from(is_ready));
        if stream.tx.responses.len() >= room {
            return Err(segment.refuse(UntaggedError::NoBuffer));
        }
        Ok(())
    }

    /// A Read Request: it is answered when its turn comes (RFC 5040 section 5.2).
    fn read_request<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Untagged,
    ) -> Result<(), Failure> {
        let request = ReadRequest::parse(Self::whole(segment, header)?);
        let is_ready = stream.rx.rtr.take() == Some(Rtr::Read) && request.len == 0;
        Self::has_room(stream, segment, is_ready)?;
        let ReadRequest { source_stag, source_offset, len, .. } = request;
        // A read of nothing names no buffer: its STags are not looked at (RFC 5040 section 5.2).
        if len > 0 {
            let (asker, needed) = (self.asker(), Access::REMOTE_READ);
            let regions = &inbound.shared.regions;
            let checked = regions.check(asker, source_stag, source_offset, u64::from(len), needed);
            let denied = checked.err().or_else(|| {
                // The sink is the peer's, but must not pass 2^64 on its way.
                request.sink_offset.checked_add(u64::from(len)).is_none().then_some(Denied::Wrap)
            });
            if let Some(denied) = denied {
                let failed = Failed::new(
                    (UNTAGGED_LEN + ReadRequest::LEN) as u16,
                    segment.header,
                    Some(request),
                );
                return Err(Failure { failed: Some(failed), ..Failure::new(denied.of_request()) });
            }
        }
        stream.tx.responses.push_back(Response::Read { request, header: *header });
        Ok(())
    }

    /// An Atomic Request: it is done now, behind all that came before it, and answered when its turn comes. Reads whose
    /// responses are not sent yet show the value from before it all the same (`precede_atomics`).
    fn atomic_request<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Untagged,
    ) -> Result<(), Failure> {
        let bytes = Self::whole(segment, header)?;
        let request = atomic::Request::parse(bytes)
            .ok_or(segment.refuse(Cause::Operation(Operation::Opcode)))?;
        stream.rx.rtr = None;
        Self::has_room(stream, segment, false)?;
        let atomic::Request { id, stag, offset, operation } = request;
        // RFC 7306 section 5.1: the place MUST be aligned to 64 bits.
        if offset % 8 != 0 {
            return Err(segment.refuse(Cause::Operation(Operation::CatastrophicStream)));
        }
        let (asker, needed) = (self.asker(), Access::REMOTE_ATOMIC);
        let granted = inbound.shared.regions.check(asker, stag, offset, 8, needed);
        let granted = granted.map_err(|denied| segment.refuse(denied.of_request()))?;
        self.settle(inbound, stream)?;
        let original = inbound.memory.atomic(granted.memory, granted.offset, operation);
        let original = original.map_err(|_| Failure::new(Cause::Ddp(ddp::Error::Catastrophic)))?;
        inbound.shared.counters.atomics += 1;
        let place = inbound.memory.locate(granted.memory, granted.offset);
        stream.tx.responses.push_back(Response::Atomic { id, original, place });
        Ok(())
    }

    fn atomic_response<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Untagged,
    ) -> Result<(), Failure> {
        let response = atomic::Response::parse(Self::whole(segment, header)?);
        // RFC 7306 section 8: a response that was not asked for.
        let (index, request) = stream
            .atomic(response.id)
            .ok_or(segment.refuse(Cause::Operation(Operation::Opcode)))?;
        stream.outstanding.remove(index);
        let Some(place) = request.place else { return Ok(()) };
        let sink = self.sq.sges(place).first().copied().unwrap_or_default();
        let (asker, needed) = (self.asker(), Access::LOCAL_WRITE);
        let granted = inbound.shared.regions.check_local(asker, sink.lkey, sink.addr, 8, needed);
        let granted =
            granted.map_err(|_| Failure::new(Cause::Local).work(place, Status::LocalProtection))?;
        inbound.put_value(response.original, granted, Owner::Request(place));
        inbound.deliver(Delivered::Request { place });
        Ok(())
    }

    /// The peer ends the stream: all before it is delivered, nothing behind it (RFC 5040 section 5.4).
    fn terminate<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Untagged,
    ) -> Result<(), Failure> {
        let terminate = Terminate::parse(segment.payload).filter(|_| header.last);
        let terminate =
            terminate.ok_or(segment.refuse(Cause::Operation(Operation::Unspecified)))?;
        self.settle(inbound, stream)?;
        self.terminated(inbound.shared, stream, &terminate);
        debug_assert_eq!(self.state, State::Err);
        Ok(())
    }
}
