//! What is sent next: responses and own messages take turns, each whole (RFC 5041 section 5.3: messages in the order
//! in which they were submitted, segments of a message one behind the other).

use super::QueuePair;
use super::fail::Failure;
use super::outbound::{Outbound, Pause};
use super::sending::{Current, Sending};
use super::stream::Stream;
use crate::rdmap::terminate::Cause;
use crate::status::Status;
use crate::verbs::send_queue::Progress;
use crate::verbs::work::Work;

/// Why work at the head of the queue does not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// There is none.
    Nothing,
    /// For reads and atomics before it (the read fence).
    Fence,
    /// For all work before it (the local fence).
    LocalFence,
    /// As many reads and atomics as the peer takes are under way (RFC 5040 section 5.2).
    Ord,
}

impl QueuePair {
    /// See [`Rnic::wants_transmit`](crate::Rnic::wants_transmit).
    pub(crate) fn wants_transmit(&self) -> bool {
        let Some(stream) = &self.stream else { return false };
        let tx = &stream.tx;
        if tx.close.is_some() || tx.terminate.is_some() {
            return !tx.close_told;
        }
        if tx.held {
            return self.closes(stream);
        }
        tx.rtr.is_some()
            || tx.current.is_some()
            || !tx.responses.is_empty()
            || self.waits(stream).is_none()
            || self.closes(stream)
    }

    /// Its end is all that there is to be sent.
    fn closes(&self, stream: &Stream) -> bool {
        stream.tx.closing && self.is_drained(stream)
    }

    /// Nothing is left to send, and no response is waited for.
    pub(super) fn is_drained(&self, stream: &Stream) -> bool {
        self.sq.is_empty()
            && stream.outstanding.is_empty()
            && stream.tx.responses.is_empty()
            && stream.tx.current.is_none()
            && stream.tx.rtr.is_none()
    }

    fn waits(&self, stream: &Stream) -> Option<Wait> {
        if self.sq.next == self.sq.tail {
            return Some(Wait::Nothing);
        }
        let entry = self.sq.entry(self.sq.next);
        if entry.flags.local_fence && self.sq.head != self.sq.next {
            return Some(Wait::LocalFence);
        }
        let is_request = matches!(entry.work, Work::Read { .. } | Work::Atomic { .. });
        if !entry.flags.fence && !is_request {
            return None;
        }
        let requests = stream.requests();
        if entry.flags.fence && requests > 0 {
            return Some(Wait::Fence);
        }
        (is_request && stream.ord > 0 && requests >= stream.ord).then_some(Wait::Ord)
    }

    /// The next message; what is to be done first, or that there is none, is the pause.
    pub(super) fn select<M>(
        &mut self,
        outbound: &mut Outbound<'_, M>,
        stream: &mut Stream,
    ) -> Result<Current, Pause> {
        let has_response = !stream.tx.responses.is_empty();
        if has_response && stream.tx.responds_next {
            stream.tx.responds_next = false;
            return Ok(Current::Response { sent: 0 });
        }
        let begun = self.begin_work(outbound, stream);
        match begun {
            Err(Pause::Done) if has_response => return Ok(Current::Response { sent: 0 }),
            Ok(_) | Err(Pause::Done) => stream.tx.responds_next = true,
            Err(_) => {}
        }
        begun
    }

    fn begin_work<M>(
        &mut self,
        outbound: &mut Outbound<'_, M>,
        stream: &mut Stream,
    ) -> Result<Current, Pause> {
        loop {
            let place = self.sq.next;
            if let Some(wait) = self.waits(stream) {
                // What is laid out completes when it is gathered, and may be all that is waited for.
                if wait == Wait::LocalFence && !outbound.scratch.records.is_empty() {
                    return Err(Pause::Settle);
                }
                self.count_wait(outbound, stream, wait);
                return Err(Pause::Done);
            }
            let work = self.sq.entry(place).work;
            match work {
                Work::Read { .. } | Work::Atomic { .. } if stream.ord == 0 => {
                    return Err(self.fails(place, Status::LocalOperation));
                }
                Work::Bind(_) | Work::FastRegister(_) | Work::LocalInvalidate { .. } => {
                    // What was posted before has read its memory when this is done.
                    if !outbound.scratch.records.is_empty() {
                        return Err(Pause::Settle);
                    }
                    self.local(outbound, place, &work)?;
                }
                _ => {
                    self.sq.next = place.wrapping_add(1);
                    let (sent, sge, sge_offset, immediate) = (0, 0, 0, false);
                    return Ok(Current::Work(Sending { place, sent, sge, sge_offset, immediate }));
                }
            }
        }
    }

    fn count_wait<M>(&self, outbound: &mut Outbound<'_, M>, stream: &mut Stream, wait: Wait) {
        let counters = &mut outbound.shared.counters;
        if wait == Wait::Nothing || stream.tx.waiting == Some(self.sq.next) {
            return;
        }
        stream.tx.waiting = Some(self.sq.next);
        match wait {
            Wait::Ord => counters.ord_waits += 1,
            _ => counters.fence_waits += 1,
        }
    }

    /// Work on regions and windows is done at its turn, here.
    fn local<M>(
        &mut self,
        outbound: &mut Outbound<'_, M>,
        place: u32,
        work: &Work,
    ) -> Result<(), Pause> {
        let (regions, asker) = (&mut outbound.shared.regions, self.asker());
        let result = match work {
            Work::Bind(bind) => regions.bind(asker, bind),
            Work::FastRegister(of) => regions.fast_register(asker, of),
            Work::LocalInvalidate { stag } => regions.invalidate(asker, *stag, false),
            _ => Ok(()),
        };
        if result.is_err() {
            return Err(self.fails(place, Status::MemoryWindowBind));
        }
        self.sq.next = place.wrapping_add(1);
        self.sq.entry_mut(place).progress = Progress::Ended(Status::Success);
        self.retire(outbound.shared);
        Ok(())
    }

    /// Work that cannot be done: the application's own fault, of which the peer is told no more.
    pub(super) fn fails(&self, place: u32, status: Status) -> Pause {
        Pause::Failed(Failure::new(Cause::Local).work(place, status))
    }
}
