//! Workers with engines in virtual time: beside a host, several on one wire, and flows that move between their
//! queues at random.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use iface::{Address, Addresses};
use proptest::prelude::*;
use sys::frames::{FramePool, FrameReader};
use testkit::packet::PacketBuilder;
use wire::arp::Arp;
use wire::{Flags, FlowHash, Mac, VirtioNetHdr};

use super::{Handle, Lanes, Worker, handle_of};
use crate::app::{Report, Role, Service, Work};
use crate::config::Config;
use crate::counters::{Entry, Published};
use crate::engines::{Engines, Own, Told};
use crate::event_loop::EventLoop;
use crate::handle::Wake;
use crate::lane::handoff::HandoffLane;
use crate::peers::Peers;
use crate::port::memory::{FarEnd, MemoryHost, MemoryWire};
use crate::port::{Delivered, Delivery, FromHost, Host, HostPacket, NoHost, Wire};

impl<W: Wire, H: Host> Worker<W, H> {
    /// The lane of the host's connections.
    pub(crate) fn handoff(&self) -> Option<&HandoffLane> {
        self.handoff.as_deref()
    }

    /// Strays for which another worker had no room.
    pub(crate) fn strays_dropped(&self) -> u64 {
        self.peers.as_ref().map_or(0, |peers| peers.counters.dropped)
    }
}

const NIC: Mac = [2, 0, 0, 0, 0, 1];
const PEER: Mac = [2, 0, 0, 0, 0, 2];
/// Last parts of the addresses of the engine, of a peer on the wire and of the host.
const OWN: u8 = 2;
const OUTSIDE: u8 = 1;
const HOST: u8 = 9;
const SECOND: u64 = 1_000_000_000;
const STEP: u64 = 20_000;
const PORT: u16 = 7;
const CHUNKS: u32 = 512;
/// Super-packets do not fit.
const CHUNK: u32 = 2048;

fn addresses(host: u8) -> Addresses {
    let v4 = Address { ip: IpAddr::from([10, 0, 0, host]), prefix_len: 24 };
    let v6 = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
    let v6 = Address { ip: IpAddr::from(v6), prefix_len: 64 };
    Addresses::new(vec![v4, v6], Vec::new()).unwrap()
}

fn config() -> Config {
    let mut config = Config::default();
    config.tcp.burst = 16 << 10;
    config.tcp.memory = 64 << 20;
    config
}

fn pool() -> FramePool {
    FramePool::new(CHUNKS, CHUNK).unwrap()
}

fn source(host: u8, v6: bool, connections: u32, bytes: u64) -> Own {
    let to = addresses(OWN).own()[usize::from(v6)].ip;
    let role = Role::Connect { to: SocketAddr::new(to, PORT), connections };
    let work = Work { service: Service::Source, bytes: Some(bytes), verify: false };
    Own { addresses: addresses(host), probes: 0, role, work, run: None }
}

/// A host with a kernel, or a peer: an engine alone on a wire in memory.
struct Station {
    worker: Worker<MemoryWire, NoHost>,
    wire: FarEnd,
    told: Told,
}

impl Station {
    fn new(own: Own, mac: Mac) -> Self {
        let (engines, told) = Engines::new(own, &config(), (mac, 1500), 1);
        let (near, wire) = MemoryWire::with_offloads();
        let handle = Arc::new(handle_of(Lanes::Engine, config(), 1500).unwrap());
        let engine = engines.of_worker(0, false, None);
        let mut worker = Worker::with_engine(handle, (near, pool()), None, engine);
        worker.engine.as_mut().unwrap().start(0);
        Station { worker, wire, told }
    }
}

/// A NIC that serves addresses of its own beside a host, a peer on its wire, and the host's kernel.
struct World {
    workers: Vec<Worker<MemoryWire, MemoryHost>>,
    handles: Vec<Arc<Handle>>,
    wires: Vec<FarEnd>,
    hosts: Vec<FarEnd>,
    told: Told,
    stations: Vec<Station>,
    choices: Vec<u8>,
    at: usize,
    now: u64,
    /// The queue of each flow, which changes.
    last: usize,
    /// The wire loses some of what the peer sends.
    loses: bool,
}

