//! A connection that changes sides at random, in virtual time: a kernel (another engine), an application with both
//! ways to its connection, a peer behind a wire that loses, and the NIC between. Every byte arrives once and in
//! order, in both directions, whoever runs the connection when it is written and read.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};

use handoff::command::{NicCommand, OsCommand, nic};
use handoff::machine::{OsEvent, OsOutput, OsSide, SideCounts, ToNic, Where};
use handoff::ring::command::{Consumer, Kept, Producer};
use handoff::ring::{receive, send};
use handoff::session::status::{Place, Status};
use handoff::session::{Layout, Shared};
use handoff::{Cid, Epoch, RestoreReason};
use iface::{Address, Addresses, Interface};
use proptest::prelude::*;
use sys::frames::FramePool;
use tcp::{FourTuple, Id, Snapshot, Stack, StackConfig};
use wire::{Flags, Headers, Mac, RxChecksum, Tcp, VirtioNetHdr};

use super::link::{HeldPacket, Key, Process, State, ToAgent, ToWorker, Way};
use super::{HandoffLane, Settings};
use crate::config::Config;
use crate::handle::Wake;
use crate::lane::Arrived;
use crate::lane::node::Node;
use crate::port::memory::{FarEnd, MemoryHost, MemoryWire};
use crate::wire_queue::{Packet, TxQueue};
use crate::worker::{Worker, handle};

const NIC: Mac = [2, 0, 0, 0, 0, 1];
const PEER: Mac = [2, 0, 0, 0, 0, 2];
const STEP: u64 = 50_000;
const SECOND: u64 = 1_000_000_000;
const PORT: u16 = 7;
/// Of the hostile process's connection, whose packets go nowhere.
const OTHER_PORT: u16 = 4001;
const CID: Cid = Cid(1);
const CHUNKS: u32 = 1024;
const LAYOUT: Layout =
    Layout { workers: 1, commands: 64, connections: 2, send: 16 << 10, receive: 8 << 10 };

/// A process's memory, and whether it was woken.
#[derive(Debug)]
struct Memory {
    words: Vec<AtomicU64>,
    woken: AtomicU64,
}

impl Process for Memory {
    fn layout(&self) -> Layout {
        LAYOUT
    }

    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    fn wake_waiters(&self, _word: &AtomicU64) {}

    fn doorbell(&self, _worker: u32) -> Option<BorrowedFd<'_>> {
        None
    }

    fn drain(&self, _worker: u32) {}
}

struct Deaf;

impl Wake for Deaf {
    fn wake(&self) {}
}

#[derive(Default)]
struct Out(Vec<(VirtioNetHdr, Vec<u8>)>);

impl TxQueue for Out {
    fn has_room(&self) -> bool {
        true
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let [first, second] = packet.payload;
        self.0.push((packet.vnet, [packet.header, first, second].concat()));
    }
}

/// A host with a TCP of its own: the peer, or the kernel.
struct Tcpip {
    node: Node,
    out: Out,
    to: Mac,
}

impl Tcpip {
    fn new(mac: Mac, own: u8, to: Mac) -> Self {
        let ip = |host: u8| IpAddr::from([10, 0, 0, host]);
        let addresses = Addresses::new(vec![Address { ip: ip(own), prefix_len: 24 }], Vec::new());
        let config =
            iface::Config { mac, addresses: addresses.unwrap(), secret: [own; 16], probes: 0 };
        let stack = StackConfig { secret: [own; 16], half_open: 10, connections: 10 };
        let node = Node::new(Interface::new(config), Stack::new(stack));
        Tcpip { node, out: Out::default(), to }
    }

    fn receive(&mut self, vnet: VirtioNetHdr, bytes: &[u8], now: u64) {
        let checksum = RxChecksum::MaybePartial;
        let arrived = Arrived { bytes, rest: &[], checksum, gso_size: vnet.gso_size };
        self.node.receive(arrived, now);
    }

    fn turn(&mut self, now: u64) -> Vec<(VirtioNetHdr, Vec<u8>)> {
        self.node.on_time(now);
        let to = self.to;
        self.node.transmit(&mut self.out, now, 64, |_| Some(to));
        std::mem::take(&mut self.out.0)
    }

