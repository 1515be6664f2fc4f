//! What waits on the wire while the worker works.

use lro::Nanos;

use crate::port::SHORT_QUEUE;

/// Frames of each connection that may wait. A sender whose window is a few segments finds each loss by its timer, and
/// LRO merges no more than what waits.
const OF_EACH: usize = 32;

/// How many frames may wait on the wire when so many connections have some there. With few connections, more than
/// [`SHORT_QUEUE`] would only be a longer way for all.
pub(super) fn queue_limit(connections: usize) -> usize {
    SHORT_QUEUE.max(OF_EACH * connections)
}

/// Frames that had arrived already when the worker began to take them. To LRO they are one burst with one time of
/// arrival: a worker that is behind would else give up waiting for segments that lie in the ring.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    arrival: Nanos,
    /// How many more of them may be taken before time goes on.
    left: usize,
    /// None is left to be taken, but more wait on the wire.
    is_cut: bool,
}

impl Backlog {
    /// Before a batch is taken at `now`. A backlog that has ended gives way to what has arrived by then, of which LRO
    /// is to take no more than `most` frames.
    pub(super) fn begin(&mut self, now: Nanos, most: usize) {
        if self.left == 0 {
            *self = Backlog { arrival: now, left: most, is_cut: false };
        }
    }

    /// So many frames were taken; `ends` says that no more wait.
    pub(super) fn take(&mut self, frames: usize, ends: bool) {
        self.left = if ends { 0 } else { self.left.saturating_sub(frames) };
        self.is_cut = !ends && self.left == 0;
    }

    /// When what is taken now arrived.
    pub(super) fn arrival(&self) -> Nanos {
        self.arrival
    }

    /// The time that LRO's deadlines have to go by.
    pub(super) fn time(&self, now: Nanos) -> Nanos {
        if self.left == 0 { now } else { self.arrival }
    }

    /// Whether it was cut off here, as LRO should hold no more of it.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_when_all_has_been_taken() {
        let mut backlog = Backlog::default();
        backlog.begin(10, 100);
        backlog.take(64, false);
        assert_eq!((backlog.arrival(), backlog.time(20), backlog.is_cut()), (10, 10, false));
        backlog.begin(30, 100);
        assert_eq!(backlog.arrival(), 10);
        backlog.take(20, true);
        assert_eq!((backlog.time(40), backlog.is_cut()), (40, false));
        backlog.begin(50, 100);
        assert_eq!(backlog.arrival(), 50);
    }

    #[test]
    fn time_goes_on_when_lro_should_hold_no_more() {
        let mut backlog = Backlog::default();
        backlog.begin(10, 100);
        backlog.take(64, false);
        backlog.take(64, false);
        assert_eq!((backlog.time(20), backlog.is_cut()), (20, true));
        backlog.begin(30, 100);
        assert_eq!((backlog.arrival(), backlog.is_cut()), (30, false));
    }

    #[test]
    fn the_queue_is_longer_for_many_connections_alone() {
        assert_eq!((queue_limit(0), queue_limit(64), queue_limit(1000)), (8192, 8192, 32_000));
    }
}
