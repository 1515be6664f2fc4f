//! A WAN around a wire, in virtual time: the clock is a number that the test sets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use degen::{Degen, Heap, Random};
use nic::config::Config;
use nic::degen::wire::DegenWire;
use nic::degen::{Handle, Settings};
use nic::port::memory::{FarEnd, MemoryHost, MemoryWire};
use nic::port::{Limits, Outgoing, Transmit, Transmitted, Wire};
use nic::worker::Worker;
use proptest::prelude::*;
use sys::frames::FramePool;
use testkit::packet::{PacketBuilder, pattern};
use testkit::verify;
use wire::VirtioNetHdr;

const MS: u64 = 1_000_000;
/// Chunks of the pool.
const CHUNKS: u32 = 256;
const MTU: usize = 1500;

/// A wire with a WAN, its far end, and time.
struct Rig<C: Fn() -> u64> {
    wire: DegenWire<MemoryWire, C>,
    handle: Arc<Handle>,
    far: FarEnd,
    pool: FramePool,
    now: Arc<AtomicU64>,
}

fn settings(text: &str) -> Settings {
    Settings::from_toml("test", text).unwrap()
}

/// With settings as a file has them.
fn rig(text: &str) -> Rig<impl Fn() -> u64> {
    let settings = settings(text);
    let (inner, far) = MemoryWire::new();
    let now = Arc::new(AtomicU64::new(0));
    let handle = Arc::new(nic::degen::handle(settings.configs.clone()).unwrap());
    let clock = {
        let now = Arc::clone(&now);
        move || now.load(Ordering::Relaxed)
    };
    let mut wire = DegenWire::new(inner, &settings, Arc::clone(&handle), clock);
    wire.configure(Limits { mtu: MTU, hardware: nic::config::GsoHardware::Off });
    Rig { wire, handle, far, pool: FramePool::new(CHUNKS, 32_768).unwrap(), now }
}

