//! One worker: one queue of the wire, and the lanes to which its packets go. Every packet runs to its end here.
//!
//! ```text
//!   wire ──> steer ──> host lane:    lro ──> host port
//!                 └──> engine lane:  lro ──> iface ──> tcp ──> app
//!   wire <──────────── host lane:    gso <── host port
//!        <──────────── engine lane:  tcp <── app
//! ```

use std::io;
use std::sync::Arc;

use lro::{Lro, Nanos};
use sys::frames::FramePool;

use crate::config::{Config, GsoHardware};
use crate::counters::{self, Counters, Lanes, Published};
use crate::event_loop::{self, EventLoop};
use crate::handle::Seen;
use crate::lane::engine::EngineLane;
use crate::lane::host::HostLane;
use crate::port::{Host, Limits, NoHost, RxFrame, Wire};
use crate::wire_queue::WireQueue;

/// Bytes after which a turn of an engine has received enough: what it has to say to them is to leave first.
const TURN_BYTES: usize = 256 << 10;
/// Turns of an engine at the end at most: as many as empty an interface's queue.
const LAST_TURNS: usize = 32;

/// What a worker goes by.
#[derive(Clone, Debug)]
pub struct Settings {
    config: Config,
    /// Of the wire, in bytes of IP packet.
    mtu: u32,
}

impl Settings {
    fn limits(&self, lanes: Lanes) -> Limits {
        let hardware = match (lanes, self.config.gso.hardware) {
            // What is the engine's own cannot be wrong, and the kernel cuts in one go what it sends in one go.
            (Lanes::Engine, GsoHardware::Auto) => GsoHardware::Kernel,
            (_, hardware) => hardware,
        };
        Limits { mtu: self.mtu as usize, hardware }
    }

    /// The host lane's. However much LRO holds, the wire must find memory to receive into.
    fn host_lro(&self, lanes: Lanes, pool: &FramePool) -> lro::Config {
        lro::Config { held_frames: held_frames(lanes, pool), ..self.config.lro() }
    }

    /// The engine lane's; `None` if it is turned off. Nothing that the engine takes goes on to others.
    fn engine_lro(&self, lanes: Lanes, pool: &FramePool) -> Option<lro::Config> {
        self.config.lro.enable.then(|| lro::Config {
            held_frames: held_frames(lanes, pool),
            profile: lro::Profile::Endpoint,
            active_ack: lro::ActiveAck::Off,
            udp: false,
            ..self.config.lro()
        })
    }
}

/// Frames that the LRO of one lane may hold: a quarter of the pool for all lanes.
fn held_frames(lanes: Lanes, pool: &FramePool) -> usize {
    let lanes = if lanes == Lanes::Both { 2 } else { 1 };
    pool.capacity() / 4 / lanes
}

/// What a worker shares with the rest of the process.
pub type Handle = crate::handle::Handle<Settings, Published>;

/// That of a worker with a host lane alone, which starts with `config` on a wire of this MTU in bytes.
///
/// # Errors
/// What `eventfd` says.
pub fn handle(config: Config, mtu: u32) -> io::Result<Handle> {
    handle_of(Lanes::Host, config, mtu)
}

/// The same of a worker with these lanes.
///
/// # Errors
/// What `eventfd` says.
pub(crate) fn handle_of(lanes: Lanes, config: Config, mtu: u32) -> io::Result<Handle> {
    Handle::new(Settings { config, mtu }, Published::new(counters::zero(lanes)))
}

impl Handle {
    /// Gives the worker a new configuration, which it takes up before its next packet.
    pub fn reconfigure(&self, config: &Config) {
        self.change(|settings| settings.config = config.clone());
    }

    /// Tells the worker the wire's MTU in bytes, which it goes by from its next packet on.
    pub fn set_mtu(&self, mtu: u32) {
        self.change(|settings| settings.mtu = mtu);
    }
}

/// See the module's documentation.
pub struct Worker<W, H> {
    handle: Arc<Handle>,
    seen: Seen,
    settings: Settings,
    lanes: Lanes,
    queue: WireQueue<W>,
    host: Option<HostLane<H>>,
    engine: Option<Box<EngineLane>>,
    sleeps: u64,
}

