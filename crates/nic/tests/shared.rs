//! Workers that share a host port: what they request is what is written, once, and a port that is
//! slower than the wire makes the wire wait.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nic::config::{Config, Order};
use nic::port::memory::{FarEnd, MemoryHost, MemoryWire};
use nic::port::shared::{Scheduler, SharedHost};
use nic::port::{Delivered, Delivery, FromHost, Host, HostPacket};
use nic::worker::{self, Handle, Worker};
use sys::frames::{FramePool, FrameReader};
use testkit::packet::{PacketBuilder, pattern};
use wire::{Headers, VirtioNetHdr};

const CHUNKS: u32 = 1024;
const SIZE: usize = 100;

/// How a port answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Takes,
    Blocks,
    Refuses(i32),
    RefusesAggregates(i32),
    Panics,
}

/// A port whose mood the test chooses.
#[derive(Clone, Debug)]
struct Gate(Arc<(Mutex<Mood>, Condvar)>);

impl Gate {
    fn new(mood: Mood) -> Self {
        Gate(Arc::new((Mutex::new(mood), Condvar::new())))
    }

    fn set(&self, mood: Mood) {
        *self.0.0.lock().unwrap() = mood;
        self.0.1.notify_all();
    }

    /// Its mood, once it does not block.
    fn pass(&self) -> Mood {
        let mood = self.0.0.lock().unwrap();
        *self.0.1.wait_while(mood, |mood| *mood == Mood::Blocks).unwrap()
    }
}

#[derive(Debug)]
struct Port {
    inner: MemoryHost,
    gate: Gate,
}

