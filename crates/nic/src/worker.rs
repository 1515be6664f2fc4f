//! One worker: one queue of the wire, and the lanes to which its packets go. Every packet runs to its end here.
//!
//! ```text
//!   wire ──> steer ──> host lane:    lro ──> host port
//!                 └──> engine lane:  lro ──> iface ──> tcp ──> app
//!   wire <──────────── host lane:    gso <── host port
//!        <──────────── engine lane:  tcp <── app
//! ```

mod backlog;
mod beside_host;
mod counters;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use lro::{Lro, Nanos};
use sys::frames::FramePool;
use sys::poll::Interest;

use self::backlog::{Backlog, QueueLimit};
use self::beside_host::BesideHost;
pub use self::counters::Counters;
pub(crate) use self::counters::{Lanes, zero};
pub(crate) use self::settings::handle_of;
use self::settings::held_frames;
pub use self::settings::{Handle, Settings, handle};
use crate::app::Services;
use crate::config::Config;
use crate::event_loop::{self, EventLoop};
use crate::handle::Seen;
use crate::lane::counters::ShortWay;
use crate::lane::engine::EngineLane;
use crate::lane::handoff::HandoffLane;
use crate::lane::host::HostLane;
use crate::peers::{Arrival, Peers, Whose};
use crate::port::{Host, HostPacket, RxFrame, Wire};
use crate::steer::{self, Lane, Steer};
use crate::wire_queue::WireQueue;

/// Bytes after which a turn has received, or sent, enough. What answers them is to leave first, and they are still
/// in the cache when they are copied once more.
const TURN_BYTES: usize = 256 << 10;
/// Batches after which it has received enough for the host, however short the frames are.
const TURN_BATCHES: usize = 16;
/// How long until a worker that is short of memory looks whether some has come back.
const RETRY_MEMORY: Nanos = 1_000_000;
/// Turns of an engine at the end at most: as many as empty an interface's queue.
const LAST_TURNS: usize = 32;

/// See the module's documentation.
pub struct Worker<W, H> {
    handle: Arc<Handle>,
    seen: Seen,
    settings: Settings,
    lanes: Lanes,
    queue: WireQueue<W>,
    host: Option<HostLane<H>>,
    engine: Option<Box<EngineLane<Services>>>,
    /// Of the host's connections that the NIC may run.
    handoff: Option<Box<HandoffLane>>,
    /// Which of the two lanes; `None` where there is one.
    steer: Option<Steer>,
    /// Of several workers with engines, or that may run the host's connections; `None` for a single one.
    peers: Option<Peers>,
    /// What was steered to each lane; empty between turns.
    host_batch: VecDeque<RxFrame>,
    engine_batch: VecDeque<RxFrame>,
    short_way: ShortWay,
    backlog: Backlog,
    queue_limit: QueueLimit,
    sleeps: u64,
}

/// What an engine's worker has besides its wire and its host.
pub(crate) struct Engine<L> {
    /// Makes the lane by its LRO's configuration.
    pub(crate) lane: L,
    /// Beside a host: which packets are the engine's.
    pub(crate) steer: Option<Steer>,
    /// Where several workers have engines.
    pub(crate) peers: Option<Peers>,
}

impl<W: Wire, H: Host> Worker<W, H> {
    /// A worker between a wire and a host, with `pool` as the memory of its frames.
    pub fn new(handle: Arc<Handle>, config: Config, wire: W, host: H, pool: FramePool) -> Self {
        let settings = Settings { config, ..handle.config().clone() };
        let lro = settings.host_lro(Lanes::Host, &pool);
        let host = HostLane::new(host, lro);
        let queue = WireQueue::new(wire, pool, settings.limits(Lanes::Host));
        Worker {
            seen: handle.state(),
            handle,
            settings,
            lanes: Lanes::Host,
            queue,
            host: Some(host),
            engine: None,
            handoff: None,
            steer: None,
            peers: None,
            host_batch: VecDeque::new(),
            engine_batch: VecDeque::new(),
            short_way: ShortWay::default(),
            backlog: Backlog::default(),
            queue_limit: QueueLimit::default(),
            sleeps: 0,
        }
    }

