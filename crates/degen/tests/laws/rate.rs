//! A link of a rate and its queue, against sums that are done by hand.

use degen::{Config, Degen, Frames, Nanos, Probability};
use proptest::prelude::*;

const US: u64 = 1_000;
const SECOND: u128 = 1_000_000_000;

/// Packets that are a number and a length.
type Packet = (usize, usize);

/// No packet is longer than this.
struct Zeros(Vec<u8>);

impl Zeros {
    fn new() -> Self {
        Zeros(vec![0; 70_000])
    }
}

impl Frames<Packet> for Zeros {
    fn bytes_mut<'a>(&'a mut self, packet: &'a mut Packet) -> &'a mut [u8] {
        &mut self.0[..packet.1]
    }

    fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        Some(*packet)
    }

    fn discard(&mut self, _: Packet) {}
}

/// When each packet is out, in the order of departures.
fn run(config: &Config, arrivals: &[(Nanos, usize)]) -> Vec<(usize, Nanos)> {
    let (mut way, mut memory) = (Degen::new(config.clone(), 1), Zeros::new());
    for (number, (at, len)) in arrivals.iter().enumerate() {
        way.arrive((number, *len), *at, &mut memory);
    }
    let out = std::iter::from_fn(|| way.depart(Nanos::MAX, &mut memory));
    out.map(|out| (out.packet.0, out.due)).collect()
}

/// A link that is never idle carries every bit in its time: not one byte too many or too few, however
/// small a packet's part of a nanosecond is.
#[test]
fn a_rate_is_exact() {
    let lengths = [60, 1_514, 1, 9_014, 66, 0, 65_549, 590];
    let arrivals: Vec<_> = (0..10_000).map(|n| (7 * US, lengths[n % lengths.len()])).collect();
    for rate in [1_000, 56_000, 9_999_999, 1_000_000_000, 25_000_000_001, 100_000_000_000] {
        for overhead in [0, 24] {
            let config = Config { rate, overhead, queue_packets: 1_000_000, ..Config::default() };
            let out = run(&config, &arrivals);
            assert_eq!(out.len(), arrivals.len());
            let mut bits = 0;
            for ((number, due), (_, len)) in out.into_iter().zip(&arrivals) {
                bits += 8 * (*len as u128 + u128::from(overhead));
                let carried = bits * SECOND / u128::from(rate);
                assert_eq!(u128::from(due), 7_000 + carried, "{number} at {rate}");
            }
        }
    }
}

/// A link that carries packets one after the other.
struct Link {
    rate: u64,
    overhead: u32,
    /// When it last began after a rest, and the bits since.
    busy_since: Nanos,
    bits: u128,
    free_at: Nanos,
}

impl Link {
    fn new(config: &Config) -> Self {
        let Config { rate, overhead, .. } = *config;
        Link { rate, overhead, busy_since: 0, bits: 0, free_at: 0 }
    }

    fn carry(&mut self, len: usize, at: Nanos) -> Nanos {
        if at > self.free_at {
            (self.busy_since, self.bits) = (at, 0);
        }
        self.bits += 8 * (len as u128 + u128::from(self.overhead));
        let time = self.bits * SECOND / u128::from(self.rate);
        self.free_at = self.busy_since + time as Nanos;
        self.free_at
    }
}

/// The numbers of packets that find room, and when they are out.
fn tail_drop(config: &Config, arrivals: &[(usize, Nanos, usize)]) -> Vec<(usize, Nanos)> {
    let mut link = Link::new(config);
    let (mut out, mut taken) = (Vec::new(), Vec::new());
    for &(number, at, len) in arrivals {
        let waiting: Vec<usize> =
            taken.iter().filter(|(start, _)| *start > at).map(|(_, len)| *len).collect();
        let bytes = waiting.iter().sum::<usize>() + len;
        let limit = config.queue_bytes as usize;
        let full = waiting.len() >= config.queue_packets as usize || limit > 0 && bytes > limit;
        let waits = link.free_at > at || !waiting.is_empty();
        if waits && full {
            continue;
        }
        let start = at.max(link.free_at);
        taken.push((start, len));
        out.push((number, link.carry(len, start)));
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Which packets are lost and when the others are out: the queue holds as many packets and bytes as
    /// it may, and is first in, first out. Copies count as packets.
    #[test]
    fn a_queue_loses_what_finds_it_full(
        rate in prop_oneof![1_000_u64..1_000_000, 1_000_000..100_000_000_u64],
        overhead in 0_u32..50,
        queue_packets in prop_oneof![0_u32..4, Just(1_000)],
        queue_bytes in prop_oneof![Just(0), 1..10_000_u32],
        doubled: bool,
        load in 1..30_u64,
        packets in prop::collection::vec((prop_oneof![Just(0), 0..100_u64], 0..2_000_usize), 1..150),
    ) {
        let duplicate = if doubled { Probability::ALWAYS } else { Probability::NEVER };
        let config =
            Config { rate, overhead, queue_packets, queue_bytes, duplicate, ..Config::default() };
        // The mean packet takes 1,000 bytes of time, at a load of 10.
        let unit = 8_000_000_000_000 / rate / 50 * 10 / load;
        let mut at = 0;
        let mut arrivals = Vec::new();
        for (gap, len) in packets {
            at += gap * unit;
            arrivals.push((at, len));
        }
        let numbered = arrivals.iter().enumerate().map(|(number, (at, len))| (number, *at, *len));
        let copies = if doubled { 2 } else { 1 };
        let each: Vec<_> = numbered.flat_map(|it| std::iter::repeat_n(it, copies)).collect();
        prop_assert_eq!(run(&config, &arrivals), tail_drop(&config, &each));
    }

    /// A rate that changes holds for what the link takes from then on.
    #[test]
    fn a_new_rate_holds_from_its_time_on(
        rates in prop::collection::vec(1_000_u64..100_000_000, 1..6),
        gap in 1..5_000_u64,
    ) {
        let find = |name| degen::keys::find(name).unwrap();
        let change = |rate| degen::Change { key: find("rate"), value: rate };
        let steps: Vec<_> = rates
            .iter()
            .enumerate()
            .map(|(n, rate)| degen::Step { at: n as u64 * gap * US, changes: vec![change(*rate)] })
            .collect();
        let (mut way, mut memory) = (Degen::new(Config::default(), 1), Zeros::new());
        way.begin(degen::Schedule::new(steps, None).unwrap(), 0);
        (0..200).for_each(|number| way.arrive((number, 1_000), 0, &mut memory));
        let mut free_at = 0;
        while let Some(out) = way.depart(Nanos::MAX, &mut memory) {
            let at = rates.len().min((free_at / (gap * US)) as usize + 1) - 1;
            let exact = free_at as u128 + 8_000 * SECOND / u128::from(rates[at]);
            // A part of a nanosecond may be left of the packet before.
            prop_assert!(u128::from(out.due).abs_diff(exact) <= 1, "{} for {exact}", out.due);
            free_at = out.due;
        }
    }
}
