//! Paths that reorder, as `degen` has them: what waiting for holes only as long as a path needs
//! costs in aggregates, against waiting for each as long as is allowed.

use degen::{Degen, Heap, Probability};
use lro::{Aggregate, Config, Discard, Lro, Nanos, Pass, RxChecksum, Sink};
use testkit::packet::PacketBuilder;

/// Between segments: 1,448 bytes at 1 Gb/s.
const PACE: Nanos = 12_000;
const SECOND: Nanos = 1_000_000_000;
/// As many as fit an aggregate of full segments; these are short.
const SEGMENTS: u32 = 44;
const LEN: u32 = 8;

/// Counts packets and what was in them.
#[derive(Default)]
struct Count {
    packets: u64,
    segments: u64,
    old: u64,
}

impl Sink<Vec<u8>> for Count {
    fn pass(&mut self, _: Vec<u8>, why: Pass) {
        self.packets += 1;
        self.segments += 1;
        self.old += u64::from(why == Pass::Old);
    }
    fn aggregate(&mut self, aggregate: Aggregate<'_, Vec<u8>>) {
        self.packets += 1;
        self.segments += aggregate.segments() as u64;
    }
    fn discard(&mut self, _: Vec<u8>, _: Discard) {
        panic!("nothing is damaged");
    }
}

/// A sender of one segment each `PACE` through a path, for a second and then as long as `counted`.
fn segments_per_packet(
    way: &degen::Config,
    segment: fn(Nanos) -> PacketBuilder,
    config: &Config,
) -> (f64, u64) {
    let mut way = Degen::new(way.clone(), 7);
    let mut lro = Lro::new(Config { max_segments: SEGMENTS, ..config.clone() });
    let mut out = Count::default();
    let end = SECOND + SECOND / 2;
    let (mut sent, mut now, mut warm) = (0u32, 0, false);
    while now < end {
        let next = u64::from(sent) * PACE;
        now = way.next_deadline().into_iter().chain(lro.next_deadline()).fold(next, Nanos::min);
        if !warm && now >= SECOND {
            warm = true;
            out = Count::default();
        }
        if now == next {
            let packet = segment(now).seq(sent.wrapping_mul(LEN)).id(sent as u16);
            way.arrive(packet.payload_pattern(LEN as usize).build(), now, &mut Heap);
            sent += 1;
        }
        while let Some(departure) = way.depart(now, &mut Heap) {
            let bytes = departure.packet.clone();
            lro.receive(departure.packet, &bytes, RxChecksum::Verified, now, &mut out);
        }
        lro.expire(now, &mut out);
    }
    (out.segments as f64 / out.packets as f64, out.old)
}

fn with_timestamps(now: Nanos) -> PacketBuilder {
    PacketBuilder::tcp4().timestamps((now / 1_000_000) as u32, 1)
}

fn percent(value: u8) -> Probability {
    Probability::percent(value.into()).unwrap()
}

/// A path that holds so many in a hundred back until others have passed.
fn reordering(reorder: u8, reorder_distance: u32) -> degen::Config {
    degen::Config { reorder: percent(reorder), reorder_distance, ..degen::Config::default() }
}

/// Each path, and the mean of the version that waited for each hole for 2 ms, on the same seed.
#[test]
fn after_a_second_aggregates_are_as_large_as_if_all_holes_were_waited_for() {
    let mut paths = Vec::new();
    for reorder in [1, 3, 10, 30] {
        paths.extend([1, 3, 32].map(|distance| (reordering(reorder, distance), 44.0)));
    }
    for (jitter, before) in [(20_000, 43.066), (100_000, 38.107), (500_000, 37.983)] {
        let way = degen::Config { delay: 10_000_000, jitter, ..degen::Config::default() };
        paths.push((way, before));
    }
    for (reorder, before) in [(1, 42.320), (3, 40.778), (10, 42.698), (30, 9.403)] {
        paths.push((reordering(reorder, 100), before));
    }
    for (way, before) in paths {
        let (mean, _) = segments_per_packet(&way, with_timestamps, &Config::default());
        println!("{mean:.3} for {before:.3}: {} {}", way.reorder.parts(), way.reorder_distance);
        assert!(mean >= 0.95 * before, "{mean} for {before}: {way:?}");
    }
}

/// Nor do timestamps matter where the sender counts its IPv4 IDs.
#[test]
fn ids_teach_the_same_as_timestamps() {
    for reorder in [3, 30] {
        let way = reordering(reorder, 3);
        let (mean, _) = segments_per_packet(&way, |_| PacketBuilder::tcp4(), &Config::default());
        assert!(mean >= 0.95 * 44.0, "{mean} at {reorder} %");
    }
}
