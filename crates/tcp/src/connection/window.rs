//! The window that we offer: it never shrinks, opens in steps worth a segment, and grows with an
//! application that keeps up (RFC 9293 sections 3.8.6 and 3.8.6.2.2).

use crate::connection::{Connection, Context};
use crate::memory::{Memory, footprint, promise, slack};
use crate::{Nanos, State};

impl Connection {
    /// The window field of the next segment, which then counts as offered.
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
        // A buffer below the unit of the window is announced as one unit, as in Linux (__tcp_select_window):
        // as zero the window would never open again. Memory is set apart for that much (see `promise`).
        let opens = free >= current.saturating_add(step);
        let field = if opens { (free.min(largest) >> shift).max(1) } else { 0 };
        // The edge must not move left (RFC 9293 SHLD-14, RFC 7323 section 2.4): rounded up, it does not.
        // But bytes that are never read must not let it creep beyond the buffer; then it is rounded down
        // (RFC 7323 section 2.4 allows for that), and what the old edge allowed is still taken.
        let up = (current + (1u32 << shift) - 1) >> shift;
        let slack = slack(self.hot.buffer, shift);
        let most = self.hot.buffer.saturating_add(slack).saturating_sub(self.hot.receive.len());
        let kept = if up << shift <= most { up } else { current >> shift };
        let field = field.max(kept).min(65_535);
        self.hot.rcv_edge = self.hot.rcv_nxt + core::cmp::max(field << shift, current);
        field as u16
    }

    /// The application has read: a window update may be worth sending.
    pub(crate) fn after_read(&mut self, context: &mut Context<'_>) {
        if !self.hot.rcv_nxt.before(self.hot.tune_at) {
            self.tune(context);
        }
        if self.hot.bits.tight() {
            self.review_room();
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
        if worth {
            self.acknowledge_now();
        }
    }

    /// Bytes beyond which the buffer does not grow, as no window can announce more.
    fn largest_buffer(&self) -> u32 {
        let most = self.config.receive_buffer_max.min(65_535u32 << self.hot.rcv_shift);
        if self.hot.receive.is_lent() { most.min(self.within_room()) } else { most }
    }

    /// The largest buffer whose window, as it is rounded up, the application has memory for.
    pub(crate) fn within_room(&self) -> u32 {
        self.room.saturating_sub(slack(self.room, self.hot.rcv_shift))
    }

    /// Whether the buffer is as large as what the application has memory for, and not as it may be.
    fn is_bound_by_room(&self) -> bool {
        let is_full = self.hot.receive.is_lent() && self.hot.buffer >= self.within_room();
        is_full
            && self.within_room()
                < self.config.receive_buffer_max.min(65_535u32 << self.hot.rcv_shift)
    }

    /// Doubles the window when a quarter of it came, and was read, within two round trips: it then is ahead
    /// of a sender that doubles what it sends, and has room for what that one sends while a hole is open
    /// (dynamic right-sizing; tcp_rcv_space_adjust in Linux makes it three times what comes in a round trip,
    /// and more while that grows). Where memory is short it grows less, or shrinks: the right edge then
    /// waits where it is, as what was offered stays.
    #[cold]
    fn tune(&mut self, context: &mut Context<'_>) {
        let Context { now, pool, counters, .. } = context;
        let took = now.saturating_sub(self.tune_since);
        let round = if self.rtt.min == 0 { Nanos::MAX } else { 2 * self.rtt.srtt.max(1_000_000) };
        let keeps_up = self.hot.receive.len() <= self.hot.buffer / 4;
        let (buffer, shift) = (self.hot.buffer, self.hot.rcv_shift);
        let smaller = pool.memory.smaller_buffer(buffer, self.config.receive_buffer);
        if smaller < buffer {
            counters.windows_short += 1;
            self.hot.buffer = smaller;
            self.promise(&mut pool.memory);
        } else if took <= round && self.is_bound_by_room() {
            self.wants_room = keeps_up;
        } else if took <= round && buffer < self.largest_buffer() {
            if !keeps_up {
                // What stood behind a hole is still being read: the size is reviewed at the next read.
                return;
            }
            let wanted = buffer.saturating_mul(2).min(self.largest_buffer());
            self.hot.buffer = pool.memory.larger_buffer(buffer, wanted, shift);
            counters.windows_short += u64::from(self.hot.buffer < wanted);
            self.promise(&mut pool.memory);
        }
        self.hot.tune_at = self.hot.rcv_nxt + self.hot.buffer / 4;
        self.tune_since = *now;
    }

    /// Sets memory apart for all that the peer may send within what it was offered, and what of it was
    /// not read; no more than for that once the peer has closed.
    pub(crate) fn promise(&mut self, memory: &mut Memory) {
        let bytes = if self.takes_data() {
            let offered = self.hot.receive.len() + self.offered();
            promise(self.hot.buffer, self.hot.rcv_shift).max(footprint(u64::from(offered)))
        } else {
            self.hot.receive.capacity()
        };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        memory.promised = memory.promised - u64::from(self.promised) + u64::from(bytes);
        self.promised = bytes;
    }

    /// Whether memory is set apart for a peer that will send nothing more.
    #[inline]
    pub(crate) fn has_spare(&self) -> bool {
        !self.takes_data() && self.promised > 0
    }

    /// Bytes that the peer may send.
    fn offered(&self) -> u32 {
        if self.hot.rcv_edge.after(self.hot.rcv_nxt) {
            self.hot.rcv_edge - self.hot.rcv_nxt
        } else {
            0
        }
    }

    /// Whether data of the peer would be taken, now or later.
    #[inline]
    pub(crate) fn takes_data(&self) -> bool {
        let opening = matches!(self.hot.state, State::SynSent | State::SynReceived);
        opening || self.hot.state.may_receive() && !self.hot.bits.released()
    }
}
