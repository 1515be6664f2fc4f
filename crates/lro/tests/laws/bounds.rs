//! Time, sizes and memory stay within what the configuration says, and nothing is lost for it.

use lro::{Config, Flush, Pass, Profile};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use wire::Flags;

use super::conservation::check;
use super::naive::Tcp;
use super::run::{Out, Step, run, waiting};
use super::trace::{configs, traces};

fn frame(builder: PacketBuilder) -> Step {
    Step::Frame(builder.build().into())
}

/// Segment `n` of 100 bytes of connection `flow`.
fn segment(flow: u16, n: u32) -> PacketBuilder {
    PacketBuilder::tcp4().ports(flow, 80).seq(n * 100).id(n as u16).payload_pattern(100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_held_past_its_deadline(config in configs(), steps in traces(5, 150)) {
        let run = run(&config, &steps);
        for event in &run.events {
            for at in event.out.frames() {
                let held = event.now - run.arrivals[*at];
                prop_assert!(held <= config.max_timeout, "{held} ns");
            }
        }
    }

    #[test]
    fn aggregates_stay_within_their_limits(config in configs(), steps in traces(3, 150)) {
        // One segment by itself may be as long as it came.
        for joined in run(&config, &steps).joined().filter(|joined| joined.frames.len() > 1) {
            prop_assert!(joined.frames.len() <= config.max_segments as usize);
            let ip_len = Tcp::read(&joined.bytes).unwrap().ip_len();
            prop_assert!(ip_len <= config.max_aggregate.min(65_535) as usize, "{ip_len} bytes");
        }
    }

    /// [`run`] checks on the way that no more than `held_frames` are held.
    #[test]
    fn short_memory_loses_nothing(
        config in configs(),
        held_frames in 1usize..6,
        flows in 1usize..4,
        steps in traces(8, 150),
    ) {
        let config = Config { held_frames, flows, ..config };
        check(&run(&config, &steps), &steps);
    }
}

#[test]
fn the_limit_of_bytes_is_that_of_the_ip_packet() {
    for (max_aggregate, segments) in [(239, 1), (240, 2), (339, 2), (340, 3)] {
        let config = Config { max_aggregate, ..Config::default() };
        let steps: Vec<Step> = (0..8).map(|n| frame(segment(1, n))).collect();
        assert_eq!(run(&config, &steps).groups()[0].len(), segments, "{max_aggregate}");
    }
}

#[test]
fn an_aggregate_is_never_longer_than_an_ip_packet_can_say() {
    for builder in [PacketBuilder::tcp4(), PacketBuilder::tcp6()] {
        let config =
            Config { max_aggregate: u32::MAX, max_segments: u32::MAX, ..Config::default() };
        let packet = |n: u32| frame(builder.clone().seq(n * 9000).payload_pattern(9000));
        let steps: Vec<Step> = (0..20).map(packet).collect();
        let run = run(&config, &steps);
        check(&run, &steps);
        assert_eq!(run.groups()[0].len(), 7);
    }
}

/// The largest IPv6 packet is longer than the largest IPv4 packet: 40 bytes of header come on top
/// of 65,535.
#[test]
fn the_largest_packets_pass_alone() {
    let steps = [
        frame(PacketBuilder::tcp6().payload_pattern(65_515)),
        frame(PacketBuilder::tcp6().seq(65_516).payload_pattern(1)),
        frame(PacketBuilder::tcp4().payload_pattern(65_495)),
        frame(PacketBuilder::tcp4().seq(65_496).payload_pattern(1)),
    ];
    for profile in [Profile::Endpoint, Profile::Lossless] {
        let run = run(&Config { profile, ..Config::default() }, &steps);
        check(&run, &steps);
        assert_eq!(run.groups(), [[0], [2], [1], [3]]);
    }
}

#[test]
fn at_the_bound_of_memory_the_oldest_goes_first() {
    let config = Config { held_frames: 3, ..Config::default() };
    let steps: Vec<Step> =
        [(1, 0), (2, 0), (1, 1), (3, 0), (3, 1)].map(|(f, n)| frame(segment(f, n))).into();
    let run = run(&config, &steps);
    check(&run, &steps);
    assert_eq!(run.groups(), [vec![0, 2], vec![1], vec![3, 4]]);
    assert_eq!(run.counters.flushed[Flush::Memory as usize], 1);
}

#[test]
fn a_full_table_recycles_the_connection_used_longest_ago() {
    let config = Config { flows: 2, ..Config::default() };
    let steps: Vec<Step> =
        [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1)].map(|(f, n)| frame(segment(f, n))).into();
    let run = run(&config, &steps);
    check(&run, &steps);
    assert_eq!(run.groups(), [vec![0], vec![1, 3], vec![2, 4]]);
    assert_eq!(run.counters.recycled, 1);
}

/// SYNs of connections that are never heard of again only take each other's place, as long as those
/// that send are heard of before as many have come as there are descriptors (second chance).
#[test]
fn a_flood_of_syns_costs_established_connections_nothing() {
    let config = Config { flows: 64, ..Config::default() };
    let mut steps = Vec::new();
    for n in 0..40 {
        steps.extend((1..9).map(|flow| frame(segment(flow, n))));
        let syns = (0..50).map(|at| segment(1000 + n as u16 * 50 + at, n).payload(&[]));
        steps.extend(syns.map(|syn| frame(syn.flags(Flags::SYN))));
    }
    let run = run(&config, &steps);
    check(&run, &steps);
    assert_eq!(run.counters.passed[Pass::Syn.index()], 2000);
    assert_eq!(run.counters.recycled, 2000 + 8 - 64);
    assert_eq!(run.joined().map(|j| j.frames.len()).collect::<Vec<_>>(), [40; 8]);
}

