//! The objects of one process, and the verbs that make and end them.

mod streams;

use alloc::boxed::Box;

use super::cq::{Completion, CompletionQueue};
use super::event::Event;
use super::id::{Cq, Pd, Qp, Slab, Srq, kind};
use super::qp::{QpConfig, QueuePair};
use super::receive_queue::{ReceiveQueue, SharedQueue};
use super::region::{Registration, WindowKind};
use super::shared::{Domain, Shared};
use super::work::RecvRequest;
use super::{Error, Limits};
use crate::counters::Counters;
use crate::memory::Handle;

/// The RDMA NIC of one process: its objects, which cannot name another's.
///
/// What to call when is written at the top of [the crate](crate).
#[derive(Debug)]
pub struct Rnic {
    qps: Slab<kind::Qp, Box<QueuePair>>,
    shared: Shared,
}

impl Rnic {
    /// One with no objects. `secret` is random and nobody else's: STags come from it.
    pub fn new(limits: Limits, secret: [u8; 16]) -> Self {
        Self { qps: Slab::new(limits.qps), shared: Shared::new(limits, secret) }
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// The next event, the oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// A protection domain.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn alloc_pd(&mut self) -> Result<Pd, Error> {
        self.shared.pds.insert(|_| Domain::default()).ok_or(Error::Limit)
    }

    /// Ends a protection domain.
    ///
    /// # Errors
    /// [`Error::Busy`] if something is in it.
    pub fn dealloc_pd(&mut self, pd: Pd) -> Result<(), Error> {
        if self.shared.domain(pd)?.users > 0 {
            return Err(Error::Busy);
        }
        self.shared.pds.remove(pd);
        Ok(())
    }

    /// Registers memory. The STag is both lkey and rkey.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is empty or passes 2^64, or if rights contradict each other; [`Error::Limit`].
    pub fn register(&mut self, of: Registration) -> Result<u32, Error> {
        self.shared.domain(of.pd)?;
        let stag = self.shared.regions.register(of)?;
        self.shared.domain(of.pd)?.users += 1;
        Ok(stag)
    }

    /// Takes a region away, and returns the device's name for its memory. From then on no call of
    /// [`Memory`](crate::Memory) names that memory by this region: none is under way while no method of the `Rnic`
    /// is, and each looks at the region anew. So the return of this call is the end of access (RFC 5042).
    ///
    /// # Errors
    /// [`Error::Busy`] if a window is bound to it.
    pub fn deregister(&mut self, stag: u32) -> Result<Handle, Error> {
        let (memory, pd) = self.shared.regions.deregister(stag)?;
        self.shared.leave(pd);
        Ok(memory)
    }

    /// A region for fast registration of up to `most` bytes, which is invalid until
    /// [`Work::FastRegister`](super::Work::FastRegister).
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn alloc_region(&mut self, pd: Pd, most: u64) -> Result<u32, Error> {
        self.shared.domain(pd)?;
        let stag = self.shared.regions.allocate(pd, most)?;
        self.shared.domain(pd)?.users += 1;
        Ok(stag)
    }