impl<W: Wire, H: Host> Worker<W, H> {
    /// A worker between a wire and a host, with `pool` as the memory of its frames.
    pub fn new(handle: Arc<Handle>, config: Config, wire: W, host: H, pool: FramePool) -> Self {
        let settings = Settings { config, mtu: handle.config().mtu };
        let lro = settings.host_lro(Lanes::Host, &pool);
        let host = HostLane::new(host, lro);
        Self::with_lanes(handle, settings, (wire, pool), Some(host), None)
    }

    fn with_lanes(
        handle: Arc<Handle>,
        settings: Settings,
        (wire, pool): (W, FramePool),
        host: Option<HostLane<H>>,
        engine: Option<Box<EngineLane>>,
    ) -> Self {
        let lanes = match (&host, &engine) {
            (Some(_), Some(_)) => Lanes::Both,
            (None, Some(_)) => Lanes::Engine,
            (_, None) => Lanes::Host,
        };
        let queue = WireQueue::new(wire, pool, settings.limits(lanes));
        Worker { seen: handle.state(), handle, settings, lanes, queue, host, engine, sleeps: 0 }
    }

    /// Works until told to stop, or until all that was to be done is done. What is held is handed on before
    /// the end, and connections that are left are reset.
    ///
    /// # Errors
    /// A port that has become useless, or an address that is another host's.
    pub fn run(mut self) -> io::Result<()> {
        if let Some(engine) = &mut self.engine {
            engine.start(sys::clock::now());
        }
        let result = event_loop::run(&mut self);
        let result = result.and_then(|()| self.end_connections());
        let finished = match &mut self.host {
            Some(host) => host.finish(&self.queue.pool),
            None => Ok(()),
        };
        self.publish_counters();
        if let Some(engine) = &mut self.engine {
            engine.close(&self.queue.pool, sys::clock::now());
        }
        self.queue.close();
        result.and(finished)
    }

    /// Those that are about to end in order do, by what has arrived already; the others are reset.
    fn end_connections(&mut self) -> io::Result<()> {
        if self.engine.is_none() {
            return Ok(());
        }
        let now = sys::clock::now();
        for _ in 0..LAST_TURNS {
            if !self.batch(now)? {
                break;
            }
        }
        if let Some(engine) = &mut self.engine {
            engine.abort(now);
        }
        self.batch(now).map(drop)
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
        let outward = self.host_to_wire()?;
        let engine = self.engine_turn(now)?;
        self.queue.flush()?;
        if let Some(host) = &mut self.host {
            host.expire(&self.queue.pool, now);
        }
        Ok(inward || outward || engine)
    }

    /// In: what has arrived on the wire, to the lanes. A host that takes nothing makes the wire wait.
    fn wire_to_lanes(&mut self, now: Nanos) -> io::Result<bool> {
        if let Some(host) = &mut self.host {
            host.begin(&self.queue.pool);
            if !host.has_room() {
                return Ok(false);
            }
        }
        let mut max = self.settings.config.poll.batch;
        if self.engine.is_some() {
            // A batch of frames is no more than a turn should take.
            max = max.min(TURN_BYTES / self.queue.pool.chunk_size()).max(1);
        }
        let mut any = false;
        let mut bytes = self.queue.counters.received.bytes;
        let end = bytes + TURN_BYTES as u64;
        loop {
            let ends = !self.queue.receive(max)?;
            any |= !self.queue.received.is_empty();
            // A super-packet ends a batch of a host's port, though more may wait.
            let goes_on = self.queue.received.back().is_some_and(|last| last.overflow > 0);
            self.steer(now, ends);
            bytes = self.queue.counters.received.bytes;
            if self.host.is_some() || !goes_on || bytes >= end {
                return Ok(any);
            }
        }
    }

    /// Gives the batch to its lanes. `ends` says that no more waits on the wire.
    fn steer(&mut self, now: Nanos, ends: bool) {
        let mut batch = std::mem::take(&mut self.queue.received);
        if let Some(host) = &mut self.host {
            host.receive(&mut batch, &mut self.queue, &self.settings.config.lro, now, ends);
        } else if let Some(engine) = &mut self.engine {
            engine.receive(&mut batch, &self.queue, now, ends);
        }
        self.queue.received = batch;
    }

