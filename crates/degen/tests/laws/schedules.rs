//! Changes of settings at given times.

use degen::{
    Change, Config, Degen, Discipline, Heap, Nanos, Probability, Schedule, ScheduleError, Step,
    keys,
};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn change(name: &str, value: u64) -> Change {
    Change { key: keys::find(name).unwrap(), value }
}

fn step(at: Nanos, name: &str, value: u64) -> Step {
    Step { at, changes: vec![change(name, value)] }
}

fn schedule(steps: Vec<Step>, repeat: impl Into<Option<Nanos>>) -> Schedule {
    Schedule::new(steps, repeat.into()).unwrap()
}

/// The times of departure of packets that arrive at these times.
fn out(way: &mut Degen<Vec<u8>>, times: &[Nanos]) -> Vec<Nanos> {
    times.iter().for_each(|at| way.arrive(vec![0; 125], *at, &mut Heap));
    std::iter::from_fn(|| way.depart(Nanos::MAX, &mut Heap)).map(|out| out.due).collect()
}

#[test]
fn a_packet_at_the_time_of_a_step_sees_it() {
    let mut way = Degen::new(Config::default(), 1);
    let steps = vec![step(0, "delay", 3), step(MS, "delay", 7), step(MS, "delay", 8)];
    way.begin(schedule(steps, None), 10 * MS);
    let times = [10 * MS - 1, 10 * MS, 11 * MS - 1, 11 * MS, 12 * MS];
    let expected = [10 * MS - 1, 10 * MS + 3, 11 * MS + 2, 11 * MS + 8, 12 * MS + 8];
    assert_eq!(out(&mut way, &times), expected);
}

/// A packet that waits for the link meets what is in force when the link takes it.
#[test]
fn a_packet_that_is_taken_at_the_time_of_a_step_sees_it() {
    // 125 bytes take 1 ms of 1 Mbit/s.
    let config = Config { rate: 1_000_000, ..Config::default() };
    let mut way = Degen::new(config, 1);
    way.begin(schedule(vec![step(2 * MS, "rate", 2_000_000)], None), 0);
    assert_eq!(out(&mut way, &[0; 4]), [MS, 2 * MS, 2 * MS + MS / 2, 3 * MS]);
    let mut way = Degen::new(Config { rate: 1_000_000, ..Config::default() }, 1);
    way.begin(schedule(vec![step(2 * MS, "delay", 5 * MS)], None), 0);
    assert_eq!(out(&mut way, &[0; 3]), [MS, 2 * MS, 8 * MS]);
}

