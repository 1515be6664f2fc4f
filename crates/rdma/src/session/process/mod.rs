//! The device's side of a session: one process's objects, and its queues in the shared memory.
//!
//! The device gives each message to [`Process::request`], and whatever brings a queue pair forward goes through here:
//! [`pull`](Process::pull) takes what the application has posted, [`receive`](Process::receive) and
//! [`transmit`](Process::transmit) move its stream, and each of them ends by writing completions. What the device is
//! to do then is in [`poll_told`](Process::poll_told).

mod heard;
mod owned;
mod pull;
mod settle;
mod verbs;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

use wire::Nanos;

use super::Hostile;
use super::area::Arena;
use super::completions::Written;
use super::control::{self, Control, QPS_MAX};
use super::posts::{Copied, Taken};
use crate::counters::Counters;
use crate::memory::{Handle, Memory};
use crate::mpa::Negotiated;
use crate::rdmap::terminate::Cause;
use crate::verbs::id::kind::Kind;
use crate::verbs::id::{Cq, Id, Qp, Srq};
use crate::verbs::{Close, Error, Limits, Rnic, State, Transmitted};
pub use heard::Heard;
use owned::Owned;

/// What the device is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// A completion event: to this channel, about this queue.
    Completion {
        /// The channel's number.
        channel: u32,
        /// The queue's.
        cq: u32,
    },
    /// An asynchronous event.
    Async {
        /// The context that hears of it.
        context: u32,
        /// The number of its `ibv_event_type`.
        event: u8,
        /// The object's number: of a queue pair, a completion queue or a shared receive queue.
        object: u32,
    },
    /// The peer has ended the stream of a queue pair by a Terminate message.
    Terminated(Qp, Cause),
    /// The stream of a queue pair is over.
    Disconnected(Qp),
    /// The queue pair has no stream any more: it is gone, or was reset. A stream that it had is to be closed.
    Forgotten(Qp),
    /// The device's name for memory is not used any more.
    Released(Handle),
}

/// Numbers of `ibv_event_type`.
mod event {
    pub(super) const CQ_ERR: u8 = 0;
    pub(super) const QP_FATAL: u8 = 1;
    pub(super) const QP_ACCESS_ERR: u8 = 3;
    pub(super) const SRQ_LIMIT_REACHED: u8 = 15;
    pub(super) const QP_LAST_WQE_REACHED: u8 = 16;
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Process {
    rnic: Rnic,
    limits: Limits,
    arena: Arena,
    /// Words that were given out before: others are zero.
    used: usize,
    qps: Places<Pair>,
    cqs: Places<CompletionQueue>,
    srqs: Places<SharedQueue>,
    owned: Owned,
    /// Completion queues whose events wait, and those of which some have waited; each once.
    moderated: Vec<Cq>,
    told: VecDeque<Told>,
    copied: Copied,
}

/// A queue pair's queues.
#[derive(Debug)]
struct Pair {
    qp: Qp,
    context: u32,
    send_cq: Cq,
    receive_cq: Cq,
    srq: Option<Srq>,
    sq: Taken,
    rq: Option<Taken>,
    /// As the application was told.
    state: State,
}

#[derive(Debug)]
struct CompletionQueue {
    cq: Cq,
    context: u32,
    channel: Option<u32>,
    written: Written,
    /// An event waits for so many entries, or so many nanoseconds.
    count: u32,
    period: Nanos,
    /// Entries that no event was looked at for, and whether one of them is solicited.
    unseen: u32,
    is_solicited: bool,
    /// When an event does not wait any more, and whether the queue is one of [`Process::moderated`].
    due: Option<Nanos>,
    is_listed: bool,
}

#[derive(Debug)]
struct SharedQueue {
    srq: Srq,
    context: u32,
    limit: u32,
    taken: Taken,
}

/// Objects by their place.
#[derive(Debug)]
struct Places<T>(Vec<Option<T>>);

impl<T> Default for Places<T> {
    fn default() -> Self {
        Places(Vec::new())
    }
}

impl<T> Places<T> {
    fn put<K: Kind>(&mut self, id: Id<K>, value: T) {
        let place = id.place();
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(value);
    }

    #[inline]
    fn get(&self, place: usize) -> Option<&T> {
        self.0.get(place)?.as_ref()
    }

    #[inline]
    fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.0.get_mut(place)?.as_mut()
    }

    fn take(&mut self, place: usize) -> Option<T> {
        self.0.get_mut(place)?.take()
    }
}

impl Process {
    /// One with no objects, over shared memory of so many words. `secret` is random and nobody else's.
    pub fn new(limits: Limits, secret: [u8; 16], words: usize) -> Self {
        let limits = Limits { qps: limits.qps.min(QPS_MAX), ..limits };
        Process {
            rnic: Rnic::new(limits, secret),
            limits,
            arena: Arena::new(control::WORDS, words),
            used: control::WORDS,
            qps: Places::default(),
            cqs: Places::default(),
            srqs: Places::default(),
            owned: Owned::default(),
            moderated: Vec::new(),
            told: VecDeque::new(),
            copied: Copied::default(),
        }
    }

