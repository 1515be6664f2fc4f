//! The deadlines of all connections, and what is run when they come.

use super::trace::Due;
use super::{EPOCH, Id, Stack};
use crate::Nanos;
use crate::connection::NEVER;

/// How many places ahead in the line of acknowledgments connections are fetched into the cache.
const ACKS_AHEAD: usize = 8;

impl Stack {
    /// When [`on_time`](Self::on_time) is to be called; it may find that there is nothing to do.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let kept = self.pool.deadline().into_iter();
        self.deadlines.next().into_iter().chain(kept).min().map(|at| at.saturating_sub(EPOCH))
    }

    /// How long ago a segment of a connection has come, and before it how long ago data was sent at most: time that has made
    /// the congestion window smaller does not count.
    pub fn last_moved(&self, id: Id, now: Nanos) -> Option<(Nanos, Nanos)> {
        let connection = self.slots.get(id)?;
        let ago = |at: Nanos| (now + EPOCH).saturating_sub(at);
        Some((ago(connection.last_sent), ago(connection.hot.last_received)))
    }

    /// Runs all timers that are due.
    pub fn on_time(&mut self, now: Nanos) {
        let now = now + EPOCH;
        self.pool.give_back(now);
        while let Some(slot) = self.deadlines.due(now) {
            self.deadlines.remove(slot);
            self.slots.expect_mut(slot).armed = NEVER;
            self.run_timers(slot, now);
        }
        while let Some(slot) = self.deadlines.due_ack(now) {
            if let Some(later) = self.deadlines.ack_ahead(ACKS_AHEAD) {
                self.slots.fetch(later);
            }
            self.on_ack_time(slot, now);
        }
    }

    /// An acknowledgment that was delayed may be due; it may have been sent already.
    fn on_ack_time(&mut self, slot: u32, now: Nanos) {
        let Some(connection) = self.slots.at_mut(slot) else { return };
        if !connection.hot.bits.ack_queued() {
            return;
        }
        connection.hot.bits.set_ack_queued(false);
        if connection.hot.ack_deadline <= now {
            self.run_timers(slot, now);
        } else {
            connection.arm_ack(slot, &mut self.deadlines);
        }
    }

    /// Runs the timers of a connection that are due.
    fn run_timers(&mut self, slot: u32, now: Nanos) {
        let traced = self.with(slot, now, |connection, context| {
            let due = connection.hot.bits.traced().then(|| Due::of(connection, now));
            if connection.deadline() <= now {
                connection.on_time(context);
            } else {
                connection.rest();
            }
            due
        });
        if let Some(due) = traced {
            self.trace_timers(slot, due, now);
        }
        self.settle(slot);
    }
}