#[test]
fn a_schedule_begins_again() {
    let mut way = Degen::new(Config { delay: 9, ..Config::default() }, 1);
    way.begin(schedule(vec![step(MS, "delay", 1), step(2 * MS, "delay", 2)], 3 * MS), 0);
    let times: Vec<_> = (0..9).map(|n| n * MS).collect();
    let delays = [9, 1, 2, 2, 1, 2, 2, 1, 2];
    let expected: Vec<_> = times.iter().zip(delays).map(|(at, delay)| at + delay).collect();
    assert_eq!(out(&mut way, &times), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Against all steps written out, however long nothing comes.
    #[test]
    fn rounds_are_as_if_written_out(
        gaps in prop::collection::vec(0..20_u64, 1..6),
        rest in 1..20_u64,
        began in 0..50_u64,
        rate in prop_oneof![Just(0), Just(10_000_000_000_u64)],
        arrivals in prop::collection::vec(prop_oneof![Just(0), 0..300_u64], 1..30),
    ) {
        let (mut at, mut steps) = (0, Vec::new());
        for (n, gap) in gaps.iter().enumerate() {
            at += gap;
            let (name, value) = if n % 2 == 0 { ("delay", 1_000_000) } else { ("overhead", 10) };
            steps.push(step(at, name, value * (n as u64 + 1)));
        }
        let repeat = at + rest;
        let mut times = arrivals;
        times.iter_mut().fold(0, |at, time| {
            *time += at;
            *time
        });
        // No packet takes 200 ns of the link.
        let rounds = 1 + (times[times.len() - 1] + 200 * times.len() as u64) / repeat;
        let shifted = |round: u64| {
            steps.iter().map(move |step| Step { at: step.at + round * repeat, ..step.clone() })
        };
        let written_out: Vec<_> = (0..rounds).flat_map(shifted).collect();
        let config = Config { rate, ..Config::default() };
        let mut way = Degen::new(config.clone(), 1);
        way.begin(schedule(steps.clone(), repeat), began);
        let repeated = out(&mut way, &times);
        let mut way = Degen::new(config, 1);
        way.begin(schedule(written_out, None), began);
        prop_assert_eq!(repeated, out(&mut way, &times));
    }
}

/// A round of a nanosecond, and a year without packets.
#[test]
fn rounds_without_packets_are_skipped() {
    let mut way = Degen::new(Config::default(), 1);
    way.begin(schedule(vec![step(0, "delay", 5)], 1), 0);
    let year = 365 * 86_400 * 1_000 * MS;
    way.arrive(vec![0], year, &mut Heap);
    assert_eq!(way.depart(year + 5, &mut Heap).unwrap().due, year + 5);
    assert_eq!(way.next_deadline(), Some(year + 6));
    assert!(way.depart(Nanos::MAX, &mut Heap).is_none());
}

#[test]
fn a_schedule_takes_the_place_of_another_at_once() {
    let mut way = Degen::new(Config::default(), 1);
    way.begin(schedule(vec![step(0, "delay", 1), step(5, "loss", 1_000_000_000)], None), 0);
    assert_eq!((way.config().delay, way.next_deadline()), (1, Some(5)));
    assert!(way.depart(4, &mut Heap).is_none());
    // What would have been by now is made, though it begins in the past.
    way.begin(schedule(vec![step(1, "delay", 2), step(3, "delay", 3)], None), 2);
    assert_eq!((way.config().delay, way.next_deadline()), (2, Some(5)));
    assert!(way.depart(Nanos::MAX, &mut Heap).is_none());
    let expected = Config { delay: 3, ..Config::default() };
    assert_eq!((way.config(), way.next_deadline()), (&expected, None));
}

#[test]
fn a_change_by_hand_holds_from_the_last_time_on() {
    let config = Config { rate: 1_000_000, delay: MS, ..Config::default() };
    let mut way = Degen::new(config, 1);
    (0..3).for_each(|_| way.arrive(vec![0; 125], 0, &mut Heap));
    assert!(way.depart(MS, &mut Heap).is_none());
    // The first is in flight, the second is being sent, the third waits.
    way.change(change("delay", 10 * MS));
    way.change(change("rate", 2_000_000));
    assert_eq!(out(&mut way, &[]), [2 * MS, 3 * MS, 12 * MS + MS / 2]);
}

#[test]
fn steps_do_not_go_back_in_time() {
    let at = |times: &[Nanos]| times.iter().map(|at| step(*at, "delay", 1)).collect::<Vec<_>>();
    let refused = |times: &[Nanos], repeat| Schedule::new(at(times), repeat).unwrap_err();
    assert_eq!(refused(&[5, 4], None), ScheduleError::GoesBack { step: 1 });
    assert_eq!(refused(&[0, 5, 5, 4, 6], Some(9)), ScheduleError::GoesBack { step: 3 });
    assert_eq!(refused(&[0, 5], Some(5)), ScheduleError::RepeatTooShort);
    assert_eq!(refused(&[5], Some(1)), ScheduleError::RepeatTooShort);
    assert_eq!(refused(&[0], Some(0)), ScheduleError::RepeatTooShort);
    let valid: [(&[Nanos], _); 5] =
        [(&[], None), (&[], Some(1)), (&[0], Some(1)), (&[5, 5], Some(6)), (&[Nanos::MAX], None)];
    for (times, repeat) in valid {
        assert_eq!(Schedule::new(at(times), repeat).unwrap().steps(), at(times));
    }
}

/// Every setting can be changed by a step: none of them needs initialisation.
#[test]
fn every_key_can_change_by_a_schedule() {
    for key in keys::KEYS {
        let mut config = Config { rate: 10_000_000, delay: MS, ..Config::default() };
        config.reorder = Probability::percent(20.0).unwrap();
        config.queue = Discipline::CoDel;
        let mut way = Degen::new(config.clone(), 1);
        let value = key.parse(&key.get(&Config::default())).unwrap();
        way.begin(schedule(vec![step(5 * MS, key.name, value)], None), 0);
        (0..100).for_each(|n| way.arrive(vec![0; 125], n * MS / 10, &mut Heap));
        assert_eq!(out(&mut way, &[]).len() as u64, way.counters().departed);
        key.set(&mut config, value);
        assert_eq!((way.config(), way.held()), (&config, 0));
    }
}
