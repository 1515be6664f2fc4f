//! Packets that others pass.

use alloc::collections::VecDeque;

use crate::{Config, Nanos, Random};

#[derive(Debug)]
struct Held<T> {
    packet: T,
    /// Leaves behind the packet of this number.
    behind: u64,
    /// Leaves then at the latest.
    until: Nanos,
}

/// Some packets, as they arrive, step aside until others have passed. Those that step aside do not
/// count as passing.
#[derive(Debug)]
pub struct Reorder<T> {
    random: Random,
    held: VecDeque<Held<T>>,
    /// Packets that have gone by.
    passed: u64,
}

impl<T> Reorder<T> {
    /// With nothing held.
    pub fn new(seed: u64) -> Self {
        Reorder { random: Random::stream(seed, 4), held: VecDeque::new(), passed: 0 }
    }

    /// A packet arrives at `now`: it goes by, or steps aside.
    pub fn pass(&mut self, packet: T, now: Nanos, config: &Config) -> Option<T> {
        if self.random.happens(config.reorder) && config.reorder_distance > 0 {
            let behind = self.passed + u64::from(config.reorder_distance);
            let until = now.saturating_add(config.reorder_wait);
            self.held.push_back(Held { packet, behind, until });
            return None;
        }
        self.passed += 1;
        Some(packet)
    }

    /// The next that enough have passed.
    pub fn pop_passed(&mut self) -> Option<T> {
        let passed = self.passed;
        Some(self.held.pop_front_if(|held| held.behind <= passed)?.packet)
    }

    /// The next that has waited for long enough by `now`, and when that was.
    pub fn pop_waited(&mut self, now: Nanos) -> Option<(T, Nanos)> {
        let held = self.held.pop_front_if(|held| held.until <= now)?;
        Some((held.packet, held.until))
    }

    /// When the next has waited for long enough; `None` if none waits.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.held.front().map(|held| held.until)
    }

    /// Takes out a packet whatever the time, to give it back.
    pub fn take(&mut self) -> Option<T> {
        self.held.pop_front().map(|held| held.packet)
    }

    /// Packets held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Is none held?
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}
