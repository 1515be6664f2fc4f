//! CoDel (RFC 8289), which drops packets when the shortest wait of an interval exceeds a target.

use crate::{Config, Nanos};

/// Decision about a packet that has waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is to be sent.
    Send,
    /// It is to be dropped, or marked instead.
    Drop,
}

/// The state of RFC 8289 section 5.2, with its names.
#[derive(Clone, Debug, Default)]
pub struct CoDel {
    /// When the wait, if it stays over the target, will have been so for an interval. `None`: it was below.
    first_above_time: Option<Nanos>,
    /// Time of the next drop, while dropping.
    drop_next: Nanos,
    /// Drops since dropping began.
    count: u32,
    /// What `count` was when dropping began.
    lastcount: u32,
    dropping: bool,
    /// The last packet was to be dropped, and `drop_next` is not updated yet.
    dropped: bool,
    /// The longest packet so far, in bytes: it stands for the MTU of the RFC.
    maxpacket: usize,
}

impl CoDel {
    /// A packet of `len` bytes has joined the queue.
    pub fn saw(&mut self, len: usize) {
        self.maxpacket = self.maxpacket.max(len);
    }

    /// Decides about a packet at the head of the queue at `now`, which has waited for `sojourn`, with `left`
    /// bytes behind it. This is the body of `deque` (section 5.5), a packet at a time.
    pub fn decide(&mut self, sojourn: Nanos, left: u64, now: Nanos, config: &Config) -> Verdict {
        let ok_to_drop = self.ok_to_drop(sojourn, left, now, config);
        let dropped = core::mem::take(&mut self.dropped);
        if !self.dropping {
            if ok_to_drop {
                self.start_dropping(now, config);
                return Verdict::Drop;
            }
            return Verdict::Send;
        }
        if !ok_to_drop {
            self.dropping = false;
            return Verdict::Send;
        }
        if dropped {
            self.schedule_next(config);
        }
        if now < self.drop_next {
            return Verdict::Send;
        }
        self.count = self.count.saturating_add(1);
        self.dropped = true;
        Verdict::Drop
    }

    /// The packet that was to be dropped is marked instead, and the next drop is scheduled at once, whatever
    /// becomes of the packets behind it (as in Linux's `codel_dequeue`; the RFC has no rule for it).
    pub fn marked(&mut self, config: &Config) {
        if core::mem::take(&mut self.dropped) {
            self.schedule_next(config);
        }
    }

    /// CoDel is off for a while: it begins anew, but for the rate of drops that worked.
    pub fn rest(&mut self) {
        self.first_above_time = None;
        self.dropping = false;
    }

    /// Whether the wait has been over the target for an interval (`dodequeue`, section 5.6).
    fn ok_to_drop(&mut self, sojourn: Nanos, left: u64, now: Nanos, config: &Config) -> bool {
        if sojourn < config.codel_target || left <= self.maxpacket as u64 {
            self.first_above_time = None;
            return false;
        }
        match self.first_above_time {
            None => {
                self.first_above_time = Some(now.saturating_add(config.codel_interval));
                false
            }
            Some(since) => now >= since,
        }
    }

    fn schedule_next(&mut self, config: &Config) {
        self.drop_next = control_law(self.drop_next, self.count, config);
    }

    fn start_dropping(&mut self, now: Nanos, config: &Config) {
        self.dropping = true;
        // Where dropping ended a short while ago it continues at the rate that worked then.
        let delta = self.count.saturating_sub(self.lastcount);
        let recent = now.saturating_sub(self.drop_next) < 16 * config.codel_interval;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = control_law(now, self.count, config);
        self.lastcount = self.count;
    }
}

/// `t` plus the interval over the square root of `count` (section 5.6).
fn control_law(t: Nanos, count: u32, config: &Config) -> Nanos {
    let step = config.codel_interval as f64 / libm::sqrt(f64::from(count.max(1)));
    t.saturating_add(step as Nanos)
}
