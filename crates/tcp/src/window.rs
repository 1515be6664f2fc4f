//! The window that we offer: it never shrinks, opens in steps worth a segment, and grows with an
//! application that keeps up (RFC 9293 sections 3.8.6 and 3.8.6.2.2).

use crate::connection::{Connection, Context};
use crate::{Nanos, State};

impl Connection {
    /// The window field of the next segment; what it says is remembered as offered.
    #[inline]
    pub(crate) fn offer_window(&mut self) -> u16 {
        if self.hot.state <= State::SynReceived && self.hot.state != State::Closed {
            return self.first_window();
        }
        let current = self.hot.rcv_edge - self.hot.rcv_nxt;
        let free = self.hot.buffer.saturating_sub(self.hot.receive.len());
        let step = (self.hot.buffer / 2).min(u32::from(self.hot.rcv_mss)).max(1);
        let shift = self.hot.rcv_shift;
        let largest = 65_535u32 << shift;
        // RFC 9293 section 3.8.6.2.2: below the step the right edge stays where it is.
        let field =
            if free >= current.saturating_add(step) { free.min(largest) >> shift } else { 0 };
        // The edge must not move left (RFC 9293 SHLD-14, RFC 7323 section 2.4): rounded up, it does not.
        // But bytes that are never read must not let it creep beyond the buffer; then it is rounded down
        // (RFC 7323 section 2.4 allows for that), and what the old edge allowed is still taken.
        let up = (current + (1u32 << shift) - 1) >> shift;
        let slack = (self.hot.buffer / 8).max(1 << shift);
        let most = self.hot.buffer.saturating_add(slack).saturating_sub(self.hot.receive.len());
        let kept = if up << shift <= most { up } else { current >> shift };
        let field = field.max(kept).min(65_535);
        self.hot.rcv_edge = self.hot.rcv_nxt + core::cmp::max(field << shift, current);
        field as u16
    }

    /// The application has read: the window may be worth telling of.
    pub(crate) fn after_read(&mut self, context: &mut Context<'_>) {
        if !self.hot.rcv_nxt.before(self.hot.tune_at) {
            self.tune(context.now);
        }
        if !self.hot.state.may_receive() {
            return;
        }
        let current = self.hot.rcv_edge - self.hot.rcv_nxt;
        let largest = 65_535u32 << self.hot.rcv_shift;
        let free = self.hot.buffer.saturating_sub(self.hot.receive.len()).min(largest);
        let step = (self.hot.buffer / 2).min(u32::from(self.hot.rcv_mss)).max(1);
        // As Linux: when it has doubled. A sender that keeps a window full is woken by the
        // acknowledgments of what it sends before that.
        let worth = free >= current.saturating_mul(2) && free >= current.saturating_add(step);
        if worth && free >> self.hot.rcv_shift > 0 {
            self.acknowledge_now();
        }
    }

    /// The buffer grows no further than the window can tell.
    fn largest_buffer(&self) -> u32 {
        self.config.receive_buffer_max.min(65_535u32 << self.hot.rcv_shift)
    }

    /// Doubles the window when half of it came, and was read, within four round trips: then it was what
    /// bounded the sender (dynamic right-sizing).
    #[cold]
    fn tune(&mut self, now: Nanos) {
        let took = now.saturating_sub(self.tune_since);
        let round = if self.rtt.min == 0 { Nanos::MAX } else { 4 * self.rtt.srtt.max(1_000_000) };
        let keeps_up = self.hot.receive.len() <= self.hot.buffer / 4;
        if took <= round && keeps_up && self.hot.buffer < self.largest_buffer() {
            self.hot.buffer = self.hot.buffer.saturating_mul(2).min(self.largest_buffer());
        }
        self.hot.tune_at = self.hot.rcv_nxt + self.hot.buffer / 2;
        self.tune_since = now;
    }
}
