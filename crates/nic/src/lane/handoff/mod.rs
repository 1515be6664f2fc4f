//! The lane of the host's connections that the NIC runs: the paper's lookup layer, the NIC side of each connection,
//! and the engine behind it.
//!
//! ```text
//!   wire ──> lookup ──> held while it moves (handoff::machine)
//!                  └──> lro ──> tcp ──> rings of the application
//!   host ──> lookup ──> dropped, if the kernel speaks of what it does not run
//!   wire <── tcp <── rings
//! ```
//!
//! Nothing is looked up while there is no such connection.

mod connections;
mod counters;
mod exchange;
pub(crate) mod figures;
mod hear;
mod informed;
mod lent;
pub(crate) mod link;
mod load;
mod looked_up;
mod lookup;
mod moves;
pub(crate) mod records;
pub(crate) mod recover;
mod resets;
pub(crate) mod resources;
mod rings;
mod sessions;
mod splices;
#[cfg(test)]
mod tests;
pub(crate) mod told;
mod unsent;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use handoff::RestoreReason;
use handoff::machine::{NicEvent, SideCounts};
use handoff::policy::LoadSettings;
use iface::{Addresses, Interface};
use lro::Nanos;
use sys::epoll::Epoll;
use sys::frames::FramePool;
use tcp::{Id, Stack, StackConfig};
use wire::{Mac, VirtioNetHdr};

use self::counters::Stops;
pub(crate) use self::counters::{AgentCounts, HandoffCounters};
pub(crate) use self::sessions::wake_waiters;

use self::hear::{Heard, Parting};
use self::link::{HeldPacket, ToAgent, ToWorker, Way};
use self::load::Load;
use self::records::Mirror;
use self::resources::Resources;
use self::rings::Rings;
use self::sessions::Session;
use super::engine::EngineLane;
use super::host::HostLane;
use super::node::Node;
use crate::port::{Host, RxFrame, Wire};
use crate::steer::{Leaving, Lookup};
use crate::wire_queue::WireQueue;

/// Bytes that the NIC's connections send in a turn, but for the rest of a super-packet: what the host sends leaves before
/// what they send in the turn in which the worker reads it (OSDI'06: the host's packets first). So no more of theirs
/// leaves before a packet of the host's than this, that rest, and a super-packet that waits for room on the wire.
pub(crate) const SEND_BYTES: usize = 256 << 10;

/// What a lane is made of.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The worker's number.
    pub(crate) worker: u32,
    /// There are others.
    pub(crate) has_peers: bool,
    /// Of the wire, and of the host's interface.
    pub(crate) mac: Mac,
    pub(crate) stack: StackConfig,
    /// Bytes that the connections may take.
    pub(crate) memory: u64,
    pub(crate) config: Arc<tcp::Config>,
    /// Key of flow labels.
    pub(crate) secret: [u8; 16],
    /// Connections at most.
    pub(crate) connections: usize,
    /// What outlives the NIC.
    pub(crate) mirror: Mirror,
    /// Which worker has a connection.
    pub(crate) lookup: Arc<Lookup>,
    /// How many connections there may be, by load; `None` for as many as there may be without.
    pub(crate) load: Option<LoadSettings>,
    /// What is left for the agent's.
    pub(crate) resources: Arc<Resources>,
    /// The agent has no way to the kernel of its own, to which a segment of the peer's is to be said again.
    pub(crate) tells_kernel: bool,
}

/// See the module's documentation.
pub(crate) struct HandoffLane {
    lane: EngineLane<Rings>,
    inbox: Receiver<ToWorker>,
    heard: Heard,
    parting: Parting,
    agent: Way<ToAgent>,
    lookup: Arc<Lookup>,
    /// Places of connections that have left, to which strays that wait may belong.
    leaving: Vec<Leaving>,
    /// Packets of a connection may come and go by other workers' queues.
    has_peers: bool,
    connections: usize,
    load: Load,
    mac: Mac,
    /// See [`Settings`].
    tells_kernel: bool,
    /// The sessions' doorbells, edge-triggered.
    doorbells: Epoll,
    /// What of a batch is the engine's.
    batch: VecDeque<RxFrame>,
    counts: SideCounts,
    /// The agent is expected to go on with a connection that stands still, until then.
    expected: Nanos,
    /// Packets of the kernel's about connections that it does not run.
    silenced: u64,
    /// Moves that ended, each way.
    to_nic: Stops,
    to_os: Stops,
    /// Connections to which something was written past the library that serves their calls. They go back, and what
    /// was written with them.
    aside: Vec<u32>,
    /// Connections in TIME-WAIT that were to go back: they are over when this turn has sent what they say last.
    over: Vec<u32>,
}

impl HandoffLane {
    /// A lane without connections, which hears the agent by `inbox`.
    ///
    /// # Errors
    /// What `epoll_create1` says.
    pub(crate) fn new(
        settings: Settings,
        lro: Option<lro::Config>,
        inbox: Receiver<ToWorker>,
        agent: Way<ToAgent>,
    ) -> io::Result<Self> {
        let Settings { worker, has_peers, mac, stack, memory, config, secret, .. } = settings;
        let Settings { connections, mirror, lookup, tells_kernel, load, resources, .. } = settings;
        let load = Load::new(connections as u32, load, resources);
        let addresses = Addresses::default();
        let interface = Interface::new(iface::Config { mac, addresses, secret, probes: 0 });
        let node = Node::new(interface, Stack::new(stack).with_memory(memory).with_changes());
        // There is nothing to be ready for.
        let (ready, _) = mpsc::channel();
        Ok(HandoffLane {
            lane: EngineLane::new(lro, node, Rings::new(worker, config, mirror), ready)
                .with_send_bytes(SEND_BYTES),
            inbox,
            heard: Heard::default(),
            parting: Parting::default(),
            agent,
            lookup,
            leaving: Vec::new(),
            has_peers,
            connections,
            load,
            mac,
            tells_kernel,
            doorbells: Epoll::new()?,
            batch: VecDeque::new(),
            counts: SideCounts::default(),
            expected: 0,
            silenced: 0,
            to_nic: Stops::default(),
            to_os: Stops::default(),
            aside: Vec::new(),
            over: Vec::new(),
        })
    }