    /// A worker with an engine, on a wire of its own or beside a host.
    pub(crate) fn with_engine<L>(
        handle: Arc<Handle>,
        (wire, pool): (W, FramePool),
        host: Option<H>,
        engine: Engine<L>,
    ) -> Self
    where
        L: FnOnce(Option<lro::Config>) -> EngineLane<Services>,
    {
        let settings = handle.config().clone();
        let lanes = if host.is_some() { Lanes::Both } else { Lanes::Engine };
        debug_assert_eq!(host.is_some(), engine.steer.is_some());
        let lane = (engine.lane)(settings.engine_lro(lanes, &pool));
        let host = host.map(|host| HostLane::new(host, settings.host_lro(lanes, &pool)));
        Worker {
            seen: handle.state(),
            handle,
            lanes,
            host,
            engine: Some(Box::new(lane)),
            handoff: None,
            steer: engine.steer,
            peers: engine.peers,
            host_batch: VecDeque::with_capacity(256),
            engine_batch: VecDeque::with_capacity(256),
            short_way: ShortWay::default(),
            backlog: Backlog::default(),
            queue_limit: QueueLimit::default(),
            queue: WireQueue::new(wire, pool, settings.limits(lanes)),
            settings,
            sleeps: 0,
        }
    }

    /// The same, which may run connections of the host's.
    pub(crate) fn with_handoff(
        mut self,
        lane: impl FnOnce(Option<lro::Config>) -> io::Result<HandoffLane>,
    ) -> io::Result<Self> {
        let lro = self.settings.engine_lro(self.lanes, &self.queue.pool);
        self.handoff = Some(Box::new(lane(lro)?));
        Ok(self)
    }

    /// The same among others.
    pub(crate) fn among(self, peers: Option<Peers>) -> Self {
        Worker { peers, ..self }
    }

    /// Works until told to stop, or until all that was to be done is done. What is held is handed on before
    /// the end, and connections that are left are reset.
    ///
    /// # Errors
    /// A port that has become useless, or an address that is another host's.
    pub fn run(mut self) -> io::Result<()> {
        self.start(sys::clock::now());
        let result = event_loop::run(&mut self);
        let result = result.and_then(|()| self.end_connections(sys::clock::now()));
        let finished = match &mut self.host {
            Some(host) => host.finish(&self.queue.pool),
            None => Ok(()),
        };
        if let Some(host) = &mut self.host {
            host.give_up(&mut self.queue);
        }
        if let Some(engine) = &mut self.engine {
            engine.close(&self.queue.pool, sys::clock::now());
        }
        if let Some(handoff) = &mut self.handoff {
            handoff.close(&self.queue.pool, sys::clock::now());
        }
        if let Some(peers) = &mut self.peers {
            peers.close(&self.queue.pool);
        }
        self.queue.give_up();
        self.publish_counters();
        self.queue.close();
        result.and(finished)
    }

    /// Begins to use the engine's addresses.
    pub(crate) fn start(&mut self, now: Nanos) {
        if let Some(engine) = &mut self.engine {
            engine.start(now);
        }
    }

    /// Those that are about to end in order do, by what has arrived already; the others are reset.
    fn end_connections(&mut self, now: Nanos) -> io::Result<()> {
        if self.engine.is_none() {
            return Ok(());
        }
        for _ in 0..LAST_TURNS {
            if !self.batch(now)? {
                break;
            }
        }
        let Some(engine) = &mut self.engine else { return Ok(()) };
        // A turn sends a batch of the segments that tell the peers. Nothing is taken any more.
        let turns = LAST_TURNS + engine.turns_to_reset();
        engine.abort(now);
        for _ in 0..turns {
            let worked = self.engine_turn(now)?;
            self.queue.flush()?;
            if !worked && self.engine.as_ref().is_none_or(|engine| !engine.is_full()) {
                break;
            }
        }
        Ok(())
    }

