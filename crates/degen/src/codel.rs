//! CoDel (RFC 8289), which loses packets when the shortest wait of an interval is over a target.

use crate::{Config, Nanos};

/// What is to become of a packet that has waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is sent.
    Sent,
    /// It is lost, or marked.
    Condemned,
}

/// The state of RFC 8289 section 5.2, with its names.
#[derive(Clone, Debug, Default)]
pub struct CoDel {
    /// When the wait, if it stays over the target, will have been so for an interval.
    first_above_time: Option<Nanos>,
    /// Time of the next drop, while dropping.
    drop_next: Nanos,
    /// Drops since dropping began.
    count: u32,
    /// What `count` was when dropping began.
    lastcount: u32,
    dropping: bool,
    /// A packet was condemned, and `drop_next` is of before.
    dropped: bool,
    /// The longest packet that was seen, in bytes.
    maxpacket: usize,
}

impl CoDel {
    /// A packet of `len` bytes has joined the queue.
    pub fn saw(&mut self, len: usize) {
        self.maxpacket = self.maxpacket.max(len);
    }

    /// A packet is at the head of the queue at `now`; it has waited for `sojourn`, and `left` bytes wait
    /// behind it. This is the body of `deque` (section 5.5), a packet at a time.
    pub fn judge(&mut self, sojourn: Nanos, left: u64, now: Nanos, config: &Config) -> Verdict {
        let ok_to_drop = self.ok_to_drop(sojourn, left, now, config);
        let dropped = core::mem::take(&mut self.dropped);
        if !self.dropping {
            if ok_to_drop {
                self.start_dropping(now, config);
                return Verdict::Condemned;
            }
            return Verdict::Sent;
        }
        if !ok_to_drop {
            self.dropping = false;
            return Verdict::Sent;
        }
        if dropped {
            self.schedule_next(config);
        }
        if now < self.drop_next {
            return Verdict::Sent;
        }
        self.count = self.count.saturating_add(1);
        self.dropped = true;
        Verdict::Condemned
    }

    /// The packet that was condemned is marked instead: the next drop is that of a later time, whatever
    /// becomes of the packets behind it (as Linux's `codel_dequeue` has it; the RFC says nothing).
    pub fn spared(&mut self, config: &Config) {
        if core::mem::take(&mut self.dropped) {
            self.schedule_next(config);
        }
    }

    /// No packet is judged for a while: it begins anew, but for the rate of drops that worked.
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
        // Where dropping ended a short while ago it goes on at the rate that worked then.
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
