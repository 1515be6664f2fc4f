//! A kernel, an application, a peer, and the NIC between, in virtual time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use handoff::command::{NicCommand, OsCommand, nic};
use handoff::machine::{OsEvent, OsOutput, OsSide, SideCounts, ToNic, Where};
use handoff::ring::command::{Consumer, Kept, Producer};
use handoff::ring::{receive, send};
use handoff::session::status::Status;
use handoff::session::{Layout, Shared};
use handoff::{Cid, Epoch, Refusal, RestoreReason, mirror};
use sys::frames::FramePool;
use tcp::options::Options;
use tcp::{FourTuple, Id, Snapshot, StackConfig};
use wire::{Flags, Headers, Mac, Seq, Tcp, VirtioNetHdr};

use super::super::link::{HeldPacket, Key, Process, State, ToAgent, ToWorker, Way};
use super::super::records::fault::Fault;
use super::super::records::{Beginnings, Mirror};
use super::super::recover::recover;
use super::super::{HandoffLane, Settings};
use super::tcpip::Tcpip;
use crate::config::Config;
use crate::handle::Wake;
use crate::port::memory::{FarEnd, MemoryHost, MemoryWire};
use crate::worker::{Worker, handle};

pub(super) const NIC: Mac = [2, 0, 0, 0, 0, 1];
pub(super) const PEER: Mac = [2, 0, 0, 0, 0, 2];
pub(super) const STEP: u64 = 50_000;
pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const PORT: u16 = 7;
/// Of the hostile process's connection, whose packets go nowhere.
pub(super) const OTHER_PORT: u16 = 4001;
pub(super) const CID: Cid = Cid(1);
/// Of its record.
pub(super) const PLACE: u32 = 3;
pub(super) const CHUNKS: u32 = 1024;
pub(super) const LAYOUT: Layout =
    Layout { workers: 1, commands: 64, connections: 2, send: 256 << 10, receive: 128 << 10 };

/// A process's memory, and whether it was woken.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) words: Vec<AtomicU64>,
    pub(super) woken: AtomicU64,
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

pub(super) struct Deaf;

impl Wake for Deaf {
    fn wake(&self) {}
}

/// Byte `at` of a stream.
pub(super) fn pattern(at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// One direction of the connection, at both ends.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) sent: usize,
    pub(super) received: usize,
}

impl Stream {
    pub(super) fn next(&self, most: usize, total: usize) -> Vec<u8> {
        (self.sent..total.min(self.sent + most)).map(pattern).collect()
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, pattern(self.received + at), "byte {}", self.received + at);
        }
        self.received += bytes.len();
    }
}

pub(super) struct World {
    pub(super) worker: Worker<MemoryWire, MemoryHost>,
    pub(super) wire: FarEnd,
    pub(super) host: FarEnd,
    pub(super) kernel: Tcpip,
    pub(super) peer: Tcpip,
    pub(super) peer_id: Id,
    /// While the kernel has it.
    pub(super) kernel_id: Option<Id>,
    pub(super) path: FourTuple,
    pub(super) memory: Arc<Memory>,
    pub(super) os: OsSide<HeldPacket, State>,
    pub(super) counts: SideCounts,
    pub(super) to_worker: Way<ToWorker>,
    pub(super) inbox: Receiver<ToAgent>,
    pub(super) commands: Kept,
    pub(super) events: Kept,
    pub(super) out: Stream,
    pub(super) back: Stream,
    pub(super) now: u64,
    pub(super) choices: Vec<u8>,
    pub(super) at: usize,
    /// Of 256: packets that are lost, and turns in which the agent does nothing.
    pub(super) loss: usize,
    pub(super) delay: usize,
    /// The first data from now on is lost that the peer sends, and that is sent to it, as often as it comes.
    pub(super) makes_holes: bool,
    pub(super) holes: [Option<Seq>; 2],
    /// The agent's clock, when it freezes, is later than the worker's turn by so many nanoseconds.
    pub(super) ahead: u64,
    /// The latest timestamp that the peer was sent.
    pub(super) tsval: Option<Seq>,
    pub(super) handoffs: u64,
    pub(super) restores: u64,
    /// A process that writes what it likes.
    pub(super) hostile: Option<Arc<Memory>>,
    pub(super) mirror: Mirror,
    pub(super) beginnings: Beginnings,
    pub(super) death: Arc<Mutex<Death>>,
    pub(super) is_dead: bool,
}

