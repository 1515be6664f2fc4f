//! Many connections at one worker, in virtual time: the host's packets come first, and the number of connections follows
//! the load.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, channel};

use handoff::command::nic;
use handoff::machine::{OsEvent, OsOutput, SideCounts, Where};
use handoff::policy::LoadSettings;
use handoff::ring::command::{Kept, Producer};
use handoff::ring::send;
use handoff::session::{Layout, Offsets, Shared};
use handoff::{Cid, Epoch, Refusal, RestoreReason};
use sys::frames::FramePool;
use tcp::repair::Repair;
use tcp::{FourTuple, StackConfig};
use testkit::packet::PacketBuilder;
use wire::{FlowHash, Headers, Tcp, VirtioNetHdr};

use super::super::link::{HeldPacket, Key, Process, State, ToAgent, ToWorker, Way};
use super::super::records::{Beginnings, Mirror};
use super::super::resources::Resources;
use super::super::{HandoffLane, SEND_BYTES, Settings};
use super::nic::{Deaf, NIC};
use super::world::{PEER, SECOND};
use crate::config::Config;
use crate::given::application::state;
use crate::handoff::agent::crossing::{Crossing, Event, Output};
use crate::handoff::agent::ways::Ways;
use crate::port::memory::{FarEnd, MemoryHost, MemoryWire};
use crate::steer::Lookup;
use crate::worker::{Worker, handle};

const MS: u64 = 1_000_000;
const SOME: u32 = 64;
const RING: u32 = 1 << 16;
const LAYOUT: Layout =
    Layout { workers: 1, commands: 1024, connections: SOME, send: RING, receive: 4096 };
/// The longest super-packet, with its headers.
const SUPER_PACKET: usize = 65_536 + 14;

#[derive(Debug)]
struct Memory(Vec<AtomicU64>, Offsets);

impl Process for Memory {
    fn offsets(&self) -> &Offsets {
        &self.1
    }

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn wake(&self) {}

    fn wake_waiters(&self, _word: &AtomicU64) {}

    fn doorbell(&self, _worker: u32) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A worker, the OS sides of its connections, and one process that has them.
struct Crowd {
    worker: Worker<MemoryWire, MemoryHost>,
    wire: FarEnd,
    host: FarEnd,
    ways: Ways,
    lookup: Arc<Lookup>,
    inbox: Receiver<ToAgent>,
    resources: Arc<Resources>,
    memory: Arc<Memory>,
    commands: Kept,
    beginnings: Beginnings,
    all: Vec<Crossing>,
    /// Which of them have a place at the NIC.
    placed: Vec<bool>,
    /// Their states while the kernel has them.
    states: Vec<Repair>,
    counts: SideCounts,
    now: u64,
}

fn crossing(number: u32, epoch: Epoch) -> Crossing {
    let Repair { local, remote, .. } = state(number);
    let key = Key { session: 0, cid: Cid(number) };
    Crossing::new((key, epoch), FourTuple { local, remote }, PEER, number)
}

impl Crowd {
    fn new(wire: (MemoryWire, FarEnd), load: Option<LoadSettings>) -> Crowd {
        let ((near_wire, wire), (near_host, host)) = (wire, MemoryHost::new());
        let mut config = Config::default();
        // A turn takes sixteen batches.
        config.poll.batch = 4;
        let (sender, worker_inbox) = channel();
        let (to_agent, inbox) = channel();
        let resources = Arc::new(Resources::default());
        let (lookup, claims) = Lookup::new(FlowHash::from_seed(11), SOME as usize);
        let way = Way::new(sender, Arc::new(Deaf));
        let ways = Ways::new(vec![(way, Arc::clone(&resources))], claims);
        let mirror = Mirror::new(SOME).unwrap();
        let settings = Settings {
            worker: 0,
            has_peers: false,
            mac: NIC,
            stack: StackConfig { secret: [3; 16], half_open: 0, connections: SOME },
            memory: 64 << 20,
            config: Arc::new(config.tcp(1500)),
            secret: [4; 16],
            connections: SOME as usize,
            mirror: mirror.clone(),
            lookup: Arc::clone(&lookup),
            load,
            resources: Arc::clone(&resources),
            tells_kernel: false,
        };
        let pool = FramePool::new(4096, 2048).unwrap();
        let handle = Arc::new(handle(config.clone(), 1500).unwrap());
        let worker = Worker::new(handle, config, near_wire, near_host, pool);
        let agent = Way::new(to_agent, Arc::new(Deaf));
        let lane = |lro| HandoffLane::new(settings, lro, worker_inbox, agent);
        let worker = worker.with_handoff(lane).unwrap();
        let memory = Arc::new(Memory(
            (0..LAYOUT.words()).map(|_| AtomicU64::new(0)).collect(),
            LAYOUT.offsets().unwrap(),
        ));
        ways.tell(0, ToWorker::Begin { session: 0, process: memory.clone() });
        Crowd {
            worker,
            wire,
            host,
            ways,
            lookup,
            inbox,
            resources,
            memory,
            commands: Kept::default(),
            beginnings: Beginnings::new(mirror),
            all: (0..SOME).map(|number| crossing(number, Epoch::default())).collect(),
            placed: vec![false; SOME as usize],
            states: (0..SOME).map(state).collect(),
            counts: SideCounts::default(),
            now: SECOND,
        }
    }

