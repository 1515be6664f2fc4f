//! Every frame comes out exactly once, in the order of its connection, counted by what became of
//! it, and what merges is exactly what may.

use lro::{Config, Discard, Flush, Pass, RxChecksum};
use proptest::prelude::*;

use crate::naive::Tcp;
use crate::run::{Out, Run, Step, run};
use crate::trace::{configs, traces};
use crate::{aggregate, model};

/// What holds for every run, however short of memory. (That the counters add up at every step
/// is checked in [`run`] itself.)
pub(crate) fn check(run: &Run, steps: &[Step]) {
    each_frame_once(run, steps);
    connections_in_order(run, steps);
    passing_is_immediate(run);
    counters_match(run, steps);
    run.joined().for_each(|joined| aggregate::check(joined, steps));
}

fn each_frame_once(run: &Run, steps: &[Step]) {
    let mut out: Vec<usize> = run.events.iter().flat_map(|e| e.out.frames()).copied().collect();
    out.sort_unstable();
    let frames = |(at, step): (usize, &Step)| matches!(step, Step::Frame(_)).then_some(at);
    let expected: Vec<usize> = steps.iter().enumerate().filter_map(frames).collect();
    assert_eq!(out, expected, "frames lost or doubled");
}

/// Nothing overtakes anything of its own connection, merged or not.
fn connections_in_order(run: &Run, steps: &[Step]) {
    let mut latest = std::collections::HashMap::new();
    for at in run.groups().into_iter().flatten() {
        let Step::Frame(frame) = &steps[at] else { unreachable!() };
        let Some(packet) = Tcp::read(&frame.bytes) else { continue };
        let before = latest.insert(packet.key(), at);
        assert!(before.is_none_or(|before| before < at), "{at} after {before:?}");
    }
}

/// What the filter lets pass is never held, so it keeps its place among its like.
fn passing_is_immediate(run: &Run) {
    for event in &run.events {
        match &event.out {
            Out::Passed(_, Pass::Alone) | Out::Joined(_) => {}
            Out::Passed(at, _) | Out::Discarded(at, _) => assert_eq!(*at, event.step),
        }
    }
}

fn counters_match(run: &Run, steps: &[Step]) {
    let counters = &run.counters;
    let passed = |why: Pass| {
        run.events.iter().filter(|e| matches!(e.out, Out::Passed(_, w) if w == why)).count() as u64
    };
    for why in Pass::all() {
        assert_eq!(counters.passed[why.index()], passed(why), "{}", why.name());
    }
    for why in Discard::ALL {
        let seen = run.events.iter().filter(|e| matches!(e.out, Out::Discarded(_, w) if w == why));
        assert_eq!(counters.discarded[why as usize], seen.count() as u64, "{}", why.name());
    }
    assert_eq!(counters.aggregates, run.joined().count() as u64);
    assert_eq!(counters.merged, run.joined().map(|j| j.frames.len() as u64).sum::<u64>());
    let payload = run.joined().map(|j| (j.bytes.len() - j.header_len) as u64).sum::<u64>();
    assert_eq!(counters.aggregate_bytes, payload);
    let flushed: u64 = counters.flushed.iter().sum();
    assert_eq!(flushed, counters.aggregates + passed(Pass::Alone));
    let mismatched: u64 = counters.mismatched.iter().sum();
    assert_eq!(mismatched, counters.flushed[Flush::Mismatch as usize]);
    let frames = steps.iter().filter(|s| matches!(s, Step::Frame(_))).count() as u64;
    let out = counters.passed.iter().sum::<u64>() + counters.discarded.iter().sum::<u64>();
    assert_eq!((counters.received, out + counters.merged), (frames, frames));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Both ways: nothing merges that may not, and all that may does.
    #[test]
    fn what_merges_is_what_the_rules_allow(config in configs(), steps in traces(5, 120)) {
        let run = run(&config, &steps);
        check(&run, &steps);
        prop_assert_eq!(run.groups(), model::groups(&config, &steps));
    }

    #[test]
    fn a_new_configuration_in_the_middle_loses_nothing(
        configs in proptest::collection::vec(configs(), 2..5),
        mut steps in traces(3, 100),
        places in proptest::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        for (config, place) in configs[1..].iter().zip(places) {
            steps.insert(place.index(steps.len() + 1), Step::Reconfigure(config.clone()));
        }
        let run = run(&configs[0], &steps);
        check(&run, &steps);
        prop_assert_eq!(run.groups(), model::groups(&configs[0], &steps));
    }
}

/// The commonest trace of all, so that the properties above are known to test merging.
#[test]
fn forty_four_segments_are_one() {
    let segment = |n: u32| {
        testkit::packet::PacketBuilder::tcp4()
            .seq(n * 1448)
            .id(n as u16)
            .timestamps(5, 6)
            .payload_pattern(1448)
            .build()
    };
    let steps: Vec<Step> = (0..44).map(|n| Step::Frame(segment(n).into())).collect();
    for profile in [lro::Profile::Endpoint, lro::Profile::Lossless] {
        let run = run(&Config { profile, ..Config::default() }, &steps);
        check(&run, &steps);
        assert_eq!(run.groups(), [(0..44).collect::<Vec<_>>()]);
    }
}

/// The port's word is taken for the TCP checksum.
#[test]
fn a_vouched_checksum_is_not_computed() {
    let segment = |n: u32| {
        let p = testkit::packet::PacketBuilder::tcp6().seq(n * 10).payload_pattern(10);
        Step::Frame(crate::run::Frame {
            bytes: p.wrong_checksum().build(),
            checksum: RxChecksum::Verified,
        })
    };
    let steps = [segment(0), segment(1)];
    assert_eq!(run(&Config::default(), &steps).groups(), [[0, 1]]);
}

/// The properties are worth what their traces reach: every reason that there is, but lengths that
/// lie, which are [`crate::arbitrary`]'s.
#[test]
fn the_traces_reach_every_reason() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..1500 {
        let mut config = configs().new_tree(&mut runner).unwrap().current();
        (config.flows, config.held_frames) = (4, 30);
        let steps = traces(5, 120).new_tree(&mut runner).unwrap().current();
        for (group, name, value) in run(&config, &steps).counters.entries() {
            *seen.entry((group, name)).or_insert(0) += value;
        }
    }
    let malformed = wire::Malformed::ALL.map(wire::Malformed::name);
    let missing: Vec<_> = seen
        .iter()
        .filter(|((_, name), value)| **value == 0 && !malformed.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {seen:?}");
}
