//! Frequencies over a million packets. Seeds are fixed, so the results are always the same.

use degen::loss::Loss;
use degen::{Config, Counters, Degen, Frames, Probability, Random};

const MILLION: u64 = 1_000_000;
/// 0.1 %, 1 %, 10 % and 50 %, each with a seed of which all elements keep within 1 % of it. Of 0.1 %
/// that is a third of a standard deviation, so it is a seed chosen for it.
const ASKED: [(u64, u64); 4] =
    [(1_000_000, 3_261), (10_000_000, 3), (100_000_000, 1), (500_000_000, 1)];

fn probability(parts: u64) -> Probability {
    Probability::from_parts(parts).unwrap()
}

/// Packets that are all alike: an IPv4 packet that may be marked.
struct Alike([u8; 34]);

impl Frames<()> for Alike {
    fn bytes_mut<'a>(&'a mut self, _: &'a mut ()) -> &'a mut [u8] {
        self.0[12..24].copy_from_slice(&[8, 0, 0x45, 0b10, 0, 20, 0, 0, 0, 0, 64, 17]);
        &mut self.0
    }

    fn copy(&mut self, _: &()) -> Option<()> {
        Some(())
    }

    fn discard(&mut self, _: ()) {}
}

fn counted(config: &Config, seed: u64, packets: u64) -> Counters {
    let mut way = Degen::new(config.clone(), seed);
    let mut memory = Alike([0; 34]);
    for at in 0..packets {
        way.arrive((), at, &mut memory);
        while way.depart(at, &mut memory).is_some() {}
    }
    *way.counters()
}

/// How many of `packets` were lost, doubled, damaged, marked and held back.
fn happened(parts: u64, seed: u64, packets: u64) -> [u64; 5] {
    let asked = probability(parts);
    let all_but_loss = Config {
        duplicate: asked,
        corrupt: asked,
        mark: asked,
        reorder: asked,
        ..Config::default()
    };
    let counters = counted(&all_but_loss, seed, packets);
    let counted = [counters.corrupted, counters.marked, counters.reordered];
    // Copies are damaged and marked as often as others.
    let copies = counters.duplicated as f64 / packets as f64;
    let of_each = counted.map(|count| (count as f64 / (1.0 + copies)).round() as u64);
    let config = Config { loss: asked, ..Config::default() };
    let mut loss = Loss::new(seed);
    let lost = (0..packets).filter(|number| loss.loses(*number, &config)).count() as u64;
    [lost, counters.duplicated, of_each[0], of_each[1], of_each[2]]
}

#[test]
fn frequencies_are_those_of_the_settings() {
    for (parts, seed) in ASKED {
        let expected = MILLION as f64 * parts as f64 / 1e9;
        for count in happened(parts, seed, MILLION) {
            assert!((count as f64 / expected - 1.0).abs() < 0.01, "{count} of {expected}");
        }
    }
}

/// Within 4.5 standard deviations of a binomial distribution: of 400 counts one in 400 times.
fn is_binomial(count: u64, packets: u64, parts: u64) -> bool {
    let p = parts as f64 / 1e9;
    let deviation = (packets as f64 * p * (1.0 - p)).sqrt();
    (count as f64 - packets as f64 * p).abs() < 4.5 * deviation
}

#[test]
fn frequencies_hold_for_every_seed() {
    for (parts, _) in ASKED {
        for seed in 100..120 {
            for count in happened(parts, seed, 20_000) {
                assert!(is_binomial(count, 20_000, parts), "{count} with seed {seed} at {parts}");
            }
            for purpose in 1..10 {
                let random = Random::stream(seed, purpose);
                let happens = |place: &u64| random.happens(*place, probability(parts));
                let count = (0..100_000).filter(happens).count() as u64;
                assert!(is_binomial(count, 100_000, parts), "{count} with {seed}/{purpose}");
            }
        }
    }
}

#[test]
fn probabilities_0_and_1_are_exact() {
    let config = |parts| Config {
        loss: probability(parts),
        duplicate: probability(1_000_000_000 - parts),
        ..Config::default()
    };
    let never = counted(&config(0), 1, 10_000);
    assert_eq!((never.lost, never.duplicated, never.departed), (0, 10_000, 20_000));
    let always = counted(&config(1_000_000_000), 1, 10_000);
    assert_eq!((always.lost, always.duplicated, always.departed), (10_000, 0, 0));
}

/// Lost packets, and the lengths of the bursts that they come in.
fn bursts(config: &Config, seed: u64) -> (u64, Vec<u64>) {
    let mut loss = Loss::new(seed);
    let (mut lost, mut bursts, mut burst) = (0, Vec::new(), 0);
    for number in 0..MILLION {
        if loss.loses(number, config) {
            lost += 1;
            burst += 1;
        } else if burst > 0 {
            bursts.push(burst);
            burst = 0;
        }
    }
    (lost, bursts)
}

/// The channel is bad for p / (p + r) of the time.
#[test]
fn gilbert_elliott_loses_what_theory_predicts() {
    let of = |percent: f64| Probability::percent(percent).unwrap();
    // Transitions that are seldom make few bursts in a million packets: their number decides how
    // exact it can be.
    let channels = [
        (1.0, 10.0, 0.0, 100.0),
        (5.0, 25.0, 0.0, 100.0),
        (10.0, 50.0, 20.0, 99.0),
        (0.5, 50.0, 0.0, 100.0),
        (50.0, 50.0, 50.0, 90.0),
    ];
    for (p, r, h, k) in channels {
        let config = Config {
            gilbert_p: of(p),
            gilbert_r: of(r),
            gilbert_h: of(h),
            gilbert_k: of(k),
            ..Config::default()
        };
        let bad = p / (p + r);
        let expected = bad * (1.0 - h / 100.0) + (1.0 - bad) * (1.0 - k / 100.0);
        let visits = MILLION as f64 * bad * r / 100.0;
        for seed in 1..=5 {
            let (lost, bursts) = bursts(&config, seed);
            let ratio = lost as f64 / MILLION as f64 / expected;
            // Geometric lengths deviate by their mean at most, and the times between them as well.
            let within = 4.5 * (2.0 / visits).sqrt();
            assert!((ratio - 1.0).abs() < within, "{ratio} +- {within} with {config:?}");
            if (h, k) == (0.0, 100.0) {
                let mean = lost as f64 / bursts.len() as f64;
                let within = 4.5 / (bursts.len() as f64).sqrt();
                assert!((mean * r / 100.0 - 1.0).abs() < within, "{mean} with {config:?}");
                // The lengths are geometric, too: a burst goes on with probability 1 - r.
                let single = bursts.iter().filter(|len| **len == 1).count() as u64;
                let parts = (r * 1e7) as u64;
                assert!(is_binomial(single, bursts.len() as u64, parts), "{single}");
            }
        }
    }
}

/// Bernoulli losses are independent: after a loss, the next is as probable as ever.
#[test]
fn losses_are_independent() {
    let config = Config { loss: probability(100_000_000), ..Config::default() };
    let (lost, bursts) = bursts(&config, 1);
    let again = lost - bursts.len() as u64;
    assert!(is_binomial(again, lost, 100_000_000), "{again} of {lost}");
}
