//! Packets in flight: the delay of the path.

use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Ordering;

use crate::queue::LOOKED_AT;
use crate::{Config, Distribution, Nanos, Random};

/// A packet and when it arrives at the other end.
#[derive(Debug)]
struct InFlight<T> {
    due: Nanos,
    number: u64,
    packet: T,
}

impl<T> InFlight<T> {
    fn key(&self) -> (Nanos, u64) {
        (self.due, self.number)
    }
}

/// The greatest is the one due first, as a heap has the greatest on top.
impl<T> Ord for InFlight<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<T> PartialOrd for InFlight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for InFlight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for InFlight<T> {}

/// Every packet has its own time of arrival, counted from its own time of departure: packets of a burst do
/// not delay each other (`rdma-over-ip` section 3).
#[derive(Debug)]
pub struct Delay<T> {
    random: Random,
    /// Packets that arrive behind all before them.
    in_order: VecDeque<InFlight<T>>,
    /// Packets that overtake others.
    faster: BinaryHeap<InFlight<T>>,
    /// The latest arrival so far.
    last_due: Nanos,
}

impl<T> Delay<T> {
    /// With nothing in flight.
    pub fn new(seed: u64) -> Self {
        Delay {
            random: Random::stream(seed, 5),
            in_order: VecDeque::new(),
            faster: BinaryHeap::new(),
            last_due: 0,
        }
    }

    /// Adds a packet that departs at `departs`. Numbers grow; of packets due at the same time the lower
    /// number arrives first.
    pub fn push(&mut self, packet: T, number: u64, departs: Nanos, config: &Config) {
        let mut due = departs.saturating_add(self.draw(number, config));
        if !config.jitter_reorders {
            due = due.max(self.last_due);
        }
        self.last_due = self.last_due.max(due);
        let packet = InFlight { due, number, packet };
        if self.in_order.back().is_none_or(|last| last.due <= due) {
            self.in_order.push_back(packet);
        } else {
            self.faster.push(packet);
        }
    }

    /// When the next packet arrives; `None` if none is in flight.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let faster = self.faster.peek().map(InFlight::key);
        let in_order = self.in_order.front().map(InFlight::key);
        faster.into_iter().chain(in_order).min().map(|(due, _)| due)
    }

    /// The next packet and its time of arrival, if that is not after `now`.
    pub fn pop(&mut self, now: Nanos) -> Option<(T, Nanos)> {
        self.next_deadline().filter(|due| *due <= now)?;
        self.take()
    }

    /// The next packet and its time of arrival, whatever the time.
    pub fn take(&mut self) -> Option<(T, Nanos)> {
        let faster = match (self.faster.peek(), self.in_order.front()) {
            (Some(faster), Some(next)) => faster.key() < next.key(),
            (faster, _) => faster.is_some(),
        };
        let next = if faster { self.faster.pop() } else { self.in_order.pop_front() };
        next.map(|next| (next.packet, next.due))
    }

    /// Packets in flight.
    pub fn len(&self) -> usize {
        self.in_order.len() + self.faster.len()
    }

    /// Whether none is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Panics in a debug build if packets are not in the order of their arrival; it checks some of them.
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let first = self.in_order.iter().take(LOOKED_AT);
            debug_assert!(first.is_sorted_by_key(|packet| packet.key()), "not in order");
            let due = self.in_order.back().into_iter().chain(self.faster.peek());
            let latest = due.map(|packet| packet.due).max();
            debug_assert!(latest <= Some(self.last_due), "{latest:?} is after the latest");
        }
    }

    /// How long a packet will be delayed.
    fn draw(&self, number: u64, config: &Config) -> Nanos {
        if config.jitter == 0 {
            return config.delay;
        }
        let by = sample(config.jitter_distribution, &self.random, number) * config.jitter as f64;
        // A float that no integer represents becomes the nearest: no delay is below 0.
        (config.delay as f64 + by + 0.5) as Nanos
    }
}

/// A number with mean 0: within 1 if uniform, else with standard deviation 1.
fn sample(distribution: Distribution, random: &Random, number: u64) -> f64 {
    // Each packet has two places.
    let place = number.wrapping_mul(2);
    let one = random.fraction(place);
    match distribution {
        Distribution::Uniform => 2.0 * one - 1.0,
        // Box and Muller, "A note on the generation of random normal deviates" (1958).
        Distribution::Normal => {
            let angle = core::f64::consts::TAU * random.fraction(place + 1);
            libm::sqrt(-2.0 * libm::log(one)) * libm::cos(angle)
        }
        // The quantile of a Pareto distribution of shape 3 and scale 1, whose mean is 3/2 and whose
        // variance is 3/4.
        Distribution::Pareto => (1.0 / libm::cbrt(one) - 1.5) / libm::sqrt(0.75),
    }
}