    /// Goes by another configuration from now on.
    pub(crate) fn reconfigure(
        &mut self,
        (lro, load): (Option<lro::Config>, Option<LoadSettings>),
        pool: &FramePool,
        now: Nanos,
    ) {
        self.load.set(load, now);
        self.lane.reconfigure(lro, pool, now);
    }

    fn app(&mut self) -> &mut Rings {
        self.lane.parts().1
    }

    /// What the agent says, what applications do, what is due, and what is to be sent. Returns whether there was
    /// anything to do.
    ///
    /// # Errors
    /// None: a port that has become useless tells by itself.
    pub(crate) fn turn<W: Wire, H: Host>(
        &mut self,
        queue: &mut WireQueue<W>,
        mut host: Option<&mut HostLane<H>>,
        now: Nanos,
    ) -> io::Result<bool> {
        let told = self.hear(&queue.pool, &mut host, now);
        self.shed(&queue.pool, &mut host, now);
        for number in std::mem::take(&mut self.aside) {
            let give_back = NicEvent::GiveBack(RestoreReason::Unserved);
            self.handle(number, give_back, &queue.pool, &mut host, now);
        }
        let worked = self.lane.turn(queue, &mut None, now)?;
        for number in std::mem::take(&mut self.over) {
            self.drop_over(number, &queue.pool, &mut host, now);
        }
        while let Some(number) = self.next_ended() {
            self.handle(number, NicEvent::Ended, &queue.pool, &mut host, now);
        }
        self.app().end_turn();
        Ok(told || worked)
    }

    /// Gives the engine what LRO has held for long enough.
    pub(crate) fn expire(&mut self, pool: &FramePool, now: Nanos) {
        self.lane.expire(pool, now);
    }

    fn next_ended(&mut self) -> Option<u32> {
        let (stack, app) = self.lane.parts();
        app.next_ended(stack)
    }

    /// Nothing more comes for now: what was kept to be joined with more is taken. Returns whether there was any.
    pub(crate) fn idle(&mut self, pool: &FramePool, now: Nanos) -> bool {
        self.lane.idle(pool, now)
    }

    /// The earliest of what is due.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.lane.next_deadline()
    }

    /// Whether there was no room for what there is to send.
    pub(crate) fn is_full(&self) -> bool {
        self.lane.is_full()
    }

    /// Whether the agent, which has been told something of a connection that stands still, answers in a moment.
    pub(crate) fn expects_soon(&self, now: Nanos) -> bool {
        now < self.expected
    }

    /// What to sleep on.
    pub(crate) fn wait(&self) -> BorrowedFd<'_> {
        self.doorbells.as_fd()
    }

    /// The worker is about to sleep; returns whether it may, as no application has said anything.
    pub(crate) fn falls_asleep(&self) -> bool {
        self.lane.app().sessions.iter().flatten().all(Session::falls_asleep)
    }

    /// The worker is awake.
    pub(crate) fn awakes(&mut self) {
        let app = self.lane.parts().1;
        if app.sessions.is_empty() {
            return;
        }
        app.sessions.iter().flatten().for_each(Session::awakes);
        // Without waiting: takes the edges out of the set. Those that it leaves wake the worker once more.
        let _ = self.doorbells.wait(0);
    }

    /// Frees what LRO holds.
    pub(crate) fn close(&mut self, pool: &FramePool, now: Nanos) {
        self.lane.close(pool, now);
    }

    /// Segments that came behind others to the engine, and packets that found no room to be held.
    #[cfg(test)]
    pub(crate) fn late_and_lost(&self) -> (u64, u64) {
        (self.lane.stack().counters().out_of_order, self.counts.held_full)
    }

    /// Events that applications were told of.
    #[cfg(test)]
    pub(crate) fn events(&self) -> u64 {
        self.lane.app().events.entries().map(|(_, count)| count).sum()
    }

    /// What it has counted.
    pub(crate) fn counters(&self) -> HandoffCounters {
        let app = self.lane.app();
        HandoffCounters {
            connections: app.all.len() as u64,
            load_limit: self.load.limit().0.into(),
            side: self.counts,
            commands: app.commands,
            events: app.events,
            bad_commands: app.bad,
            hostile: app.hostile,
            silenced: self.silenced,
            splices: app.splices,
            to_nic: self.to_nic,
            to_os: self.to_os,
        }
    }

    /// A packet that was held, to the engine.
    fn input(&mut self, packet: &HeldPacket, pool: &FramePool, now: Nanos) {
        let HeldPacket { vnet, bytes } = packet;
        self.lane.take(pool, (vnet, false), bytes, now);
    }
}

fn is_time_wait(stack: &Stack, id: Id) -> bool {
    stack.connection(id).is_some_and(|connection| connection.state() == tcp::State::TimeWait)
}

/// A packet that was held, to the host.
fn pass<H: Host>(packet: &HeldPacket, pool: &FramePool, host: &mut Option<&mut HostLane<H>>) {
    let vnet: VirtioNetHdr = packet.vnet;
    if let Some(host) = host {
        // That the kernel does not take it is counted there.
        let _ = host.deliver(pool, &crate::wire_queue::Packet::frame(vnet, &packet.bytes));
    }
}