    /// How much it may have.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        self.rnic.counters()
    }

    /// The next thing to do.
    pub fn poll_told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    /// How many objects it has, by kind.
    pub fn objects(&self) -> Objects {
        self.owned.count()
    }

    /// Queue pairs with new posts: `each` is called with the number of each.
    #[inline]
    pub fn take_posts(&self, memory: &[AtomicU64], mut each: impl FnMut(Qp)) {
        let Some(control) = Control::new(memory) else { return };
        control.take_posts(|place| {
            if let Some(pair) = self.qps.get(place) {
                each(pair.qp);
            }
        });
    }

    /// The state of a queue pair; `None` if there is none.
    pub fn state(&self, qp: Qp) -> Option<State> {
        self.rnic.state(qp).ok()
    }

    /// Whether [`transmit`](Self::transmit) has something to do.
    #[inline]
    pub fn wants_transmit(&self, qp: Qp) -> bool {
        self.rnic.wants_transmit(qp)
    }

    /// See [`Rnic::set_emss`].
    pub fn set_emss(&mut self, qp: Qp, emss: usize) {
        self.rnic.set_emss(qp, emss);
    }

    /// See [`Rnic::let_wait`].
    pub fn let_wait(&mut self, qp: Qp, waits: bool) {
        self.rnic.let_wait(qp, waits);
    }

    /// See [`Rnic::is_waiting`].
    #[inline]
    pub fn is_waiting(&self, qp: Qp) -> bool {
        self.rnic.is_waiting(qp)
    }

    /// See [`Rnic::waits_since`].
    #[inline]
    pub fn waits_since(&self, qp: Qp) -> u64 {
        self.rnic.waits_since(qp)
    }

    /// See [`Rnic::is_full`].
    #[inline]
    pub fn is_full(&self, qp: Qp) -> bool {
        self.rnic.is_full(qp)
    }

    /// See [`Rnic::awaited`].
    pub fn awaited(&self, qp: Qp) -> (usize, u32) {
        self.rnic.awaited(qp)
    }

    /// See [`Rnic::fpdu_len`].
    pub fn fpdu_len(&self, qp: Qp) -> usize {
        self.rnic.fpdu_len(qp)
    }

    /// The stream of a queue pair begins: see [`Rnic::start`].
    ///
    /// # Errors
    /// As [`Rnic::start`].
    pub fn start(
        &mut self,
        memory: &[AtomicU64],
        qp: Qp,
        negotiated: &Negotiated,
        emss: usize,
    ) -> Result<(), Error> {
        self.rnic.start(qp, negotiated, emss)?;
        self.tell_state(memory, qp);
        Ok(())
    }

    /// What a queue pair's stream has brought: see [`Rnic::receive`]. What the application has posted is taken first.
    ///
    /// # Errors
    /// [`Hostile`]. A queue pair that does not exist takes all.
    pub fn receive<M: Memory>(
        &mut self,
        memory: &[AtomicU64],
        now: Nanos,
        qp: Qp,
        slices: &[&[u8]],
        access: &mut M,
    ) -> Result<usize, Hostile> {
        self.take_posted(memory, qp)?;
        let taken = self.rnic.receive(qp, slices, access);
        self.settle(memory, now, qp)?;
        Ok(taken.unwrap_or_else(|_| slices.iter().map(|slice| slice.len()).sum()))
    }

    /// What a queue pair has to send: see [`Rnic::transmit`].
    ///
    /// # Errors
    /// [`Hostile`]. A queue pair that does not exist has nothing, and its stream is to be closed.
    pub fn transmit<M: Memory>(
        &mut self,
        memory: &[AtomicU64],
        now: Nanos,
        qp: Qp,
        buffer: &mut [u8],
        access: &mut M,
    ) -> Result<Transmitted, Hostile> {
        let sent = self.rnic.transmit(qp, buffer, access);
        self.settle(memory, now, qp)?;
        let gone = Transmitted { close: Some(Close::Abort), ..Transmitted::default() };
        Ok(sent.unwrap_or(gone))
    }

    /// The stream of a queue pair is over.
    ///
    /// # Errors
    /// [`Hostile`].
    pub fn stream_ended(
        &mut self,
        memory: &[AtomicU64],
        now: Nanos,
        qp: Qp,
    ) -> Result<(), Hostile> {
        self.rnic.stream_ended(qp);
        self.take_posted(memory, qp)?;
        self.settle(memory, now, qp)
    }

    /// Closes the stream of a queue pair in order: see [`Rnic::disconnect`].
    ///
    /// # Errors
    /// As [`Rnic::disconnect`].
    pub fn disconnect(&mut self, memory: &[AtomicU64], qp: Qp) -> Result<(), Error> {
        // What was posted before is sent.
        self.take_posted(memory, qp).map_err(|Hostile| Error::Invalid)?;
        self.rnic.disconnect(qp)?;
        self.tell_state(memory, qp);
        Ok(())
    }
}

/// How many objects there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Objects {
    /// Protection domains.
    pub pds: usize,
    /// Regions.
    pub regions: usize,
    /// Windows.
    pub windows: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Shared receive queues.
    pub srqs: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Bytes of all regions together.
    pub registered: u64,
}
