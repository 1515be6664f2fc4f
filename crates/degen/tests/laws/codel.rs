//! CoDel, against the pseudocode of RFC 8289 section 5 and a simulation of a link, both naive.

use std::collections::VecDeque;

use degen::codel::{CoDel, Verdict};
use degen::{Config, Counters, Degen, Discipline, Frames, Nanos, Random};
use proptest::prelude::*;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A packet that arrives.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Nanos,
    len: usize,
    /// Its sender allows marks.
    ect: bool,
}

/// What became of a packet, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It found the queue full.
    Full,
    Dropped(Nanos),
    /// Its last bit was sent, marked or not.
    Sent(Nanos, bool),
}

/// RFC 8289 section 5, by its names. Where the RFC has no rule, a comment names the choice.
#[derive(Default)]
struct CoDelQueue {
    target: i64,
    interval: i64,
    ecn: bool,
    queue: VecDeque<(usize, i64)>,
    lengths: Vec<usize>,
    first_above_time: i64,
    drop_next: i64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    /// The RFC would have the MTU here; the longest packet so far is that of this link.
    maxpacket: usize,
    fates: Vec<Option<Fate>>,
    ect: Vec<bool>,
}

struct DodequeueResult {
    p: Option<usize>,
    ok_to_drop: bool,
}

impl CoDelQueue {
    fn bytes(&self) -> usize {
        self.queue.iter().map(|(number, _)| self.lengths[*number]).sum()
    }

    fn enqueue(&mut self, number: usize, clock: i64) {
        self.maxpacket = self.maxpacket.max(self.lengths[number]);
        self.queue.push_back((number, clock));
    }

    fn control_law(&self, t: i64, count: u32) -> i64 {
        t + (self.interval as f64 / f64::from(count).sqrt()) as i64
    }

    fn dodequeue(&mut self, now: i64) -> DodequeueResult {
        let Some((number, tstamp)) = self.queue.pop_front() else {
            self.first_above_time = 0;
            return DodequeueResult { p: None, ok_to_drop: false };
        };
        let mut r = DodequeueResult { p: Some(number), ok_to_drop: false };
        let sojourn_time = now - tstamp;
        if sojourn_time < self.target || self.bytes() <= self.maxpacket {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + self.interval;
        } else if now >= self.first_above_time {
            r.ok_to_drop = true;
        }
        r
    }

    /// Drops the packet; or marks it, as Linux does where it may.
    fn is_marked_or_dropped(&mut self, p: Option<usize>, now: i64) -> bool {
        let number = p.expect("nothing to drop");
        let marked = self.ecn && self.ect[number];
        if !marked {
            self.fates[number] = Some(Fate::Dropped(now as Nanos));
        }
        marked
    }

    /// The packet to send, and whether it is marked.
    fn dequeue(&mut self, now: i64) -> (Option<usize>, bool) {
        let mut r = self.dodequeue(now);
        if self.dropping {
            if !r.ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                let marked = self.is_marked_or_dropped(r.p, now);
                self.count += 1;
                if marked {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                    return (r.p, true);
                }
                r = self.dodequeue(now);
                if !r.ok_to_drop {
                    self.dropping = false;
                } else {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                }
            }
        } else if r.ok_to_drop {
            let marked = self.is_marked_or_dropped(r.p, now);
            if !marked {
                r = self.dodequeue(now);
            }
            self.dropping = true;
            let delta = self.count - self.lastcount;
            self.count = 1;
            if delta > 1 && now - self.drop_next < 16 * self.interval {
                self.count = delta;
            }
            self.drop_next = self.control_law(now, self.count);
            self.lastcount = self.count;
            return (r.p, marked);
        }
        (r.p, false)
    }
}

/// A link that takes the next packet whenever it is free.
struct Link {
    codel: CoDelQueue,
    rate: u64,
    /// `None` when it is idle.
    free_at: Option<Nanos>,
    busy_since: Nanos,
    bits: u128,
    /// When it became free last.
    was_free_at: Nanos,
}

impl Link {
    fn take_next(&mut self, now: Nanos) {
        self.free_at = None;
        let (Some(number), marked) = self.codel.dequeue(now as i64) else { return };
        if now > self.was_free_at {
            (self.busy_since, self.bits) = (now, 0);
        }
        self.bits += 8 * self.codel.lengths[number] as u128;
        let sent = self.busy_since + (self.bits * 1_000_000_000 / u128::from(self.rate)) as Nanos;
        (self.free_at, self.was_free_at) = (Some(sent), sent);
        self.codel.fates[number] = Some(Fate::Sent(sent, marked));
    }
}

