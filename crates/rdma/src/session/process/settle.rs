//! What has happened is told: completions are written, work queues have room again, events are said.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use wire::Nanos;

use super::{CompletionQueue, Hostile, Process, Told, event};
use crate::session::completions::Entry;
use crate::verbs::cq::{Completion, Done};
use crate::verbs::id::{Cq, Qp};
use crate::verbs::{Event, State};

impl Process {
    /// Tells what has happened to a queue pair.
    ///
    /// Its state first: whoever posts a receive rings only if the state behind that says so. Either it sees the state,
    /// or what it has posted is seen here.
    #[inline]
    pub(super) fn settle(
        &mut self,
        memory: &[AtomicU64],
        now: Nanos,
        qp: Qp,
    ) -> Result<(), Hostile> {
        while self.tell_state(memory, qp) {
            fence(Ordering::SeqCst);
            self.take_posted(memory, qp)?;
        }
        self.retire_shared(memory, qp);
        if let Some(pair) = self.qps.get(qp.place()).filter(|pair| pair.qp == qp) {
            let (send_cq, receive_cq) = (pair.send_cq, pair.receive_cq);
            self.write_completions(memory, now, send_cq)?;
            if receive_cq != send_cq {
                self.write_completions(memory, now, receive_cq)?;
            }
        }
        self.retire_sends(memory, qp);
        self.tell_events();
        Ok(())
    }

    /// Room in a shared receive queue, before the completions are seen that it comes by: who has read those may post as many.
    #[inline]
    fn retire_shared(&mut self, memory: &[AtomicU64], qp: Qp) {
        let Process { rnic, qps, srqs, .. } = self;
        let Some(pair) = qps.get_mut(qp.place()).filter(|pair| pair.qp == qp) else { return };
        if let Some(of) = pair.srq.and_then(|srq| srqs.get_mut(srq.place())) {
            of.taken.retire(memory, rnic.srq_len(of.srq));
        }
    }

    /// Room in the send queue by what has ended without a completion. By what has one, it is there with that.
    #[inline]
    fn retire_sends(&mut self, memory: &[AtomicU64], qp: Qp) {
        let Process { rnic, qps, .. } = self;
        if let Some(pair) = qps.get_mut(qp.place()).filter(|pair| pair.qp == qp) {
            pair.sq.retire_before(memory, rnic.oldest_send(qp).map(|index| index as u32));
        }
    }

    /// Tells the state of a queue pair, if that is another one.
    #[inline]
    pub(super) fn tell_state(&mut self, memory: &[AtomicU64], qp: Qp) -> bool {
        let pair = self.qps.get_mut(qp.place()).filter(|pair| pair.qp == qp);
        let Some(pair) = pair else { return false };
        let state = self.rnic.state(qp).unwrap_or(State::Err);
        let is_another = state != pair.state;
        if is_another {
            pair.state = state;
            pair.sq.tell_state(memory, state);
        }
        is_another
    }

    #[inline]
    pub(super) fn write_completions(
        &mut self,
        memory: &[AtomicU64],
        now: Nanos,
        cq: Cq,
    ) -> Result<(), Hostile> {
        if self.rnic.cq_len(cq) == 0 {
            return Ok(());
        }
        let Process { rnic, qps, cqs, moderated, told, .. } = self;
        let Some(queue) = cqs.get_mut(cq.place()).filter(|queue| queue.cq == cq) else {
            return Ok(());
        };
        let mut count = 0;
        let _ = rnic.drain_cq(cq, usize::MAX, |completion, is_solicited| {
            let pair = qps.get_mut(completion.qp.place()).filter(|pair| pair.qp == completion.qp);
            // What is left of a queue pair that is gone is nobody's.
            let Some(pair) = pair else { return };
            let index = completion.wr_id as u32;
            let is_receive = matches!(completion.done, Done::Receive | Done::ReceiveImmediate);
            let (wr_id, index) = match (is_receive, completion.is_early) {
                (true, _) => {
                    (completion.wr_id, pair.rq.as_mut().map_or(0, |rq| rq.retire_next(memory)))
                }
                // Those before it are not over, and have their places still.
                (false, true) => (pair.sq.wr_id(memory, index), index),
                (false, false) => (pair.sq.retire_to(memory, index), index),
            };
            queue.written.push(memory, &entry(&completion, wr_id, index));
            queue.is_solicited |= is_solicited;
            count += 1;
        });
        queue.unseen += count;
        if queue.unseen >= queue.count || queue.period == 0 {
            queue.tell(memory, told);
        } else if queue.due.is_none() {
            queue.due = Some(now.saturating_add(queue.period));
            if !core::mem::replace(&mut queue.is_listed, true) {
                moderated.push(cq);
            }
        }
        Ok(())
    }

