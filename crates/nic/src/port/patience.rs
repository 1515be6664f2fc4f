//! How long a frame is offered again that is dropped behind the socket.
//!
//! `ENOBUFS` may stand for a full queue, which passes, or for a filter, or a far end with a smaller MTU, that
//! drops this frame however often it is sent. All frames wait behind it, so the time shrinks when a frame was
//! given up, and grows when one was taken.

use lro::Nanos;

/// Nanoseconds; longer than the thread that empties the queue may have to wait for a CPU.
const MOST: Nanos = 10_000_000;
const LEAST: Nanos = 100_000;

/// The time for one frame, the first that waits.
#[derive(Debug)]
pub(super) struct Patience {
    since: Option<Nanos>,
    limit: Nanos,
}

impl Default for Patience {
    fn default() -> Self {
        Patience { since: None, limit: MOST }
    }
}

impl Patience {
    /// The frame was dropped again, at `now`. Returns whether it is to be given up.
    pub(super) fn is_at_its_end(&mut self, now: Nanos) -> bool {
        let since = *self.since.get_or_insert(now);
        let over = now.saturating_sub(since) >= self.limit;
        if over {
            self.since = None;
            self.limit = (self.limit / 2).max(LEAST);
        }
        over
    }

    /// The frame was taken.
    pub(super) fn rewarded(&mut self) {
        if self.since.take().is_some() {
            self.limit = (self.limit * 2).min(MOST);
        }
    }

    /// Whether a frame is being offered again.
    pub(super) fn is_tried(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_is_always_dropped_delays_others_less_each_time() {
        let (mut patience, mut now, mut waited) = (Patience::default(), 0, Vec::new());
        for _ in 0..9 {
            let since = now;
            while !patience.is_at_its_end(now) {
                assert!(patience.is_tried());
                now += 10_000;
            }
            waited.push(now - since);
            patience.rewarded();
        }
        assert_eq!((waited[0], waited[1], waited[8]), (MOST, MOST / 2, LEAST));
        assert!(!patience.is_tried());
    }

    #[test]
    fn a_queue_that_empties_in_time_is_waited_for_as_long_as_before() {
        let mut patience = Patience::default();
        for turn in 0..9 {
            let now = turn * MOST;
            assert!(!patience.is_at_its_end(now) && !patience.is_at_its_end(now + MOST - 1));
            patience.rewarded();
        }
        assert!(!patience.is_at_its_end(9 * MOST) && patience.is_at_its_end(10 * MOST));
    }
}