fn by_the_rfc(config: &Config, arrivals: &[Arrival]) -> Vec<Fate> {
    let codel = CoDelQueue {
        target: config.codel_target as i64,
        interval: config.codel_interval as i64,
        ecn: config.ecn,
        lengths: arrivals.iter().map(|arrival| arrival.len).collect(),
        ect: arrivals.iter().map(|arrival| arrival.ect).collect(),
        fates: vec![None; arrivals.len()],
        ..CoDelQueue::default()
    };
    let rate = config.rate;
    let mut link = Link { codel, rate, free_at: None, busy_since: 0, bits: 0, was_free_at: 0 };
    for (number, arrival) in arrivals.iter().enumerate() {
        while let Some(free_at) = link.free_at.filter(|at| *at <= arrival.at) {
            link.take_next(free_at);
        }
        // A full queue drops as any does, which CoDel does not count (section 5.4).
        if link.free_at.is_some() && link.codel.queue.len() >= config.queue_packets as usize {
            link.codel.fates[number] = Some(Fate::Full);
            continue;
        }
        link.codel.enqueue(number, arrival.at as i64);
        if link.free_at.is_none() {
            link.take_next(arrival.at);
        }
    }
    while let Some(free_at) = link.free_at {
        link.take_next(free_at);
    }
    link.codel.fates.into_iter().map(|fate| fate.expect("no fate")).collect()
}

/// Frames that know their numbers, and where those go that are dropped.
#[derive(Default)]
struct Memory {
    discarded: Vec<usize>,
}

type Frame = (usize, Vec<u8>);

impl Frames<Frame> for Memory {
    fn bytes_mut<'a>(&'a mut self, packet: &'a mut Frame) -> &'a mut [u8] {
        &mut packet.1
    }

    fn copy(&mut self, _: &Frame) -> Option<Frame> {
        None
    }

    fn discard(&mut self, packet: Frame) {
        self.discarded.push(packet.0);
    }
}

const TOS: usize = 15;

fn frame(arrival: &Arrival) -> Vec<u8> {
    let mut frame = vec![0; arrival.len];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[TOS] = if arrival.ect { 0b10 } else { 0 };
    frame[16..18].copy_from_slice(&(arrival.len as u16 - 14).to_be_bytes());
    frame
}

fn by_degen(config: &Config, arrivals: &[Arrival]) -> (Vec<Fate>, Counters) {
    let (mut way, mut memory) = (Degen::new(config.clone(), 1), Memory::default());
    let mut fates = vec![Fate::Full; arrivals.len()];
    for (number, arrival) in arrivals.iter().enumerate() {
        poll(&mut way, &mut memory, &mut fates, arrival.at);
        way.arrive((number, frame(arrival)), arrival.at, &mut memory);
        let full = memory.discarded.drain(..).collect::<Vec<_>>();
        assert!(full.iter().all(|one| *one == number), "{full:?} dropped with {number}");
    }
    poll(&mut way, &mut memory, &mut fates, Nanos::MAX);
    (fates, *way.counters())
}

fn poll(way: &mut Degen<Frame>, memory: &mut Memory, fates: &mut [Fate], until: Nanos) {
    while let Some(at) = way.next_deadline().filter(|at| *at <= until) {
        while let Some(out) = way.depart(at, memory) {
            let (number, bytes) = out.packet;
            fates[number] = Fate::Sent(out.due, bytes[TOS] & 0b11 == 0b11);
        }
        memory.discarded.drain(..).for_each(|number| fates[number] = Fate::Dropped(at));
    }
}

/// Times of more and of less than the link carries, a few hundred packets each.
fn arrivals(seed: u64, rate: u64, loads: &[(u64, usize)], ect: u64) -> Vec<Arrival> {
    let mut random = Random::new(seed);
    let mut arrivals = Vec::new();
    let mut at = 0;
    for &(load, packets) in loads {
        // At a load of 10 the link carries just what comes: 800 bytes each.
        let mean = 8 * 800 * 1_000_000_000 / rate * 10 / load.max(1);
        for _ in 0..packets {
            let number = random.next();
            // Bursts, and gaps of up to twice their share.
            at += if number & 3 == 0 { 0 } else { (number >> 8) % (mean * 8 / 3 + 1) };
            let len = 100 + (number >> 2 & 0x7ff) as usize % 1_400;
            arrivals.push(Arrival { at, len, ect: random.next() % 10 < ect });
        }
    }
    arrivals
}