    fn send(&mut self, id: Id, bytes: &[u8], now: u64) -> usize {
        let mut socket = self.node.stack.socket(id, now).unwrap();
        socket.send(bytes).unwrap()
    }

    fn recv(&mut self, id: Id, most: usize, now: u64) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let mut socket = self.node.stack.socket(id, now).unwrap();
        let count = socket.receive(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }
}

/// Byte `at` of a stream.
fn pattern(at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// One direction of the connection, at both ends.
#[derive(Default)]
struct Stream {
    sent: usize,
    received: usize,
}

impl Stream {
    fn next(&self, most: usize, total: usize) -> Vec<u8> {
        (self.sent..total.min(self.sent + most)).map(pattern).collect()
    }

    fn take(&mut self, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, pattern(self.received + at), "byte {}", self.received + at);
        }
        self.received += bytes.len();
    }
}

struct World {
    worker: Worker<MemoryWire, MemoryHost>,
    wire: FarEnd,
    host: FarEnd,
    kernel: Tcpip,
    peer: Tcpip,
    peer_id: Id,
    /// While the kernel has it.
    kernel_id: Option<Id>,
    path: FourTuple,
    memory: Arc<Memory>,
    os: OsSide<HeldPacket, State>,
    counts: SideCounts,
    to_worker: Way<ToWorker>,
    inbox: Receiver<ToAgent>,
    commands: Kept,
    events: Kept,
    out: Stream,
    back: Stream,
    now: u64,
    choices: Vec<u8>,
    at: usize,
    /// Of 256: packets that are lost, and turns in which the agent does nothing.
    loss: usize,
    delay: usize,
    handoffs: u64,
    restores: u64,
    /// A process that writes what it likes.
    hostile: Option<Arc<Memory>>,
}

impl World {
    fn new(choices: Vec<u8>, loss: usize) -> Self {
        let ((near_wire, wire), (near_host, host)) = (MemoryWire::new(), MemoryHost::new());
        let config = Config::default();
        let (sender, worker_inbox) = channel();
        let (to_agent, inbox) = channel();
        let to_worker = Way::new(sender, Arc::new(Deaf));
        let settings = Settings {
            worker: 0,
            mac: NIC,
            stack: StackConfig { secret: [3; 16], half_open: 0, connections: 10 },
            memory: 64 << 20,
            config: Arc::new(config.tcp(1500)),
            secret: [4; 16],
            connections: 10,
        };
        let pool = FramePool::new(CHUNKS, 2048).unwrap();
        let handle = Arc::new(handle(config.clone(), 1500).unwrap());
        let worker = Worker::new(handle, config, near_wire, near_host, pool);
        let agent = Way::new(to_agent, Arc::new(Deaf));
        let lane = |lro| HandoffLane::new(settings, lro, worker_inbox, agent);
        let worker = worker.with_handoff(lane).unwrap();
        let words = (0..LAYOUT.words()).map(|_| AtomicU64::new(0)).collect();
        let memory = Arc::new(Memory { words, woken: AtomicU64::new(0) });
        to_worker.tell(ToWorker::Begin { session: 0, process: memory.clone() });
        let (mut kernel, mut peer) = (Tcpip::new(NIC, 9, PEER), Tcpip::new(PEER, 1, NIC));
        let tcp = Arc::new(tcp::Config::default());
        peer.node.stack.listen(None, PORT, Arc::clone(&tcp)).unwrap();
        let path = FourTuple {
            local: SocketAddr::new([10, 0, 0, 9].into(), 4000),
            remote: SocketAddr::new([10, 0, 0, 1].into(), PORT),
        };
        let id = kernel.node.stack.connect(path, tcp, 0).unwrap();
        let mut world = World {
            worker,
            wire,
            host,
            kernel,
            peer,
            peer_id: id,
            kernel_id: Some(id),
            path,
            memory,
            os: OsSide::after(Epoch::default()),
            counts: SideCounts::default(),
            to_worker,
            inbox,
            commands: Kept::default(),
            events: Kept::default(),
            out: Stream::default(),
            back: Stream::default(),
            now: SECOND,
            choices,
            at: 0,
            loss: 0,
            delay: 0,
            handoffs: 0,
            restores: 0,
            hostile: None,
        };
        world.peer_id = loop {
            world.turn();
            if let Some((id, _)) = world.peer.node.stack.next_event() {
                break id;
            }
        };
        world.loss = loss;
        world
    }

