//! What the application posts, and what completes.

use super::QueuePair;
use super::state::State;
use crate::status::Status;
use crate::verbs::Error;
use crate::verbs::cq::{Completion, Done};
use crate::verbs::send_queue::{Entry, Progress};
use crate::verbs::shared::Shared;
use crate::verbs::work::{RecvRequest, SendRequest};

impl QueuePair {
    #[inline]
    pub(crate) fn post_send(
        &mut self,
        shared: &mut Shared,
        request: &SendRequest<'_>,
    ) -> Result<(), Error> {
        match self.state {
            State::Rts => self.sq.post(request),
            State::Reset | State::Init | State::Rtr | State::Sqd => Err(Error::State),
            State::Sqe | State::Err => {
                self.sq.accepts(request)?;
                self.refuse_send(shared, request.wr_id, Status::Flushed);
                Ok(())
            }
        }
    }

    #[inline]
    pub(crate) fn post_recv(
        &mut self,
        shared: &mut Shared,
        request: &RecvRequest<'_>,
    ) -> Result<(), Error> {
        if self.config.srq.is_some() {
            return Err(Error::Invalid);
        }
        match self.state {
            State::Reset => Err(Error::State),
            State::Init | State::Rtr | State::Rts | State::Sqd => self.rq.post(request),
            State::Sqe | State::Err => {
                self.rq.accepts(request)?;
                self.refuse_recv(shared, request.wr_id, Status::Flushed);
                Ok(())
            }
        }
    }

    pub(crate) fn refuse_send(&mut self, shared: &mut Shared, wr_id: u64, status: Status) {
        shared.counters.flushed += u64::from(status == Status::Flushed);
        let is_early = !self.sq.is_empty();
        let completion = Completion { status, is_early, ..self.flushed(wr_id, Done::Send) };
        self.complete_send(shared, completion);
    }

    pub(crate) fn refuse_recv(&mut self, shared: &mut Shared, wr_id: u64, status: Status) {
        shared.counters.flushed += u64::from(status == Status::Flushed);
        let completion = Completion { status, ..self.flushed(wr_id, Done::Receive) };
        self.complete_receive(shared, completion, false);
    }

    pub(crate) fn oldest_send(&self) -> Option<u64> {
        (!self.sq.is_empty()).then(|| self.sq.entry(self.sq.head).wr_id)
    }

    pub(super) fn flushed(&self, wr_id: u64, done: Done) -> Completion {
        let status = Status::Flushed;
        Completion { wr_id, qp: self.id, status, done, ..Completion::default() }
    }

    pub(super) fn complete_send(&mut self, shared: &mut Shared, completion: Completion) {
        self.overrun |= !shared.complete(self.config.send_cq, completion, false);
    }

    pub(super) fn complete_receive(
        &mut self,
        shared: &mut Shared,
        completion: Completion,
        solicited: bool,
    ) {
        self.overrun |= !shared.complete(self.config.receive_cq, completion, solicited);
    }

    /// The completion of a piece of work that has ended well.
    pub(super) fn success(&self, entry: &Entry) -> Completion {
        Completion {
            wr_id: entry.wr_id,
            qp: self.id,
            done: entry.done(),
            len: entry.len,
            ..Completion::default()
        }
    }

    /// Work completes in the order in which it was posted: all at the head of the queue that has ended.
    #[inline]
    pub(super) fn retire(&mut self, shared: &mut Shared) {
        while self.sq.head != self.sq.next {
            let entry = self.sq.entry(self.sq.head);
            if entry.progress != Progress::Ended(Status::Success) {
                break;
            }
            let told =
                (entry.flags.signaled || self.config.signal_all).then(|| self.success(entry));
            self.sq.head = self.sq.head.wrapping_add(1);
            if let Some(completion) = told {
                self.complete_send(shared, completion);
            }
        }
    }
}