impl Host for Port {
    fn deliver(&mut self, memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered> {
        match self.gate.pass() {
            Mood::RefusesAggregates(errno) if packet.vnet.gso_size > 0 => {
                Err(io::Error::from_raw_os_error(errno))
            }
            Mood::Refuses(errno) => Err(io::Error::from_raw_os_error(errno)),
            Mood::Panics => panic!("as the test wants it"),
            _ => self.inner.deliver(memory, packet),
        }
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        self.inner.receive()
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        self.inner.again()
    }

    fn last(&self) -> &[u8] {
        self.inner.last()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

type SharingWorker = Worker<MemoryWire, SharedHost<MemoryHost>>;

/// Workers in front of one port.
struct Rig {
    workers: Vec<SharingWorker>,
    handles: Vec<Arc<Handle>>,
    wires: Vec<FarEnd>,
    /// What was written.
    written: FarEnd,
    /// What the host sends.
    host: FarEnd,
    gate: Gate,
    scheduler: Scheduler,
}

impl Rig {
    fn new(workers: usize, order: Order, lro: bool) -> Rig {
        let mut config = Config::default();
        config.lro.enable = lro;
        config.host.scheduler = order;
        let gate = Gate::new(Mood::Takes);
        let (inner, written) = MemoryHost::new();
        let (reads, host) = MemoryHost::new();
        let pools: Vec<FramePool> =
            (0..workers).map(|_| FramePool::new(CHUNKS, 2048).unwrap()).collect();
        let port = Port { inner, gate: gate.clone() };
        let of = pools.iter().collect::<Vec<_>>();
        let (scheduler, requests) = Scheduler::start(port, &of, &config).unwrap();
        let mut rig = Rig {
            workers: Vec::new(),
            handles: Vec::new(),
            wires: Vec::new(),
            written,
            host,
            gate,
            scheduler,
        };
        let mut reads = Some(reads);
        for (pool, requests) in pools.into_iter().zip(requests) {
            let (wire, far) = MemoryWire::new();
            let handle = Arc::new(worker::handle(config.clone(), 1500).unwrap());
            let host = SharedHost::new(requests, reads.take());
            rig.workers.push(Worker::new(Arc::clone(&handle), config.clone(), wire, host, pool));
            rig.handles.push(handle);
            rig.wires.push(far);
        }
        rig
    }

    /// So many segments arrive at each worker, of two connections each.
    fn arrive(&self, segments: u32) {
        for (worker, wire) in self.wires.iter().enumerate() {
            for n in 0..segments {
                for port in [1, 2] {
                    let port = 10 * (worker as u16 + 1) + port;
                    let payload = pattern(n as usize * SIZE, SIZE);
                    let seq = n * SIZE as u32;
                    let packet = PacketBuilder::tcp4().ports(port, 80).seq(seq).payload(&payload);
                    wire.send(VirtioNetHdr::default(), packet.build());
                }
            }
        }
    }

    /// Ends everything; what was written.
    fn stop(self) -> Vec<Vec<u8>> {
        self.scheduler.stop().unwrap();
        self.written.take().into_iter().map(|(_, bytes)| bytes).collect()
    }
}

/// Turns the workers until nothing is in flight and no turn finds anything to do.
fn settle(workers: &mut [SharingWorker]) {
    let mut now = 1_000_000;
    let settled = |worker: &SharingWorker| {
        let counters = worker.counters();
        let refused: u64 = counters.host.refused.iter().sum();
        counters.host.requests == counters.host.delivered.frames + refused
    };
    for _ in 0..100_000 {
        let worked = workers.iter_mut().any(|worker| worker.turn(now).unwrap());
        if !worked && workers.iter().all(settled) && now > 1_000_000_000 {
            return;
        }
        now += 10_000_000;
        std::thread::sleep(Duration::from_micros(10));
    }
    panic!("requests are not completed");
}

/// The sequence numbers and payloads of each connection, in the order in which they were written.
fn by_connection(written: &[Vec<u8>]) -> BTreeMap<u16, Vec<(u32, &[u8])>> {
    let mut connections: BTreeMap<u16, Vec<(u32, &[u8])>> = BTreeMap::new();
    for bytes in written {
        let headers = Headers::parse(bytes).unwrap();
        let at = headers.transport_at;
        let port = u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
        let seq = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap());
        let payload = &bytes[headers.payload_at..headers.end];
        connections.entry(port).or_default().push((seq, payload));
    }
    connections
}

/// Every byte once, and nothing else.
fn assert_whole(mut packets: Vec<(u32, &[u8])>, segments: u32) {
    packets.sort_by_key(|(seq, _)| *seq);
    let mut stream = Vec::<u8>::new();
    for (seq, payload) in packets {
        assert_eq!(seq as usize, stream.len(), "lost, or written twice");
        stream.extend(payload);
    }
    assert_eq!(stream, pattern(0, segments as usize * SIZE));
}

#[test]
fn what_arrives_is_written_once_and_all_memory_comes_back() {
    for (order, lro) in [
        (Order::RoundRobin, false),
        (Order::RoundRobin, true),
        (Order::Lifo, false),
        (Order::Lifo, true),
    ] {
        let mut rig = Rig::new(3, order, lro);
        rig.arrive(500);
        settle(&mut rig.workers);
        for worker in &rig.workers {
            assert_eq!(worker.pool().available(), CHUNKS as usize, "frames are missing");
            assert_eq!(worker.counters().host.refused, [0; 3]);
        }
        let merged: u64 =
            rig.workers.iter().map(|w| 1000 - w.counters().host.delivered.frames).sum();
        assert_eq!(merged > 0, lro);
        let written = rig.stop();
        let connections = by_connection(&written);
        assert_eq!(connections.len(), 6);
        for packets in connections.into_values() {
            let in_order = packets.is_sorted_by_key(|(seq, _)| *seq);
            assert!(in_order || order == Order::Lifo, "{packets:?}");
            assert_whole(packets, 500);
        }
    }
}

#[test]
fn threads_that_are_stopped_have_written_all_that_they_took() {
    for order in [Order::RoundRobin, Order::Lifo] {
        let rig = Rig::new(4, order, true);
        let Rig { workers, handles, wires, written, gate: _, host: _, scheduler } = rig;
        let threads: Vec<_> =
            workers.into_iter().map(|worker| std::thread::spawn(move || worker.run())).collect();
        // A memory wire wakes no worker: a reconfiguration does.
        let again = Rig { workers: Vec::new(), handles, wires, ..Rig::new(0, order, true) };
        again.arrive(300);
        let received = |handle: &Arc<Handle>| {
            handle.reconfigure(&Config::default());
            let entries = nic::counters::Published::total([handle.published()]);
            let rx = entries.iter().find(|e| (e.group, e.name) == ("wire", "rx_packets"));
            rx.unwrap().value
        };
        while again.handles.iter().any(|handle| received(handle) < 600) {
            std::thread::sleep(Duration::from_micros(100));
        }
        again.handles.iter().for_each(|handle| handle.stop());
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        let entries =
            nic::counters::Published::total(again.handles.iter().map(|handle| handle.published()));
        let value = |name| entries.iter().find(|e| (e.group, e.name) == ("host", name)).unwrap();
        assert_eq!(value("requests").value, value("delivered_packets").value);
        scheduler.stop().unwrap();
        let written: Vec<Vec<u8>> = written.take().into_iter().map(|(_, bytes)| bytes).collect();
        by_connection(&written).into_values().for_each(|packets| assert_whole(packets, 300));
    }
}

#[test]
fn a_port_that_does_not_keep_up_makes_the_wire_wait_and_loses_nothing() {
    for order in [Order::RoundRobin, Order::Lifo] {
        let mut rig = Rig::new(2, order, false);
        rig.gate.set(Mood::Blocks);
        rig.arrive(1000);
        for _ in 0..1000 {
            for worker in &mut rig.workers {
                worker.turn(0).unwrap();
            }
        }
        for worker in &rig.workers {
            let counters = worker.counters();
            assert!(
                counters.queue.received.frames < 200,
                "{} were taken",
                counters.queue.received.frames
            );
            assert_eq!(counters.host.requests, counters.queue.received.frames);
            assert_eq!(counters.host.requests_full, 1, "times that the wire began to wait");
        }
        rig.gate.set(Mood::Takes);
        settle(&mut rig.workers);
        by_connection(&rig.stop()).into_values().for_each(|packets| assert_whole(packets, 1000));
    }
}

#[test]
fn refusals_are_counted_by_the_worker_whose_packets_they_were() {
    const EIO: i32 = 5;
    let mut rig = Rig::new(2, Order::RoundRobin, false);
    rig.gate.set(Mood::Refuses(EIO));
    rig.arrive(50);
    settle(&mut rig.workers);
    for worker in &rig.workers {
        assert_eq!(worker.counters().host.refused, [100, 0, 0], "host_down");
        assert_eq!(worker.counters().host.delivered.frames, 0);
        assert_eq!(worker.pool().available(), CHUNKS as usize);
    }
    assert_eq!(rig.stop().len(), 0);
}

/// The thread that writes hands over the segments of what the kernel refuses, and each worker learns of its own.
#[test]
fn segments_of_refused_aggregates_are_written() {
    const EINVAL: i32 = 22;
    let mut rig = Rig::new(2, Order::RoundRobin, true);
    rig.gate.set(Mood::RefusesAggregates(EINVAL));
    let settled = |worker: &SharingWorker| {
        let delivered = worker.counters().host.delivered.frames;
        delivered == 1000 && worker.pool().available() == CHUNKS as usize
    };
    rig.arrive(500);
    let mut now = 1_000_000;
    for _ in 0..1_000_000 {
        rig.workers.iter_mut().for_each(|worker| _ = worker.turn(now).unwrap());
        if rig.workers.iter().all(settled) {
            break;
        }
        now += 10_000_000;
        std::thread::sleep(Duration::from_micros(10));
    }
    for worker in &rig.workers {
        assert!(settled(worker), "{:?}", worker.counters().host);
        assert!(worker.counters().host.cut[0] > 0);
        assert_eq!(worker.counters().host.refused, [0; 3]);
    }
    by_connection(&rig.stop()).into_values().for_each(|packets| assert_whole(packets, 500));
}

#[test]
fn one_worker_takes_what_the_host_sends() {
    let mut rig = Rig::new(2, Order::RoundRobin, true);
    for n in 0..10 {
        let packet = PacketBuilder::tcp4().ports(80, n).payload(b"from the host");
        rig.host.send(VirtioNetHdr::default(), packet.build());
    }
    settle(&mut rig.workers);
    assert_eq!(rig.wires[0].take().len(), 10);
    assert_eq!(rig.wires[1].take().len(), 0);
    rig.stop();
}

#[test]
fn workers_end_though_the_scheduler_has_failed() {
    let rig = Rig::new(2, Order::RoundRobin, false);
    rig.gate.set(Mood::Panics);
    rig.arrive(10);
    let Rig { workers, handles, scheduler, .. } = rig;
    let threads: Vec<_> =
        workers.into_iter().map(|worker| std::thread::spawn(move || worker.run())).collect();
    while !scheduler.is_finished() {
        std::thread::sleep(Duration::from_millis(1));
    }
    handles.iter().for_each(|handle| handle.stop());
    threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    assert!(scheduler.stop().is_err());
}