/// How the NIC dies, and what is left of it.
#[derive(Default)]
pub(super) struct Death {
    /// Looks at its records until then.
    pub(super) at: Option<u64>,
    pub(super) left: Option<Left>,
}

/// What there was at that instant.
pub(super) struct Left {
    memory: Vec<u64>,
    mirror: Vec<u64>,
    to_wire: Vec<(VirtioNetHdr, Vec<u8>)>,
    to_host: Vec<(VirtioNetHdr, Vec<u8>)>,
}

pub(super) fn copy(words: &[AtomicU64]) -> Vec<u64> {
    words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
}

pub(super) fn put(words: &[AtomicU64], values: &[u64]) {
    words.iter().zip(values).for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
}

impl World {
    pub(super) fn new(choices: Vec<u8>, loss: usize) -> Self {
        let ((near_wire, wire), (near_host, host)) = (MemoryWire::new(), MemoryHost::new());
        let config = Config::default();
        let mirror = Mirror::new(10).unwrap();
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
            mirror: mirror.clone(),
            tells_kernel: true,
        };
        let pool = FramePool::new(CHUNKS, 2048).unwrap();
        let handle = Arc::new(handle(config.clone(), 1500).unwrap());
        let worker = Worker::new(handle, config, near_wire, near_host, pool);
        let agent = Way::new(to_agent, Arc::new(Deaf));
        let words = (0..LAYOUT.words()).map(|_| AtomicU64::new(0)).collect();
        let memory = Arc::new(Memory { words, woken: AtomicU64::new(0) });
        let death = Arc::new(Mutex::new(Death::default()));
        let fault = {
            let (death, memory, mirror) = (Arc::clone(&death), Arc::clone(&memory), mirror.clone());
            let (wire, host) = (wire.clone(), host.clone());
            move || {
                let Death { at, left } = &mut *death.lock().unwrap();
                match at {
                    Some(0) if left.is_none() => {
                        *left = Some(Left {
                            memory: copy(&memory.words),
                            mirror: copy(mirror.words()),
                            to_wire: wire.take(),
                            to_host: host.take(),
                        });
                    }
                    Some(at) => *at = at.saturating_sub(1),
                    None => {}
                }
            }
        };
        let lane = |lro| {
            let mut lane = HandoffLane::new(settings, lro, worker_inbox, agent)?;
            lane.app().records.fault = Some(Fault(Box::new(fault)));
            Ok(lane)
        };
        let worker = worker.with_handoff(lane).unwrap();
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
            makes_holes: false,
            holes: [None; 2],
            ahead: 0,
            tsval: None,
            handoffs: 0,
            restores: 0,
            hostile: None,
            beginnings: Beginnings::new(mirror.clone()),
            mirror,
            death,
            is_dead: false,
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

    pub(super) fn choice(&mut self) -> usize {
        self.at += 1;
        usize::from(self.choices[self.at % self.choices.len()])
            ^ ((self.at / self.choices.len()) & 7)
    }

    pub(super) fn status(&self) -> Status {
        let shared = Shared::new(LAYOUT, &self.memory.words).unwrap();
        Status::decode(shared.area(CID).unwrap().status().load(Ordering::Acquire))
    }

    /// One event at the OS, and what it leads to.
    pub(super) fn os(&mut self, event: OsEvent<HeldPacket, State>) {
        let mut next = VecDeque::from([event]);
        while let Some(event) = next.pop_front() {
            let mut outputs = Vec::new();
            self.os.handle(event, &mut self.counts, &mut outputs);
            for output in outputs {
                next.extend(self.output(output));
            }
        }
    }

