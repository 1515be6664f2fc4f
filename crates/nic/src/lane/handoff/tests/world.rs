//! A kernel, an application, a peer, and the NIC between, in virtual time. Packets come and go by queues that change.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use handoff::machine::{OsEvent, OsOutput, SideCounts, ToNic, Where};
use handoff::ring::splice;
use handoff::{Cid, Epoch, Refusal, RestoreReason, mirror};
use tcp::options::Options;
use tcp::{FourTuple, Id, Snapshot};
use wire::{Flags, Headers, Mac, Seq, Tcp};

use super::super::link::{HeldPacket, Key, State, ToAgent, ToWorker};
use super::super::records::Beginnings;
use super::super::recover::recover;
use super::application::{Memory, Rings, Stream};
use super::nic::{Left, NIC, Nic, Sent, put};
use super::tcpip::Tcpip;
use crate::handoff::agent::crossing::{Crossing, Event, Output};
use crate::handoff::agent::ways::Ways;

pub(super) const PEER: Mac = [2, 0, 0, 0, 0, 2];
pub(super) const STEP: u64 = 50_000;
pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const PORT: u16 = 7;
/// Of the hostile process's connection, whose packets go nowhere.
const OTHER_PORT: u16 = 4001;
pub(super) const CID: Cid = Cid(1);
const KEY: Key = Key { session: 0, cid: CID };
/// Of its record.
const PLACE: u32 = 3;

pub(super) struct World {
    pub(super) nic: Nic,
    pub(super) kernel: Tcpip,
    pub(super) peer: Tcpip,
    pub(super) peer_id: Id,
    /// While the kernel has it.
    pub(super) kernel_id: Option<Id>,
    path: FourTuple,
    pub(super) memory: Arc<Memory>,
    pub(super) crossing: Crossing,
    /// The place of the last crossing is free.
    has_left: bool,
    pub(super) counts: SideCounts,
    pub(super) ways: Ways,
    inbox: Receiver<ToAgent>,
    pub(super) rings: Rings,
    pub(super) out: Stream,
    pub(super) back: Stream,
    pub(super) now: u64,
    choices: Vec<u8>,
    at: usize,
    /// Of 256: packets that are lost, turns in which the agent does nothing, those of several workers that are left out,
    /// those in which the wire is full, and those in which a host port that all share takes nothing.
    loss: usize,
    pub(super) delay: usize,
    pub(super) late: usize,
    pub(super) full: usize,
    pub(super) lazy: usize,
    /// The peer's packets come by one queue.
    pub(super) keeps_queue: bool,
    /// The first data from now on is lost that the peer sends, and that is sent to it, as often as it comes.
    pub(super) makes_holes: bool,
    holes: [Option<Seq>; 2],
    /// The agent's clock, when it freezes, is later than the worker's turn by so many nanoseconds.
    pub(super) ahead: u64,
    /// The latest timestamp that the peer was sent, and the end of what it was sent.
    tsval: Option<Seq>,
    /// Its application resets the connection.
    pub(super) may_reset: bool,
    sent: Option<Seq>,
    pub(super) handoffs: u64,
    pub(super) restores: u64,
    /// A process that writes what it likes.
    pub(super) hostile: Option<Arc<Memory>>,
    beginnings: Beginnings,
    pub(super) is_dead: bool,
}

