//! The workers, as the agent has them: what they are told, which of them has a connection, and fences, which all of
//! them have come to when what was said and sent before is done.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use ::tcp::FourTuple;
use handoff::{Refusal, RestoreReason};
use lro::Nanos;

use crate::lane::handoff::link::{Key, ToWorker, Way};
use crate::lane::handoff::resources::Resources;
use crate::steer::{Claims, NoEntry, Phase};

/// So long the entry of a connection that has left stays at least, where there are several workers: one that hands its
/// packets to another goes on until that has taken them, so that they keep their order.
const LEFT_FOR: Nanos = 20_000_000;

/// A point that all workers come to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Fence(u64);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Ways {
    ways: Vec<Way<ToWorker>>,
    /// What each worker has advertised that it has left (`ch_os_resource`).
    resources: Vec<Arc<Resources>>,
    claims: Claims,
    /// Connections that each worker has, or is about to.
    loads: Vec<u32>,
    /// The fence that is told next, if one is wanted.
    next: Fence,
    is_wanted: bool,
    /// The last fence that each has come to.
    done: Vec<Fence>,
    /// Connections that wait for fences, the first fence first.
    waiting: VecDeque<(Fence, Key)>,
    /// Places of connections that are not the NIC's any more, and since when.
    leaving: VecDeque<(u32, Nanos)>,
    /// Which worker makes room next.
    turn: usize,
    /// Workers were told something since that was [asked](Self::have_told) last.
    has_told: Cell<bool>,
}

impl Ways {
    /// To these workers, each with what it has left.
    pub(crate) fn new(workers: Vec<(Way<ToWorker>, Arc<Resources>)>, claims: Claims) -> Self {
        let (ways, resources): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
        let count = ways.len();
        Ways {
            ways,
            resources,
            claims,
            loads: vec![0; count],
            next: Fence(1),
            is_wanted: false,
            done: vec![Fence(0); count],
            waiting: VecDeque::new(),
            leaving: VecDeque::new(),
            turn: 0,
            has_told: Cell::new(false),
        }
    }

    /// Whether there are several.
    pub(super) fn are_several(&self) -> bool {
        self.ways.len() > 1
    }

    /// The ways, for one who tells all of them something.
    pub(super) fn all(&self) -> Vec<Way<ToWorker>> {
        self.ways.clone()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ways.len()
    }

    pub(crate) fn tell(&self, worker: usize, what: ToWorker) {
        if let Some(way) = self.ways.get(worker) {
            way.tell(what);
            self.has_told.set(true);
        }
    }

    pub(crate) fn tell_all(&self, what: impl Fn() -> ToWorker) {
        self.ways.iter().for_each(|way| way.tell(what()));
        self.has_told.set(true);
    }

    /// Whether workers were told something since this was asked last.
    pub(super) fn have_told(&self) -> bool {
        self.has_told.take()
    }

    /// The worker that had the connection with these ends, if it has left just now.
    pub(super) fn last_of(&self, path: &FourTuple) -> Option<usize> {
        let found = self.claims.lookup().find_path(path)?;
        found.phase.has_left().then_some(found.worker)
    }

    /// The worker that has the fewest connections.
    pub(super) fn least(&self) -> usize {
        let loads = self.loads.iter().enumerate();
        loads.min_by_key(|(_, load)| **load).map_or(0, |(worker, _)| worker)
    }

    /// What the NIC lacks for another connection, whichever worker would get it.
    pub(super) fn lacks(&self) -> Option<Refusal> {
        let mut why = None;
        for worker in 0..self.resources.len() {
            why = Some(self.lacks_at(worker)?);
        }
        why
    }

    /// What this worker lacks for another connection. One that is short of memory is to give a connection back.
    fn lacks_at(&self, worker: usize) -> Option<Refusal> {
        let why = self.resources[worker].lacks()?;
        if why == Refusal::Memory {
            self.tell(worker, ToWorker::MakeRoom { reason: RestoreReason::Memory });
        }
        Some(why)
    }

    /// Has the packets of a connection go to this worker from now on, if that has room for it.
    pub(super) fn claim(
        &mut self,
        place: u32,
        path: &FourTuple,
        worker: usize,
    ) -> Result<(), Refusal> {
        if let Some(why) = self.lacks_at(worker) {
            return Err(why);
        }
        self.claims.claim(place, path, worker).map_err(|why| match why {
            NoEntry::Taken => Refusal::Invalid,
            NoEntry::Full => Refusal::Queue,
        })?;
        self.loads[worker] += 1;
        Ok(())
    }

    /// A connection of this worker's is not the NIC's any more. Its place is free [later](Self::next_left).
    pub(crate) fn leave(&mut self, place: u32, worker: Option<usize>, now: Nanos) {
        if let Some(worker) = worker {
            self.loads[worker] -= 1;
        }
        self.leaving.push_back((place, now));
    }

    /// The next place whose connection has gone, and for so long that no packet of it passes another; with `at_once`, if its
    /// worker has done with it.
    pub(crate) fn next_left(&mut self, now: Nanos, at_once: bool) -> Option<u32> {
        let (place, since) = *self.leaving.front()?;
        let is_over = match self.claims.lookup().phase(place) {
            None => true,
            Some(Phase::Gone) => at_once || !self.are_several() || now >= since + LEFT_FOR,
            Some(Phase::Left) => at_once,
            Some(Phase::Moving | Phase::Nic) => false,
        };
        is_over.then(|| {
            self.leaving.pop_front();
            self.claims.release(place);
            place
        })
    }

    /// How many places are free later.
    pub(super) fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// More connections are offered than there are places. Each time another worker makes room, if it can.
    pub(super) fn make_room(&mut self) {
        self.turn = (self.turn + 1) % self.ways.len().max(1);
        self.tell(self.turn, ToWorker::MakeRoom { reason: RestoreReason::Connections });
    }

    /// A fence behind all that was said so far.
    pub(super) fn fence(&mut self) -> Fence {
        self.is_wanted = true;
        self.next
    }

    /// Tells the workers of the fence that is wanted, if one is.
    pub(crate) fn send_fence(&mut self) {
        if std::mem::take(&mut self.is_wanted) {
            let Fence(number) = self.next;
            self.next = Fence(number + 1);
            self.tell_all(|| ToWorker::Fence(number));
        }
    }

    /// A worker has come to a fence.
    pub(crate) fn fenced(&mut self, worker: u32, fence: u64) {
        if let Some(done) = self.done.get_mut(worker as usize) {
            *done = Fence(fence);
        }
    }

    /// Whether all have come to it.
    pub(super) fn is_passed(&self, fence: Fence) -> bool {
        self.done.iter().all(|done| *done >= fence)
    }

    /// The connection is named by [`next_passed`](Self::next_passed) when all have come to this fence.
    pub(super) fn wait(&mut self, fence: Fence, key: Key) {
        let at = self.waiting.partition_point(|(before, _)| *before <= fence);
        self.waiting.insert(at, (fence, key));
    }

    /// The next connection that has waited for a fence which all have come to.
    pub(crate) fn next_passed(&mut self) -> Option<Key> {
        let (fence, key) = *self.waiting.front()?;
        self.is_passed(fence).then(|| {
            self.waiting.pop_front();
            key
        })
    }
}
