//! What the application has posted is taken.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use wire::Nanos;

use super::{Hostile, Pair, Process};
use crate::session::posts::{Copied, Taken, TakenSend};
use crate::status::Status;
use crate::verbs::id::Qp;
use crate::verbs::{Error, RecvRequest, Rnic, SendRequest, State};

impl Process {
    /// Takes what was posted to a queue pair, and to the shared receive queue that it uses. What completes at once, as
    /// in [`State::Err`], is told.
    ///
    /// # Errors
    /// [`Hostile`].
    pub fn pull(&mut self, memory: &[AtomicU64], now: Nanos, qp: Qp) -> Result<(), Hostile> {
        if self.take_posted(memory, qp)? { self.settle(memory, now, qp) } else { Ok(()) }
    }

    /// Whether anything was posted.
    #[inline]
    pub(super) fn take_posted(&mut self, memory: &[AtomicU64], qp: Qp) -> Result<bool, Hostile> {
        let Process { rnic, qps, srqs, cqs, copied, .. } = self;
        let Some(pair) = qps.get_mut(qp.place()).filter(|pair| pair.qp == qp) else {
            return Ok(false);
        };
        let mut shared = pair.srq.and_then(|srq| srqs.get_mut(srq.place()));
        let sends = pair.sq.waiting(memory)?;
        let receives = pair.rq.as_ref().map_or(Ok(0), |rq| rq.waiting(memory))?;
        let of_shared = shared.as_ref().map_or(Ok(0), |of| of.taken.waiting(memory))?;
        // What was posted may rely on what was read of completions before: that is looked at after the number of posts,
        // and before any of them can complete.
        for cq in [pair.send_cq, pair.receive_cq] {
            if let Some(queue) = cqs.get_mut(cq.place()) {
                let released = queue.written.released(memory)?;
                if released > 0 {
                    rnic.release_cq(cq, released);
                }
            }
        }
        if sends == 0 && receives == 0 && of_shared == 0 {
            return Ok(false);
        }
        pull_receives(rnic, pair, receives, memory, copied);
        if let Some(of) = &mut shared {
            pull_shared(rnic, of.srq, &mut of.taken, of_shared, memory, copied);
        }
        pull_sends(rnic, pair, sends, memory, copied);
        Ok(true)
    }

    /// Asks the application to say when it has posted receives that a message of this queue pair waits for, or does not ask
    /// any more. Returns true if it has posted some already.
    pub fn want_receives(&mut self, memory: &[AtomicU64], qp: Qp, wants: bool) -> bool {
        let Process { qps, srqs, .. } = self;
        let Some(pair) = qps.get(qp.place()).filter(|pair| pair.qp == qp) else { return false };
        let of_shared = pair.srq.and_then(|srq| srqs.get(srq.place())).map(|of| &of.taken);
        let Some(taken) = of_shared.or(pair.rq.as_ref()) else { return false };
        taken.want(memory, wants.then_some(qp.0));
        fence(Ordering::SeqCst);
        // If there are more than there can be, this is found where they are taken.
        taken.waiting(memory).is_ok_and(|waiting| waiting > 0)
    }

    /// Returns true if these queue pairs have one receive queue.
    pub fn share_receives(&self, one: Qp, other: Qp) -> bool {
        let srq = |qp: Qp| self.qps.get(qp.place()).filter(|pair| pair.qp == qp)?.srq;
        srq(one).is_some_and(|of_one| srq(other) == Some(of_one))
    }

    /// Takes what was posted to a shared receive queue.
    ///
    /// # Errors
    /// [`Hostile`].
    pub(super) fn pull_srq(&mut self, memory: &[AtomicU64], place: usize) -> Result<(), Hostile> {
        let Process { rnic, srqs, copied, .. } = self;
        let Some(of) = srqs.get_mut(place) else { return Ok(()) };
        let waiting = of.taken.waiting(memory)?;
        pull_shared(rnic, of.srq, &mut of.taken, waiting, memory, copied);
        Ok(())
    }
}

#[inline]
fn pull_sends(
    rnic: &mut Rnic,
    pair: &mut Pair,
    waiting: u32,
    memory: &[AtomicU64],
    copied: &mut Copied,
) {
    let qp = pair.qp;
    for _ in 0..waiting {
        let index = u64::from(pair.sq.index());
        let posted = match pair.sq.send(memory, copied) {
            TakenSend::Send(send, payload) => {
                let request =
                    SendRequest { wr_id: index, work: send.work, payload, flags: send.flags };
                rnic.post_send(qp, &request)
            }
            TakenSend::Malformed => Err(Error::Invalid),
        };
        match posted {
            Ok(()) => {}
            // More than it said that it would post: what is over waits.
            Err(Error::Full) => break,
            Err(Error::State) => match rnic.state(qp) {
                Ok(State::Sqd) if rnic.oldest_send(qp).is_none() => {
                    let _ = rnic.refuse_send(qp, index, Status::Flushed);
                }
                // Before there is a stream, posts wait; and while one closes, for those before them: who reads a completion
                // knows that nothing before it uses memory any more.
                _ => break,
            },
            Err(_) => {
                // Nothing that the library would have let pass.
                let _ = rnic.refuse_send(qp, index, Status::LocalOperation);
                let _ = rnic.modify(qp, State::Err);
            }
        }
        pair.sq.take();
    }
}

#[inline]
fn pull_receives(
    rnic: &mut Rnic,
    pair: &mut Pair,
    waiting: u32,
    memory: &[AtomicU64],
    copied: &mut Copied,
) {
    let Some(rq) = &mut pair.rq else { return };
    let qp = pair.qp;
    for _ in 0..waiting {
        let posted = match rq.recv(memory, copied) {
            (wr_id, Some(sges)) => (wr_id, rnic.post_recv(qp, &RecvRequest { wr_id, sges })),
            (wr_id, None) => (wr_id, Err(Error::Invalid)),
        };
        match posted {
            (_, Ok(())) => {}
            (_, Err(Error::Full | Error::State)) => break,
            (wr_id, Err(_)) => {
                let _ = rnic.refuse_recv(qp, wr_id, Status::LocalOperation);
                let _ = rnic.modify(qp, State::Err);
            }
        }
        rq.take();
    }
}

/// A receive that is none is left out: there is no queue pair that it would complete at.
#[inline]
fn pull_shared(
    rnic: &mut Rnic,
    srq: crate::verbs::Srq,
    taken: &mut Taken,
    waiting: u32,
    memory: &[AtomicU64],
    copied: &mut Copied,
) {
    for _ in 0..waiting {
        if let (wr_id, Some(sges)) = taken.recv(memory, copied)
            && rnic.post_srq_recv(srq, &RecvRequest { wr_id, sges }) == Err(Error::Full)
        {
            break;
        }
        taken.take();
    }
}