    pub(super) fn output(
        &mut self,
        output: OsOutput<HeldPacket, State>,
    ) -> Option<OsEvent<HeldPacket, State>> {
        let key = Key { session: 0, cid: CID };
        match output {
            OsOutput::Tell(_, ToNic::Offer(epoch)) => {
                let (path, next_hop, place) = (self.path, PEER, PLACE);
                self.to_worker.tell(ToWorker::Offer { key, epoch, path, next_hop, place });
            }
            OsOutput::Tell(tag, told) => self.to_worker.tell(ToWorker::Told { key, tag, told }),
            OsOutput::Freeze => {
                let id = self.kernel_id.take().unwrap();
                // The agent's turn may be later than the worker's.
                let at = self.now + self.ahead;
                let snapshot = self.kernel.node.stack.freeze(id, at).unwrap();
                let state = snapshot.to_repair().unwrap().0;
                let name = (CID, self.os.epoch());
                let memory = Arc::clone(&self.memory);
                let area = Shared::new(LAYOUT, &memory.words).unwrap().area(CID).unwrap();
                if self.beginnings.write(PLACE, name, &area, &state, at).is_err() {
                    let config = Arc::new(tcp::Config::default());
                    let id = self.kernel.node.stack.thaw(&snapshot, config, at).unwrap();
                    self.kernel_id = Some(id);
                    return Some(OsEvent::NotFrozen(Refusal::Buffer));
                }
                self.handoffs += 1;
                return Some(OsEvent::Frozen(State::of(state, at)));
            }
            OsOutput::Thaw(state) => {
                let snapshot = Snapshot::from_repair(&state.at(self.now)).unwrap();
                let config = Arc::new(tcp::Config::default());
                let id = self.kernel.node.stack.thaw(&snapshot, config, self.now).unwrap();
                self.kernel_id = Some(id);
                self.restores += 1;
                self.beginnings.erase(PLACE);
                return Some(OsEvent::Thawed);
            }
            OsOutput::Resume(_) | OsOutput::Notify(_) => {}
            other => panic!("{other:?}"),
        }
        None
    }

