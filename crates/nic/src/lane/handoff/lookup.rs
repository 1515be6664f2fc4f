//! The paper's lookup layer (`connection-handoff`, section 3.1), in both directions: whose a packet is that the wire
//! brings, or that the kernel sends.

use std::collections::VecDeque;

use handoff::RestoreReason;
use handoff::machine::NicEvent;
use lro::Nanos;
use sys::frames::FramePool;
use sys::tcp::repair::PLACEHOLDER_SEQUENCE;
use wire::{Packet, RxChecksum, Seq, VirtioNetHdr};

use super::connections::Connection;
use super::link::HeldPacket;
use super::{HandoffLane, HostLane, is_time_wait};
use crate::lane::{checksum_of, deliver};
use crate::peers::{Peers, Whose};
use crate::port::{Host, RxFrame, Wire};
use crate::steer::{self, Entry, Phase, Subject};
use crate::wire_queue::WireQueue;

/// A packet from the wire that is looked up.
#[derive(Clone, Copy)]
struct Inbound<'a> {
    bytes: &'a [u8],
    /// The bytes behind `bytes`, of a super-packet.
    rest: &'a [u8],
    vnet: VirtioNetHdr,
    maybe_partial: bool,
}

impl<'a> Inbound<'a> {
    #[inline]
    fn new<W: Wire>(received: &RxFrame, queue: &'a WireQueue<W>) -> Self {
        Inbound {
            bytes: queue.pool.bytes(&received.frame),
            rest: queue.overflow(received),
            vnet: received.vnet,
            maybe_partial: received.maybe_partial,
        }
    }

    /// The copy that waits.
    fn held(&self) -> HeldPacket {
        let Inbound { bytes, rest, vnet, maybe_partial } = *self;
        let vnet = if maybe_partial { deliver::partial(bytes) } else { vnet };
        HeldPacket { vnet, bytes: [bytes, rest].concat() }
    }

    /// Returns true for a TCP segment whose checksum is right and that `is_valid` accepts.
    fn is_segment(&self, is_valid: impl FnOnce(&tcp::Segment<'_>) -> bool) -> bool {
        let Inbound { bytes, rest, ref vnet, maybe_partial } = *self;
        let Some(Packet::Tcp(packet)) = steer::parse(bytes, rest) else { return false };
        let is_right = match checksum_of(vnet, maybe_partial) {
            RxChecksum::Verified => true,
            RxChecksum::Unverified => packet.checksum_ok(&[rest]),
            RxChecksum::MaybePartial => {
                packet.checksum_ok(&[rest]) || wire::partial_checksum(bytes).is_some()
            }
        };
        is_right && is_valid(&tcp::Segment::new(&packet.tcp(), &[packet.payload(), rest]))
    }
}

/// Whose a packet is.
enum Found {
    Host,
    Engine,
    /// The engine's until now, and with urgent data, which it leaves to the kernel.
    Urgent(u32),
    Held(u32),
    /// The host's: a SYN of a new connection, where one that is over is only remembered.
    Over(u32),
    /// Of another worker's connection, which the NIC runs, or which is on its way.
    Other {
        worker: usize,
        is_settled: bool,
    },
}

impl HandoffLane {
    /// Whether packets need not be looked up: no worker has a connection.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lookup.is_empty()
    }

    /// Whose a packet is. `peers` are asked whether others of its connection are on their way to another worker.
    #[inline]
    fn find(&self, packet: &Inbound<'_>, peers: Option<&Peers>) -> Found {
        let Some(subject) = Subject::of(packet.bytes, packet.rest) else { return Found::Host };
        let found = self.lookup.find(subject.key());
        found.map_or(Found::Host, |found| self.whose(&found, (&subject, packet), peers))
    }