    /// Out: what the host sends.
    fn host_to_wire(&mut self) -> io::Result<bool> {
        let Some(host) = &mut self.host else { return Ok(false) };
        host.transmit(&mut self.queue, self.settings.config.poll.batch)
    }

    /// What the engine and its app do with what has arrived and what is due, and what they send.
    fn engine_turn(&mut self, now: Nanos) -> io::Result<bool> {
        let Some(engine) = &mut self.engine else { return Ok(false) };
        engine.turn(&mut self.queue, now)
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

    fn take_up_changes(&mut self, now: impl FnOnce() -> Nanos) {
        if !self.handle.look(&mut self.seen) {
            return;
        }
        self.settings = self.handle.config().clone();
        self.queue.set_limits(self.settings.limits(self.lanes));
        let pool = &self.queue.pool;
        if let Some(host) = &mut self.host {
            host.reconfigure(self.settings.host_lro(self.lanes, pool), pool);
        }
        if let Some(engine) = &mut self.engine {
            engine.reconfigure(self.settings.engine_lro(self.lanes, pool), pool, now());
        }
    }

    fn publish_counters(&mut self) {
        let own = Counters { wire: self.queue.of_the_wire(), ..self.counters() };
        let engine = self.engine.as_ref().map(|engine| engine.counters());
        let lro = self.lro().map(Lro::counters);
        self.handle.published().publish(counters::all(&own, lro, engine.as_ref()));
    }
}

impl<W: Wire> Worker<W, NoHost> {
    /// A worker with an engine on a wire that is its own. `engine` makes the lane by its LRO's configuration.
    pub(crate) fn of_engine(
        handle: Arc<Handle>,
        wire: (W, FramePool),
        engine: impl FnOnce(Option<lro::Config>) -> EngineLane,
    ) -> Self {
        let settings = handle.config().clone();
        let engine = engine(settings.engine_lro(Lanes::Engine, &wire.1));
        Self::with_lanes(handle, settings, wire, None, Some(Box::new(engine)))
    }
}

impl<W: Wire, H: Host> EventLoop for Worker<W, H> {
    fn goes_on(&mut self) -> bool {
        self.take_up_changes(sys::clock::now);
        !self.seen.is_stopped() && !self.engine.as_ref().is_some_and(|engine| engine.is_done())
    }

    fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        self.batch(now)
    }

    fn spin(&self) -> Nanos {
        self.settings.config.poll.spin
    }

    /// Sleeps in the kernel until a port or the control thread has something, or something is due. The burst is
    /// over, so what is in order does not stay held. For LRO a timer is needed only while it waits for a hole to
    /// be filled.
    fn sleep(&mut self, now: Nanos) -> io::Result<()> {
        let pool = &self.queue.pool;
        let room = self.host.as_mut().is_none_or(|host| host.idle(pool));
        if self.engine.as_mut().is_some_and(|engine| engine.idle(pool, now)) {
            return Ok(());
        }
        self.sleeps += 1;
        self.publish(now);
        if self.host.as_mut().is_some_and(|host| host.arm(&self.queue.pool)) {
            return self.disarm();
        }
        let waits = self.host.as_ref().is_some_and(HostLane::is_waiting)
            || self.engine.as_ref().is_some_and(|engine| engine.is_full());
        let deadlines = [
            self.queue.next_deadline(),
            self.host.as_ref().and_then(HostLane::next_deadline),
            self.engine.as_ref().and_then(|engine| engine.next_deadline()),
        ];
        let (wire, retry) = self.queue.wait(room, waits);
        let ports = wire.into_iter().chain(self.host.iter().flat_map(HostLane::wait));
        let now = sys::clock::now();
        let due = deadlines.into_iter().flatten().map(|at| at.saturating_sub(now));
        let undelivered = self.host.as_ref().and_then(HostLane::retry_after);
        self.handle.sleep(ports, due.chain(retry).chain(undelivered).min())?;
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
