//! Settings of one direction.

use crate::Nanos;

/// A probability, in parts of 10^9.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Probability(u32);

impl Probability {
    /// What [`parts`](Self::parts) counts.
    pub const WHOLE: u32 = 1_000_000_000;
    /// It never happens.
    pub const NEVER: Probability = Probability(0);
    /// It always happens.
    pub const ALWAYS: Probability = Probability(Self::WHOLE);

    /// From parts of 10^9; `None` beyond 100 %.
    pub const fn from_parts(parts: u64) -> Option<Self> {
        if parts <= Self::WHOLE as u64 { Some(Probability(parts as u32)) } else { None }
    }

    /// From per cent, rounded; `None` below 0 and beyond 100.
    pub fn percent(percent: f64) -> Option<Self> {
        let within = (0.0..=100.0).contains(&percent);
        within.then(|| Probability(libm::round(percent * 1e7) as u32))
    }

    /// The probability in parts of 10^9.
    pub const fn parts(self) -> u32 {
        self.0
    }
}

/// The distribution of delays around their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Distribution {
    /// Uniform between `delay - jitter` and `delay + jitter`.
    #[default]
    Uniform,
    /// Gaussian, with `jitter` as its standard deviation.
    Normal,
    /// Pareto of shape 3, with `delay` as its mean and `jitter` as its standard deviation: a long tail.
    Pareto,
}

/// The queue discipline: what becomes of packets that wait for the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discipline {
    /// Packets that arrive at a full queue are dropped.
    #[default]
    TailDrop,
    /// Packets are dropped, or marked, so that those after them wait no longer than `codel_target` (RFC
    /// 8289).
    CoDel,
}

/// Settings of one direction. The default passes everything at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// How long a packet is delayed, in nanoseconds.
    pub delay: Nanos,
    /// How much the delay varies, in nanoseconds. No delay is below 0: where this is much of `delay`, the
    /// mean grows.
    pub jitter: Nanos,
    /// The distribution of that variation.
    pub jitter_distribution: Distribution,
    /// Whether a packet with a shorter delay passes those before it. If not, it arrives right behind them.
    pub jitter_reorders: bool,
    /// Probability that a packet is lost, each independently (Bernoulli).
    pub loss: Probability,
    /// Probability at each packet that a Gilbert-Elliott channel changes from good to bad.
    /// [`NEVER`](Probability::NEVER) is a channel that is always good and loses nothing, whatever the next
    /// three are.
    pub gilbert_p: Probability,
    /// Probability at each packet that the channel changes from bad to good.
    pub gilbert_r: Probability,
    /// Probability that a packet passes the bad channel.
    pub gilbert_h: Probability,
    /// Probability that a packet passes the good channel.
    pub gilbert_k: Probability,
    /// Probability that a packet is duplicated.
    pub duplicate: Probability,
    /// Probability that one bit of a packet is inverted.
    pub corrupt: Probability,
    /// Probability that a packet is held back until others have passed it.
    pub reorder: Probability,
    /// How many packets pass it.
    pub reorder_distance: u32,
    /// How long it waits for them at most, in nanoseconds.
    pub reorder_wait: Nanos,
    /// Probability that a packet is marked with congestion experienced (CE, RFC 3168), if its sender allows
    /// it (ECT).
    pub mark: Probability,
    /// Whether packets that `loss`, the Gilbert-Elliott channel or CoDel would drop are marked instead, if
    /// their sender allows it.
    pub ecn: bool,
    /// Rate of the link in bits per second; 0 for no limit. A packet whose transmission has begun keeps the
    /// rate of its beginning, and those behind it wait.
    pub rate: u64,
    /// Bytes that each packet takes on the link beside its own. Ethernet's preamble, FCS and gap are 24.
    pub overhead: u32,
    /// The queue discipline.
    pub queue: Discipline,
    /// Packets that may wait.
    pub queue_packets: u32,
    /// Bytes that may wait; 0 for no bound but that of packets.
    pub queue_bytes: u32,
    /// The wait that CoDel accepts as standing queue, in nanoseconds (RFC 8289 section 4.3).
    pub codel_target: Nanos,
    /// The time over which CoDel looks for the shortest wait, in nanoseconds (RFC 8289 section 4.2).
    pub codel_interval: Nanos,
}

impl Config {
    /// Returns true if a packet is to leave at a time other than that of its arrival.
    pub fn sets_times(&self) -> bool {
        self.delay != 0 || self.jitter != 0 || self.rate != 0
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            delay: 0,
            jitter: 0,
            jitter_distribution: Distribution::Uniform,
            jitter_reorders: true,
            loss: Probability::NEVER,
            gilbert_p: Probability::NEVER,
            gilbert_r: Probability::ALWAYS,
            gilbert_h: Probability::NEVER,
            gilbert_k: Probability::ALWAYS,
            duplicate: Probability::NEVER,
            corrupt: Probability::NEVER,
            reorder: Probability::NEVER,
            reorder_distance: 3,
            reorder_wait: 10_000_000,
            mark: Probability::NEVER,
            ecn: false,
            rate: 0,
            overhead: 0,
            queue: Discipline::TailDrop,
            queue_packets: 1_000,
            queue_bytes: 0,
            codel_target: 5_000_000,
            codel_interval: 100_000_000,
        }
    }
}
