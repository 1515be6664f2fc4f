//! The workers of a NIC that have connections, of an engine's addresses or of the host's: whose a connection is, and
//! packets that came by the queue of another worker (strays), which go to their owner by a ring. Nothing here is touched
//! where there is one worker.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use sys::frames::{Frame, FramePool, FrameReader};
use tcp::{Change, FourTuple};
use wire::{FlowHash, VirtioNetHdr};

use crate::counters::Entry;
use crate::entropy::flow_hash;
use crate::handle::Wake;
use crate::port::RxFrame;
use crate::steer::{Bucket, FlowIndex, Subject};

/// Strays that may wait for a worker: the packets of some milliseconds, should it not run meanwhile. What comes when there
/// are more is dropped and counted, as by a full queue of a card.
const BACKLOG: usize = 4096;
/// Packets about neighbours that may wait for a worker. They are copies of broadcasts, which anyone can send in any
/// number: they have places of their own, so that no connection loses a packet to them.
const NEWS: usize = 64;
/// How often a stray is handed on at most: connections end and begin meanwhile.
const HOPS_MAX: u8 = 4;

/// What a worker's [`Peers`] count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct StrayCounters {
    /// Packets that were handed to the worker whose they are.
    pub(crate) sent: u64,
    /// Packets that others have handed to this one.
    pub(crate) received: u64,
    /// Those that found no room, or were handed on too often.
    pub(crate) dropped: u64,
    /// Packets about neighbours for which another worker had no room. It asks for itself when it needs to know.
    pub(crate) neighbours_dropped: u64,
    /// Those that waited for this worker when it ended.
    pub(crate) too_late: u64,
    /// Connections whose bucket another worker claimed before them. Their strays are not found.
    pub(crate) unclaimed: u64,
}

impl StrayCounters {
    /// Every counter.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        let all = [
            ("sent", self.sent),
            ("received", self.received),
            ("dropped", self.dropped),
            ("neighbours_dropped", self.neighbours_dropped),
            ("too_late", self.too_late),
            ("unclaimed", self.unclaimed),
        ];
        all.into_iter().map(|(name, value)| Entry { group: "strays", name, value })
    }
}

/// Whose connections a stray is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// Those of the engine's addresses: [`FlowIndex`] says which worker has one.
    Engine,
    /// The host's that the NIC runs: [`Lookup`](crate::steer::Lookup) says which worker has one.
    HandedOff,
}

/// A packet that came by another worker's queue.
#[derive(Debug)]
pub(crate) struct Stray {
    content: Content,
    whose: Whose,
    /// Who put it here.
    from: usize,
    hops: u8,
}

#[derive(Debug)]
enum Content {
    /// In a frame of another worker's memory.
    Frame { received: RxFrame, home: usize },
    /// A copy, as it lay in no frame.
    Copy { vnet: VirtioNetHdr, bytes: Vec<u8> },
    /// A copy of what is not this worker's, but tells where neighbours are.
    Overheard { bytes: Vec<u8> },
    /// The kernel has sent something by a connection that it does not run, the one at this place.
    Aside { place: u32 },
}

