//! Queue pairs and shared receive queues, as the library has them.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

use libc::c_int;
use rdma::Status;
use rdma::session::completions::Entry;
use rdma::session::posts::Posts;
use rdma::verbs::State;

use crate::abi::*;
use crate::objects::Names;
use crate::session::{self, Side, lock};

pub(crate) static PAIRS: Names<QueuePair> = Names::new();
pub(crate) static SHARED: Names<SharedQueue> = Names::new();

/// A queue pair, as the library has it.
#[repr(C)]
pub(crate) struct QueuePair {
    /// What the program sees.
    pub(crate) base: ibv_qp_ex,
    pub(crate) sends: Mutex<Queue>,
    pub(crate) receives: Mutex<Queue>,
    pub(crate) async_events: AtomicU32,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) sq_sig_all: c_int,
    /// It was made with `ibv_wr_*`.
    pub(crate) is_extended: bool,
    /// What is being built by `ibv_wr_*`.
    pub(crate) build: Build,
}

/// One of its queues.
pub(crate) struct Queue {
    /// None of a queue pair that uses a shared one.
    pub(crate) posts: Option<Posts<'static>>,
    /// Most elements, and inline bytes, of an entry.
    pub(crate) sges: u32,
    pub(crate) inline: u32,
    /// Those before this one were flushed when the device was gone.
    pub(crate) flushed: u32,
}

/// A shared receive queue, as the library has it.
#[repr(C)]
pub(crate) struct SharedQueue {
    /// What the program sees.
    pub(crate) base: ibv_srq,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) async_events: AtomicU32,
    pub(crate) max_wr: u32,
}

impl Queue {
    pub(crate) fn new(posts: Option<Posts<'static>>, sges: u32, inline: u32) -> Self {
        Queue { posts, sges, inline, flushed: 0 }
    }

    /// What was posted, has not completed, and was not flushed yet. By `read` completions were read; `completes` says of an
    /// entry that is over whether there was to be one.
    fn flush(
        &mut self,
        read: Option<u32>,
        completes: impl Fn(&Posts<'_>, u32) -> bool,
    ) -> Vec<(u64, u32)> {
        let Some(posts) = &self.posts else { return Vec::new() };
        let (posted, over, mut at) = (posts.posted(), posts.retired(), posts.first_unread(read));
        if self.flushed.wrapping_sub(at) <= posted.wrapping_sub(at) {
            at = self.flushed;
        }
        self.flushed = posted;
        let left = |at: u32| posted.wrapping_sub(at);
        let all = (0..left(at)).map(|step| at.wrapping_add(step));
        // The device was about to write the completion of what is over, or to write none.
        let is_out = |at: &u32| left(*at) <= left(over) || completes(posts, *at);
        all.filter(is_out).map(|at| (posts.wr_id(at), at)).collect()
    }
}

/// The device is gone: flushes what completes at this queue, but sends that have done so before others.
pub(crate) fn flush(cq: *mut ibv_cq, early: &[(u32, u32)], to: &mut VecDeque<Entry>) {
    const RECV: u8 = 128;
    let Some(session) = session::get() else { return };
    let status = Status::Flushed.number();
    PAIRS.each(|pair| {
        // SAFETY: it is in the table, so that it has not ended.
        let pair = unsafe { &*pair };
        let base = &pair.base.qp_base;
        let qp = base.qp_num;
        let flushed = |opcode: u8| {
            move |(wr_id, index): (u64, u32)| Entry {
                wr_id,
                status,
                opcode,
                qp,
                index,
                ..Entry::default()
            }
        };
        if base.send_cq == cq {
            let completes = |posts: &Posts<'_>, at| pair.sq_sig_all != 0 || posts.is_signaled(at);
            let all = lock(&pair.sends).flush(session.read(qp, Side::Sends), completes);
            let is_late = |(_, index): &(u64, u32)| !early.contains(&(qp, *index));
            to.extend(all.into_iter().filter(is_late).map(flushed(0)));
        }
        if base.recv_cq == cq {
            let read = session.read(qp, Side::Receives);
            to.extend(lock(&pair.receives).flush(read, |_, _| true).into_iter().map(flushed(RECV)));
        }
    });
}

/// The library's own of a program's queue pair.
pub(crate) fn of(qp: *mut ibv_qp) -> *mut QueuePair {
    qp.cast()
}

/// The library's own of a program's shared queue.
pub(crate) fn of_srq(srq: *mut ibv_srq) -> *mut SharedQueue {
    srq.cast()
}

/// What is being built.
#[derive(Default)]
pub(crate) struct Build {
    /// A program is between `ibv_wr_start` and the end.
    pub(crate) is_held: AtomicBool,
    pub(crate) requests: Vec<Building>,
    /// The first error.
    pub(crate) error: c_int,
}

/// A request, with what it points to.
pub(crate) struct Building {
    pub(crate) wr: ibv_send_wr,
    pub(crate) elements: Vec<ibv_sge>,
    pub(crate) inline: Vec<u8>,
}

/// The state, as the device says.
pub(crate) unsafe fn state(qp: *mut ibv_qp) -> State {
    lock(&(*of(qp)).sends).posts.as_ref().map_or(State::Err, Posts::state)
}