fn config(rate: u64, target: Nanos, interval: Nanos, queue_packets: u32, ecn: bool) -> Config {
    Config {
        rate,
        queue: Discipline::CoDel,
        codel_target: target,
        codel_interval: interval,
        queue_packets,
        ecn,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_same_packets_are_dropped_at_the_same_times(
        seed: u64,
        rate in prop_oneof![100_000_u64..10_000_000, 10_000_000..1_000_000_000_u64],
        target in prop_oneof![US..100 * US, 100 * US..10 * MS],
        interval in prop_oneof![US..100 * US, MS..100 * MS],
        queue_packets in prop_oneof![Just(1_000), 5..50_u32],
        ecn: bool,
        loads in prop::collection::vec((1..40_u64, 1..200_usize), 1..10),
        ect in 0..=10_u64,
    ) {
        let config = config(rate, target, interval, queue_packets, ecn);
        let arrivals = arrivals(seed, rate, &loads, ect);
        let (fates, counters) = by_degen(&config, &arrivals);
        prop_assert_eq!(&fates, &by_the_rfc(&config, &arrivals));
        let count = |which: fn(&Fate) -> bool| fates.iter().filter(|fate| which(fate)).count() as u64;
        prop_assert_eq!(counters.codel_dropped, count(|fate| matches!(fate, Fate::Dropped(_))));
        prop_assert_eq!(counters.queue_full, count(|fate| *fate == Fate::Full));
        prop_assert_eq!(counters.marked, count(|fate| matches!(fate, Fate::Sent(_, true))));
    }
}

/// The default values, a link of 10 Mbit/s and twice its capacity for ten seconds: the wait comes down, which
/// it does not without CoDel.
#[test]
fn a_standing_queue_is_drained() {
    let arrivals = arrivals(1, 10_000_000, &[(20, 30_000)], 0);
    let codel = config(10_000_000, 5 * MS, 100 * MS, 100_000, false);
    let (fates, counters) = by_degen(&codel, &arrivals);
    assert_eq!(fates, by_the_rfc(&codel, &arrivals));
    assert!(counters.codel_dropped > 500, "{counters:?}");
    let wait = |(fate, arrival): (&Fate, &Arrival)| match fate {
        Fate::Sent(at, _) => Some(at - arrival.at),
        _ => None,
    };
    let longest = fates.iter().zip(&arrivals).filter_map(wait).max().unwrap();
    let tail_drop = Config { queue: Discipline::TailDrop, ..codel };
    let (fates, _) = by_degen(&tail_drop, &arrivals);
    let without = fates.iter().zip(&arrivals).filter_map(wait).max().unwrap();
    assert!(longest < without, "{longest} against {without}");
}

/// All packets of a sender that allows marks arrive, and as many are marked as would have been dropped: at
/// least one each interval.
#[test]
fn marks_take_the_place_of_drops() {
    let arrivals = arrivals(1, 10_000_000, &[(20, 3_000)], 10);
    let config = config(10_000_000, 5 * MS, 100 * MS, 100_000, true);
    let (_, counters) = by_degen(&config, &arrivals);
    assert_eq!((counters.codel_dropped, counters.departed), (0, 3_000));
    let seconds = 3_000 * 800 * 8 / 10_000_000;
    assert!(counters.marked > 10 * seconds, "{counters:?}");
}

/// CoDel that was off begins anew: when it is on again, the wait must exceed the target for an interval
/// again.
#[test]
fn codel_begins_anew_when_it_was_off() {
    let find = |name| degen::keys::find(name).unwrap();
    let arrivals = arrivals(1, 10_000_000, &[(20, 400)], 0);
    let config = config(10_000_000, 5 * MS, 100 * MS, 100_000, false);
    let (mut way, mut memory) = (Degen::new(config, 1), Memory::default());
    let queue = |value| degen::Change { key: find("queue"), value };
    let step = |at, value| degen::Step { at: at * MS, changes: vec![queue(value)] };
    // The wait is too long from about 10 ms on, and would be seen to be so by 110 ms.
    let steps = vec![step(90, 0), step(100, 1)];
    way.begin(degen::Schedule::new(steps, None).unwrap(), 0);
    for (number, arrival) in arrivals.iter().enumerate() {
        way.arrive((number, frame(arrival)), arrival.at, &mut memory);
    }
    while way.depart(199 * MS, &mut memory).is_some() {}
    assert!(memory.discarded.is_empty());
    while way.depart(202 * MS, &mut memory).is_some() {}
    assert_eq!(memory.discarded.len(), 1);
}

/// A mark moves the next one at once, though the queue is short after it: that decides how long ago the
/// marking ended, by which the next time begins where this one left off.
#[test]
fn a_mark_schedules_the_next() {
    let config = config(1_000_000, 5 * MS, 100 * MS, 1_000, true);
    let mut codel = CoDel::default();
    let dropped = |codel: &mut CoDel, wait, at: Nanos| {
        let verdict = codel.decide(wait, 10_000, at, &config);
        if verdict == Verdict::Drop {
            codel.marked(&config);
        }
        verdict == Verdict::Drop
    };
    let long = 6 * MS;
    // Too long from 0 to 400 ms: marked at 100 ms, and then at shorter and shorter intervals.
    let marked: Vec<_> = (0..=400).filter(|at| dropped(&mut codel, long, at * MS)).collect();
    assert_eq!(marked, [100, 200, 271, 329, 379]);
    // The next would have been at 423 ms. Until 16 intervals after that, what worked is taken up.
    assert!(!dropped(&mut codel, 0, 401 * MS));
    let again = (423 + 1_600 - 101..).filter(|at| dropped(&mut codel, long, at * MS));
    let again: Vec<_> = again.take(2).collect();
    assert_eq!(again, [2_022, 2_072]);
}
