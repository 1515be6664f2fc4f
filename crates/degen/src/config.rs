//! What is to be done to the packets of one direction.

use crate::Nanos;

/// How often something happens: parts of 10^9.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Probability(u32);

impl Probability {
    /// What [`parts`](Self::parts) counts.
    pub const WHOLE: u32 = 1_000_000_000;
    /// It never happens.
    pub const NEVER: Probability = Probability(0);
    /// It always happens.
    pub const ALWAYS: Probability = Probability(Self::WHOLE);

    /// In parts of 10^9; `None` beyond 100 %.
    pub const fn from_parts(parts: u64) -> Option<Self> {
        if parts <= Self::WHOLE as u64 { Some(Probability(parts as u32)) } else { None }
    }

    /// In per cent; `None` below 0 and beyond 100.
    pub fn percent(percent: f64) -> Option<Self> {
        let within = (0.0..=100.0).contains(&percent);
        within.then(|| Probability(libm::round(percent * 1e7) as u32))
    }

    /// In parts of 10^9.
    pub const fn parts(self) -> u32 {
        self.0
    }
}

/// How the delay of packets differs from its mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Distribution {
    /// Anything from `delay - jitter` to `delay + jitter` alike.
    #[default]
    Uniform,
    /// Gaussian, with `jitter` as its standard deviation.
    Normal,
    /// Pareto of shape 3, with `delay` as its mean and `jitter` as its standard deviation: seldom, and
    /// then much later.
    Pareto,
}

/// What becomes of packets that wait for the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discipline {
    /// What finds the queue full is lost.
    #[default]
    TailDrop,
    /// Packets are lost, or marked, so that those after them wait no longer than `codel_target`
    /// (RFC 8289).
    CoDel,
}

/// One direction. The default lets everything through at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// How long a packet is delayed, in nanoseconds.
    pub delay: Nanos,
    /// How much that differs, in nanoseconds. No delay is below 0: where
    /// this is much of `delay`, the mean grows.
    pub jitter: Nanos,
    /// How it differs.
    pub jitter_distribution: Distribution,
    /// A packet with a shorter delay passes those before it. If not, it arrives right
    /// behind them.
    pub jitter_reorders: bool,
    /// Packets lost, each by itself (Bernoulli).
    pub loss: Probability,
    /// Gilbert and Elliott's channel goes from good to bad with this probability at each packet.
    /// [`NEVER`](Probability::NEVER) is a channel that is always good and loses nothing, whatever
    /// the next three say.
    pub gilbert_p: Probability,
    /// From bad to good.
    pub gilbert_r: Probability,
    /// A packet gets through the bad channel.
    pub gilbert_h: Probability,
    /// A packet gets through the good channel.
    pub gilbert_k: Probability,
    /// Packets that come twice.
    pub duplicate: Probability,
    /// Packets of which one bit is turned.
    pub corrupt: Probability,
    /// Packets held back until others have passed them.
    pub reorder: Probability,
    /// How many pass.
    pub reorder_distance: u32,
    /// How long is waited for these at most, in nanoseconds.
    pub reorder_wait: Nanos,
    /// Packets that get the mark of congestion (CE, RFC 3168), of those that may carry it.
    pub mark: Probability,
    /// Where a packet would be lost, by `loss`, Gilbert and Elliott's channel or CoDel, it is marked
    /// instead if it may be.
    pub ecn: bool,
    /// How fast packets leave, in bits per second; 0 for at once. One that has begun to leave goes on at
    /// the rate it began with, and those behind it wait.
    pub rate: u64,
    /// Bytes that each packet takes beside its own, on a link of this rate. Ethernet's preamble, FCS
    /// and gap are 24.
    pub overhead: u32,
    /// What becomes of packets that wait for the rate.
    pub queue: Discipline,
    /// How many may wait.
    pub queue_packets: u32,
    /// How many bytes may wait; 0 for no other bound than that of packets.
    pub queue_bytes: u32,
    /// The wait that CoDel tolerates for long, in nanoseconds (RFC 8289 section 4.3).
    pub codel_target: Nanos,
    /// What CoDel takes for long, in nanoseconds (RFC 8289 section 4.2).
    pub codel_interval: Nanos,
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