    /// One batch each way; returns whether there was anything to do.
    ///
    /// # Errors
    /// A port that has become useless.
    pub fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        self.take_up_changes(|| now);
        self.batch(now)
    }

    /// The turn itself, by what the worker goes by already.
    fn batch(&mut self, now: Nanos) -> io::Result<bool> {
        let inward = self.wire_to_lanes(now)?;
        let strays = self.take_strays(now);
        if let Some(handoff) = &mut self.handoff {
            handoff.listen(self.host.as_ref(), now);
        }
        let outward = self.host_to_wire(now)?;
        let engine = self.engine_turn(now)?;
        let handoff = self.handoff_turn(now)?;
        self.queue.flush()?;
        let worked = inward || strays || outward || engine || handoff;
        let Worker { queue, handoff: lane, peers, backlog, .. } = self;
        let waits = lane.as_mut().is_some_and(|lane| {
            lane.follow_leaving(peers);
            lane.look_at_load(now, worked, || queue.waiting().unwrap_or_else(|| backlog.waiting()));
            lane.part(queue, now)
        });
        peers.iter_mut().for_each(Peers::end_turn);
        if let Some(host) = &mut self.host {
            host.expire(&self.queue.pool, self.backlog.time(now));
        }
        Ok(worked || waits)
    }

    /// In: what has arrived on the wire, to the lanes. A host that takes nothing makes the wire wait.
    fn wire_to_lanes(&mut self, now: Nanos) -> io::Result<bool> {
        if let Some(host) = &mut self.host {
            host.begin(&self.queue.pool);
        }
        let mut max = self.settings.config.poll.batch;
        if self.engine.is_some() {
            // A batch of frames is no more than a turn should take.
            max = max.min(TURN_BYTES / self.queue.pool.chunk_size()).max(1);
        }
        let most = self.held_frames();
        self.backlog.begin(now, most);
        let mut any = false;
        let end = self.queue.counters.received.bytes + TURN_BYTES as u64;
        for batch in 1.. {
            if self.host.as_mut().is_some_and(|host| !host.has_room()) {
                break;
            }
            let ends = !self.queue.receive(max)?;
            any |= !self.queue.received.is_empty();
            self.backlog.take(self.queue.received.len(), ends);
            self.limit_queue();
            let goes_on = match &self.host {
                // What comes for the host is mostly short where the host sends: it must not wait for turns that are
                // busy sending.
                Some(_) => !ends && batch < TURN_BATCHES,
                // A super-packet ends a batch of a host's port, though more may wait.
                None => self.queue.received.back().is_some_and(|last| last.overflow > 0),
            };
            self.batch_to_lanes(now, ends);
            if !goes_on || self.queue.counters.received.bytes >= end {
                break;
            }
        }
        Ok(any)
    }

    /// While a backlog is long: as many frames may wait as suit the connections that LRO holds some of.
    fn limit_queue(&mut self) {
        let Some(host) = &self.host else { return };
        if self.backlog.is_long() {
            self.queue.limit(self.queue_limit.at(host.lro().holding_flows()));
        }
    }

    /// Gives the batch to its lanes. `ends` says that no more waits on the wire.
    fn batch_to_lanes(&mut self, now: Nanos, ends: bool) {
        let lro = &self.settings.config.lro;
        let mut batch = std::mem::take(&mut self.queue.received);
        let is_handed_off = self.handoff.as_ref().is_some_and(|handoff| !handoff.is_empty());
        if let Some(handoff) = self.handoff.as_mut().filter(|_| is_handed_off) {
            let Worker { queue, host, peers, .. } = self;
            handoff.take_out(&mut batch, queue, host.as_mut(), peers, now);
        }
        let Worker { queue, host, engine, backlog, .. } = self;
        match (host, engine) {
            (Some(host), None) => host.receive(&mut batch, queue, lro, backlog.arrival(), ends),
            (None, Some(engine)) if self.peers.is_none() => {
                engine.receive(&mut batch, queue, now, ends);
            }
            _ => self.steer(&mut batch, now, ends),
        }
        // What is the host's comes first.
        if let Some(handoff) = self.handoff.as_mut().filter(|_| is_handed_off) {
            handoff.run(&self.queue, now, ends);
        }
        self.queue.received = batch;
    }

    /// Each packet to its lane, and those of other workers' connections to them.
    fn steer(&mut self, batch: &mut VecDeque<RxFrame>, now: Nanos, ends: bool) {
        let Worker { queue, host, engine, steer, peers, host_batch, engine_batch, .. } = self;
        let Some(engine) = engine else { return };
        for received in batch.drain(..) {
            let bytes = queue.pool.bytes(&received.frame);
            let lane = steer.as_ref().map_or(Lane::Engine, |steer| steer.inward(bytes));
            if lane == Lane::Host {
                host_batch.push_back(received);
                continue;
            }
            if let Some(peers) = peers.as_mut().filter(|_| steer::is_for_all(bytes)) {
                peers.tell_all(bytes);
            }
            if lane == Lane::Both {
                engine.take(&queue.pool, (&received.vnet, received.maybe_partial), bytes, now);
                host_batch.push_back(received);
                continue;
            }
            let rest = queue.overflow(&received);
            match peers.as_mut().and_then(|peers| Some((peers.other_owner(bytes, rest)?, peers))) {
                Some((owner, peers)) => {
                    peers.hand_over((owner, Whose::Engine), received, rest, &queue.pool);
                }
                None => engine_batch.push_back(received),
            }
        }
        if let Some(host) = host {
            host.receive(
                host_batch,
                queue,
                &self.settings.config.lro,
                self.backlog.arrival(),
                ends,
            );
        }
        engine.receive(engine_batch, queue, now, ends);
    }

    /// What other workers have handed over.
    fn take_strays(&mut self, now: Nanos) -> bool {
        let Worker { queue, host, engine, handoff, peers, .. } = self;
        let (Some(peers), pool) = (peers, &queue.pool) else { return false };
        peers.take_back(pool);
        let batches = if host.is_some() { TURN_BATCHES } else { 1 };
        // All workers have the same lanes.
        peers.receive(batches * self.settings.config.poll.batch, |arrival| match arrival {
            Arrival::Overheard(bytes) => {
                engine.as_mut()?.overhear(bytes, now);
                None
            }
            Arrival::Own { vnet, maybe_partial, bytes, whose: Whose::Engine } => {
                engine.as_mut()?.take(pool, (&vnet, maybe_partial), bytes, now);
                None
            }
            Arrival::Own { vnet, maybe_partial, bytes, whose: Whose::HandedOff } => {
                let lane = handoff.as_mut()?;
                lane.take((vnet, maybe_partial), bytes, pool, host.as_mut(), now)
            }
            Arrival::Aside { place } => {
                handoff.as_mut()?.take_aside(place);
                None
            }
        })
    }

    /// Out: what the host sends. What is for the engine goes there by the short way.
    fn host_to_wire(&mut self, now: Nanos) -> io::Result<bool> {
        let Worker { queue, host, engine, handoff, steer, peers, short_way, .. } = self;
        let Some(host) = host else { return Ok(false) };
        let max = self.settings.config.poll.batch;
        let mut handoff = handoff.as_mut().filter(|lane| !lane.is_empty());
        let (Some(steer), Some(engine)) = (steer, engine) else {
            return host.transmit(queue, (max, TURN_BYTES), |packet, _| {
                handoff.as_mut().is_some_and(|lane| lane.silences(packet.bytes, peers))
            });
        };
        host.transmit(queue, (max, TURN_BYTES), |HostPacket { vnet, bytes }, pool| {
            if handoff.as_mut().is_some_and(|lane| lane.silences(bytes, peers)) {
                return true;
            }
            if !steer.is_for_engine(bytes) {
                return false;
            }
            short_way.from_host.count(bytes.len());
            if let Some(peers) = peers.as_mut().filter(|_| steer::is_for_all(bytes)) {
                peers.tell_all(bytes);
            }
            match peers.as_mut().and_then(|peers| Some((peers.other_owner(bytes, &[])?, peers))) {
                Some((owner, peers)) => peers.copy_to(owner, *vnet, bytes),
                None => engine.take(pool, (vnet, false), bytes, now),
            }
            true
        })
    }

    /// What the engine and its app do with what has arrived and what is due, and what they send.
    fn engine_turn(&mut self, now: Nanos) -> io::Result<bool> {
        let Worker { queue, host, engine, steer, peers, short_way, .. } = self;
        let Some(engine) = engine else { return Ok(false) };
        // Also while the host makes the wire wait, and with it what would fill a hole.
        engine.expire(&queue.pool, now);
        match (steer, host) {
            (Some(steer), Some(host)) => {
                engine.turn(&mut BesideHost { steer, host, queue, short_way }, peers, now)
            }
            _ => engine.turn(queue, peers, now),
        }
    }

    /// The same of the host's connections that the NIC runs. What the host sends itself has gone before.
    fn handoff_turn(&mut self, now: Nanos) -> io::Result<bool> {
        let Worker { queue, host, handoff, .. } = self;
        let Some(handoff) = handoff else { return Ok(false) };
        handoff.expire(&queue.pool, now);
        handoff.turn(queue, host.as_mut(), now)
    }

    /// What the worker has counted so far, but for its engine.
    pub fn counters(&self) -> Counters {
        Counters {
            queue: self.queue.counters.clone(),
            host: self.host.as_ref().map(|host| host.counters().clone()).unwrap_or_default(),
            sleeps: self.sleeps,
            ..Counters::default()
        }
    }

    /// The host lane's receive offload.
    pub fn lro(&self) -> Option<&Lro<RxFrame>> {
        self.host.as_ref().map(HostLane::lro)
    }

    /// The memory of the worker's frames.
    pub fn pool(&self) -> &FramePool {
        &self.queue.pool
    }

    /// Whether all that the host had sent, and the worker, has left.
    #[cfg(test)]
    pub(crate) fn has_sent_all(&mut self) -> bool {
        self.queue.has_left() && self.host.as_ref().is_none_or(HostLane::has_read_all)
    }

    fn held_frames(&self) -> usize {
        held_frames(self.lanes, &self.queue.pool)
    }

    fn take_up_changes(&mut self, now: impl FnOnce() -> Nanos) {
        if !self.handle.look(&mut self.seen) {
            return;
        }
        self.settings = self.handle.config().clone();
        self.queue.set_limits(self.settings.limits(self.lanes));
        self.queue.set_captures(&self.settings.captures);
        let pool = &self.queue.pool;
        if let Some(host) = &mut self.host {
            host.reconfigure(self.settings.host_lro(self.lanes, pool), pool);
        }
        if self.engine.is_none() && self.handoff.is_none() {
            return;
        }
        let (lro, now) = (self.settings.engine_lro(self.lanes, pool), now());
        if let Some(handoff) = &mut self.handoff {
            let load = self.settings.config.handoff.load();
            handoff.reconfigure((lro.clone(), load), pool, now);
        }
        if let Some(engine) = &mut self.engine {
            engine.reconfigure(lro, pool, now);
        }
    }

    fn publish_counters(&mut self) {
        let own = Counters { wire: self.queue.of_the_wire(), ..self.counters() };
        let strays = self.peers.as_ref().map(|peers| peers.counters.clone()).unwrap_or_default();
        let engine = self.engine.as_ref().map(|engine| engine.counters(self.short_way.clone()));
        let lro = self.lro().map(Lro::counters);
        let handoff = self.handoff.as_ref().map(|lane| lane.counters()).unwrap_or_default();
        let all = counters::all(&own, lro, engine.as_ref(), (&handoff, &strays));
        self.handle.published().publish(all);
    }
}

