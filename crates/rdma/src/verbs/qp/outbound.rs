//! From memory to the stream: messages are laid out as FPDUs, their payload is gathered in one go, and then each
//! is sealed by its CRC while it is in the cache.

mod lay;

use super::QueuePair;
use super::close::Close;
use super::fail::Failure;
use super::sending::Current;
use super::state::State;
use super::stream::Stream;
use crate::memory::{BATCH_MAX, Memory};
use crate::mpa::layout::{body_len, wire_len};
use crate::rdmap::terminate::Cause;
use crate::status::Status;
use crate::verbs::scratch::Scratch;
use crate::verbs::send_queue::Progress;
use crate::verbs::shared::Shared;

/// What a call has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transmitted {
    /// Bytes.
    pub len: usize,
    /// There is more, for which there was no room.
    pub more: bool,
    /// These were the last: the stream is to be closed. Told by every call from then on, until
    /// [`Rnic::stream_ended`](crate::Rnic::stream_ended).
    pub close: Option<Close>,
}

/// What a call of `transmit` works with.
pub(super) struct Outbound<'a, M> {
    pub(super) shared: &'a mut Shared,
    pub(super) scratch: &'a mut Scratch,
    pub(super) buffer: &'a mut [u8],
    /// Bytes of it that are laid out.
    pub(super) at: usize,
    pub(super) memory: &'a mut M,
}

/// Why laying out stops.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pause {
    /// There is nothing more that may be sent now.
    Done,
    /// There is no room.
    Room,
    /// What is laid out is to be gathered first.
    Settle,
    /// What is laid out is sent; then the stream ends.
    Failed(Failure),
}

impl QueuePair {
    /// See [`Rnic::transmit`](crate::Rnic::transmit).
    pub(crate) fn transmit<M: Memory>(
        &mut self,
        shared: &mut Shared,
        buffer: &mut [u8],
        memory: &mut M,
    ) -> Transmitted {
        let Some(mut stream) = self.stream.take() else { return Transmitted::default() };
        let mut scratch = core::mem::take(&mut shared.scratch);
        let mut outbound = Outbound { shared, scratch: &mut scratch, buffer, at: 0, memory };
        let mut more = false;
        loop {
            let pause = self.lay_out(&mut outbound, &mut stream);
            let settled = self.settle_out(&mut outbound, &mut stream);
            let failure = match (settled, pause) {
                (Err(failure), _) | (Ok(()), Pause::Failed(failure)) => failure,
                (Ok(()), Pause::Settle) => continue,
                (Ok(()), Pause::Done) => break,
                (Ok(()), Pause::Room) => {
                    more = true;
                    break;
                }
            };
            self.fail(outbound.shared, &mut stream, failure);
        }
        let len = outbound.at;
        shared.scratch = scratch;
        self.check_overrun(shared, &mut stream);
        if stream.tx.closing && self.state == State::Sqd && self.is_drained(&stream) {
            stream.tx.close = Some(Close::Orderly);
        }
        let close = stream.tx.close;
        stream.tx.close_told = close.is_some();
        self.stream = Some(stream);
        Transmitted { len, more, close }
    }

    /// See [`Rnic::fpdu_len`](crate::Rnic::fpdu_len).
    pub(crate) fn fpdu_len(&self) -> usize {
        let mulpdu = self.stream.as_ref().map_or(0, |stream| stream.tx.mulpdu);
        wire_len(0, body_len(mulpdu), true)
    }

    /// Lays out FPDUs as long as there are any and there is room.
    fn lay_out<M: Memory>(&mut self, outbound: &mut Outbound<'_, M>, stream: &mut Stream) -> Pause {
        loop {
            if stream.tx.close.is_some() {
                break Pause::Done;
            }
            if let Some(terminate) = stream.tx.terminate {
                if let Err(pause) = outbound.terminate(stream, &terminate) {
                    break pause;
                }
                // RFC 5040 section 5.4: it is the last message.
                stream.tx.terminate = None;
                stream.tx.close = Some(Close::Orderly);
                self.state = State::Err;
                continue;
            }
            if stream.tx.held {
                break Pause::Done;
            }
            if let Some(rtr) = stream.tx.rtr {
                if let Err(pause) = outbound.ready(stream, rtr) {
                    break pause;
                }
                stream.tx.rtr = None;
                continue;
            }
            let current = match stream.tx.current {
                Some(current) => Ok(current),
                None => self.select(outbound, stream),
            };
            let current = match current {
                Ok(current) => current,
                Err(pause) => break pause,
            };
            stream.tx.current = Some(current);
            if outbound.scratch.extents.len() + lay::EXTENTS_OF_FPDU > BATCH_MAX {
                break Pause::Settle;
            }
            let laid = match current {
                Current::Response { sent } => self.lay_response(outbound, stream, sent),
                Current::Work(sending) => self.lay_work(outbound, stream, sending),
            };
            match laid {
                Ok(next) => stream.tx.current = next,
                Err(pause) => break pause,
            }
        }
    }

    /// Gathers, seals and completes what is laid out. If memory is gone, what is before it stands.
    fn settle_out<M: Memory>(
        &mut self,
        outbound: &mut Outbound<'_, M>,
        stream: &mut Stream,
    ) -> Result<(), Failure> {
        let Outbound { shared, scratch, buffer, at, memory } = outbound;
        let mut done = 0;
        let mut has_fault = false;
        for extents in scratch.extents.chunks(BATCH_MAX) {
            shared.counters.gather_calls += 1;
            match memory.gather(extents, buffer) {
                Ok(()) => done += extents.len(),
                Err(fault) => {
                    done += fault.done.min(extents.len() - 1);
                    has_fault = true;
                    break;
                }
            }
        }
        let bytes = scratch.extents[..done].iter().map(|extent| extent.len as u64);
        shared.counters.gathered_bytes += bytes.sum::<u64>();
        for patch in scratch.patches.drain(..) {
            let bytes = &patch.bytes[patch.begin..patch.end];
            buffer[patch.at..patch.at + bytes.len()].copy_from_slice(bytes);
        }
        let whole = match has_fault {
            false => scratch.records.len(),
            true => scratch.records.iter().take_while(|record| record.extents <= done).count(),
        };
        for record in &scratch.records[..whole] {
            stream.tx.framer.seal(buffer, &record.laid);
            shared.counters.fpdus_out += 1;
            let Some(place) = record.completes else { continue };
            shared.counters.messages_out += 1;
            let entry = self.sq.entry_mut(place);
            if entry.progress == Progress::Queued {
                entry.progress = Progress::Ended(Status::Success);
            }
        }
        let failed = scratch.records.get(whole).map(|record| {
            let begin = record.laid.bytes.start;
            stream.tx.framer.back(*at - begin);
            *at = begin;
            record.of
        });
        scratch.records.clear();
        scratch.extents.clear();
        self.retire(shared);
        match failed {
            None => Ok(()),
            Some(Some(place)) => {
                Err(Failure::new(Cause::Local).work(place, Status::LocalProtection))
            }
            Some(None) => Err(Failure::new(Cause::Local)),
        }
    }
}
