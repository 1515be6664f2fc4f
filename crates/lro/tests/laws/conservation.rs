//! Every frame comes out exactly once, counted by what became of it, and what merges is exactly
//! what may.

use lro::{Config, Discard, Flush, Pass, Profile, RxChecksum};
use proptest::prelude::*;

use super::model::{Group, Told};
use super::naive::Tcp;
use super::run::{Event, Out, Run, Step, run};
use super::trace::{configs, traces};
use super::{aggregate, model};

/// What holds for every run, however short of memory. (That the counters add up at every step
/// is checked in [`run`] itself.)
pub(crate) fn check(run: &Run, steps: &[Step]) {
    each_frame_once(run, steps);
    behind_what_is_held(run, steps);
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

/// Nothing overtakes anything of its own connection where nothing is put in order.
fn connections_in_order(run: &Run, steps: &[Step]) {
    let mut latest = std::collections::HashMap::new();
    for at in run.groups().into_iter().flatten() {
        let Step::Frame(frame) = &steps[at] else { unreachable!() };
        let Some(packet) = Tcp::read(&frame.bytes) else { continue };
        let before = latest.insert(packet.key(), at);
        assert!(before.is_none_or(|before| before < at), "{at} after {before:?}");
    }
}

/// What is not held comes behind all that is held of its connection, but for acknowledgments and
/// data that came before, which are not kept waiting for a hole.
fn behind_what_is_held(run: &Run, steps: &[Step]) {
    let mut held = std::collections::BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        if let Step::Frame(frame) = step
            && let Some(packet) = Tcp::read(&frame.bytes)
        {
            held.insert(at, packet.key());
        }
    }
    for event in &run.events {
        event.out.frames().iter().for_each(|at| drop(held.remove(at)));
        if let Out::Passed(at, why) = event.out
            && !matches!(why, Pass::Alone | Pass::PureAck | Pass::Old)
            && let Step::Frame(frame) = &steps[at]
            && let Some(key) = Tcp::read(&frame.bytes).map(|packet| packet.key())
        {
            let waits = held.range(..at).find(|(_, of)| **of == key);
            assert_eq!(waits, None, "overtaken by {at}: {}", why.name());
        }
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
    let frames = steps.iter().filter(|s| matches!(s, Step::Frame(_))).count() as u64;
    let out = counters.passed.iter().sum::<u64>() + counters.discarded.iter().sum::<u64>();
    assert_eq!((counters.received, out + counters.merged), (frames, frames));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    /// Both ways: nothing merges that may not, and all that may does; when, and in which order.
    #[test]
    fn what_comes_out_is_what_the_rules_say(config in configs(), steps in traces(4, 120)) {
        let run = run(&config, &steps);
        check(&run, &steps);
        compare(&run, &steps, model::groups(&config, &steps));
        if config.profile == Profile::Lossless {
            connections_in_order(&run, &steps);
            let mismatched: u64 = run.counters.mismatched.iter().sum();
            prop_assert_eq!(mismatched, run.counters.flushed[Flush::Mismatch as usize]);
        }
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
        compare(&run, &steps, model::groups(&configs[0], &steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Random keys for each worker leave no trace: what comes out, and when, is the same with any.
    #[test]
    fn the_keys_of_the_flow_hash_do_not_show(
        config in configs(),
        steps in traces(6, 120),
        keys: [u64; wire::FlowHash::KEYS],
    ) {
        let out = |flow_hash| {
            let run = run(&Config { flows: 3, flow_hash, ..config.clone() }, &steps);
            format!("{:?} {:?}", run.events, run.counters)
        };
        let (usual, other) = (config.flow_hash, wire::FlowHash::new(keys));
        prop_assert!(out(usual) == out(other));
    }
}

/// What a run gave, in the model's words.
fn group(event: &Event, steps: &[Step]) -> Option<Group> {
    let read = |at: usize| match &steps[at] {
        Step::Frame(frame) => Tcp::read(&frame.bytes),
        step => panic!("{step:?} came out"),
    };
    let (parts, header) = match &event.out {
        Out::Discarded(..) => return None,
        Out::Passed(at, _) => {
            (vec![(*at, 0..read(*at).map_or(0, |packet| packet.payload.len()))], None)
        }
        Out::Joined(joined) => {
            let slices = joined.frames.iter().zip(&joined.slices);
            let part = |(at, (start, len)): (&usize, &(usize, usize))| {
                let start = start - read(*at).unwrap().header_len();
                (*at, start..start + len)
            };
            let is = Tcp::read(&joined.bytes).unwrap();
            (slices.map(part).collect(), Some((is.seq(), Told::by(&is))))
        }
    };
    let key = read(parts[0].0).map(|packet| packet.key());
    Some(Group { key, now: event.now, parts, header })
}

/// Connection by connection, since between connections there is no order.
fn compare(run: &Run, steps: &[Step], expected: Vec<Group>) {
    let mut is: Vec<Group> = run.events.iter().filter_map(|event| group(event, steps)).collect();
    let mut expected = expected;
    // Frames as they came are compared whole: which part counts is then the host's to say.
    for group in expected.iter_mut().filter(|group| group.header.is_none()) {
        let Step::Frame(frame) = &steps[group.parts[0].0] else { unreachable!() };
        group.parts[0].1 = 0..Tcp::read(&frame.bytes).map_or(0, |packet| packet.payload.len());
    }
    is.sort_by(|a, b| a.key.cmp(&b.key));
    expected.sort_by(|a, b| a.key.cmp(&b.key));
    for (is, expected) in is.iter().zip(&expected) {
        assert_eq!(is, expected);
    }
    assert_eq!(is.len(), expected.len());
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
        Step::Frame(super::run::Frame {
            bytes: p.wrong_checksum().build(),
            checksum: RxChecksum::Verified,
        })
    };
    let steps = [segment(0), segment(1)];
    assert_eq!(run(&Config::default(), &steps).groups(), [[0, 1]]);
}

/// The properties are worth what their traces reach: every reason that there is, but lengths that
/// lie, which are [`super::arbitrary`]'s.
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
    // Active ACK and UDP are off here; no trace has so many holes.
    let elsewhere = ["acknowledged", "udp_alone", "udp_checksum", "holes"];
    let missing: Vec<_> = seen
        .iter()
        .filter(|((_, name), value)| {
            **value == 0 && !malformed.contains(name) && !elsewhere.contains(name)
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {seen:?}");
}