    fn choice(&mut self) -> usize {
        self.at += 1;
        usize::from(self.choices[self.at % self.choices.len()])
            ^ ((self.at / self.choices.len()) & 7)
    }

    fn status(&self) -> Status {
        let shared = Shared::new(LAYOUT, &self.memory.words).unwrap();
        Status::decode(shared.area(CID).unwrap().status().load(Ordering::Acquire))
    }

    /// One event at the OS, and what it leads to.
    fn os(&mut self, event: OsEvent<HeldPacket, State>) {
        let mut next = VecDeque::from([event]);
        while let Some(event) = next.pop_front() {
            let mut outputs = Vec::new();
            self.os.handle(event, &mut self.counts, &mut outputs);
            for output in outputs {
                next.extend(self.output(output));
            }
        }
    }

    fn output(
        &mut self,
        output: OsOutput<HeldPacket, State>,
    ) -> Option<OsEvent<HeldPacket, State>> {
        let key = Key { session: 0, cid: CID };
        match output {
            OsOutput::Tell(_, ToNic::Offer(epoch)) => {
                let (path, next_hop) = (self.path, PEER);
                self.to_worker.tell(ToWorker::Offer { key, epoch, path, next_hop });
            }
            OsOutput::Tell(tag, told) => self.to_worker.tell(ToWorker::Told { key, tag, told }),
            OsOutput::Freeze => {
                let id = self.kernel_id.take().unwrap();
                let snapshot = self.kernel.node.stack.freeze(id, self.now).unwrap();
                self.handoffs += 1;
                return Some(OsEvent::Frozen(Box::new(snapshot.to_repair().unwrap().0)));
            }
            OsOutput::Thaw(state) => {
                let snapshot = Snapshot::from_repair(&state).unwrap();
                let config = Arc::new(tcp::Config::default());
                let id = self.kernel.node.stack.thaw(&snapshot, config, self.now).unwrap();
                self.kernel_id = Some(id);
                self.restores += 1;
                return Some(OsEvent::Thawed);
            }
            OsOutput::Resume(_) | OsOutput::Notify(_) => {}
            other => panic!("{other:?}"),
        }
        None
    }

    fn turn(&mut self) {
        self.now += STEP;
        let now = self.now;
        for (vnet, bytes) in self.kernel.turn(now) {
            self.host.send(vnet, bytes);
        }
        for (vnet, bytes) in self.peer.turn(now) {
            if self.choice() >= self.loss {
                self.wire.send(vnet, bytes);
            }
        }
        self.worker.turn(now).unwrap();
        for (vnet, bytes) in self.wire.take() {
            let headers = Headers::parse(&bytes).unwrap();
            let tcp = Tcp::new(&bytes[headers.transport_at..]).unwrap();
            if tcp.source() == OTHER_PORT {
                continue;
            }
            assert!(!tcp.flags().any(Flags::RST), "a reset on the wire");
            if self.choice() >= self.loss {
                self.peer.receive(vnet, &bytes, now);
            }
        }
        for (vnet, bytes) in self.host.take() {
            assert!(
                self.kernel_id.is_some(),
                "the kernel hears of a connection that it does not have"
            );
            self.kernel.receive(vnet, &bytes, now);
        }
        // The agent may be slow.
        while self.choice() >= self.delay
            && let Ok(ToAgent { key, tag, told }) = self.inbox.try_recv()
        {
            if key.session == 0 {
                self.os(OsEvent::Told(tag, told));
            }
        }
        self.scribble();
    }

