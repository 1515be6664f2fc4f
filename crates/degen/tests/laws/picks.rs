//! Which packets an element picks does not depend on the others.

use std::collections::BTreeSet;

use degen::{Config, Discipline, Distribution, Probability};
use proptest::prelude::*;

use crate::drive::{Out, Outcome, Polling};
use crate::given::{Arrival, Given};

const MS: u64 = 1_000_000;
const PACKETS: u64 = 400;
/// Between two packets: longer than any of them is in flight.
const GAP: u64 = 1_000 * MS;
const DELAY: u64 = 100 * MS;
const WAIT: u64 = 300 * MS;

fn tenths(tenths: u64) -> Probability {
    Probability::from_parts(tenths * 100_000_000).unwrap()
}

/// Elements alone.
fn loss() -> Config {
    Config { loss: tenths(2), ..Config::default() }
}

fn bursts() -> Config {
    Config { gilbert_p: tenths(1), gilbert_r: tenths(5), gilbert_k: tenths(9), ..Config::default() }
}

fn duplicate() -> Config {
    Config { duplicate: tenths(3), ..Config::default() }
}

fn corrupt() -> Config {
    Config { corrupt: tenths(3), ..Config::default() }
}

fn jitter() -> Config {
    let jitter_distribution = Distribution::Normal;
    Config { delay: DELAY, jitter: 10 * MS, jitter_distribution, ..Config::default() }
}

/// So many packets never pass: each packet that is held back waits for the longest time.
fn reorder() -> Config {
    Config { reorder: tenths(3), reorder_distance: 65_535, reorder_wait: WAIT, ..Config::default() }
}

/// A configuration with the elements that `on` has bits for.
fn some(on: u32) -> Config {
    let mut config = Config::default();
    let is_on = |bit: u32| on >> bit & 1 == 1;
    if is_on(0) {
        config.loss = loss().loss;
    }
    if is_on(1) {
        let Config { gilbert_p, gilbert_r, gilbert_k, .. } = bursts();
        config = Config { gilbert_p, gilbert_r, gilbert_k, ..config };
    }
    if is_on(2) {
        config.duplicate = duplicate().duplicate;
    }
    if is_on(3) {
        config.corrupt = corrupt().corrupt;
    }
    if is_on(4) {
        let Config { delay, jitter, jitter_distribution, .. } = jitter();
        config = Config { delay, jitter, jitter_distribution, ..config };
    }
    if is_on(5) {
        let Config { reorder, reorder_distance, reorder_wait, .. } = reorder();
        config = Config { reorder, reorder_distance, reorder_wait, ..config };
    }
    if is_on(6) {
        config = Config { rate: 10_000_000, queue: Discipline::CoDel, mark: tenths(5), ..config };
    }
    config
}

/// A run of packets so far apart that nothing waits for another.
fn run(config: Config, seed: u64) -> Outcome {
    let arrival = |n| Arrival { at: n * GAP, bytes: vec![0; 100] };
    let arrivals = (0..PACKETS).map(arrival).collect();
    Given { config, seed, arrivals, ..Given::from_bytes(&[]) }.run(Polling::AtTheEnd)
}

/// What was done to originals: how many nanoseconds each took, and its bytes.
fn numbers(outcome: &Outcome, which: impl Fn(&Out) -> bool) -> BTreeSet<usize> {
    outcome.departures.iter().filter(|out| which(out)).map(|out| out.packet.number).collect()
}

fn took(out: &Out) -> u64 {
    out.due - out.packet.number as u64 * GAP
}

/// Packets held back take this much longer; no packet takes so long otherwise.
fn was_held(out: &Out) -> bool {
    took(out) >= WAIT
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_picks_the_same_packets_with_others_and_without(on in 0_u32..128, seed: u64) {
        let both = run(some(on), seed);
        let original = |out: &Out| !out.packet.copy;
        let arrived = numbers(&both, original);
        if on & 0b11 != 0 {
            let alone = run(some(on & 0b11), seed);
            prop_assert_eq!(&arrived, &numbers(&alone, original));
        }
        if on & 0b100 != 0 {
            let copies = numbers(&run(duplicate(), seed), |out| out.packet.copy);
            let expected: BTreeSet<_> = copies.intersection(&arrived).copied().collect();
            prop_assert_eq!(numbers(&both, |out| out.packet.copy), expected);
        }
        if on & 0b1000 != 0 {
            let alone = run(corrupt(), seed).departures;
            for out in both.departures.iter().filter(|out| original(out)) {
                prop_assert_eq!(&out.packet.bytes, &alone[out.packet.number].packet.bytes);
            }
        }
        let held = numbers(&run(reorder(), seed), was_held);
        if on & 0b10_0000 != 0 {
            let expected: BTreeSet<_> = held.intersection(&arrived).copied().collect();
            let held = numbers(&both, |out| original(out) && was_held(out));
            prop_assert_eq!(held, expected);
        }
        if on & 0b1_0000 != 0 {
            let alone = run(jitter(), seed).departures;
            let carried = if on & 0b100_0000 != 0 { 80_000 } else { 0 };
            for out in both.departures.iter().filter(|out| original(out)) {
                let wait = if was_held(out) { WAIT } else { 0 };
                prop_assert_eq!(took(out), took(&alone[out.packet.number]) + wait + carried);
            }
        }
    }
}