    fn whose(
        &self,
        found: &Entry,
        (subject, packet): (&Subject, &Inbound<'_>),
        peers: Option<&Peers>,
    ) -> Found {
        let app = self.lane.app();
        let Entry { worker, phase, .. } = *found;
        if worker != app.worker as usize {
            let waits = || peers.is_some_and(|peers| peers.has_waiting(worker));
            return match !phase.has_left() || waits() {
                true => Found::Other { worker, is_settled: phase == Phase::Nic },
                false => Found::Host,
            };
        }
        // The kernel runs one that the agent has not spoken of yet, and one that has left.
        let Some(number) = app.all.by_place(found.place) else { return Found::Host };
        match app.all.get(number) {
            Some(connection) if subject.opens() && self.is_followed(connection, packet) => {
                Found::Over(number)
            }
            Some(connection) if connection.side.is_settled() => {
                match subject.is_urgent() && self.takes(connection, packet) {
                    true => Found::Urgent(number),
                    false => Found::Engine,
                }
            }
            _ => Found::Held(number),
        }
    }

    /// Returns true if both ends have closed the connection, and the packet is a SYN that may open the next one.
    #[cold]
    fn is_followed(&self, connection: &Connection, packet: &Inbound<'_>) -> bool {
        self.is_over(connection) && self.engine_says(connection, packet, tcp::Connection::makes_way)
    }

    /// Returns true if the packet is a segment that the connection's peer can have sent. Another one is for the engine to
    /// drop: it must not end the connection's stay at the NIC.
    #[cold]
    fn takes(&self, connection: &Connection, packet: &Inbound<'_>) -> bool {
        self.engine_says(connection, packet, tcp::Connection::accepts)
    }

    fn engine_says(
        &self,
        connection: &Connection,
        packet: &Inbound<'_>,
        is_valid: fn(&tcp::Connection, &tcp::Segment<'_>) -> bool,
    ) -> bool {
        let id = connection.engine.as_ref().map(|running| running.id);
        let engine = id.and_then(|id| self.lane.stack().connection(id));
        engine.is_some_and(|engine| packet.is_segment(|segment| is_valid(engine, segment)))
    }

    /// Whether both ends have closed, and it is remembered alone.
    fn is_over(&self, connection: &Connection) -> bool {
        let id = connection.engine.as_ref().map(|running| running.id);
        id.is_some_and(|id| is_time_wait(self.lane.stack(), id))
    }

    /// Takes out of a batch what is of the NIC's connections. It is to be [run](Self::run) when the host has what is its
    /// own.
    pub(crate) fn take_out<W: Wire, H: Host>(
        &mut self,
        batch: &mut VecDeque<RxFrame>,
        queue: &mut WireQueue<W>,
        mut host: Option<&mut HostLane<H>>,
        peers: &mut Option<Peers>,
        now: Nanos,
    ) {
        let is_hosts = |received: &RxFrame| {
            matches!(self.find(&Inbound::new(received, queue), peers.as_ref()), Found::Host)
        };
        let first = batch.iter().position(|received| !is_hosts(received));
        // Most often none is the NIC's: those stay where they are.
        let left = first.map_or(0, |first| {
            batch.rotate_left(first);
            batch.len() - first
        });
        if left > 0 {
            self.take_commands(now);
        }
        for _ in 0..left {
            let Some(received) = batch.pop_front() else { break };
            let inbound = Inbound::new(&received, queue);
            let Inbound { bytes, rest, .. } = inbound;
            match self.find(&inbound, peers.as_ref()) {
                Found::Host => batch.push_back(received),
                Found::Engine => self.batch.push_back(received),
                Found::Over(number) => {
                    // As in TIME-WAIT of the kernel's (RFC 9293 section 3.10.7.4, tcp_timewait_state_process).
                    self.drop_over(number, &queue.pool, &mut host, now);
                    batch.push_back(received);
                }
                found @ (Found::Held(number) | Found::Urgent(number)) => {
                    let packet = inbound.held();
                    queue.pool.free(received.frame);
                    if let Found::Urgent(_) = found {
                        // What came before is the engine's.
                        self.lane.receive(&mut self.batch, queue, now, false);
                        self.give_back_urgent(number, &queue.pool, &mut host, now);
                    }
                    self.handle(number, NicEvent::Packet(packet), &queue.pool, &mut host, now);
                }
                Found::Other { worker, is_settled } => match peers {
                    Some(peers) => {
                        if let Some(host) = host.as_mut().filter(|_| !is_settled) {
                            // What came before it is the kernel's, as this may be.
                            host.interrupt_flow(&queue.pool, bytes);
                        }
                        let to = (worker, Whose::HandedOff);
                        peers.hand_over(to, received, rest, &queue.pool);
                    }
                    None => batch.push_back(received),
                },
            }
        }
    }

    /// Gives the engine what was taken out of a batch. `ends` says that no more waits on the wire.
    pub(crate) fn run<W: Wire>(&mut self, queue: &WireQueue<W>, now: Nanos, ends: bool) {
        self.lane.receive(&mut self.batch, queue, now, ends);
    }

    /// The kernel knows what to do with urgent data, which has come for a connection.
    fn give_back_urgent<H: Host>(
        &mut self,
        number: u32,
        pool: &FramePool,
        host: &mut Option<&mut HostLane<H>>,
        now: Nanos,
    ) {
        self.handle(number, NicEvent::GiveBack(RestoreReason::Urgent), pool, host, now);
    }

    /// What the application did before the peer sent something, as far as one knows of the other, is done before.
    fn take_commands(&mut self, now: Nanos) {
        let (stack, app) = self.lane.parts();
        if !app.all.is_empty() {
            app.take_commands(stack, now);
        }
    }

    /// A packet that came by another worker's queue. Returns the worker whose it is by now, if that is another.
    pub(crate) fn take<H: Host>(
        &mut self,
        (vnet, maybe_partial): (VirtioNetHdr, bool),
        bytes: &[u8],
        pool: &FramePool,
        mut host: Option<&mut HostLane<H>>,
        now: Nanos,
    ) -> Option<usize> {
        let inbound = Inbound { bytes, rest: &[], vnet, maybe_partial };
        match self.find(&inbound, None) {
            Found::Other { worker, .. } => return Some(worker),
            Found::Engine => self.lane.take(pool, (&vnet, maybe_partial), bytes, now),
            found @ (Found::Held(number) | Found::Urgent(number)) => {
                let packet = inbound.held();
                if let Found::Urgent(_) = found {
                    self.give_back_urgent(number, pool, &mut host, now);
                }
                self.handle(number, NicEvent::Packet(packet), pool, &mut host, now);
            }
            found @ (Found::Host | Found::Over(_)) => {
                if let Found::Over(number) = found {
                    self.drop_over(number, pool, &mut host, now);
                }
                if let Some(host) = host {
                    host.take(pool, (vnet, maybe_partial), bytes);
                }
            }
        }
        None
    }

    /// Whether the kernel is not to say this, which it sends by this worker's queue: the NIC has the connection.
    #[inline]
    pub(crate) fn silences(&mut self, bytes: &[u8], peers: &mut Option<Peers>) -> bool {
        // An ICMP error of the kernel's is about a packet that the kernel has seen.
        let found = match Subject::of(bytes, &[]) {
            Some(Subject::Segment { key, .. }) => self.lookup.find(&key.reversed()),
            Some(Subject::Error { .. }) | None => None,
        };
        let Some(found) = found.filter(|found| !found.phase.has_left()) else { return false };
        let Some(said) = Said::read(bytes) else { return found.phase == Phase::Nic };
        if !said.is_placeholders {
            let kernel_sent = || self.lookup.kernel_sent(found.place);
            // On its way, or sent before the kernel gave the connection away.
            if found.phase != Phase::Nic || said.has_payload && said.seq.before(kernel_sent()) {
                return false;
            }
        }
        self.silenced += 1;
        if said.is_placeholders && said.has_payload && found.phase == Phase::Nic {
            match peers {
                Some(peers) if found.worker != self.lane.app().worker as usize => {
                    peers.tell_aside(found.worker, found.place);
                }
                _ => self.take_aside(found.place),
            }
        }
        true
    }

    /// Something was written past the library that serves the calls of this worker's connection at this place.
    pub(crate) fn take_aside(&mut self, place: u32) {
        self.aside.extend(self.lane.app().all.by_place(place));
    }
}

/// What the kernel sends of a connection.
struct Said {
    seq: Seq,
    has_payload: bool,
    /// The socket that stands for the connection has sent it.
    is_placeholders: bool,
}

impl Said {
    fn read(bytes: &[u8]) -> Option<Said> {
        /// Bytes that are in flight at once are fewer (RFC 7323, section 2.3).
        const IN_FLIGHT: u32 = 1 << 30;
        let packet = Packet::parse(bytes).ok()?.tcp()?;
        let tcp = packet.tcp();
        let (seq, first) = (tcp.seq(), PLACEHOLDER_SEQUENCE);
        let is_placeholders = tcp.ack() == Seq(first) && seq.0.wrapping_sub(first - 1) < IN_FLIGHT;
        Some(Said { seq, has_payload: packet.payload_len() > 0, is_placeholders })
    }
}