    /// A window, bound to nothing.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub fn alloc_window(&mut self, pd: Pd, kind: WindowKind) -> Result<u32, Error> {
        self.shared.domain(pd)?;
        let stag = self.shared.regions.window(pd, kind)?;
        self.shared.domain(pd)?.users += 1;
        Ok(stag)
    }

    /// Takes a window away, bound or not.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none.
    pub fn dealloc_window(&mut self, stag: u32) -> Result<(), Error> {
        let pd = self.shared.regions.deallocate(stag)?;
        self.shared.leave(pd);
        Ok(())
    }

    /// A completion queue with room for so many entries.
    ///
    /// # Errors
    /// [`Error::Invalid`] for none, [`Error::Limit`].
    pub fn create_cq(&mut self, depth: u32) -> Result<Cq, Error> {
        if depth == 0 {
            return Err(Error::Invalid);
        }
        if depth > self.shared.limits.cqe {
            return Err(Error::Limit);
        }
        let bytes = CompletionQueue::bytes(depth);
        self.shared.has_room(bytes)?;
        let cq = self.shared.cqs.insert(|_| CompletionQueue::new(depth)).ok_or(Error::Limit)?;
        self.shared.reserve(bytes);
        Ok(cq)
    }

    /// Ends a completion queue, with what is in it.
    ///
    /// # Errors
    /// [`Error::Busy`] if a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: Cq) -> Result<(), Error> {
        if self.shared.cqs.get(cq).ok_or(Error::Invalid)?.users > 0 {
            return Err(Error::Busy);
        }
        if let Some(queue) = self.shared.cqs.remove(cq) {
            self.shared.release(CompletionQueue::bytes(queue.depth()));
        }
        Ok(())
    }

    /// Takes the oldest entries. They count as entries until [`release_cq`](Self::release_cq) says that the
    /// application has read them: a device that hands them on in memory of its own calls this.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue.
    pub fn take_cq(&mut self, cq: Cq, to: &mut [Completion]) -> Result<usize, Error> {
        Ok(self.shared.cqs.get_mut(cq).ok_or(Error::Invalid)?.take(to))
    }

    /// As [`take_cq`](Self::take_cq), one by one, each with whether it is solicited: the peer asked for it, or it is an
    /// error. For a device that tells the owner of a queue itself and does not [arm](Self::arm_cq) it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue.
    pub fn drain_cq(
        &mut self,
        cq: Cq,
        most: usize,
        each: impl FnMut(Completion, bool),
    ) -> Result<usize, Error> {
        Ok(self.shared.cqs.get_mut(cq).ok_or(Error::Invalid)?.drain(most, each))
    }

    /// The application has read so many of what [`take_cq`](Self::take_cq) has returned.
    pub fn release_cq(&mut self, cq: Cq, count: u32) {
        if let Some(queue) = self.shared.cqs.get_mut(cq) {
            queue.give_back(count);
        }
    }

    /// Both at once, as `ibv_poll_cq` does it: an overrun queue is empty once it was read.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue.
    pub fn poll_cq(&mut self, cq: Cq, to: &mut [Completion]) -> Result<usize, Error> {
        let count = self.take_cq(cq, to)?;
        self.release_cq(cq, count as u32);
        Ok(count)
    }

    /// Entries that were not taken.
    pub fn cq_len(&self, cq: Cq) -> usize {
        self.shared.cqs.get(cq).map_or(0, CompletionQueue::len)
    }

    /// The next entry, or the next that is solicited or an error, leads to one [`Event::Completion`]. Entries
    /// that are there already lead to none: who arms a queue looks at it once more.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue.
    pub fn arm_cq(&mut self, cq: Cq, solicited_only: bool) -> Result<(), Error> {
        self.shared.cqs.get_mut(cq).ok_or(Error::Invalid)?.arm(solicited_only);
        Ok(())
    }

    /// A shared receive queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one with no room, or with more than one may have; [`Error::Limit`].
    pub fn create_srq(&mut self, pd: Pd, depth: u32, sges: u8) -> Result<Srq, Error> {
        if depth == 0 {
            return Err(Error::Invalid);
        }
        self.shared.domain(pd)?;
        if depth > self.shared.limits.wr || sges > self.shared.limits.sge {
            return Err(Error::Invalid);
        }
        let bytes = ReceiveQueue::bytes(depth, sges);
        self.shared.has_room(bytes)?;
        let srq = self.shared.srqs.insert(|_| SharedQueue::new(pd, depth, sges));
        let srq = srq.ok_or(Error::Limit)?;
        self.shared.reserve(bytes);
        self.shared.domain(pd)?.users += 1;
        Ok(srq)
    }

    /// Ends a shared receive queue, with what is posted to it.
    ///
    /// # Errors
    /// [`Error::Busy`] if a queue pair uses it.
    pub fn destroy_srq(&mut self, srq: Srq) -> Result<(), Error> {
        if self.shared.srqs.get(srq).ok_or(Error::Invalid)?.users > 0 {
            return Err(Error::Busy);
        }
        if let Some(queue) = self.shared.srqs.remove(srq) {
            self.shared.release(queue.queue.own_bytes());
            self.shared.leave(queue.pd);
        }
        Ok(())
    }

    /// Below so many receives there is one [`Event::SrqLimit`]. Zero: none.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue.
    pub fn arm_srq(&mut self, srq: Srq, limit: u32) -> Result<(), Error> {
        self.shared.srqs.get_mut(srq).ok_or(Error::Invalid)?.arm(limit);
        Ok(())
    }

    /// Receives that are posted.
    pub fn srq_len(&self, srq: Srq) -> u32 {
        self.shared.srqs.get(srq).map_or(0, |srq| srq.queue.len())
    }

    /// Posts a receive for whichever queue pair needs one.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Invalid`].
    pub fn post_srq_recv(&mut self, srq: Srq, request: &RecvRequest<'_>) -> Result<(), Error> {
        self.shared.srqs.get_mut(srq).ok_or(Error::Invalid)?.queue.post(request)
    }

    /// A queue pair, in the state [`Reset`](super::State::Reset).
    ///
    /// # Errors
    /// [`Error::Invalid`] if it names what is not there, or it has more than one may have; [`Error::Limit`]. A shared queue
    /// may be of another domain: its receives are then looked up in that.
    pub fn create_qp(&mut self, config: QpConfig) -> Result<Qp, Error> {
        let limits = self.shared.limits;
        let over = [config.sends > limits.wr, config.receives > limits.wr];
        let over_sge = [config.send_sges > limits.sge, config.receive_sges > limits.sge];
        if over.contains(&true) || over_sge.contains(&true) || config.inline > limits.inline {
            return Err(Error::Invalid);
        }
        self.shared.domain(config.pd)?;
        for cq in [config.send_cq, config.receive_cq] {
            self.shared.cqs.get(cq).ok_or(Error::Invalid)?;
        }
        if let Some(srq) = config.srq {
            self.shared.srqs.get(srq).ok_or(Error::Invalid)?;
        }
        self.shared.has_room(config.bytes())?;
        let qp = self.qps.insert(|id| Box::new(QueuePair::new(id, config))).ok_or(Error::Limit)?;
        self.shared.reserve(config.bytes());
        self.shared.domain(config.pd)?.users += 1;
        self.users(&config, |users| *users += 1);
        Ok(qp)
    }

    /// Ends a queue pair, with what is posted to it: nothing completes any more. Its stream is to be closed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue pair.
    pub fn destroy_qp(&mut self, qp: Qp) -> Result<(), Error> {
        let gone = self.qps.remove(qp).ok_or(Error::Invalid)?;
        self.shared.regions.forget(qp);
        self.shared.release(gone.config.bytes());
        self.shared.leave(gone.config.pd);
        self.users(&gone.config, |users| *users -= 1);
        Ok(())
    }

    /// What a queue pair uses.
    fn users(&mut self, config: &QpConfig, change: impl Fn(&mut u32)) {
        for cq in [config.send_cq, config.receive_cq] {
            if let Some(queue) = self.shared.cqs.get_mut(cq) {
                change(&mut queue.users);
            }
        }
        if let Some(queue) = config.srq.and_then(|srq| self.shared.srqs.get_mut(srq)) {
            change(&mut queue.users);
        }
    }

    /// Queue pairs that there are.
    pub fn qps(&self) -> usize {
        self.qps.len()
    }
}
