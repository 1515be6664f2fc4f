//! Input of a run: settings, a schedule and arrivals, made of any bytes. The fuzz target has it from here,
//! too.

use degen::keys::{KEYS, Key};
use degen::{Change, Config, Nanos, Schedule, Step};
use testkit::bytes::Bytes;
use testkit::packet::PacketBuilder;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// One run.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) config: Config,
    pub(crate) schedule: Schedule,
    pub(crate) began: Nanos,
    pub(crate) seed: u64,
    /// There is no memory for every second copy.
    pub(crate) scarce: bool,
    pub(crate) arrivals: Vec<Arrival>,
}

/// A packet and when it comes.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at: Nanos,
    pub(crate) bytes: Vec<u8>,
}

impl Given {
    /// Any bytes give a run; behind their end are zeros.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut bytes = Bytes(bytes);
        let seed = bytes.next().into();
        let scarce = bytes.next() % 8 == 7;
        let mut config = Config::default();
        let chosen = u32::from_le_bytes([bytes.next(), bytes.next(), bytes.next(), 0]);
        for (at, key) in KEYS.iter().enumerate() {
            if chosen >> at & 1 == 1 {
                key.set(&mut config, value(key, &mut bytes));
            }
        }
        let schedule = schedule(&mut bytes);
        let began = bytes.pick(&[0, 0, 1, 3 * MS]);
        let mut arrivals = Vec::new();
        let mut at = 0;
        while arrivals.len() < 200 && !bytes.0.is_empty() {
            at += gap(&mut bytes);
            arrivals.push(Arrival { at, bytes: packet(&mut bytes) });
        }
        Given { config, schedule, began, seed, scarce, arrivals }
    }

    /// Every value that a setting has at any time.
    pub(crate) fn all(&self, of: impl Fn(&Config) -> u64) -> Vec<u64> {
        let mut config = self.config.clone();
        let mut values = vec![of(&config)];
        let changes = self.schedule.steps().iter().flat_map(|step| &step.changes);
        changes.for_each(|change| {
            change.apply(&mut config);
            values.push(of(&config));
        });
        values
    }

    /// When everything has left, at the latest.
    pub(crate) fn latest(&self) -> Nanos {
        let most = |of: fn(&Config) -> u64| self.all(of).into_iter().max().unwrap_or_default();
        let rates = self.all(|config| config.rate).into_iter();
        let slowest = rates.filter(|rate| *rate > 0).min();
        let last = self.arrivals.last().map_or(0, |last| last.at);
        let bytes = self.arrivals.iter().map(|arrival| arrival.bytes.len() as u64);
        let bytes: u64 = bytes.map(|len| 2 * (len + most(|config| config.overhead.into()))).sum();
        let carried = slowest.map_or(0, |rate| bytes * 8 * 1_000_000_000 / rate + 1);
        // No number drawn is more than 10^6 deviations from the mean, be it Pareto's.
        let in_flight = most(|config| config.delay) + 1_000_000 * most(|config| config.jitter);
        last + carried + in_flight + most(|config| config.reorder_wait)
    }
}

fn gap(bytes: &mut Bytes<'_>) -> Nanos {
    let byte = bytes.next();
    u64::from(byte / 8) * [0, 0, 0, 1, US, 20 * US, 200 * US, 2 * MS][usize::from(byte % 8)]
}

/// A value that the key takes.
fn value(key: &Key, bytes: &mut Bytes<'_>) -> u64 {
    let value = match key.name {
        "delay" | "jitter" | "reorder_wait" => {
            bytes.pick(&[0, 1, 50 * US, MS, 5 * MS, 20 * MS, 12_345_678])
        }
        "codel_target" | "codel_interval" => bytes.pick(&[US, 100 * US, MS, 5 * MS, 100 * MS]),
        "jitter_distribution" => bytes.pick(&[0, 1, 2]),
        "jitter_reorders" | "ecn" | "queue" => bytes.pick(&[0, 1]),
        "reorder_distance" => bytes.pick(&[1, 2, 3, 10, 65_535]),
        "rate" => bytes.pick(&[0, 1_000_000, 12_345_678, 100_000_000, 1_000_000_000_000]),
        "overhead" => bytes.pick(&[0, 24, 1_500]),
        "queue_packets" => bytes.pick(&[0, 1, 2, 10, 1_000]),
        "queue_bytes" => bytes.pick(&[0, 1, 1_514, 5_000, 100_000]),
        _ => bytes.pick(&[0, 10_000_000, 100_000_000, 500_000_000, 1_000_000_000]),
    };
    assert_eq!(key.parse(&key.format(value)), Ok(value), "{}", key.name);
    value
}

fn schedule(bytes: &mut Bytes<'_>) -> Schedule {
    let (mut steps, mut at) = (Vec::new(), 0);
    for _ in 0..bytes.next() % 5 {
        at += gap(bytes);
        let mut change = || {
            let key = bytes.pick(&KEYS.iter().collect::<Vec<_>>());
            Change { key, value: value(key, bytes) }
        };
        steps.push(Step { at, changes: vec![change(), change()] });
    }
    let repeat = match bytes.next() % 3 {
        0 => Some(at + 10 * MS),
        _ => None,
    };
    Schedule::new(steps, repeat).expect("times that grow")
}

fn packet(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let len = bytes.pick(&[0, 1, 14, 20, 60, 200, 1_400, 1_472, 8_972]);
    match bytes.next() % 4 {
        0 => testkit::packet::pattern(len, len),
        1 => PacketBuilder::udp4().tos(0b10).payload_pattern(len).build(),
        2 => PacketBuilder::udp6().tos(0b01).payload_pattern(len).build(),
        _ => PacketBuilder::udp4().payload_pattern(len).build(),
    }
}