    fn at(&self, place: Where) -> u32 {
        self.all.iter().filter(|side| side.place() == place).count() as u32
    }

    fn handle(&mut self, number: u32, event: Event) {
        let at = number as usize;
        let mut next = vec![event];
        while let Some(event) = next.pop() {
            let mut outputs = Vec::new();
            self.all[at].handle(event, &mut self.ways, &mut self.counts, &mut outputs);
            for output in outputs {
                next.extend(self.output(number, output).map(Event::Os));
            }
        }
        if self.placed[at] && self.all[at].place() == Where::Os {
            self.placed[at] = false;
            self.ways.leave(number, self.all[at].worker(), self.now);
            self.all[at] = crossing(number, self.all[at].epoch());
        }
    }

    fn output(&mut self, number: u32, output: Output) -> Option<OsEvent<HeldPacket, State>> {
        let state = &mut self.states[number as usize];
        match output {
            OsOutput::Freeze => {
                let name = (Cid(number), self.all[number as usize].epoch());
                let area = Shared::new(LAYOUT, &self.memory.0).unwrap().area(name.0).unwrap();
                self.beginnings.write(number, name, (0, &area), state, self.now).unwrap();
                Some(OsEvent::Frozen(State::of(state.clone(), self.now)))
            }
            OsOutput::Thaw(back) => {
                *state = back.at(self.now);
                Some(OsEvent::Thawed)
            }
            _ => None,
        }
    }

    /// Offers what is at the kernel, unless the NIC has advertised that there is no room.
    fn offer(&mut self, number: u32) -> Option<Refusal> {
        let lacks = self.resources.lacks();
        if lacks.is_none() && !self.placed[number as usize] && !self.is_leaving(number) {
            self.placed[number as usize] = true;
            self.handle(number, Event::Os(OsEvent::Pick));
        }
        lacks
    }

    /// Whether its last stay at the NIC is not done with.
    fn is_leaving(&mut self, number: u32) -> bool {
        while self.ways.next_left(self.now, false).is_some() {}
        self.lookup.phase(number).is_some()
    }

    fn turn(&mut self, passed: u64) {
        self.now += passed;
        self.worker.turn(self.now).unwrap();
        while let Ok(message) = self.inbox.try_recv() {
            let ToAgent::Told { key, tag, told } = message else { panic!("{message:?}") };
            self.handle(key.cid.0, Event::Os(OsEvent::Told(tag, told)));
        }
    }