impl World {
    fn new(workers: usize, stations: Vec<Station>, choices: Vec<u8>) -> Self {
        let role = Role::Listen { port: PORT };
        let work = Work { service: Service::Sink, bytes: None, verify: true };
        let own = Own { addresses: addresses(OWN), probes: 1, role, work, run: None };
        let (engines, told) = Engines::new(own, &config(), (NIC, 1500), workers);
        let handle = |_| Arc::new(handle_of(Lanes::Both, config(), 1500).unwrap());
        let handles: Vec<_> = (0..workers).map(handle).collect();
        let pools: Vec<_> = (0..workers).map(|_| pool()).collect();
        let wake = |handle: &Arc<Handle>| -> Arc<dyn Wake> { handle.clone() };
        let doors = pools.iter().zip(handles.iter().map(wake)).collect();
        let hash = FlowHash::new(std::array::from_fn(|at| {
            (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }));
        let peers = Peers::new(hash, 100, doors);
        let mut peers = peers.into_iter().filter(|_| workers > 1);
        let (mut all, mut wires, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (pool, handle)) in pools.into_iter().zip(&handles).enumerate() {
            let ((near_wire, wire), (near_host, host)) = (MemoryWire::new(), MemoryHost::new());
            let engine = engines.of_worker(number as u32, true, peers.next());
            let wire_and_pool = (near_wire, pool);
            let handle = Arc::clone(handle);
            let mut worker = Worker::with_engine(handle, wire_and_pool, Some(near_host), engine);
            worker.engine.as_mut().unwrap().start(0);
            all.push(worker);
            wires.push(wire);
            hosts.push(host);
        }
        let (at, now, last, loses) = (0, 0, 0, false);
        World { workers: all, handles, wires, hosts, told, stations, choices, at, now, last, loses }
    }

    fn choice(&mut self) -> usize {
        self.at += 1;
        usize::from(self.choices[self.at % self.choices.len()])
    }

    /// One of the queues: most often the one before, as flows do not move at each packet.
    fn queue(&mut self) -> usize {
        if self.choice() < 64 {
            self.last = self.choice() % self.workers.len();
        }
        self.last
    }

    /// A turn of all; returns whether anything was sent.
    fn turn(&mut self) -> bool {
        self.now += STEP;
        let mut any = false;
        for worker in &mut self.workers {
            any |= worker.turn(self.now).unwrap();
        }
        for station in &mut self.stations {
            any |= station.worker.turn(self.now).unwrap();
        }
        // The first station is on the wire, the second is the host's kernel.
        for wire in &self.wires {
            for (vnet, bytes) in wire.take() {
                assert_ne!(bytes[..6], NIC, "this was for the host or the engine");
                self.stations[0].wire.send(vnet, bytes);
            }
        }
        for host in &self.hosts {
            for (vnet, bytes) in host.take() {
                if let Some(path) = crate::steer::path_of(&bytes) {
                    assert!(!addresses(OWN).is_own(path.local.ip()), "this was for the engine");
                }
                self.stations[1].wire.send(vnet, bytes);
            }
        }
        for (vnet, bytes) in self.stations[0].wire.take() {
            if self.loses && self.choice() < 5 {
                continue;
            }
            let queue = self.queue();
            self.wires[queue].send(vnet, bytes);
        }
        for (vnet, bytes) in self.stations[1].wire.take() {
            let queue = self.queue();
            self.hosts[queue].send(vnet, bytes);
        }
        any
    }

    /// Until all connections have ended, and what was remembered of them is forgotten.
    fn run(&mut self, connections: usize) -> Vec<Report> {
        let mut reports = Vec::new();
        while reports.len() < connections {
            assert!(
                self.now < 600 * SECOND,
                "{} of {connections} ended: {:#?}",
                reports.len(),
                self.counted()
            );
            if !self.turn() {
                // Nothing but timers.
                self.now += SECOND / 100;
            }
            reports.extend(self.told.reports.try_iter());
        }
        for _ in 0..100 {
            self.now += SECOND * 2;
            while self.turn() {}
        }
        reports
    }

    fn counted(&mut self) -> Vec<Entry> {
        self.workers.iter_mut().for_each(|worker| worker.publish(0));
        let all = Published::total(self.handles.iter().map(|handle| handle.published()));
        all.into_iter().filter(|entry| entry.value > 0).collect()
    }

    fn count(&mut self, group: &str, name: &str) -> u64 {
        let all = self.counted();
        all.iter().find(|e| (e.group, e.name) == (group, name)).map_or(0, |e| e.value)
    }
}

proptest! {
    /// A peer and the host send to an address of the engine's, by queues that change: every byte arrives once, no
    /// worker answers for another, nothing is lost, and all memory comes back.
    #[test]
    fn flows_that_move_between_queues_arrive_whole(
        workers in 1..4_usize,
        v6: bool,
        loses: bool,
        connections in 1..12_u32,
        bytes in 0..150_000_u64,
        choices in proptest::collection::vec(any::<u8>(), 50..500),
    ) {
        let outside = Station::new(source(OUTSIDE, v6, connections, bytes), PEER);
        let host = Station::new(source(HOST, !v6, connections, bytes), NIC);
        let mut world = World::new(workers, vec![outside, host], choices);
        world.loses = loses;
        let reports = world.run(2 * connections as usize);
        prop_assert_eq!(reports.len(), 2 * connections as usize);
        for report in reports {
            prop_assert_eq!((report.read, report.mismatch, report.end), (bytes, None, tcp::Reason::Closed));
        }
        for station in &mut world.stations {
            let ends: Vec<_> = station.told.reports.try_iter().map(|report| report.end).collect();
            prop_assert_eq!(ends, vec![tcp::Reason::Closed; connections as usize]);
        }
        prop_assert_eq!(world.count("strays", "dropped"), 0);
        prop_assert!(world.count("short_way", "from_host_packets") > 0);
        let strays = (world.count("strays", "sent"), world.count("strays", "received"));
        prop_assert_eq!(strays.0, strays.1);
        prop_assert!(workers == 1 || strays.0 > 0);
        for worker in &mut world.workers {
            worker.turn(world.now).unwrap();
            prop_assert_eq!(worker.pool().available(), CHUNKS as usize, "chunks are missing");
            if let Some(peers) = &worker.peers {
                prop_assert_eq!(peers.index().len(), 0, "connections that are gone are in the index");
            }
        }
    }
}

/// Broadcasts, of which anyone can send any number, take no connection's place in the ring.
#[test]
fn a_storm_of_broadcasts_loses_no_connection_a_packet() {
    let mut world = World::new(2, Vec::new(), vec![0]);
    let peer = std::net::Ipv4Addr::new(10, 0, 0, OUTSIDE);
    let syn = PacketBuilder::tcp4().macs(PEER, NIC).addresses4(peer.octets(), [10, 0, 0, OWN]);
    let syn = syn.ports(1000, PORT).flags(Flags::SYN).ack(0).payload(&[]).build();
    for now in [0, SECOND, 2 * SECOND] {
        world.workers.iter_mut().for_each(|worker| _ = worker.turn(now).unwrap());
    }
    world.wires[1].send(VirtioNetHdr::default(), syn.clone());
    world.workers[1].turn(3 * SECOND).unwrap();
    // The connection's worker does nothing while they come, and then a packet of it by the other queue.
    let arp = Arp::request((PEER, peer), [10, 0, 0, 77].into(), None);
    (0..2000).for_each(|_| world.wires[0].send(VirtioNetHdr::default(), arp.to_vec()));
    while world.workers[0].turn(3 * SECOND).unwrap() {}
    world.wires[0].send(VirtioNetHdr::default(), syn);
    while world.workers[0].turn(3 * SECOND).unwrap() {}
    while world.workers[1].turn(3 * SECOND).unwrap() {}
    assert_eq!(world.count("strays", "dropped"), 0);
    assert!(world.count("strays", "neighbours_dropped") > 1900);
    assert_eq!(world.count("strays", "received"), 65);
}

/// A host that takes nothing, and forgets what it has sent.
#[derive(Debug)]
struct Careless(MemoryHost);

impl Host for Careless {
    fn deliver(&mut self, _memory: &FrameReader, _packet: Delivery<'_>) -> io::Result<Delivered> {
        const ENOMEM: i32 = 12;
        Err(io::Error::from_raw_os_error(ENOMEM))
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        self.0.receive()
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        None
    }