/// What a worker does with a stray.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrival<'a> {
    /// A packet of one of this worker's connections, or of one that it may have.
    Own { vnet: VirtioNetHdr, maybe_partial: bool, bytes: &'a [u8], whose: Whose },
    /// It is to be [overheard](iface::Interface::overhear).
    Overheard(&'a [u8]),
    /// See [`Peers::tell_aside`].
    Aside { place: u32 },
}

/// The way to a worker.
struct Door {
    backlog: SyncSender<Stray>,
    /// What is to be overheard.
    news: SyncSender<Stray>,
    /// Frames of its memory that come back.
    home: SyncSender<Frame>,
    memory: FrameReader,
    handle: Arc<dyn Wake>,
    is_asleep: Asleep,
    /// By worker that puts something here: packets of the host's connections that were not taken yet.
    waiting: Box<[Waiting]>,
}

/// Written by two workers for each such packet.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Waiting(AtomicU32);

/// Whether a worker sleeps. Written each time it falls asleep and awakes, beside what others read for each stray: so
/// it has cache lines of its own, of which CPUs fetch two at once.
#[derive(Default)]
#[repr(align(128))]
struct Asleep(AtomicBool);

/// A worker among its peers.
pub(crate) struct Peers {
    me: usize,
    index: Arc<FlowIndex>,
    doors: Arc<[Door]>,
    backlog: Receiver<Stray>,
    news: Receiver<Stray>,
    home: Receiver<Frame>,
    /// Taken from one of these to see whether there was something.
    next: Option<Stray>,
    /// Workers to which something was handed in this turn.
    to_wake: Vec<bool>,
    /// One of these is to be woken.
    has_put: bool,
    /// Buckets that were claimed for SYNs in this turn, of which something may come or not.
    claimed: Vec<Bucket>,
    /// Connections whose bucket became another's before they could claim it: their strays are not found.
    unclaimed: HashSet<FourTuple>,
    /// Workers whose app is not done.
    at_work: Arc<AtomicUsize>,
    is_done: bool,
    pub(crate) counters: StrayCounters,
}

impl Peers {
    /// What joins the workers on these wires; none where there is one worker. `connections` are those of the engine's that
    /// there may be in all.
    pub(crate) fn of<W, H: Wake + 'static>(
        wires: &[(W, FramePool)],
        handles: &[Arc<H>],
        connections: u32,
    ) -> Vec<Peers> {
        if wires.len() < 2 {
            return Vec::new();
        }
        let workers = wires.iter().zip(handles).map(|((_, pool), handle)| {
            let handle: Arc<dyn Wake> = handle.clone();
            (pool, handle)
        });
        Peers::new(flow_hash(), connections, workers.collect())
    }

    /// One for each worker, with the memory of its frames and what wakes it, in their order. `connections` are
    /// those that there may be in all.
    pub(crate) fn new(
        hash: FlowHash,
        connections: u32,
        workers: Vec<(&FramePool, Arc<dyn Wake>)>,
    ) -> Vec<Peers> {
        let index = Arc::new(FlowIndex::new(hash, connections));
        let at_work = Arc::new(AtomicUsize::new(workers.len()));
        let mut receivers = Vec::new();
        let count = workers.len();
        let door = |(pool, handle): (&FramePool, Arc<dyn Wake>)| {
            let (backlog, strays) = sync_channel(BACKLOG);
            let (news, overheard) = sync_channel(NEWS);
            // A place for every frame there is: giving one back never waits.
            let (home, returned) = sync_channel(pool.capacity());
            receivers.push((strays, overheard, returned));
            let (memory, is_asleep) = (pool.reader().clone(), Asleep::default());
            let waiting = (0..count).map(|_| Waiting::default()).collect();
            Door { backlog, news, home, memory, handle, is_asleep, waiting }
        };
        let doors: Arc<[Door]> = workers.into_iter().map(door).collect();
        let peers = receivers.into_iter().enumerate().map(|(me, (backlog, news, home))| Peers {
            me,
            index: Arc::clone(&index),
            doors: Arc::clone(&doors),
            backlog,
            news,
            home,
            next: None,
            to_wake: vec![false; doors.len()],
            has_put: false,
            claimed: Vec::new(),
            unclaimed: HashSet::new(),
            at_work: Arc::clone(&at_work),
            is_done: false,
            counters: StrayCounters::default(),
        });
        peers.collect()
    }

    /// The worker whose a packet to the engine is, if that is another; `rest` is what did not fit its frame. A SYN
    /// of a connection that is no worker's makes it this one's.
    #[inline]
    pub(crate) fn other_owner(&mut self, bytes: &[u8], rest: &[u8]) -> Option<usize> {
        let subject = Subject::of(bytes, rest)?;
        let bucket = self.index.bucket_of(subject.key());
        match self.index.owner(bucket) {
            Some(owner) => (owner != self.me).then_some(owner),
            None if subject.opens() => match self.index.claim(bucket, self.me) {
                Ok(()) => {
                    self.claimed.push(bucket);
                    None
                }
                // Claimed by another just now.
                Err(owner) => Some(owner),
            },
            None => None,
        }
    }

    /// Claims a connection that this worker is about to open. Returns whether it may.
    pub(crate) fn claim(&mut self, path: &FourTuple) -> bool {
        let bucket = self.index.bucket(path);
        let claimed = self.index.claim(bucket, self.me).is_ok();
        if claimed {
            self.claimed.push(bucket);
        }
        claimed
    }

    /// Hands a received frame to the worker whose it is; `rest` is what did not fit into it.
    pub(crate) fn hand_over(
        &mut self,
        (to, whose): (usize, Whose),
        received: RxFrame,
        rest: &[u8],
        pool: &FramePool,
    ) {
        let content = match rest {
            [] => Content::Frame { received, home: self.me },
            rest => {
                let bytes = [pool.bytes(&received.frame), rest].concat();
                let vnet = received.vnet;
                pool.free(received.frame);
                Content::Copy { vnet, bytes }
            }
        };
        let refused = self.put(to, self.stray(content, whose));
        if let Some(Stray { content: Content::Frame { received, .. }, .. }) = refused {
            pool.free(received.frame);
        }
    }

    /// The same of a packet to the engine that lies in no frame.
    pub(crate) fn copy_to(&mut self, to: usize, vnet: VirtioNetHdr, bytes: &[u8]) {
        let content = Content::Copy { vnet, bytes: bytes.to_vec() };
        self.put(to, self.stray(content, Whose::Engine));
    }

    /// Tells a worker that the kernel has sent something by its connection at this place, which the NIC runs.
    pub(crate) fn tell_aside(&mut self, to: usize, place: u32) {
        self.put(to, self.stray(Content::Aside { place }, Whose::HandedOff));
    }

    /// Whether packets of the host's connections that were handed to this worker wait for it still: what is sent on
    /// another way now would pass them.
    #[inline]
    pub(crate) fn has_waiting(&self, to: usize) -> bool {
        self.doors[to].waiting[self.me].0.load(Ordering::Acquire) > 0
    }

    fn stray(&self, content: Content, whose: Whose) -> Stray {
        Stray { content, whose, from: self.me, hops: 0 }
    }

    /// Tells all others of a packet that says where neighbours are.
    pub(crate) fn tell_all(&mut self, bytes: &[u8]) {
        let me = self.me;
        for to in (0..self.doors.len()).filter(|to| *to != me) {
            let content = Content::Overheard { bytes: bytes.to_vec() };
            self.put(to, self.stray(content, Whose::Engine));
        }
    }

    /// Returns what found no room.
    fn put(&mut self, to: usize, stray: Stray) -> Option<Stray> {
        let Door { backlog, news, waiting, .. } = &self.doors[to];
        let (ring, dropped) = match stray.content {
            Content::Overheard { .. } => (news, &mut self.counters.neighbours_dropped),
            Content::Frame { .. } | Content::Copy { .. } | Content::Aside { .. } => {
                (backlog, &mut self.counters.dropped)
            }
        };
        let waiting = (stray.whose == Whose::HandedOff).then(|| &waiting[self.me].0);
        // Before it can be taken.
        waiting.map(|count| count.fetch_add(1, Ordering::Relaxed));
        match ring.try_send(stray) {
            Ok(()) => {
                self.counters.sent += 1;
                self.to_wake[to] = true;
                self.has_put = true;
                None
            }
            Err(full) => {
                waiting.map(|count| count.fetch_sub(1, Ordering::Relaxed));
                *dropped += 1;
                let (TrySendError::Full(stray) | TrySendError::Disconnected(stray)) = full;
                Some(stray)
            }
        }
    }

    /// Takes back the frames that others are done with.
    pub(crate) fn take_back(&mut self, pool: &FramePool) {
        while let Ok(frame) = self.home.try_recv() {
            pool.free(frame);
        }
    }

    /// What waits next.
    fn next(&mut self) -> Option<Stray> {
        let next = self.next.take().or_else(|| self.backlog.try_recv().ok());
        next.or_else(|| self.news.try_recv().ok())
    }

    /// Gives `take` the strays that have come, at most `max`. Those that are another's by now go on to it: whose one of
    /// a connection of the host's is, `take` tells. Returns whether there were any.
    pub(crate) fn receive(
        &mut self,
        max: usize,
        mut take: impl FnMut(Arrival<'_>) -> Option<usize>,
    ) -> bool {
        self.next = self.next();
        if self.next.is_none() {
            return false;
        }
        // Once a batch: the count of owners is on a line that all workers write.
        let doors = Arc::clone(&self.doors);
        for _ in 0..max {
            let Some(stray) = self.next() else { break };
            self.counters.received += 1;
            let whose = stray.whose;
            let waiting = &doors[self.me].waiting[stray.from].0;
            let (vnet, maybe_partial, bytes) = match &stray.content {
                Content::Overheard { bytes } => {
                    take(Arrival::Overheard(bytes));
                    continue;
                }
                Content::Aside { place } => {
                    take(Arrival::Aside { place: *place });
                    waiting.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                Content::Copy { vnet, bytes } => (*vnet, false, &bytes[..]),
                Content::Frame { received, home } => {
                    let bytes = doors[*home].memory.bytes(&received.frame);
                    (received.vnet, received.maybe_partial, bytes)
                }
            };
            let own = Arrival::Own { vnet, maybe_partial, bytes, whose };
            let other = match whose {
                Whose::Engine => self.other_owner(bytes, &[]),
                Whose::HandedOff => None,
            };
            let other = other.or_else(|| take(own));
            match other {
                None => give_back(&doors, stray),
                Some(_) if stray.hops >= HOPS_MAX => {
                    self.counters.dropped += 1;
                    give_back(&doors, stray);
                }
                Some(owner) => {
                    let (hops, from) = (stray.hops + 1, self.me);
                    if let Some(stray) = self.put(owner, Stray { hops, from, ..stray }) {
                        give_back(&doors, stray);
                    }
                }
            }
            if whose == Whose::HandedOff {
                // Behind all that was done with it.
                waiting.fetch_sub(1, Ordering::Release);
            }
        }
        true
    }

    /// Connections of the engine's that began have their places in the index, and those that ended have not.
    pub(crate) fn follow(&mut self, changes: impl Iterator<Item = Change>) {
        for change in changes {
            match change {
                Change::Begun(path) => {
                    if self.index.claim(self.index.bucket(&path), self.me).is_err() {
                        self.counters.unclaimed += 1;
                        self.unclaimed.insert(path);
                    }
                }
                Change::Ended(path) => {
                    if !self.unclaimed.remove(&path) {
                        self.index.release(self.index.bucket(&path), self.me);
                    }
                }
            }
        }
        for bucket in self.claimed.drain(..) {
            self.index.release(bucket, self.me);
        }
    }

    /// The turn is over: workers that have something to do are woken.
    pub(crate) fn end_turn(&mut self) {
        if !std::mem::take(&mut self.has_put) {
            return;
        }
        // Either this sees that the worker sleeps, or the worker, which looks once more after it has said so,
        // sees the stray (`falls_asleep`).
        fence(Ordering::SeqCst);
        for (door, wake) in self.doors.iter().zip(&mut self.to_wake) {
            if std::mem::take(wake) && door.is_asleep.0.swap(false, Ordering::Relaxed) {
                door.handle.wake();
            }
        }
    }

    /// Whether no stray waits for this worker.
    pub(crate) fn has_none(&mut self) -> bool {
        self.next = self.next();
        self.next.is_none()
    }

    /// The worker is about to sleep; returns whether it may, as no stray waits.
    pub(crate) fn falls_asleep(&mut self) -> bool {
        self.doors[self.me].is_asleep.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.has_none()
    }

    /// The worker is awake.
    pub(crate) fn awakes(&self) {
        self.doors[self.me].is_asleep.0.store(false, Ordering::Relaxed);
    }

    /// This worker's app has nothing more to do; returns whether that is so of all workers. Until then it hands
    /// over what comes by its queue.
    pub(crate) fn all_are_done(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_done, true)
            && self.at_work.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.doors.iter().for_each(|door| door.handle.wake());
        }
        self.at_work.load(Ordering::Acquire) == 0
    }

    /// Ends: what waits goes back to its memory.
    ///
    /// What is put behind this, before the receiver is dropped, takes a frame each from the worker that put it:
    /// a ring's length at most, once, since later puts find the ring disconnected. That worker does not go on for
    /// long without them. Either all workers are done, or all were told to stop, or this one has failed, and then
    /// who waits for the NIC sees the first worker end and stops all. The frames' memory is the
    /// pool's, and is unmapped with it.
    pub(crate) fn close(&mut self, pool: &FramePool) {
        while let Some(stray) = self.next() {
            self.counters.too_late += 1;
            give_back(&self.doors, stray);
        }
        self.take_back(pool);
    }

    #[cfg(test)]
    pub(crate) fn index(&self) -> &FlowIndex {
        &self.index
    }
}

