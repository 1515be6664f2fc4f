//! Whether the thread of a process waits awake. It gives way to whatever else wants its CPU meanwhile, which must not be
//! long: what waits awake on a CPU that others keep busy has its turn last, and what sleeps is woken in front of them.

use sys::spin::Spin;
use wire::Nanos;

/// How long the thread may look for work before it sleeps.
const MOST: Nanos = 100_000;
/// Whoever runs for so long, once it is given way to, keeps the CPU busy.
const LONG: Nanos = 50_000;
/// Waits that are then slept through before another is tried awake: so many at first, and twice as many each time.
const SLEEPS: u32 = 64;
const SLEEPS_MAX: u32 = 16_384;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Awake {
    spin: Spin,
    /// Waits that are still to be slept through, and how many it were last.
    left: u32,
    last: u32,
}

impl Awake {
    /// There was work at `now`.
    pub(super) fn worked(&mut self, now: Nanos) {
        if self.left == 0 {
            self.last = self.last.saturating_sub(1);
        }
        self.spin.worked(now, MOST);
    }

    /// Whether there has been no work since it was asked last.
    pub(super) fn is_idle(&self) -> bool {
        self.spin.is_idle()
    }

    /// Whether to look once more at `now`, rather than to sleep.
    pub(super) fn goes_on(&mut self, now: Nanos) -> bool {
        if self.spin.goes_on(now) && self.left == 0 {
            return true;
        }
        self.left = self.left.saturating_sub(1);
        false
    }

    /// It gave way at `from`, and had its turn again at `to`.
    pub(super) fn gave_way(&mut self, from: Nanos, to: Nanos) {
        if to.saturating_sub(from) > LONG {
            self.last = (2 * self.last).clamp(SLEEPS, SLEEPS_MAX);
            self.left = self.last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of so many nanoseconds each, in which others take so much when they are given way to; how many were tried
    /// awake.
    fn tried(waits: u32, wait: Nanos, others: Nanos) -> u32 {
        let (mut awake, mut now, mut tried) = (Awake::default(), 0, 0);
        for _ in 0..waits {
            let end = now + wait;
            if awake.goes_on(now) {
                tried += 1;
                awake.gave_way(now, now + others);
            }
            now = end;
            awake.worked(now);
        }
        tried
    }

    #[test]
    fn work_that_comes_soon_is_waited_for_awake_where_others_need_the_cpu_little() {
        assert!(tried(1_000, 20_000, 5_000) > 950);
        assert_eq!(tried(1_000, 2 * MOST, 5_000), 0);
    }

    #[test]
    fn a_cpu_that_others_keep_busy_is_tried_ever_less() {
        let few = tried(1_000, 20_000, 3_000_000);
        assert!((2..=5).contains(&few), "{few}");
        let few = tried(100_000, 20_000, 3_000_000);
        assert!(few <= 15, "{few}");
    }
}
