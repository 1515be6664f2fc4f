//! Tagged messages: writes, and the responses of reads.

use super::QueuePair;
use super::fail::Failure;
use super::inbound::{Inbound, Part, Segment};
use super::stream::Stream;
use crate::ddp::{Tagged, TaggedError};
use crate::memory::{Memory, Owner};
use crate::rdmap::Opcode;
use crate::rdmap::terminate::{Cause, Operation};
use crate::status::Status;
use crate::verbs::access::Access;
use crate::verbs::scratch::Delivered;

impl QueuePair {
    pub(super) fn tagged<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Tagged,
    ) -> Result<(), Failure> {
        // RFC 5041 section 5.3: segments of a message come one behind the other.
        if stream.rx.order.tagged.is_some_and(|opcode| opcode != segment.opcode) {
            return Err(segment.refuse(Cause::Operation(Operation::Opcode)));
        }
        let begins = stream.rx.order.tagged.is_none();
        match segment.opcode {
            Opcode::Write => self.write(inbound, stream, segment, header, begins)?,
            _ => self.read_response(inbound, stream, segment, header)?,
        }
        stream.rx.order.tagged = (!header.last).then_some(segment.opcode);
        Ok(())
    }

    /// A segment of a write. Each is judged by itself, as each says where it goes (RFC 5041 section 5.1).
    #[inline]
    fn write<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Tagged,
        begins: bool,
    ) -> Result<(), Failure> {
        let len = segment.len;
        // A segment without payload names no buffer: its STag is not looked at (RFC 5040 section 5.2).
        // The right to a payload that is placed was checked then. The program may have taken it back since.
        if len > 0 && !inbound.is_placed {
            let Tagged { stag, offset, .. } = *header;
            let needed = Access::REMOTE_WRITE;
            let asker = self.asker();
            let granted = inbound.shared.regions.check(asker, stag, offset, len as u64, needed);
            let granted = granted.map_err(|denied| segment.refuse(denied.of_tagged()))?;
            let skip = segment.header.len();
            let part = Part { skip, len, is_last: header.last, owner: Owner::Peer };
            inbound.put(part, granted);
        }
        let before = if begins { 0 } else { stream.rx.order.written };
        stream.rx.order.written = before.saturating_add(len as u64);
        stream.rx.order.after_write = true;
        Ok(())
    }

    /// A segment of a response. It must be the next of the read that was sent first: nothing else was asked for.
    fn read_response<M: Memory>(
        &mut self,
        inbound: &mut Inbound<'_, M>,
        stream: &mut Stream,
        segment: &Segment<'_>,
        header: &Tagged,
    ) -> Result<(), Failure> {
        stream.rx.order.after_write = false;
        // RFC 5040 section 7.2: a response that was not asked for.
        let (index, read) =
            stream.oldest_read().ok_or(segment.refuse(Cause::Operation(Operation::Opcode)))?;
        let (sink, all) = match read.place {
            Some(place) => {
                let sink = self.sq.sges(place).first().copied().unwrap_or_default();
                (sink, self.sq.entry(place).len)
            }
            None => Default::default(),
        };
        let len = segment.len;
        let refuse = |error: TaggedError| {
            let failure = segment.refuse(error);
            match read.place {
                Some(place) => failure.work(place, Status::BadResponse),
                None => failure,
            }
        };
        let received = u64::from(read.received) + len as u64;
        // Too much is an error before its end is announced, and so is too little where it is.
        if received > u64::from(all) || header.last && received != u64::from(all) {
            return Err(refuse(TaggedError::Bounds));
        }
        if len > 0 {
            if header.stag != sink.lkey {
                return Err(refuse(TaggedError::InvalidStag));
            }
            let offset = sink.addr.wrapping_add(u64::from(read.received));
            if header.offset != offset {
                return Err(refuse(TaggedError::Bounds));
            }
            let (asker, needed) = (self.asker(), Access::LOCAL_WRITE);
            let regions = &inbound.shared.regions;
            let granted = regions.check_local(asker, sink.lkey, offset, len as u64, needed);
            let place = read.place.unwrap_or_default();
            let granted = granted.map_err(|denied| {
                segment.refuse(denied.of_tagged()).work(place, Status::LocalProtection)
            })?;
            let skip = segment.header.len();
            let owner = Owner::Request(place);
            inbound.put(Part { skip, len, is_last: header.last, owner }, granted);
        }
        if !header.last {
            stream.outstanding[index].received = received as u32;
            return Ok(());
        }
        stream.outstanding.remove(index);
        if let Some(place) = read.place {
            inbound.deliver(Delivered::Request { place });
        }
        Ok(())
    }
}