    /// The applications of so many connections have filled their rings.
    fn write(&mut self, count: u32) {
        let memory = Arc::clone(&self.memory);
        let shared = Shared::new(LAYOUT, &memory.0).unwrap();
        for number in 0..count {
            let area = shared.area(Cid(number)).unwrap();
            let ring = send::App::new(area.send().unwrap());
            let len = ring.send(&vec![7; RING as usize]).unwrap();
            let epoch = self.all[number as usize].epoch();
            let command = nic::Send { len, ..nic::Send::new(Cid(number), epoch) };
            let mut ring = Producer::resume(shared.to_nic(0).unwrap(), self.commands);
            ring.push(handoff::command::NicCommand::from(command).encode()).unwrap();
            self.commands = ring.keep();
        }
    }
}

/// A packet of the host's, which is told from the NIC's by its port.
const HOST_PORT: u16 = 9;

fn of_host() -> Vec<u8> {
    PacketBuilder::tcp4().ports(HOST_PORT, 10).payload_pattern(100).build()
}

fn is_of_host(bytes: &[u8]) -> bool {
    let headers = Headers::parse(bytes).unwrap();
    Tcp::new(&bytes[headers.transport_at..]).unwrap().source() == HOST_PORT
}

/// The law: however much the NIC's connections have to send, no more of it leaves after a packet of the host's has come,
/// and before that leaves, than what a turn sends of theirs, the rest of its last super-packet, and one that waits for
/// room on the wire. With as much room as there may be, that packet is the first to leave in the next turn.
#[test]
fn what_the_host_sends_leaves_before_what_the_nics_connections_send() {
    for room in [None, Some(3), Some(20), Some(200)] {
        let wire = if room.is_none() { MemoryWire::with_offloads() } else { MemoryWire::new() };
        let mut crowd = Crowd::new(wire, None);
        const COUNT: u32 = 40;
        (0..COUNT).for_each(|number| assert_eq!(crowd.offer(number), None));
        while crowd.at(Where::Nic) < COUNT {
            crowd.turn(MS / 20);
        }
        crowd.wire.take();
        crowd.write(COUNT);
        let (mut before, mut most, mut seen, mut sent) = (None::<usize>, 0, 0, 0);
        for turn in 0..4000 {
            // It comes while the worker is in a turn, which is as if it came before the next one.
            if turn % 7 == 3 && before.is_none() {
                crowd.host.send(VirtioNetHdr::default(), of_host());
                before = Some(0);
            }
            if room.is_some() {
                crowd.wire.set_room(room);
            }
            crowd.turn(MS / 20);
            let mut of_turn = 0;
            for (at, (_, bytes)) in crowd.wire.take().into_iter().enumerate() {
                if is_of_host(&bytes) {
                    seen += 1;
                    most = most.max(before.take().unwrap());
                    assert!(room.is_some() || at == 0, "{of_turn} bytes came before it");
                } else {
                    of_turn += bytes.len();
                    sent += bytes.len();
                    before = before.map(|before| before + bytes.len());
                }
            }
            assert!(of_turn <= SEND_BYTES + 2 * SUPER_PACKET, "{of_turn} in a turn");
        }
        assert!(sent > COUNT as usize * RING as usize, "they have sent all: {sent}");
        assert!(seen > 100 && most <= SEND_BYTES + 2 * SUPER_PACKET, "{seen}, {most}, {room:?}");
    }
}

const LOAD: LoadSettings = LoadSettings {
    max: SOME,
    low: 32,
    high: 256,
    each: 0,
    busy: 90,
    interval: 100 * MS,
    rest: 2_000 * MS,
};

/// Each connection brings work. The worker has time for about 32: with more of them frames wait, and it gives some back
/// until none do; with fewer it takes more. It changes its mind no oftener than it is set to.
#[test]
fn the_number_of_connections_follows_what_the_worker_has_time_for() {
    let mut crowd = Crowd::new(MemoryWire::new(), Some(LOAD));
    (0..SOME).for_each(|number| assert_eq!(crowd.offer(number), None));
    while crowd.at(Where::Nic) < SOME {
        crowd.turn(MS / 100);
    }
    let frame = of_host();
    let (mut waiting, mut lowest, mut highest_later) = (0_u64, SOME, 0);
    let (mut before, mut fell, mut rises) = (SOME, None::<u64>, 0);
    for turn in 0..12_000_u64 {
        let there = crowd.at(Where::Nic);
        // A turn takes 64 frames.
        for _ in 0..32 + there {
            crowd.wire.send(VirtioNetHdr::default(), frame.clone());
            waiting += 1;
        }
        for number in 0..SOME {
            crowd.offer(number);
        }
        crowd.turn(5 * MS);
        crowd.wire.take();
        // Copies of one segment are not joined.
        waiting -= crowd.host.take().len() as u64;
        let there = crowd.at(Where::Nic);
        if there < before {
            fell = Some(crowd.now);
        } else if there > before {
            rises += 1;
            assert!(
                fell.is_none_or(|fell| crowd.now - fell >= LOAD.rest - LOAD.interval),
                "{before} and {there} in turn {turn}"
            );
        }
        before = there;
        lowest = lowest.min(there);
        if turn > 6_000 {
            highest_later = highest_later.max(there);
        }
    }
    assert!(crowd.counts.restored.get(RestoreReason::Load) > 30, "{:?}", crowd.counts);
    assert!((8..=40).contains(&lowest), "{lowest}");
    assert!((24..=44).contains(&highest_later) && rises > 3, "{highest_later}, {rises}");
    // The load has gone: all come, and stay.
    while waiting > 0 {
        crowd.turn(5 * MS);
        waiting = waiting.saturating_sub(64);
    }
    crowd.wire.take();
    for _ in 0..4_000 {
        for number in 0..SOME {
            crowd.offer(number);
        }
        crowd.turn(5 * MS);
    }
    assert_eq!((crowd.at(Where::Nic), crowd.resources.lacks()), (SOME, None));
}

/// One that is not looked at is no load.
#[test]
fn without_control_the_load_is_nothing() {
    let mut crowd = Crowd::new(MemoryWire::new(), None);
    (0..SOME).for_each(|number| assert_eq!(crowd.offer(number), None));
    let frame = of_host();
    for _ in 0..2_000 {
        (0..100).for_each(|_| crowd.wire.send(VirtioNetHdr::default(), frame.clone()));
        crowd.turn(5 * MS);
        crowd.host.take();
    }
    assert_eq!((crowd.at(Where::Nic), crowd.counts.restored.sum()), (SOME, 0));
}