impl World {
    /// Workers that may share their host port.
    pub(super) fn new(
        (workers, shares_host): (usize, bool),
        choices: Vec<u8>,
        loss: usize,
    ) -> Self {
        let memory = Memory::new(workers);
        let (nic, ways, inbox) = Nic::new((workers, shares_host), &memory);
        let process = Arc::clone(&memory);
        ways.tell_all(|| ToWorker::Begin { session: 0, process: process.clone() });
        let (mut kernel, mut peer) = (Tcpip::new(NIC, 9, PEER), Tcpip::new(PEER, 1, NIC));
        let tcp = Arc::new(tcp::Config::default());
        // Of every second peer many short segments may wait for a worker.
        let short = tcp::Config { mss: 200, burst: 0, ..tcp::Config::default() };
        let config =
            if choices.len().is_multiple_of(2) { Arc::new(short) } else { Arc::clone(&tcp) };
        peer.node.stack.listen(None, PORT, config).unwrap();
        let path = FourTuple {
            local: SocketAddr::new([10, 0, 0, 9].into(), 4000),
            remote: SocketAddr::new([10, 0, 0, 1].into(), PORT),
        };
        let id = kernel.node.stack.connect(path, tcp, 0).unwrap();
        let mut world = World {
            beginnings: Beginnings::new(nic.mirror.clone()),
            nic,
            kernel,
            peer,
            peer_id: id,
            kernel_id: Some(id),
            path,
            memory,
            crossing: Crossing::new((KEY, Epoch::default()), path, PEER, PLACE),
            has_left: true,
            counts: SideCounts::default(),
            ways,
            inbox,
            rings: vec![Default::default(); workers],
            out: Stream::default(),
            back: Stream::default(),
            now: SECOND,
            choices,
            at: 0,
            loss: 0,
            delay: 0,
            late: 32,
            full: 0,
            lazy: 0,
            keeps_queue: false,
            makes_holes: false,
            holes: [None; 2],
            ahead: 0,
            tsval: None,
            may_reset: false,
            sent: None,
            handoffs: 0,
            restores: 0,
            hostile: None,
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
        let (at, len) = (self.at, self.choices.len());
        // Each lap is another one, so that what is done every so many choices is not done by the same for ever.
        let lap = at / len;
        usize::from(self.choices[(at + lap) % len]) ^ (lap & 7)
    }

    /// Picks the connection, if its last move is over.
    pub(super) fn pick(&mut self) {
        if self.crossing.place() != Where::Os {
            return;
        }
        if !self.has_left && self.ways.next_left(self.now, false) != Some(PLACE) {
            return;
        }
        self.has_left = false;
        let name = (KEY, self.crossing.epoch());
        self.crossing = Crossing::new(name, self.path, PEER, PLACE);
        self.os(OsEvent::Pick);
    }

    pub(super) fn want_back(&mut self) {
        self.os(OsEvent::WantBack(RestoreReason::Command));
    }

    fn os(&mut self, event: OsEvent<HeldPacket, State>) {
        self.event(Event::Os(event));
    }

    /// One event at the OS, and what it leads to.
    fn event(&mut self, event: Event) {
        let was_over = self.is_over();
        let mut next = VecDeque::from([event]);
        while let Some(event) = next.pop_front() {
            let mut outputs = Vec::new();
            self.crossing.handle(event, &mut self.ways, &mut self.counts, &mut outputs);
            for output in outputs {
                next.extend(self.output(output).map(Event::Os));
            }
        }
        if self.is_over() && !was_over && !self.has_left {
            self.ways.leave(PLACE, self.crossing.worker(), self.now);
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.crossing.place(), Where::Os | Where::Closed)
    }

    fn output(&mut self, output: Output) -> Option<OsEvent<HeldPacket, State>> {
        match output {
            OsOutput::Freeze => {
                let id = self.kernel_id.take().unwrap();
                // The agent's turn may be later than the worker's.
                let at = self.now + self.ahead;
                let snapshot = self.kernel.node.stack.freeze(id, at).unwrap();
                let state = snapshot.to_repair().unwrap().0;
                let name = (CID, self.crossing.epoch());
                let worker = self.crossing.worker().unwrap() as u32;
                let memory = Arc::clone(&self.memory);
                let area = memory.shared().area(CID).unwrap();
                if self.beginnings.write(PLACE, name, (worker, &area), &state, at).is_err() {
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
                self.thaw(&snapshot);
                self.restores += 1;
                self.beginnings.erase(PLACE);
                return Some(OsEvent::Thawed);
            }
            OsOutput::Resume(_) | OsOutput::Notify(_) => {}
            other => panic!("{other:?}"),
        }
        None
    }

    fn thaw(&mut self, snapshot: &Snapshot) {
        let config = Arc::new(tcp::Config::default());
        let id = self.kernel.node.stack.thaw(snapshot, config, self.now).unwrap();
        self.kernel_id = Some(id);
    }

    /// What workers have said.
    fn agent(&mut self) {
        // The agent may be slow.
        while self.choice() >= self.delay
            && let Ok(message) = self.inbox.try_recv()
        {
            match message {
                ToAgent::Told { key, tag, told } if key == KEY => {
                    self.os(OsEvent::Told(tag, told));
                }
                ToAgent::Seen { worker, last, .. } => self.event(Event::Seen { worker, last }),
                ToAgent::Fenced { worker, fence } => self.ways.fenced(worker, fence),
                ToAgent::Told { .. } => {}
            }
        }
        while let Some(key) = self.ways.next_passed() {
            assert_eq!(key, KEY);
            self.event(Event::Passed);
        }
        self.ways.send_fence();
    }

    pub(super) fn turn(&mut self) {
        self.now += STEP;
        let now = self.now;
        if self.is_dead {
            self.turn_without();
            return;
        }
        let to = self.choice();
        if to < 64 {
            self.nic.move_outbound(to);
        }
        self.kernel.turn(now).into_iter().for_each(|packet| self.nic.leaves(packet));
        for packet in self.peer.turn(now) {
            if self.choice() >= self.loss && !self.loses(0, &packet.1) {
                // Flows do not move at each packet.
                let to = self.choice();
                if to < 64 && !self.keeps_queue {
                    self.nic.move_inbound(to);
                }
                self.nic.arrives(packet);
            }
        }
        // They begin with another one each time, and one may be late.
        let (count, first) = (self.nic.workers.len(), self.choice());
        for number in 0..count {
            let worker = (first + number) % count;
            if count > 1 && self.choice() < self.late {
                continue;
            }
            let room = (self.choice() < self.full).then(|| self.choice() % 4);
            self.nic.set_room(worker, room);
            if self.nic.shares_host() && self.choice() >= self.lazy {
                let most = self.choice() % 4;
                self.nic.serve(most);
            }
            match self.nic.turn(worker, now) {
                Ok(sent) => self.deliver(sent),
                Err(left) => {
                    self.deliver(left.out.clone());
                    self.take_over(&left);
                    return;
                }
            }
            self.agent();
        }
        self.scribble();
    }

    /// What the NIC has sent arrives.
    fn deliver(&mut self, Sent { to_wire, to_host }: Sent) {
        for (vnet, bytes) in to_wire {
            let headers = Headers::parse(&bytes).unwrap();
            let tcp = Tcp::new(&bytes[headers.transport_at..headers.end]).unwrap();
            if tcp.source() == OTHER_PORT {
                continue;
            }
            self.look_at(&tcp, (headers.end - headers.payload_at) as u32);
            if self.choice() >= self.loss && !self.loses(1, &bytes) {
                self.peer.receive(vnet, &bytes, self.now);
            }
        }
        for (vnet, bytes) in to_host {
            let id = self.kernel_id;
            assert!(id.is_some(), "the kernel hears of a connection that it does not have");
            self.kernel.receive(vnet, &bytes, self.now);
        }
    }

    fn loses(&mut self, way: usize, bytes: &[u8]) -> bool {
        let headers = Headers::parse(bytes).unwrap();
        let seq = Tcp::new(&bytes[headers.transport_at..]).unwrap().seq();
        let has_data = headers.end > headers.payload_at;
        self.makes_holes && has_data && *self.holes[way].get_or_insert(seq) == seq
    }

    /// Laws of what leaves for the peer: no reset; timestamps do not go back (RFC 7323 section 5.3), nor does SND.NXT,
    /// which a segment without text shows.
    fn look_at(&mut self, tcp: &Tcp<&[u8]>, text: u32) {
        assert!(self.may_reset || !tcp.flags().any(Flags::RST), "a reset on the wire");
        let controls = tcp.flags().any(Flags::SYN.with(Flags::FIN));
        if text == 0
            && !controls
            && !self.is_dead
            && let Some(sent) = self.sent
        {
            // A keepalive or a probe is one before what is not acknowledged.
            assert!(!(tcp.seq() + 1).before(sent), "SND.NXT of {:?} after {sent:?}", tcp.seq());
        }
        let end = tcp.seq() + text + u32::from(controls);
        self.sent = Some(self.sent.map_or(end, |sent| sent.max(end)));
        let Some(both) = Options::parse(tcp.option_bytes()).timestamps else { return };
        let last = self.tsval.replace(both.value).unwrap_or(both.value);
        assert!(!both.value.before(last), "a timestamp of {:?} after {last:?}", both.value);
    }

    /// The NIC has died: what the guard does.
    fn take_over(&mut self, left: &Left) {
        self.is_dead = true;
        put(&self.memory.words, &left.memory);
        put(self.nic.mirror.words(), &left.mirror);
        let Ok(record) = mirror::read(self.nic.mirror.memory().record(PLACE).unwrap()) else {
            assert!(self.kernel_id.is_some(), "no record of a connection that the NIC has");
            return;
        };
        assert!(self.kernel_id.is_none(), "a record of a connection that the kernel has");
        let memory = Arc::clone(&self.memory);
        let area = memory.shared().area(CID).unwrap();
        splice::finish(area.receive().unwrap(), area.notes(), |cid| {
            (cid == CID).then(|| area.send().unwrap())
        });
        let repair = recover(&record, &area, self.now).unwrap();
        self.thaw(&Snapshot::from_repair(&repair).unwrap());
    }

    /// A turn without a NIC: the kernel is on the wire.
    fn turn_without(&mut self) {
        let now = self.now;
        for (vnet, bytes) in self.peer.turn(now) {
            if self.choice() >= self.loss {
                self.kernel.receive(vnet, &bytes, now);
            }
        }
        let to_wire = self.kernel.turn(now);
        self.deliver(Sent { to_wire, to_host: Vec::new() });
    }

    /// A second process, with a connection that is handed off as the first is.
    pub(super) fn add_hostile(&mut self) {
        let memory = Memory::new(self.nic.workers.len());
        let process = Arc::clone(&memory);
        self.ways.tell_all(|| ToWorker::Begin { session: 1, process: process.clone() });
        let id = self.kernel_id.unwrap();
        let stack = &mut self.kernel.node.stack;
        let snapshot = stack.freeze(id, self.now).unwrap();
        self.kernel_id = Some(stack.thaw(&snapshot, Arc::default(), self.now).unwrap());
        let mut state = snapshot.to_repair().unwrap().0;
        state.local.set_port(OTHER_PORT);
        let name = (CID, Epoch(1));
        let area = memory.shared().area(CID).unwrap();
        self.beginnings.write(PLACE + 1, name, (0, &area), &state, self.now).unwrap();
        let path = FourTuple { local: state.local, remote: state.remote };
        let key = Key { session: 1, cid: CID };
        let mut other = Crossing::new((key, Epoch::default()), path, PEER, PLACE + 1);
        other.offer_to(0, Epoch(1), &mut self.ways);
        for told in [ToNic::Handoff(State::of(state, self.now)), ToNic::ForwardEnd] {
            self.ways.tell(0, ToWorker::Told { key, tag: Epoch(1).tag(), told });
        }
        self.hostile = Some(memory);
    }

    /// Moves the connection, or not.
    pub(super) fn move_or_stay(&mut self) {
        match self.choice() {
            0..12 => self.pick(),
            12..20 => self.want_back(),
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
                self.crossing.place(),
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