    /// A second process, with a connection that is handed off as the first is.
    fn add_hostile(&mut self) {
        let words = (0..LAYOUT.words()).map(|_| AtomicU64::new(0)).collect();
        let memory = Arc::new(Memory { words, woken: AtomicU64::new(0) });
        self.to_worker.tell(ToWorker::Begin { session: 1, process: memory.clone() });
        let id = self.kernel_id.unwrap();
        let stack = &mut self.kernel.node.stack;
        let snapshot = stack.freeze(id, self.now).unwrap();
        self.kernel_id = Some(stack.thaw(&snapshot, Arc::default(), self.now).unwrap());
        let mut state = snapshot.to_repair().unwrap().0;
        state.local.set_port(OTHER_PORT);
        let path = FourTuple { local: state.local, remote: state.remote };
        let (key, epoch) = (Key { session: 1, cid: CID }, Epoch(1));
        self.to_worker.tell(ToWorker::Offer { key, epoch, path, next_hop: PEER });
        for told in [ToNic::Handoff(Box::new(state)), ToNic::ForwardEnd] {
            self.to_worker.tell(ToWorker::Told { key, tag: epoch.tag(), told });
        }
        self.hostile = Some(memory);
    }

    /// The hostile process writes anywhere: mostly into words that mean something.
    fn scribble(&mut self) {
        let Some(memory) = self.hostile.clone() else { return };
        let words = memory.words.len() - (LAYOUT.send + LAYOUT.receive) as usize * 2 / 8;
        for _ in 0..self.choice() % 4 {
            let at = (self.choice() * 256 + self.choice()) % words;
            let word = &memory.words[at];
            match self.choice() % 4 {
                0 => word.store(self.choice() as u64, Ordering::Relaxed),
                1 => _ = word.fetch_add(self.choice() as u64 % 9, Ordering::Relaxed),
                2 => _ = word.fetch_xor(1 << (self.choice() % 64), Ordering::Relaxed),
                _ => word.store(u64::MAX - self.choice() as u64, Ordering::Relaxed),
            }
        }
    }

    /// The application writes: where the connection is, if it may.
    fn write(&mut self, most: usize, total: usize) {
        let bytes = self.out.next(most, total);
        let memory = Arc::clone(&self.memory);
        let shared = Shared::new(LAYOUT, &memory.words).unwrap();
        let area = shared.area(CID).unwrap();
        match send::App::new(area.send().unwrap()).send(&bytes) {
            Ok(0) => {}
            Ok(count) => {
                self.out.sent += count as usize;
                let epoch = self.os.epoch();
                let send = nic::Send { len: count, ..nic::Send::new(CID, epoch) };
                self.command(&shared, send.into());
            }
            Err(_) => {
                if let Some(id) = self.kernel_id.filter(|_| self.os.place() != Where::HandingOff) {
                    self.out.sent += self.kernel.send(id, &bytes, self.now);
                }
            }
        }
    }

    /// The application reads.
    fn read(&mut self, most: usize) {
        let memory = Arc::clone(&self.memory);
        let shared = Shared::new(LAYOUT, &memory.words).unwrap();
        let area = shared.area(CID).unwrap();
        let mut bytes = vec![0; most];
        match receive::App::new(area.receive().unwrap()).recv(&mut bytes) {
            Ok(0) => {}
            Ok(count) => {
                self.back.take(&bytes[..count as usize]);
                let recvd = nic::Recvd { len: count, ..nic::Recvd::new(CID, self.os.epoch()) };
                self.command(&shared, recvd.into());
            }
            Err(_) => {
                if let Some(id) = self.kernel_id {
                    let bytes = self.kernel.recv(id, most, self.now);
                    self.back.take(&bytes);
                }
            }
        }
    }

    fn command(&mut self, shared: &Shared<'_>, command: NicCommand) {
        let mut ring = Producer::resume(shared.to_nic(0).unwrap(), self.commands);
        ring.push(command.encode()).unwrap();
        self.commands = ring.keep();
        let mut events = Consumer::resume(shared.to_app(0).unwrap(), self.events);
        while let Some(event) = events.pop().unwrap() {
            OsCommand::decode(event).unwrap();
        }
        self.events = events.keep();
    }

    /// Moves the connection, or not.
    fn move_or_stay(&mut self) {
        match self.choice() {
            0..12 => self.os(OsEvent::Pick),
            12..20 => self.os(OsEvent::WantBack(RestoreReason::Command)),
            _ => {}
        }
    }

