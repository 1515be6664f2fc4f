//! What waits on the wire while the worker works.

use lro::Nanos;

use crate::port::SHORT_QUEUE;

/// Frames of each connection that may wait. A sender whose window is a few segments finds each loss by its timer, and
/// LRO merges no more than what waits.
const OF_EACH: usize = 32;

/// Frames of a backlog that is long.
const LONG: usize = SHORT_QUEUE / 8;

/// The limit falls by one part in so many for each [`LONG`] frames: by half while the wire brings 200,000.
const FALLS: usize = 256;

/// How many frames may wait on the wire. With few connections, more than [`SHORT_QUEUE`] would only be a longer way
/// for all.
#[derive(Debug)]
pub(super) struct QueueLimit(usize);

impl Default for QueueLimit {
    fn default() -> Self {
        QueueLimit(SHORT_QUEUE)
    }
}

impl QueueLimit {
    /// The limit now that so many connections have frames in a long backlog. It rises at once and falls by degrees:
    /// a backlog is not of all connections, and a queue that shrinks drops what the others have in flight.
    pub(super) fn at(&mut self, connections: usize) -> usize {
        let falls = self.0 - self.0 / FALLS;
        self.0 = SHORT_QUEUE.max(OF_EACH * connections).max(falls);
        self.0
    }
}

/// Frames that had arrived already when the worker began to take them. To LRO they are one burst with one time of
/// arrival: a worker that is behind would else give up waiting for segments that lie in the ring.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    arrival: Nanos,
    /// How many more of them may be taken before time goes on.
    left: usize,
    /// How many of them were taken.
    taken: usize,
    /// How many of those [`Backlog::is_long`] has counted.
    seen: usize,
}

impl Backlog {
    /// Before a batch is taken at `now`. A backlog that has ended gives way to what has arrived by then, of which LRO
    /// is to take no more than `most` frames.
    pub(super) fn begin(&mut self, now: Nanos, most: usize) {
        if self.left == 0 {
            *self = Backlog { arrival: now, left: most, ..Backlog::default() };
        }
    }

    /// So many frames were taken; `ends` says that no more wait.
    pub(super) fn take(&mut self, frames: usize, ends: bool) {
        self.left = if ends { 0 } else { self.left.saturating_sub(frames) };
        self.taken += frames;
    }

    /// When what is taken now arrived.
    pub(super) fn arrival(&self) -> Nanos {
        self.arrival
    }

    /// The time that LRO's deadlines have to go by.
    pub(super) fn time(&self, now: Nanos) -> Nanos {
        if self.left == 0 { now } else { self.arrival }
    }

    /// How many frames wait, where the wire does not tell: about as many as were taken of them, while more are left.
    pub(super) fn waiting(&self) -> u32 {
        if self.left == 0 { 0 } else { u32::try_from(self.taken).unwrap_or(u32::MAX) }
    }

    /// Whether so much more of it was taken since this was asked last that the queue may be too short for the
    /// connections that it is of.
    pub(super) fn is_long(&mut self) -> bool {
        let is_long = self.taken - self.seen >= LONG;
        if is_long {
            self.seen = self.taken;
        }
        is_long
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
        assert_eq!((backlog.arrival(), backlog.time(20)), (10, 10));
        backlog.begin(30, 100);
        assert_eq!(backlog.arrival(), 10);
        backlog.take(20, true);
        assert_eq!((backlog.time(40), backlog.is_long()), (40, false));
        backlog.begin(50, 100);
        assert_eq!(backlog.arrival(), 50);
    }

    #[test]
    fn time_goes_on_when_lro_should_hold_no_more() {
        let mut backlog = Backlog::default();
        backlog.begin(10, 100);
        backlog.take(64, false);
        backlog.take(64, false);
        assert_eq!((backlog.arrival(), backlog.time(20)), (10, 20));
        backlog.begin(30, 100);
        assert_eq!(backlog.arrival(), 30);
    }

    #[test]
    fn it_is_long_each_time_that_a_thousand_more_were_taken() {
        let mut backlog = Backlog::default();
        backlog.begin(10, 3 * LONG);
        backlog.take(LONG - 1, false);
        assert!(!backlog.is_long());
        backlog.take(1, false);
        assert!(backlog.is_long());
        assert!(!backlog.is_long());
        backlog.take(LONG, true);
        assert!(backlog.is_long());
        backlog.begin(20, 3 * LONG);
        backlog.take(LONG - 1, true);
        assert!(!backlog.is_long());
    }

    #[test]
    fn the_queue_is_longer_for_many_connections_alone() {
        let mut limit = QueueLimit::default();
        assert_eq!((limit.at(0), limit.at(64), limit.at(1000)), (8192, 8192, 32_000));
        assert_eq!((limit.at(500), limit.at(999)), (31_875, 31_968));
        let last = (0..400).map(|_| limit.at(64)).last();
        assert_eq!(last, Some(8192));
    }
}
