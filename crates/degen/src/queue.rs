//! A link with a rate, and the queue in front of it.

use alloc::collections::VecDeque;

use crate::codel::{CoDel, Verdict};
use crate::{Config, Discipline, Nanos};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Packets that debug builds check, of however many there are.
pub(crate) const LOOKED_AT: usize = 16;

/// A packet that waits.
#[derive(Debug)]
struct Waiting<T> {
    packet: T,
    len: usize,
    since: Nanos,
}

/// What leaves a queue.
#[derive(Debug, PartialEq, Eq)]
pub enum Left<T> {
    /// The link has carried it.
    Sent {
        /// The packet.
        packet: T,
        /// When its last bit left.
        at: Nanos,
    },
    /// CoDel is to drop it; [`Queue::marked`] is called if it is marked instead.
    Drop {
        /// The packet.
        packet: T,
        /// Its length in bytes.
        len: usize,
        /// When its turn came.
        at: Nanos,
    },
}

/// Packets wait in order until the link is free. Times are computed, not observed: what becomes of a packet
/// does not depend on when the queue is polled.
#[derive(Debug)]
pub struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: u64,
    /// When the last bit of the last packet leaves.
    free_at: Nanos,
    /// What `free_at` was rounded down by, in nanoseconds divided by the rate.
    remainder: u64,
    /// The rate that `remainder` is of.
    rate: u64,
    codel: CoDel,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Queue {
            waiting: VecDeque::new(),
            bytes: 0,
            free_at: 0,
            remainder: 0,
            rate: 0,
            codel: CoDel::default(),
        }
    }
}

impl<T> Queue<T> {
    /// Whether a packet of `len` bytes is sent at once, without [`push`](Self::push) and [`pop`](Self::pop).
    pub fn passes(&mut self, len: usize, now: Nanos, config: &Config) -> bool {
        let passes = config.rate == 0 && self.waiting.is_empty() && self.free_at <= now;
        if passes {
            self.codel.saw(len);
            self.codel.rest();
        }
        passes
    }

    /// Puts a packet of `len` bytes at the end. Packets that leave by `now` must have been
    /// [popped](Self::pop).
    ///
    /// # Errors
    /// The packet itself, if the queue is full.
    pub fn push(&mut self, packet: T, len: usize, now: Nanos, config: &Config) -> Result<(), T> {
        // A packet that the link takes at once does not wait.
        let waits = !self.waiting.is_empty() || self.free_at > now;
        let packets_full = self.waiting.len() >= config.queue_packets as usize;
        let bytes_full =
            config.queue_bytes > 0 && self.bytes + len as u64 > u64::from(config.queue_bytes);
        if waits && (packets_full || bytes_full) {
            return Err(packet);
        }
        self.bytes += len as u64;
        self.codel.saw(len);
        self.waiting.push_back(Waiting { packet, len, since: now });
        Ok(())
    }

    /// When the link takes the next packet; `None` if none waits.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.waiting.front().map(|first| self.free_at.max(first.since))
    }

    /// What leaves next, if the link takes it by `now`.
    #[inline]
    pub fn pop(&mut self, now: Nanos, config: &Config) -> Option<Left<T>> {
        let at = self.next_deadline().filter(|at| *at <= now)?;
        let Waiting { packet, len, since } = self.waiting.pop_front()?;
        self.bytes -= len as u64;
        if config.rate == 0 || config.queue != Discipline::CoDel {
            self.codel.rest();
        } else if self.codel.decide(at - since, self.bytes, at, config) == Verdict::Drop {
            return Some(Left::Drop { packet, len, at });
        }
        Some(Left::Sent { packet, at: self.occupy(at, len, config) })
    }

    /// A packet that was to be dropped is marked instead, and sent. Returns when its last bit leaves.
    pub fn marked(&mut self, len: usize, at: Nanos, config: &Config) -> Nanos {
        self.codel.marked(config);
        self.occupy(at, len, config)
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes out a packet whatever the time, to give it back.
    pub fn take(&mut self) -> Option<T> {
        let first = self.waiting.pop_front()?;
        self.bytes -= first.len as u64;
        Some(first.packet)
    }

    /// Panics in a debug build if packets or their bytes are not those counted; it checks some of them.
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let first = self.waiting.iter().take(LOOKED_AT);
            let bytes: u64 = first.clone().map(|waiting| waiting.len as u64).sum();
            debug_assert!(bytes <= self.bytes, "{bytes} bytes wait of {}", self.bytes);
            let all = self.waiting.len() <= LOOKED_AT;
            debug_assert!(!all || bytes == self.bytes, "{bytes} bytes wait, not {}", self.bytes);
            debug_assert!(first.is_sorted_by_key(|waiting| waiting.since), "not first come first");
        }
    }

    /// Until when the link is busy with so many bytes from `at` on.
    fn occupy(&mut self, at: Nanos, len: usize, config: &Config) -> Nanos {
        if config.rate == 0 {
            self.free_at = at;
            return at;
        }
        // The remainder of the last packet counts while the link is not idle, so that rounding does not
        // change the rate.
        if at > self.free_at || self.rate != config.rate {
            self.remainder = 0;
        }
        let bits = (len as u64 + u64::from(config.overhead)) * 8;
        let time = u128::from(bits) * u128::from(NANOS_PER_SECOND) + u128::from(self.remainder);
        self.rate = config.rate;
        self.remainder = (time % u128::from(config.rate)) as u64;
        let whole = u64::try_from(time / u128::from(config.rate)).unwrap_or(u64::MAX);
        self.free_at = at.saturating_add(whole);
        self.free_at
    }
}