    fn last(&self) -> &[u8] {
        self.0.last()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A worker with that host, and the far ends of its wire and its host.
fn careless(config: Config) -> (Worker<MemoryWire, Careless>, Arc<Handle>, [FarEnd; 2]) {
    let ((wire, far), (host, end)) = (MemoryWire::new(), MemoryHost::new());
    let handle = Arc::new(handle_of(Lanes::Host, config.clone(), 1500).unwrap());
    let worker = Worker::new(Arc::clone(&handle), config, wire, Careless(host), pool());
    (worker, handle, [far, end])
}

/// The time at which LRO would hand on what it holds has passed, but the host has no room: it is waited for, by sleeping.
#[test]
fn a_deadline_is_not_waited_for_while_the_host_has_no_room() {
    let mut config = Config::default();
    config.set_at_run_time("lro.active_ack", "safe").unwrap();
    let (mut worker, _handle, [wire, _host]) = careless(config);
    let segment = |n: u32| {
        let payload = testkit::packet::pattern(n as usize * 1000, 1000);
        PacketBuilder::tcp4().ports(1, 80).seq(n * 1000).id(n as u16).payload(&payload).build()
    };
    let arp = Arp::request((PEER, [10, 0, 0, 1].into()), [10, 0, 0, HOST].into(), None);
    for frame in [segment(0), segment(1), segment(2), arp.to_vec()] {
        wire.send(VirtioNetHdr::default(), frame);
    }
    let now = sys::clock::now();
    worker.turn(now).unwrap();
    worker.turn(now).unwrap();
    let deadline = worker.lro().unwrap().next_deadline().expect("segments are held");
    while sys::clock::now() <= deadline {
        std::thread::yield_now();
    }
    let begun = sys::clock::now();
    for _ in 0..20 {
        let now = sys::clock::now();
        worker.turn(now).unwrap();
        worker.sleep(now).unwrap();
    }
    let slept = sys::clock::now() - begun;
    assert!(slept >= 20 * 1_000_000, "{slept} ns in 20 sleeps");
}

/// The rest of a packet that the host's port has lost is counted, and the wire's new MTU holds for the next.
#[test]
fn a_packet_that_the_host_forgets_holds_up_nothing() {
    let (mut worker, handle, [wire, host]) = careless(Config::default());
    let (bytes, vnet) = PacketBuilder::tcp4().payload_pattern(6000).super_packet(1000);
    wire.set_room(Some(1));
    host.send(vnet, bytes.clone());
    worker.turn(1).unwrap();
    assert_eq!(wire.take().len(), 1);
    wire.set_room(None);
    handle.set_mtu(600);
    host.send(vnet, bytes);
    worker.turn(2).unwrap();
    let sizes: Vec<_> = wire.take().into_iter().map(|(_, bytes)| bytes.len()).collect();
    assert!(!sizes.is_empty() && sizes.iter().all(|len| *len <= 600 + 14), "{sizes:?}");
    assert_eq!(worker.counters().host.unreadable, 1);
}

/// What the wire had no room for at the end is lost, the host's packet too.
#[test]
fn what_the_wire_did_not_take_at_the_end_is_counted() {
    let ((near, wire), (host, end)) = (MemoryWire::new(), MemoryHost::new());
    let handle = Arc::new(handle_of(Lanes::Host, Config::default(), 1500).unwrap());
    let own = Arc::clone(&handle);
    let mut worker = Worker::new(own, Config::default(), near, host, pool());
    let (bytes, vnet) = PacketBuilder::tcp4().payload_pattern(6000).super_packet(1000);
    wire.set_room(Some(2));
    end.send(vnet, bytes);
    worker.turn(1).unwrap();
    handle.stop();
    worker.run().unwrap();
    let all = Published::total([handle.published()]);
    let count = |name| all.iter().find(|e| (e.group, e.name) == ("wire", name)).unwrap().value;
    assert_eq!((count("tx_packets"), count("tx_lost")), (2, 4));
}

/// More connections than a turn sends segments: each peer is told that its connection is gone.
#[test]
fn all_connections_are_reset_at_the_end() {
    const CONNECTIONS: u32 = 200;
    // Nobody sends, so that they open soon.
    let idle = |host, connections| {
        let work = Work { service: Service::Echo, bytes: None, verify: false };
        Own { work, ..source(host, false, connections, 0) }
    };
    let outside = Station::new(idle(OUTSIDE, CONNECTIONS), PEER);
    let host = Station::new(idle(HOST, 1), NIC);
    let mut world = World::new(1, vec![outside, host], vec![0]);
    while world.count("service", "begun") < u64::from(CONNECTIONS) + 1 {
        assert!(world.now < 600 * SECOND, "{:#?}", world.counted());
        world.turn();
    }
    let now = world.now;
    world.workers[0].end_connections(now).unwrap();
    let sent = world.wires[0].take();
    let is_reset = |bytes: &[u8]| bytes[23] == 6 && bytes[47] & Flags::RST.0 != 0;
    let resets = sent.iter().filter(|(_, bytes)| is_reset(bytes)).count();
    assert_eq!(resets, CONNECTIONS as usize);
}
