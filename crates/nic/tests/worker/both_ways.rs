//! Both ways at once, at random, and the thread that a worker is in real life.

use std::collections::HashMap;
use std::sync::Arc;

use nic::config::Config;
use nic::counters::Published;
use nic::port::memory::{MemoryHost, MemoryWire};
use nic::worker::{self, Worker};
use proptest::prelude::*;
use sys::frames::FramePool;
use testkit::packet::pattern;

use super::rig::{Rig, read, segment, stream};

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// So many segments of a connection arrive on the wire.
    Arrive(u16, u32),
    /// A super-packet of so many segments arrives on the wire.
    ArriveSuper(u16, u32),
    /// A frame of no connection.
    Udp,
    /// The host sends so many bytes.
    Send(usize),
    Room(Option<usize>),
    Turn,
    Wait(u64),
    Set(&'static str, &'static str),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let settings = prop::sample::select(vec![
        ("lro.enable", "false"),
        ("lro.enable", "true"),
        ("lro.profile", "lossless"),
        ("lro.profile", "endpoint"),
        ("lro.max_aggregate", "4000"),
        ("lro.max_segments", "3"),
        ("lro.flush_on_psh", "false"),
        ("lro.max_timeout", "1ms"),
    ]);
    let event = prop_oneof![
        6 => (1u16..6, 1u32..30).prop_map(|(port, n)| Event::Arrive(port, n)),
        1 => (1u16..6, 2u32..20).prop_map(|(port, n)| Event::ArriveSuper(port, n)),
        1 => Just(Event::Udp),
        4 => (1usize..20_000).prop_map(Event::Send),
        2 => proptest::option::of(0usize..30).prop_map(Event::Room),
        8 => Just(Event::Turn),
        2 => (0u64..200_000).prop_map(Event::Wait),
        1 => settings.prop_map(|(key, value)| Event::Set(key, value)),
    ];
    proptest::collection::vec(event, 1..80)
}

/// What both sides have sent so far.
#[derive(Default)]
struct Truth {
    /// Segments of each connection.
    arrived: HashMap<u16, u32>,
    frames: u64,
    udp: u64,
    sent: usize,
}

fn play(rig: &mut Rig, mut config: Config, events: Vec<Event>) -> Truth {
    let mut truth = Truth::default();
    for event in events {
        match event {
            Event::Arrive(port, n) => {
                let next = truth.arrived.entry(port).or_default();
                (*next..*next + n).for_each(|n| rig.arrive(&segment(port, n)));
                *next += n;
                truth.frames += u64::from(n);
            }
            Event::ArriveSuper(port, n) => {
                let next = truth.arrived.entry(port).or_default();
                let payload = pattern(*next as usize * 1000, n as usize * 1000);
                let (bytes, vnet) = segment(port, *next).payload(&payload).super_packet(1000);
                rig.wire.send(vnet, bytes);
                *next += n;
                truth.frames += 1;
            }
            Event::Udp => {
                rig.arrive(&testkit::packet::PacketBuilder::udp4());
                truth.udp += 1;
                truth.frames += 1;
            }
            Event::Send(len) => {
                let packet = segment(9, 0).seq(truth.sent as u32);
                let (bytes, vnet) = packet.payload(&pattern(truth.sent, len)).super_packet(1448);
                rig.host.send(vnet, bytes);
                truth.sent += len;
            }
            Event::Room(room) => rig.wire.set_room(room),
            Event::Turn => drop(rig.turn()),
            Event::Wait(time) => rig.now += time,
            Event::Set(key, value) => {
                config.set_at_run_time(key, value).unwrap();
                rig.handle.reconfigure(&config);
            }
        }
    }
    rig.wire.set_room(None);
    rig.settle();
    truth
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_byte_arrives_in_order_both_ways(batch in 1usize..20, events in events()) {
        let mut config = Config::default();
        config.poll.batch = batch;
        let mut rig = Rig::new(&config);
        let truth = play(&mut rig, config, events);
        let delivered = rig.delivered();
        for (port, segments) in &truth.arrived {
            let own = delivered.iter().filter(|(_, b)| b[34..36] == port.to_be_bytes());
            let stream = stream(own.map(|(_, bytes)| &bytes[..]));
            prop_assert!(stream == pattern(0, *segments as usize * 1000));
        }
        let sent = rig.sent();
        prop_assert!(stream(sent.iter().map(Vec::as_slice)) == pattern(0, truth.sent));

        prop_assert_eq!(rig.counter("wire", "rx_packets"), truth.frames);
        prop_assert_eq!(rig.counter("host", "delivered_packets"), delivered.len() as u64);
        let bytes: usize = delivered.iter().map(|(_, b)| b.len()).sum();
        prop_assert_eq!(rig.counter("host", "delivered_bytes"), bytes as u64);
        prop_assert_eq!(rig.counter("wire", "tx_packets"), sent.len() as u64);
        prop_assert_eq!(rig.counter("wire", "tx_bytes"), sent.iter().map(Vec::len).sum::<usize>() as u64);
        let through = rig.counter("lro", "received");
        let out = rig.group("lro_pass") + rig.group("lro_discard") + rig.counter("lro", "merged");
        prop_assert_eq!(out, through);
        prop_assert_eq!(rig.group("lro_discard") + rig.group("host_drop"), 0);
    }
}

/// A worker on its thread: when told to stop it hands on what it holds and says what it did.
#[test]
fn a_worker_that_is_stopped_hands_on_what_it_holds() {
    let (wire, far_wire) = MemoryWire::new();
    let (host, far_host) = MemoryHost::new();
    (0..20).for_each(|n| far_wire.send(Default::default(), segment(1, n).build()));
    let mut config = Config::default();
    config.set("poll.spin", "10ms").unwrap();
    config.set("lro.max_timeout", "100ms").unwrap();
    let handle = Arc::new(worker::handle(config.clone(), 1500).unwrap());
    let pool = FramePool::new(256, 2048).unwrap();
    let worker = Worker::new(Arc::clone(&handle), config.clone(), wire, host, pool);
    let thread = std::thread::spawn(move || worker.run());
    // It has begun once it has taken up a change, or fallen asleep.
    while Published::total([handle.published()]).iter().all(|e| e.value == 0) {
        std::thread::yield_now();
    }
    handle.stop();
    thread.join().unwrap().unwrap();
    let total = Published::total([handle.published()]);
    let value = |name: &str| total.iter().find(|e| e.name == name).unwrap().value;
    assert_eq!((value("rx_packets"), value("received")), (20, 20));
    let delivered = far_host.take();
    assert_eq!(stream(delivered.iter().map(|(_, b)| &b[..])), pattern(0, 20_000));
    assert!(delivered.iter().all(|(_, b)| !read(b).1.is_empty()));
}