impl<W: Wire, H: Host> EventLoop for Worker<W, H> {
    fn goes_on(&mut self) -> bool {
        self.take_up_changes(sys::clock::now);
        let is_done = self.engine.as_ref().is_some_and(|engine| engine.is_done())
            && self.peers.as_mut().is_none_or(Peers::all_are_done);
        !self.seen.is_stopped() && !is_done
    }

    fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        self.batch(now)
    }

    fn spin(&self) -> Nanos {
        self.settings.config.poll.spin
    }

    fn expects_soon(&self, now: Nanos) -> bool {
        self.handoff.as_ref().is_some_and(|handoff| handoff.expects_soon(now))
    }

    /// Sleeps in the kernel until a port or the control thread has something, or something is due. The burst is
    /// over, so what is in order does not stay held. For LRO a timer is needed only while it waits for a hole to
    /// be filled.
    fn sleep(&mut self, now: Nanos) -> io::Result<()> {
        let pool = &self.queue.pool;
        let room = self.host.as_mut().is_none_or(|host| host.idle(pool));
        if self.engine.as_mut().is_some_and(|engine| engine.idle(pool, now))
            || self.handoff.as_mut().is_some_and(|handoff| handoff.idle(pool, now))
        {
            return Ok(());
        }
        self.sleeps += 1;
        self.publish(now);
        if self.host.as_mut().is_some_and(|host| host.arm(&self.queue.pool)) {
            return self.disarm();
        }
        let full = self.engine.as_ref().is_some_and(|engine| engine.is_full())
            || self.handoff.as_ref().is_some_and(|handoff| handoff.is_full());
        // Frames may be with other workers, who give them back and wake none.
        let short = (full || self.peers.is_some()) && self.queue.is_short_of_memory();
        let memory = short.then_some(RETRY_MEMORY);
        let waits = self.host.as_ref().is_some_and(HostLane::is_waiting) || full && !short;
        let deadlines = [
            self.queue.next_deadline(),
            // A host that has no room would be given nothing then: it is waited for, not the time.
            self.host.as_ref().filter(|_| room).and_then(HostLane::next_deadline),
            self.engine.as_ref().and_then(|engine| engine.next_deadline()),
            self.handoff.as_ref().and_then(|handoff| handoff.next_deadline()),
        ];
        let may_sleep = self.peers.as_mut().is_none_or(Peers::falls_asleep);
        if may_sleep && self.handoff.as_ref().is_none_or(|handoff| handoff.falls_asleep()) {
            let (wire, retry) = self.queue.wait(room, waits);
            let ports = wire.into_iter().flatten().chain(self.host.iter().flat_map(HostLane::wait));
            let rings = self.handoff.iter().map(|handoff| (handoff.wait(), Interest::Read));
            let ports = ports.chain(rings);
            let now = sys::clock::now();
            let due = deadlines.into_iter().flatten().map(|at| at.saturating_sub(now));
            let undelivered = self.host.as_ref().and_then(HostLane::retry_after);
            self.handle.sleep(ports, due.chain(retry).chain(undelivered).chain(memory).min())?;
        }
        self.peers.iter().for_each(Peers::awakes);
        self.handoff.iter_mut().for_each(|handoff| handoff.awakes());
        self.disarm()
    }

    fn publish(&mut self, now: Nanos) {
        self.publish_counters();
        if let Some(engine) = &mut self.engine {
            engine.give_back(now);
        }
    }
}

impl<W: Wire, H: Host> Worker<W, H> {
    fn disarm(&self) -> io::Result<()> {
        self.host.as_ref().map_or(Ok(()), HostLane::disarm)
    }
}