    pub(super) fn turn(&mut self) {
        self.now += STEP;
        let now = self.now;
        if self.is_dead {
            self.turn_without();
            return;
        }
        for (vnet, bytes) in self.kernel.turn(now) {
            self.host.send(vnet, bytes);
        }
        for (vnet, bytes) in self.peer.turn(now) {
            if self.choice() >= self.loss && !self.loses(0, &bytes) {
                self.wire.send(vnet, bytes);
            }
        }
        self.worker.turn(now).unwrap();
        let left = self.death.lock().unwrap().left.take();
        let (to_wire, to_host) = match &left {
            Some(left) => (left.to_wire.clone(), left.to_host.clone()),
            None => (self.wire.take(), self.host.take()),
        };
        for (vnet, bytes) in to_wire {
            let headers = Headers::parse(&bytes).unwrap();
            let tcp = Tcp::new(&bytes[headers.transport_at..]).unwrap();
            if tcp.source() == OTHER_PORT {
                continue;
            }
            self.look_at(&tcp);
            if self.choice() >= self.loss && !self.loses(1, &bytes) {
                self.peer.receive(vnet, &bytes, now);
            }
        }
        for (vnet, bytes) in to_host {
            assert!(
                self.kernel_id.is_some(),
                "the kernel hears of a connection that it does not have"
            );
            self.kernel.receive(vnet, &bytes, now);
        }
        if let Some(left) = left {
            self.take_over(&left);
            return;
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

    fn loses(&mut self, way: usize, bytes: &[u8]) -> bool {
        let headers = Headers::parse(bytes).unwrap();
        let seq = Tcp::new(&bytes[headers.transport_at..]).unwrap().seq();
        let has_data = headers.end > headers.payload_at;
        self.makes_holes && has_data && *self.holes[way].get_or_insert(seq) == seq
    }

    /// Laws of what leaves for the peer: no reset, and timestamps do not go back (RFC 7323 section 5.3).
    fn look_at(&mut self, tcp: &Tcp<&[u8]>) {
        assert!(!tcp.flags().any(Flags::RST), "a reset on the wire");
        let Some(both) = Options::parse(tcp.option_bytes()).timestamps else { return };
        let last = self.tsval.replace(both.value).unwrap_or(both.value);
        assert!(!both.value.before(last), "a timestamp of {:?} after {last:?}", both.value);
    }

    /// The NIC has died: what the guard does.
    pub(super) fn take_over(&mut self, left: &Left) {
        self.is_dead = true;
        put(&self.memory.words, &left.memory);
        put(self.mirror.words(), &left.mirror);
        let Ok(record) = mirror::read(self.mirror.memory().record(PLACE).unwrap()) else {
            assert!(self.kernel_id.is_some(), "no record of a connection that the NIC has");
            return;
        };
        assert!(self.kernel_id.is_none(), "a record of a connection that the kernel has");
        let memory = Arc::clone(&self.memory);
        let area = Shared::new(LAYOUT, &memory.words).unwrap().area(CID).unwrap();
        let repair = recover(&record, &area, self.now).unwrap();
        let snapshot = Snapshot::from_repair(&repair).unwrap();
        let config = Arc::new(tcp::Config::default());
        let id = self.kernel.node.stack.thaw(&snapshot, config, self.now).unwrap();
        self.kernel_id = Some(id);
    }

    /// A turn without a NIC: the kernel is on the wire.
    pub(super) fn turn_without(&mut self) {
        let now = self.now;
        for (vnet, bytes) in self.peer.turn(now) {
            if self.choice() >= self.loss {
                self.kernel.receive(vnet, &bytes, now);
            }
        }
        for (vnet, bytes) in self.kernel.turn(now) {
            let headers = Headers::parse(&bytes).unwrap();
            let tcp = Tcp::new(&bytes[headers.transport_at..]).unwrap();
            self.look_at(&tcp);
            if self.choice() >= self.loss {
                self.peer.receive(vnet, &bytes, now);
            }
        }
    }

    /// A second process, with a connection that is handed off as the first is.
    pub(super) fn add_hostile(&mut self) {
        let words = (0..LAYOUT.words()).map(|_| AtomicU64::new(0)).collect();
        let memory = Arc::new(Memory { words, woken: AtomicU64::new(0) });
        self.to_worker.tell(ToWorker::Begin { session: 1, process: memory.clone() });
        let id = self.kernel_id.unwrap();
        let stack = &mut self.kernel.node.stack;
        let snapshot = stack.freeze(id, self.now).unwrap();
        self.kernel_id = Some(stack.thaw(&snapshot, Arc::default(), self.now).unwrap());
        let mut state = snapshot.to_repair().unwrap().0;
        state.local.set_port(OTHER_PORT);
        let area = Shared::new(LAYOUT, &memory.words).unwrap().area(CID).unwrap();
        let name = (CID, Epoch(1));
        self.beginnings.write(PLACE + 1, name, &area, &state, self.now).unwrap();
        let path = FourTuple { local: state.local, remote: state.remote };
        let (key, epoch) = (Key { session: 1, cid: CID }, Epoch(1));
        self.to_worker.tell(ToWorker::Offer { key, epoch, path, next_hop: PEER, place: PLACE + 1 });
        for told in [ToNic::Handoff(State::of(state, self.now)), ToNic::ForwardEnd] {
            self.to_worker.tell(ToWorker::Told { key, tag: epoch.tag(), told });
        }
        self.hostile = Some(memory);
    }

    /// The hostile process writes anywhere: mostly into words that mean something.
    pub(super) fn scribble(&mut self) {
        let Some(memory) = self.hostile.clone() else { return };
        let words = memory.words.len() - (LAYOUT.send + LAYOUT.receive) as usize * 2 * 2 / 8;
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
    pub(super) fn write(&mut self, most: usize, total: usize) {
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
                if let Some(id) =
                    self.kernel_id.filter(|_| self.is_dead || self.os.place() != Where::HandingOff)
                {
                    self.out.sent += self.kernel.send(id, &bytes, self.now);
                }
            }
        }
    }

    /// The application reads.
    pub(super) fn read(&mut self, most: usize) {
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

    pub(super) fn command(&mut self, shared: &Shared<'_>, command: NicCommand) {
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
    pub(super) fn move_or_stay(&mut self) {
        match self.choice() {
            0..12 => self.os(OsEvent::Pick),
            12..20 => self.os(OsEvent::WantBack(RestoreReason::Command)),
            _ => {}
        }
    }

    pub(super) fn run(&mut self, total: usize) {
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
            if !self.is_dead {
                self.move_or_stay();
            }
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
