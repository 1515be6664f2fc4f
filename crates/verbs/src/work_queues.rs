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
use crate::session::lock;

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

    /// What was posted, is not over, and was not flushed yet.
    fn flush(&mut self, to: &mut VecDeque<Entry>, qp: u32, opcode: u8) {
        let Some(posts) = &self.posts else { return };
        let (posted, mut at) = (posts.posted(), posts.retired());
        if self.flushed.wrapping_sub(at) <= posted.wrapping_sub(at) {
            at = self.flushed;
        }
        while at != posted {
            let (wr_id, status) = (posts.wr_id(at), Status::Flushed.number());
            to.push_back(Entry { wr_id, status, opcode, qp, index: at, ..Entry::default() });
            at = at.wrapping_add(1);
        }
        self.flushed = posted;
    }
}

/// The device is gone: flushes what completes at this queue.
pub(crate) fn flush(cq: *mut ibv_cq, to: &mut VecDeque<Entry>) {
    const RECV: u8 = 128;
    PAIRS.each(|pair| {
        // SAFETY: it is in the table, so that it has not ended.
        let pair = unsafe { &*pair };
        let base = &pair.base.qp_base;
        if base.send_cq == cq {
            lock(&pair.sends).flush(to, base.qp_num, 0);
        }
        if base.recv_cq == cq {
            lock(&pair.receives).flush(to, base.qp_num, RECV);
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
