//! Packets that are held back until others have passed.

use degen::reorder::Reorder;
use degen::{Change, Config, Nanos, Probability, Schedule, Step, keys};
use proptest::prelude::*;

use crate::drive::{Out, Polling};
use crate::given::{Arrival, Given};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Packets of one byte at these times.
fn given(config: Config, seed: u64, times: impl IntoIterator<Item = Nanos>) -> Given {
    let arrivals = times.into_iter().map(|at| Arrival { at, bytes: vec![0] }).collect();
    Given { config, seed, arrivals, ..Given::from_bytes(&[]) }
}

/// Times with these gaps.
fn times(gaps: &[Nanos]) -> Vec<Nanos> {
    let sum = |at: &mut Nanos, gap: &Nanos| {
        *at += gap;
        Some(*at)
    };
    gaps.iter().scan(0, sum).collect()
}

fn config(parts: u32, distance: u32, wait: Nanos) -> Config {
    Config {
        reorder: Probability::from_parts(parts.into()).unwrap(),
        reorder_distance: distance,
        reorder_wait: wait,
        delay: MS,
        ..Config::default()
    }
}

/// Which packets are held back, by the element alone.
fn picked(given: &Given) -> Vec<bool> {
    let element = Reorder::<()>::new(given.seed);
    let picks = |n: usize| element.picks(2 * n as u64, &given.config).is_some();
    (0..given.arrivals.len()).map(picks).collect()
}

/// The place of each packet in the order of departures.
fn places(departures: &[Out]) -> Vec<usize> {
    let mut places = vec![0; departures.len()];
    departures.iter().enumerate().for_each(|(place, out)| places[out.packet.number] = place);
    places
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// RFC 4737 counts a packet as reordered if one that was sent later came before it.
    #[test]
    fn exactly_so_many_pass(
        parts in 0..=1_000_000_000_u32,
        distance in 1_u32..20,
        seed: u64,
        gaps in prop::collection::vec(prop_oneof![Just(0), 0..MS], 1..200),
    ) {
        // An hour is longer than the run.
        let given = given(config(parts, distance, 3_600_000 * MS), seed, times(&gaps));
        let outcome = given.run(Polling::AtDeadlines);
        let places = places(&outcome.departures);
        let picked = picked(&given);
        prop_assert_eq!(outcome.counters.reordered, picked.iter().filter(|it| **it).count() as u64);
        for (number, place) in places.iter().enumerate() {
            let behind = number + 1..places.len();
            let passing: Vec<_> = behind.filter(|later| !picked[*later]).collect();
            let passed = passing.iter().filter(|later| places[**later] < *place).count();
            let due = outcome.departures[*place].due;
            let prompt = given.arrivals[number].at + MS;
            if !picked[number] {
                prop_assert_eq!((passed, due), (0, prompt));
            } else if let Some(last) = passing.get(distance as usize - 1) {
                prop_assert_eq!(passed, distance as usize);
                prop_assert_eq!(due, given.arrivals[*last].at + MS, "with the last that passes");
            } else {
                prop_assert_eq!((passed, due), (passing.len(), prompt + 3_600_000 * MS));
            }
        }
    }

    #[test]
    fn no_packet_waits_longer_than_it_may(
        parts in 0..=1_000_000_000_u32,
        distance in 1_u32..20,
        wait in 0..5 * MS,
        seed: u64,
        gaps in prop::collection::vec(prop_oneof![Just(0), 0..MS], 1..200),
    ) {
        let given = given(config(parts, distance, wait), seed, times(&gaps));
        let picked = picked(&given);
        let arrived = |number: usize| given.arrivals[number].at + MS;
        for out in given.run(Polling::AtDeadlines).departures {
            let number = out.packet.number;
            let at = arrived(number);
            let mut passing = (number + 1..picked.len()).filter(|later| !picked[*later]);
            let passed = passing.nth(distance as usize - 1).map_or(Nanos::MAX, arrived);
            let due = if picked[number] { passed.min(at + wait) } else { at };
            prop_assert_eq!(out.due, due);
        }
    }

    /// Where settings change while packets are held, none waits longer or for more than it was to, and those
    /// that are held back stay in order.
    #[test]
    fn no_packet_waits_longer_when_settings_change(
        seed: u64,
        settings in prop::collection::vec((0..40 * MS, 1..30_u64, 0..5 * MS), 1..10),
        gaps in prop::collection::vec(prop_oneof![Just(0), 0..MS], 1..200),
    ) {
        let mut given = given(config(500_000_000, 20, 5 * MS), seed, times(&gaps));
        let mut settings = settings;
        settings.sort_unstable();
        let step = |&(at, distance, wait): &(Nanos, u64, Nanos)| {
            let change = |name, value| Change { key: keys::find(name).unwrap(), value };
            let changes = vec![change("reorder_distance", distance), change("reorder_wait", wait)];
            Step { at, changes }
        };
        given.schedule = Schedule::new(settings.iter().map(step).collect(), None).unwrap();
        let picked = picked(&given);
        let departures = given.run(Polling::AtDeadlines).departures;
        for out in &departures {
            let at = given.arrivals[out.packet.number].at;
            let before = settings.iter().rfind(|(step, ..)| *step <= at);
            let (_, distance, wait) = *before.unwrap_or(&(0, 20, 5 * MS));
            let most = if picked[out.packet.number] { wait } else { 0 };
            prop_assert!((at + MS..=at + MS + most).contains(&out.due));
            let mut passing = (out.packet.number + 1..picked.len()).filter(|later| !picked[*later]);
            if let Some(last) = passing.nth(distance as usize - 1) {
                prop_assert!(out.due <= given.arrivals[last].at + MS, "more than {} pass", distance);
            }
        }
        let held = departures.iter().map(|out| out.packet.number).filter(|number| picked[*number]);
        prop_assert!(held.is_sorted());
    }

    /// However delay and jitter change.
    #[test]
    fn packets_stay_in_order_where_jitter_does_not_reorder(
        delay in 0..5 * MS,
        jitter in 0..10 * MS,
        distribution in 0_u64..3,
        seed: u64,
        settings in prop::collection::vec((0..10 * MS, 0..5 * MS, 0..10 * MS), 0..5),
        gaps in prop::collection::vec(prop_oneof![Just(0), 0..100 * US], 1..200),
    ) {
        let half = Probability::from_parts(500_000_000).unwrap();
        let jitter_reorders = false;
        let mut config = Config { delay, jitter, jitter_reorders, ..Config::default() };
        config.duplicate = half;
        keys::find("jitter_distribution").unwrap().set(&mut config, distribution);
        let mut given = given(config, seed, times(&gaps));
        let mut settings = settings;
        settings.sort_unstable();
        let step = |&(at, delay, jitter): &(Nanos, Nanos, Nanos)| {
            let change = |name, value| Change { key: keys::find(name).unwrap(), value };
            Step { at, changes: vec![change("delay", delay), change("jitter", jitter)] }
        };
        given.schedule = Schedule::new(settings.iter().map(step).collect(), None).unwrap();
        let departures = given.run(Polling::AtDeadlines).departures;
        prop_assert!(departures.is_sorted_by_key(|out| (out.packet.number, out.packet.copy)));
    }
}
