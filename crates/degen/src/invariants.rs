//! Invariants of a direction between any two calls. Debug builds check them: tests, simulation and fuzzing
//! run with them. Those of one element are in its own `debug_check`.

use crate::{Degen, Nanos};

impl<T> Degen<T> {
    /// Panics in a debug build if the direction contradicts itself.
    #[inline]
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            self.queue.debug_check();
            self.delay.debug_check();
            self.reorder.debug_check();
            self.check_conservation();
        }
    }

    /// Every packet has departed, was dropped for a reason, was taken back or is held.
    fn check_conservation(&self) {
        let counters = &self.counters;
        let came = counters.arrived + counters.duplicated;
        let dropped = counters.lost + counters.queue_full + counters.codel_dropped;
        let gone = dropped + counters.departed + self.taken_back;
        assert_eq!(came, gone + self.held() as u64, "of {came} packets {gone} have gone");
    }

    /// Packets leave in the order of their times, none before its time.
    #[inline]
    pub(crate) fn debug_check_departure(&self, due: Nanos, now: Nanos) {
        debug_assert!(due >= self.departed_at, "{due} is before {}", self.departed_at);
        debug_assert!(due <= now, "{due} is after {now}");
    }
}