/// As many connections as a server has: each is known by its place, and comes back in order.
#[test]
fn seventy_thousand_connections_are_put_in_order() {
    const FLOWS: u32 = 70_000;
    let config = Config { flows: FLOWS as usize, held_frames: 64, ..waiting() };
    let of = |flow: u32, n: u32| {
        segment(flow as u16, n).addresses4([10, 1, (flow >> 16) as u8, 1], [10, 0, 0, 2])
    };
    let mut lro = lro::Lro::new(config);
    let mut out = Sizes::default();
    let mut receive = |packet: PacketBuilder| {
        lro.receive((), &packet.build(), lro::RxChecksum::Unverified, 1, &mut out);
    };
    for flow in 0..FLOWS {
        receive(of(flow, 0).payload(&[]).flags(Flags::SYN).seq(u32::MAX));
    }
    for flow in 0..FLOWS {
        receive(of(flow, 1));
        receive(of(flow, 0));
    }
    lro.flush_all(&mut out);
    assert_eq!((out.aggregates, out.passed), (FLOWS as usize, FLOWS as usize));
    assert_eq!(lro.counters().recycled, 0);
    assert_eq!(lro.counters().reordered, u64::from(FLOWS));
}

#[derive(Default)]
struct Sizes {
    passed: usize,
    aggregates: usize,
}

impl lro::Sink<()> for Sizes {
    fn pass(&mut self, (): (), _: Pass) {
        self.passed += 1;
    }

    fn aggregate(&mut self, aggregate: lro::Aggregate<'_, ()>) {
        assert_eq!(aggregate.segments(), 2);
        self.aggregates += 1;
    }

    fn discard(&mut self, (): (), why: lro::Discard) {
        panic!("discarded: {}", why.name());
    }
}

/// Data of ever new connections only recycles descriptors.
#[test]
fn a_flood_of_connections_loses_nothing() {
    let config = Config { flows: 16, held_frames: 8, ..Config::default() };
    let steps: Vec<Step> = (0..3000).map(|port| frame(segment(port, 0))).collect();
    let run = run(&config, &steps);
    check(&run, &steps);
    assert_eq!(run.counters.recycled, 3000 - 16);
}

#[test]
fn connections_that_end_give_their_descriptor_back() {
    for end in [Flags::FIN.with(Flags::ACK), Flags::RST] {
        for payload in [0, 100] {
            let config = Config { flows: 2, ..Config::default() };
            let steps: Vec<Step> = (0..100)
                .flat_map(|port| {
                    let last = segment(port, 1).flags(end).payload_pattern(payload);
                    [frame(segment(port, 0)), frame(last)]
                })
                .collect();
            let run = run(&config, &steps);
            check(&run, &steps);
            assert_eq!(run.counters.recycled, 0, "{end:?} with {payload} bytes");
        }
    }
}

#[test]
fn the_deadline_counts_from_the_first_segment() {
    let config = Config { max_timeout: 100, ..Config::default() };
    let steps: Vec<Step> = vec![
        frame(segment(1, 0)),
        Step::Wait(60),
        frame(segment(2, 0)),
        frame(segment(1, 1)),
        Step::Wait(60),
        frame(segment(1, 2)),
        Step::Wait(1000),
    ];
    let run = run(&config, &steps);
    check(&run, &steps);
    let held: Vec<u64> =
        run.events.iter().map(|e| e.now - run.arrivals[e.out.frames()[0]]).collect();
    assert_eq!(held, [100; 3]);
    assert_eq!(run.groups(), [vec![0, 3], vec![2], vec![5]]);
    assert_eq!(run.counters.flushed[Flush::Deadline as usize], 3);
}

/// A shorter time-out is in force at once, also for what is held already.
#[test]
fn a_new_time_out_does_not_wait_for_the_old_one() {
    let config = |max_timeout| Config { max_timeout, ..Config::default() };
    let steps: Vec<Step> = vec![
        frame(segment(1, 0)),
        Step::Reconfigure(config(10)),
        frame(segment(2, 0)),
        Step::Wait(1_000_000),
    ];
    let run = run(&config(500_000), &steps);
    check(&run, &steps);
    let last = run.events.last().unwrap();
    assert!(matches!(last.out, Out::Passed(2, Pass::Alone)));
    assert_eq!(last.now - run.arrivals[2], 10);
}

/// More connections may push in one burst than can be noted: the rest is flushed at once.
#[test]
fn any_number_of_connections_may_push_in_one_burst() {
    let mut steps: Vec<Step> =
        (0..3000).map(|port| frame(segment(port, 0).flags(Flags::ACK.with(Flags::PSH)))).collect();
    steps.push(Step::BurstEnds);
    let config = Config { held_frames: 4000, ..Config::default() };
    let run = run(&config, &steps);
    check(&run, &steps);
    assert!(run.events.iter().all(|e| e.step <= 3000));
    assert_eq!(run.counters.flushed[Flush::Psh as usize], 3000);
}
