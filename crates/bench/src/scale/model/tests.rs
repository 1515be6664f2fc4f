//! Laws of the model.

use proptest::prelude::*;

use super::*;

const MILLISECOND: u64 = 1_000_000;

fn setup(workers: usize, flows: usize) -> Setup {
    Setup {
        workers,
        flows,
        costs: Costs { packet: 100.0, shared: 20.0, stray: 300.0 },
        strays: 0.0,
        spread: Spread::Even,
        line: f64::INFINITY,
        round_trip: 0,
        window: 32,
        seed: 1,
    }
}

fn rate(setup: Setup) -> f64 {
    run(setup, MILLISECOND, 10 * MILLISECOND).rate
}

fn is_near(found: f64, wanted: f64) -> bool {
    (found / wanted - 1.0).abs() < 0.01
}

#[test]
fn workers_without_a_bound_do_what_their_costs_allow() {
    assert!(is_near(rate(setup(1, 64)), 10e6));
    assert!(is_near(rate(setup(2, 128)), 2e9 / 120.0));
    assert!(is_near(rate(setup(64, 4096)), 64e9 / 120.0));
    // All stray: each costs what all cost, and 300 ns.
    let strays = Setup { strays: 1.0, ..setup(2, 128) };
    assert!(is_near(rate(strays), 2e9 / 420.0), "{}", rate(strays));
}

#[test]
fn a_line_is_filled_and_no_more() {
    let line = Setup { line: 100.0, round_trip: 50_000, window: 1024, ..setup(8, 1024) };
    let most = 100.0 / 8.0 / WIRE_BYTES * 1e9;
    let found = rate(line);
    assert!(found > 0.95 * most && found <= 1.001 * most, "{found} of {most}");
}

#[test]
fn a_hash_leaves_some_workers_with_more() {
    let hashed = Setup { spread: Spread::Hashed, ..setup(64, 64) };
    assert!(rate(hashed) < 0.8 * rate(setup(64, 64)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every packet that was sent is acknowledged, dropped, or in flight, and no worker is busier than it can be.
    #[test]
    fn nothing_is_lost_count_of(
        workers in 1_usize..20,
        flows in 1_usize..200,
        strays in 0.0..1.0_f64,
        line in prop_oneof![Just(f64::INFINITY), 1.0..200.0_f64],
        round_trip in 0_u64..200_000,
        window in 1_u32..2_000,
        hashed: bool,
        seed: u64,
    ) {
        let spread = if hashed { Spread::Hashed } else { Spread::Even };
        let setup = Setup { strays, spread, line, round_trip, window, seed, ..setup(workers, flows) };
        let mut model = Model::new(setup);
        model.until(2 * MILLISECOND);
        let counts = &model.counts;
        // What a sender has not heard of yet is in flight.
        prop_assert!(counts.done + counts.dropped <= counts.sent);
        prop_assert!(counts.sent <= counts.done + counts.dropped + model.in_flight());
        prop_assert!(model.flows.iter().all(|flow| flow.in_flight <= window));
        let outcome = run(setup, MILLISECOND, MILLISECOND);
        prop_assert!(outcome.busy.iter().all(|busy| (0.0..=1.0).contains(busy)));
        prop_assert_eq!(&outcome, &run(setup, MILLISECOND, MILLISECOND));
    }
}