/// Gives the memory of a stray back to where it is from.
fn give_back(doors: &[Door], stray: Stray) {
    if let Content::Frame { received, home } = stray.content {
        // A worker that has ended needs none.
        let given = doors[home].home.try_send(received.frame);
        debug_assert!(
            !matches!(given, Err(TrySendError::Full(_))),
            "there is a place for every frame"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::worker::{Lanes, handle_of};

    /// Two workers, the first with this memory.
    fn two(pool: &FramePool) -> [Peers; 2] {
        let wake = || -> Arc<dyn Wake> {
            Arc::new(handle_of(Lanes::Engine, Config::default(), 1500).unwrap())
        };
        let all = Peers::new(FlowHash::new([1; 13]), 4, vec![(pool, wake()), (pool, wake())]);
        all.try_into().ok().unwrap()
    }

    #[test]
    fn a_connection_whose_bucket_is_anothers_is_counted_and_leaves_it_to_it() {
        let pool = FramePool::new(4, 2048).unwrap();
        let [mut first, mut second] = two(&pool);
        let path =
            FourTuple { local: ([10, 0, 0, 1], 7).into(), remote: ([10, 0, 0, 2], 1000).into() };
        first.follow([Change::Begun(path)].into_iter());
        second.follow([Change::Begun(path)].into_iter());
        assert_eq!((first.counters.unclaimed, second.counters.unclaimed), (0, 1));
        second.follow([Change::Ended(path)].into_iter());
        assert_eq!(first.index.owner(first.index.bucket(&path)), Some(0));
    }

    #[test]
    fn what_waits_for_a_worker_that_ends_is_counted_and_its_memory_comes_back() {
        let mut pool = FramePool::new(4, 2048).unwrap();
        let [mut first, mut second] = two(&pool);
        let mut frame = pool.alloc().unwrap();
        pool.set_range(&mut frame, 0, 60);
        let vnet = VirtioNetHdr::default();
        let received = RxFrame { frame, vnet, overflow: 0, slot: 0, maybe_partial: false };
        first.hand_over((1, Whose::Engine), received, &[], &pool);
        first.copy_to(1, vnet, &[0; 60]);
        second.close(&pool);
        first.take_back(&pool);
        assert_eq!((second.counters.too_late, pool.available()), (2, 4));
    }
}