impl<C: Fn() -> u64> Rig<C> {
    fn at(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// The host sends a packet; how far it got, from a segment on.
    fn try_send(&mut self, vnet: VirtioNetHdr, bytes: &[u8], position: usize) -> Transmit {
        let mut bytes = bytes.to_vec();
        let packet = Outgoing { vnet, bytes: &mut bytes, position, fragment_ids: 7.into() };
        self.wire.transmit(&mut self.pool, packet, &mut Transmitted::default()).unwrap()
    }

    fn send(&mut self, bytes: &[u8]) {
        assert_eq!(self.try_send(VirtioNetHdr::default(), bytes, 0), Transmit::Done);
    }

    /// What has come out at the far end by now.
    fn out(&mut self) -> Vec<Vec<u8>> {
        self.wire.flush(&mut self.pool).unwrap();
        self.far.take().into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// What has come in from the far end by now.
    fn inward(&mut self) -> Vec<Vec<u8>> {
        let mut into = VecDeque::new();
        self.wire.receive(&mut self.pool, &mut into, 64).unwrap();
        into.into_iter()
            .map(|received| {
                assert_eq!((received.vnet, received.overflow), (VirtioNetHdr::default(), 0));
                let bytes = self.pool.bytes(&received.frame).to_vec();
                self.pool.free(received.frame);
                bytes
            })
            .collect()
    }

    /// The published value of a counter, after publishing.
    fn counter(&mut self, direction: &'static str, name: &str) -> u64 {
        self.wire.counters();
        let entries = self.handle.snapshot().entries(["forward", "reverse"]);
        let found = entries.iter().find(|entry| (entry.group, entry.name) == (direction, name));
        found.unwrap().value
    }

    /// Closes the wire: all memory is there again.
    fn close(mut self) {
        self.wire.close(&mut self.pool);
        assert_eq!(self.pool.available(), CHUNKS as usize, "chunks are missing");
    }
}

/// A frame with a number in it.
fn frame(number: u8) -> Vec<u8> {
    PacketBuilder::udp4().payload(&[number; 30]).build()
}

#[test]
fn frames_leave_and_arrive_at_their_time() {
    let mut rig = rig("forward.delay = '5ms'\nreverse.delay = '2ms'");
    assert_eq!(rig.wire.next_deadline(), None);
    for number in 0..3 {
        rig.at(u64::from(number) * MS);
        rig.send(&frame(number));
        assert_eq!(rig.out(), [[0; 0]; 0]);
    }
    for number in 0..3 {
        let due = (5 + u64::from(number)) * MS;
        assert_eq!(rig.wire.next_deadline(), Some(due));
        rig.at(due - 1);
        assert_eq!(rig.out(), [[0; 0]; 0]);
        rig.at(due);
        assert_eq!(rig.out(), [frame(number)]);
    }
    rig.at(10 * MS);
    rig.far.send(VirtioNetHdr::default(), frame(9));
    assert_eq!(rig.inward(), [[0; 0]; 0]);
    assert_eq!(rig.wire.next_deadline(), Some(12 * MS));
    rig.at(12 * MS - 1);
    assert_eq!(rig.inward(), [[0; 0]; 0]);
    rig.at(12 * MS);
    assert_eq!(rig.inward(), [frame(9)]);
    assert_eq!(rig.wire.next_deadline(), None);
    rig.close();
}

/// A tag is no part of what the MTU counts.
#[test]
fn what_fits_a_wire_does_so_behind_tags() {
    let limits = Limits { mtu: MTU, hardware: nic::config::GsoHardware::Off };
    for (tags, len, fits) in [
        (0, 1472, true),
        (0, 1473, false),
        (1, 1472, true),
        (1, 1473, false),
        (2, 1472, true),
        (2, 1473, false),
        (3, 1472, false),
    ] {
        let packet = PacketBuilder::udp4().payload_pattern(len);
        let frame = (0..tags).fold(packet, PacketBuilder::vlan).build();
        assert_eq!(limits.holds(&frame), fits, "{tags} tags, {len} bytes");
    }
    for len in 0..20 {
        assert!(limits.holds(&vec![0x81; len]));
    }
}

/// A burst arrives as a burst: delays do not add up.
#[test]
fn the_delays_of_a_burst_do_not_cascade() {
    let mut rig = rig("delay = '5ms'");
    let burst: Vec<_> = (0..20).map(frame).collect();
    burst.iter().for_each(|frame| rig.send(frame));
    burst.iter().for_each(|frame| rig.far.send(VirtioNetHdr::default(), frame.clone()));
    assert_eq!(rig.inward(), [[0; 0]; 0]);
    rig.at(5 * MS);
    assert_eq!((rig.out(), rig.inward()), (burst.clone(), burst));
    rig.close();
}

/// What is lost and delayed are frames of the wire, whatever the host and the far end hand over.
#[test]
fn super_packets_are_cut_before_they_go_in() {
    let mut rig = rig("delay = '1ms'");
    let segment = PacketBuilder::tcp4().timestamps(1, 2);
    let (packet, vnet) = segment.clone().payload(&pattern(0, 20_000)).super_packet(1000);
    assert_eq!(rig.try_send(vnet, &packet, 0), Transmit::Done);
    rig.far.send(vnet, packet);
    let (partial, vnet) = PacketBuilder::udp6().payload_pattern(99).partial();
    assert_eq!(rig.try_send(vnet, &partial, 0), Transmit::Done);
    rig.far.send(vnet, partial);
    // Too long for the wire, and so cut into fragments.
    let (datagram, vnet) = PacketBuilder::udp4().payload_pattern(4000).partial();
    assert_eq!(rig.try_send(vnet, &datagram, 0), Transmit::Done);

    assert_eq!(rig.inward(), [[0; 0]; 0]);
    rig.at(MS);
    let (out, inward) = (rig.out(), rig.inward());
    assert_eq!((out.len(), inward.len()), (20 + 1 + 3, 20 + 1));
    assert_eq!(out[..21], inward, "cut alike");
    assert!(out.iter().all(|frame| frame.len() <= MTU + 14));
    for (number, frame) in out[..20].iter().enumerate() {
        assert_eq!(verify::checksums(frame), Ok(()));
        assert_eq!(frame[66..], pattern(number * 1000, 1000));
    }
    assert_eq!(out[20], PacketBuilder::udp6().payload_pattern(99).build());
    let fragments: Vec<_> = out[21..].iter().map(|frame| &frame[14..]).collect();
    let whole = testkit::reassemble::reassemble(&fragments).unwrap();
    let datagram = PacketBuilder::udp4().payload_pattern(4000).build();
    assert_eq!((whole.fragments, &whole.packet[20..]), (3, &datagram[34..]));
    assert_eq!((rig.counter("forward", "arrived"), rig.counter("reverse", "arrived")), (24, 21));
    rig.close();
}

/// What cannot be cut is counted; the next goes on.
#[test]
fn what_makes_no_sense_is_refused_and_counted() {
    let mut rig = rig("");
    let (packet, vnet) = PacketBuilder::tcp4().payload_pattern(5000).super_packet(1000);
    rig.far.send(VirtioNetHdr { gso_size: 0, ..vnet }, packet.clone());
    rig.far
        .send(VirtioNetHdr { needs_csum: true, csum_start: 9999, ..Default::default() }, frame(1));
    rig.far.send(VirtioNetHdr::default(), frame(2));
    assert_eq!(rig.inward(), [frame(2)]);
    assert_eq!((rig.counter("reverse", "refused"), rig.counter("reverse", "arrived")), (2, 1));
    let mut bytes = packet;
    let packet = Outgoing {
        vnet: VirtioNetHdr { gso_size: 0, ..vnet },
        bytes: &mut bytes,
        position: 0,
        fragment_ids: 0.into(),
    };
    assert!(rig.wire.transmit(&mut rig.pool, packet, &mut Transmitted::default()).is_err());
    rig.close();
}

#[test]
fn memory_comes_back_from_everywhere() {
    for text in [
        "delay = '1s'",
        "delay = '1s'\njitter = '1s'",
        "rate = '1bit'",
        "reorder = '100%'\nreorder_wait = '1s'",
        "duplicate = '100%'\ndelay = '1s'\nreorder = '50%'\nreorder_wait = '1s'",
        "loss = '50%'\ncorrupt = '50%'",
        "queue_packets = 2\nrate = '1bit'",
        "rate = '1bit'\nqueue = 'codel'",
    ] {
        let mut rig = rig(text);
        rig.far.set_room(Some(3));
        for number in 0..40 {
            rig.send(&frame(number));
            rig.far.send(VirtioNetHdr::default(), frame(number));
        }
        rig.inward();
        rig.out();
        // One that has come out waits for the wire, too.
        rig.at(1_500 * MS);
        rig.out();
        rig.inward();
        rig.close();
    }
}

#[test]
fn a_full_wire_loses_nothing() {
    for room in [1, 2, 3, 7] {
        let mut rig = rig("delay = '1ms'");
        rig.far.set_room(Some(0));
        let sent: Vec<_> = (0..20).map(frame).collect();
        sent.iter().for_each(|frame| rig.send(frame));
        assert!(!rig.wire.is_pending());
        rig.at(MS);
        assert_eq!(rig.out(), [[0; 0]; 0]);
        assert!(rig.wire.is_pending());
        // There is nothing to wake for: the wire tells when it takes frames again.
        assert_eq!(rig.wire.next_deadline(), None);
        let mut out = Vec::new();
        while out.len() < sent.len() {
            rig.far.set_room(Some(room));
            let more = rig.out();
            assert!((1..=room).contains(&more.len()));
            out.extend(more);
        }
        assert_eq!(out, sent);
        assert!(!rig.wire.is_pending());
        rig.close();
    }
}

/// A quarter of the memory is left to receive into; for more the host waits, and loses nothing.
#[test]
fn with_little_memory_the_host_waits() {
    let mut rig = rig("delay = '1ms'");
    let (packet, vnet) = PacketBuilder::tcp4().payload(&pattern(0, 30_000)).super_packet(300);
    let (mut out, mut waits) = (Vec::new(), 0);
    for _ in 0..5 {
        let mut position = 0;
        while let Transmit::Full { position: so_far } = rig.try_send(vnet, &packet, position) {
            position = so_far;
            waits += 1;
            assert!(rig.wire.retry_after().is_some(), "there is no time to try again");
            // Frames still arrive.
            rig.far.send(VirtioNetHdr::default(), frame(1));
            rig.inward();
            assert_eq!(rig.counter("reverse", "arrived"), waits);
            rig.at(rig.wire.next_deadline().unwrap());
            out.extend(rig.out());
        }
        assert_eq!(rig.wire.retry_after(), None);
    }
    assert!(waits > 0, "it never waited");
    rig.at(1_000 * MS);
    out.extend(rig.out());
    let payload: Vec<u8> = out.iter().flat_map(|frame| &frame[54..]).copied().collect();
    assert_eq!(payload, pattern(0, 30_000).repeat(5), "five times all of it, in order");
    assert_eq!(rig.counter("forward", "arrived"), 500);
    rig.inward();
    rig.close();
}

/// The worker, too, loses nothing, and wakes when it must.
#[test]
fn a_worker_sends_all_through_little_memory() {
    let settings = settings("delay = '1ms'");
    let (inner, wire) = MemoryWire::new();
    let (host, far_host) = MemoryHost::new();
    let now = Arc::new(AtomicU64::new(0));
    let wan = Arc::new(nic::degen::handle(settings.configs.clone()).unwrap());
    let clock = Arc::clone(&now);
    let degen = DegenWire::new(inner, &settings, wan, move || clock.load(Ordering::Relaxed));
    let config = Config::default();
    let handle = Arc::new(nic::worker::handle(config.clone(), 1500).unwrap());
    let pool = FramePool::new(64, 32_768).unwrap();
    let mut worker = Worker::new(handle, config, degen, host, pool);
    let (packet, vnet) = PacketBuilder::tcp4().payload(&pattern(0, 60_000)).super_packet(1000);
    for _ in 0..5 {
        far_host.send(vnet, packet.clone());
    }
    let mut payload = Vec::new();
    for turn in 0..200 {
        now.store(turn * MS, Ordering::Relaxed);
        while worker.turn(turn * MS).unwrap() {}
        payload.extend(wire.take().into_iter().flat_map(|(_, frame)| frame[54..].to_vec()));
    }
    assert_eq!(payload, pattern(0, 60_000).repeat(5));
    assert_eq!(worker.pool().available(), 64);
}

#[test]
fn what_is_set_counts_from_the_next_frame_on() {
    let mut rig = rig("delay = '1ms'");
    rig.send(&frame(1));
    rig.handle.set("forward.loss", "100%").unwrap();
    assert_eq!(rig.handle.snapshot().configs[0].loss, degen::Probability::ALWAYS);
    // It is taken up with the next look at the wire.
    assert_eq!(rig.inward(), [[0; 0]; 0]);
    rig.send(&frame(2));
    rig.far.send(VirtioNetHdr::default(), frame(3));
    rig.inward();
    rig.at(MS);
    assert_eq!(
        (rig.out(), rig.inward()),
        (vec![frame(1)], vec![frame(3)]),
        "in flight, it arrives"
    );
    assert_eq!((rig.counter("forward", "lost"), rig.counter("reverse", "lost")), (1, 0));
    assert!(rig.handle.set("forward.loss", "101%").is_err());
    assert!(rig.handle.set("sideways.loss", "1%").is_err());
    rig.handle.set("loss", "0").unwrap();
    assert_eq!(rig.handle.snapshot().configs[0].loss, degen::Probability::NEVER);
    rig.close();
}

#[test]
fn a_schedule_changes_things_at_its_times() {
    let mut rig = rig("repeat = '10ms'\n\
         [[schedule]]\nat = '0'\nloss = '0'\n\
         [[schedule]]\nat = '4ms'\nforward.loss = '100%'\nreverse.duplicate = '100%'\n\
         [[schedule]]\nat = '6ms'\nforward.loss = '0'\nreverse.duplicate = '0'");
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for time in 0..30 {
        rig.at(time * MS + 1);
        rig.send(&frame(time as u8));
        rig.far.send(VirtioNetHdr::default(), frame(time as u8));
        let count = rig.out().len();
        there.push(count);
        back.push(rig.inward().len());
    }
    let round =
        |usual, within| (0..10).map(move |time| if matches!(time, 4 | 5) { within } else { usual });
    assert_eq!(there, (0..3).flat_map(|_| round(1, 0)).collect::<Vec<_>>());
    assert_eq!(back, (0..3).flat_map(|_| round(1, 2)).collect::<Vec<_>>());
    rig.close();
}

/// Time, and a frame of so many bytes more or a look.
#[derive(Clone, Debug)]
struct Event {
    after: u64,
    payload: Option<usize>,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0..2 * MS, prop::option::weighted(0.8, 1..200_usize));
    prop::collection::vec(event.prop_map(|(after, payload)| Event { after, payload }), 1..120)
}

fn rough() -> impl Strategy<Value = String> {
    let percent = || prop::sample::select(vec!["0", "3%", "30%", "100%"]);
    let time = || prop::sample::select(vec!["0", "100us", "1ms", "3ms"]);
    let rate = prop::sample::select(vec!["0", "1mbit", "10mbit"]);
    let queue = prop::sample::select(vec!["tail_drop", "codel"]);
    let distribution = prop::sample::select(vec!["uniform", "normal", "pareto"]);
    (
        [percent(), percent(), percent(), percent(), percent()],
        [time(), time(), time(), time()],
        (rate, queue, distribution),
        (any::<bool>(), any::<bool>(), 1..5_u32, 0..10_u32),
    )
        .prop_map(|(percent, time, (rate, queue, distribution), rest)| {
            let [loss, duplicate, corrupt, reorder, gilbert] = percent;
            let [delay, jitter, wait, target] = time;
            let (reorders, ecn, distance, packets) = rest;
            let target = if target == "0" { "1us" } else { target };
            format!(
                "loss = '{loss}'\nduplicate = '{duplicate}'\ncorrupt = '{corrupt}'\n\
                 reorder = '{reorder}'\ngilbert_p = '{gilbert}'\ngilbert_r = '50%'\n\
                 delay = '{delay}'\njitter = '{jitter}'\nreorder_wait = '{wait}'\n\
                 codel_target = '{target}'\nrate = '{rate}'\nqueue = '{queue}'\n\
                 jitter_distribution = '{distribution}'\njitter_reorders = {reorders}\n\
                 ecn = {ecn}\nreorder_distance = {distance}\nqueue_packets = {packets}\n"
            )
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The wire adds nothing of its own to what the core does with the same seed.
    #[test]
    fn the_same_seed_gives_what_the_core_gives(
        text in rough(), events in events(), seed in any::<u64>(), outward in any::<bool>(),
    ) {
        let text = format!("seed = '{seed}'\n{text}");
        let mut rig = rig(&text);
        // Each direction has a seed of its own, drawn from the one that was given.
        let number = usize::from(!outward);
        let seed = Random::stream(seed, number as u64).next();
        let mut core = Degen::new(settings(&text).configs[number].clone(), seed);
        let mut now = 0;
        let mut number = 0;
        for Event { after, payload } in events {
            now += after;
            rig.at(now);
            if let Some(len) = payload {
                number += 1;
                let ecn = number as u8 & 3;
                let frame = PacketBuilder::udp4().id(number).tos(ecn).payload_pattern(len).build();
                match outward {
                    true => rig.send(&frame),
                    false => rig.far.send(VirtioNetHdr::default(), frame.clone()),
                }
                core.arrive(frame, now, &mut Heap);
            }
            let came = if outward { rig.out() } else { rig.inward() };
            let departs = |core: &mut Degen<_>| core.depart(now, &mut Heap).map(|d| d.packet);
            let expected: Vec<_> = std::iter::from_fn(|| departs(&mut core)).collect();
            prop_assert_eq!(came, expected);
            prop_assert_eq!(rig.wire.next_deadline(), core.next_deadline());
        }
        let direction = if outward { "forward" } else { "reverse" };
        for (name, value) in core.counters().entries() {
            prop_assert_eq!(rig.counter(direction, name), value, "{}", name);
        }
        prop_assert_eq!(rig.counter(direction, "held"), core.held() as u64);
        rig.close();
    }
}