    fn run(&mut self, total: usize) {
        let mut turns = 0;
        while self.out.received < total || self.back.received < total {
            turns += 1;
            assert!(
                turns < 400_000,
                "{} and {} of {total} sent, {} and {} received, {:?}, {:?}",
                self.out.sent,
                self.back.sent,
                self.out.received,
                self.back.received,
                self.os.place(),
                self.status(),
            );
            self.move_or_stay();
            let most = self.choice() * 64;
            if self.choice() < 128 {
                self.write(most, total);
            }
            if self.choice() < 128 {
                self.read(most);
            }
            let bytes = self.back.next(most, total);
            self.back.sent += self.peer.send(self.peer_id, &bytes, self.now);
            let bytes = self.peer.recv(self.peer_id, most, self.now);
            self.out.take(&bytes);
            self.turn();
            if turns % 64 == 0 {
                // Timers.
                self.now += SECOND / 100;
            }
        }
    }
}

proptest! {
    #[test]
    fn a_connection_that_changes_sides_loses_nothing(
        choices in proptest::collection::vec(any::<u8>(), 50..1000),
        loss in prop_oneof![Just(0), Just(0), 1_usize..12],
        delay in prop_oneof![Just(0), 1_usize..240],
        total in 1_usize..300_000,
    ) {
        let mut world = World::new(choices, loss);
        world.delay = delay;
        world.run(total);
        world.delay = 0;
        prop_assert_eq!((world.out.received, world.back.received), (total, total));
        // It goes back, and there is nothing left at the NIC.
        for _ in 0..10 {
            world.turn();
        }
        world.os(OsEvent::WantBack(RestoreReason::Command));
        for _ in 0..10 {
            world.turn();
        }
        prop_assert_eq!(world.os.place(), Where::Os);
        prop_assert_eq!(world.handoffs, world.restores);
        prop_assert_eq!(world.worker.pool().available(), CHUNKS as usize, "frames are missing");
        prop_assert_eq!(world.counts.lost + world.counts.abandoned, 0);
    }
}

proptest! {
    /// Whatever another process writes into its own memory, this one's connection does not notice.
    #[test]
    fn a_hostile_application_harms_itself_alone(
        choices in proptest::collection::vec(any::<u8>(), 50..1000),
        total in 1_usize..100_000,
        gives_back: bool,
    ) {
        let mut world = World::new(choices, 0);
        world.add_hostile();
        world.run(total);
        if gives_back {
            let (key, tag) = (Key { session: 1, cid: CID }, Epoch(1).tag());
            let told = ToNic::Restore(RestoreReason::Command);
            world.to_worker.tell(ToWorker::Told { key, tag, told });
        }
        world.to_worker.tell(ToWorker::End { session: 1 });
        for _ in 0..20 {
            world.turn();
        }
        prop_assert_eq!((world.out.received, world.back.received), (total, total));
    }
}

/// Both ends close while the NIC has the connection: the application sees the end of the stream, the peer too, and
/// the NIC forgets it.
#[test]
fn a_connection_ends_at_the_nic() {
    let mut world = World::new(vec![255; 8], 0);
    world.os(OsEvent::Pick);
    for _ in 0..10 {
        world.turn();
    }
    assert_eq!((world.os.place(), world.status().place), (Where::Nic, Place::Nic));
    world.write(1000, 1000);
    let id = world.peer_id;
    let peer = &mut world.peer.node.stack;
    peer.socket(id, world.now).unwrap().shutdown();
    for _ in 0..10 {
        world.turn();
    }
    assert!(world.status().peer_closed);
    let memory = Arc::clone(&world.memory);
    let shared = Shared::new(LAYOUT, &memory.words).unwrap();
    let close = handoff::command::NicControl::Close;
    let close = nic::Ctrl { cmd: close, ..nic::Ctrl::new(CID, world.os.epoch()) };
    world.command(&shared, close.into());
    for _ in 0..20 {
        world.turn();
    }
    let bytes = world.peer.recv(id, 2000, world.now);
    world.out.take(&bytes);
    assert_eq!(bytes.len(), 1000);
    assert!(world.peer.node.stack.socket(id, world.now).unwrap().is_at_end());
    for _ in 0..10 {
        world.now += 60 * SECOND;
        world.turn();
    }
    assert_eq!(world.os.place(), Where::Closed);
}
