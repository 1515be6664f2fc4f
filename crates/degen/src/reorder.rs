//! Reordering: packets that are held back until others have passed.

use alloc::collections::VecDeque;
use core::num::NonZeroU32;

use crate::queue::LOOKED_AT;
use crate::{Config, Nanos, Random};

/// How a packet is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// It waits until so many packets have passed.
    pub distance: NonZeroU32,
    /// It waits no longer than this, in nanoseconds.
    pub wait: Nanos,
}

#[derive(Debug)]
struct Reordered<T> {
    packet: T,
    /// Leaves behind the packet of this number.
    behind: u64,
    /// Leaves at this time at the latest.
    until: Nanos,
}

/// Some packets are held back as they arrive, until others have passed. Packets that are held back do not
/// count as passing, and stay in order among themselves.
#[derive(Debug)]
pub struct Reorder<T> {
    random: Random,
    /// Neither `behind` nor `until` is less than that of the packet in front.
    held: VecDeque<Reordered<T>>,
    /// Packets that have passed.
    passed: u64,
    /// When the last of them passed.
    passed_at: Nanos,
}

impl<T> Reorder<T> {
    /// With nothing held.
    pub fn new(seed: u64) -> Self {
        let random = Random::stream(seed, 4);
        Reorder { random, held: VecDeque::new(), passed: 0, passed_at: 0 }
    }

    /// How the packet of this number is held back, if it is.
    pub fn picks(&self, number: u64, config: &Config) -> Option<Hold> {
        let distance = NonZeroU32::new(config.reorder_distance)?;
        let picked = self.random.happens(number, config.reorder);
        picked.then_some(Hold { distance, wait: config.reorder_wait })
    }

    /// A packet arrives at `now`: it passes, and is returned, or is held back. Packets that
    /// [leave](Self::pop) by then must have been taken.
    pub fn pass(&mut self, packet: T, hold: Option<Hold>, now: Nanos) -> Option<T> {
        let Some(Hold { distance, wait }) = hold else {
            self.passed += 1;
            self.passed_at = now;
            return Some(packet);
        };
        let behind = self.passed + u64::from(distance.get());
        let until = now.saturating_add(wait);
        // Where the settings have become smaller, those in front leave with it at the latest.
        for held in self.held.iter_mut().rev() {
            if held.behind <= behind && held.until <= until {
                break;
            }
            held.behind = held.behind.min(behind);
            held.until = held.until.min(until);
        }
        self.held.push_back(Reordered { packet, behind, until });
        None
    }

    /// The next packet that enough others have passed, or that has waited for long enough, by `now`; and when
    /// that was.
    pub fn pop(&mut self, now: Nanos) -> Option<(T, Nanos)> {
        let at = self.next_deadline().filter(|at| *at <= now)?;
        Some((self.take()?, at))
    }

    /// When the next packet leaves at the latest; `None` if none is held.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let next = self.held.front()?;
        Some(if next.behind <= self.passed { self.passed_at } else { next.until })
    }

    /// Takes out a packet whatever the time, to give it back.
    pub fn take(&mut self) -> Option<T> {
        self.held.pop_front().map(|held| held.packet)
    }

    /// Panics in a debug build if a packet would leave before one in front of it; it checks some of them.
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let first = self.held.iter().take(LOOKED_AT);
            debug_assert!(first.clone().is_sorted_by_key(|held| held.behind), "by packets");
            debug_assert!(first.is_sorted_by_key(|held| held.until), "by time");
        }
    }

    /// Packets held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}