    /// When [`expire`](Self::expire) is to be called, if at all.
    pub fn deadline(&self) -> Option<Nanos> {
        self.moderated.iter().filter_map(|cq| self.cqs.get(cq.place())?.due).min()
    }

    /// Events that have waited long enough are said.
    pub fn expire(&mut self, memory: &[AtomicU64], now: Nanos) {
        let Process { cqs, moderated, told, .. } = self;
        moderated.retain(|cq| {
            let queue = cqs.get_mut(cq.place()).filter(|queue| queue.cq == *cq);
            let Some(queue) = queue else { return false };
            if queue.due.is_some_and(|due| due <= now) {
                queue.tell(memory, told);
            }
            queue.is_listed = queue.due.is_some();
            queue.is_listed
        });
    }

    /// What the objects say by themselves.
    #[inline]
    pub(super) fn tell_events(&mut self) {
        while let Some(event) = self.rnic.poll_event() {
            self.tell_event(event);
        }
    }

    #[cold]
    fn tell_event(&mut self, event: Event) {
        let Process { qps, cqs, srqs, told, .. } = self;
        let of_qp = |qp: Qp, event: u8| {
            let pair = qps.get(qp.place()).filter(|pair| pair.qp == qp)?;
            Some(Told::Async { context: pair.context, event, object: qp.0 })
        };
        let what = match event {
            // Completion queues are armed in the shared memory, not here.
            Event::Completion(_) => None,
            Event::CqError(cq) => cqs.get(cq.place()).filter(|queue| queue.cq == cq).map(|queue| {
                Told::Async { context: queue.context, event: event::CQ_ERR, object: cq.0 }
            }),
            Event::SrqLimit(srq) => {
                srqs.get_mut(srq.place()).filter(|of| of.srq == srq).map(|of| {
                    of.limit = 0;
                    let (context, event) = (of.context, event::SRQ_LIMIT_REACHED);
                    Told::Async { context, event, object: srq.0 }
                })
            }
            // No driver of iWARP tells it (siw, cxgb4): the connection manager has told that they are connected.
            Event::Established(_) => None,
            Event::QpAccessError(qp, _) => of_qp(qp, event::QP_ACCESS_ERR),
            Event::QpFatal(qp, _) => of_qp(qp, event::QP_FATAL),
            Event::LastWqe(qp) => of_qp(qp, event::QP_LAST_WQE_REACHED),
            Event::Terminated(qp, cause) => Some(Told::Terminated(qp, cause)),
            Event::Disconnected(qp) => Some(Told::Disconnected(qp)),
        };
        told.extend(what);
    }
}

impl CompletionQueue {
    /// Says a completion event, if the application waits for one.
    #[inline]
    fn tell(&mut self, memory: &[AtomicU64], told: &mut alloc::collections::VecDeque<Told>) {
        let is_solicited = core::mem::take(&mut self.is_solicited);
        (self.unseen, self.due) = (0, None);
        if self.written.must_tell(memory, is_solicited)
            && let Some(channel) = self.channel
        {
            told.push_back(Told::Completion { channel, cq: self.cq.0 });
        }
    }
}

#[inline]
fn entry(of: &Completion, wr_id: u64, index: u32) -> Entry {
    let vendor_err = of.cause.map_or(0, |cause| {
        let (layer, kind, code) = cause.codes();
        u16::from(layer) << 12 | u16::from(kind) << 8 | u16::from(code)
    });
    Entry {
        wr_id,
        status: of.status.number(),
        opcode: of.done as u8,
        vendor_err,
        len: of.len,
        immediate: of.immediate.map(u32::from_ne_bytes),
        invalidated: of.invalidated,
        qp: of.qp.0,
        index,
        is_early: of.is_early,
    }
}
