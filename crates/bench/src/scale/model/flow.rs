//! A flow of the model: how many packets it may have in flight.

/// Packets of a congestion window at first (RFC 6928), and at least (RFC 5681, section 3.1).
const INITIAL: f64 = 10.0;
const LEAST: f64 = 2.0;

#[derive(Debug)]
pub(super) struct Flow {
    /// The worker whose queue brings its packets, and whose they are.
    pub(super) queue: usize,
    pub(super) owner: usize,
    pub(super) in_flight: u32,
    /// It waits for the line.
    pub(super) is_ready: bool,
    window: u32,
    cwnd: f64,
    ssthresh: f64,
    /// Until when losses are of the window that was halved.
    recovers: u64,
}

impl Flow {
    pub(super) fn new(queue: usize, owner: usize, window: u32) -> Self {
        let ssthresh = f64::INFINITY;
        Flow {
            queue,
            owner,
            in_flight: 0,
            is_ready: false,
            window,
            cwnd: INITIAL,
            ssthresh,
            recovers: 0,
        }
    }

    /// How many packets it may send.
    pub(super) fn room(&self) -> u32 {
        (self.cwnd as u32).min(self.window).saturating_sub(self.in_flight)
    }

    /// Slow start and congestion avoidance (RFC 5681, section 3.1).
    pub(super) fn acknowledged(&mut self, count: u32) {
        self.in_flight -= count;
        let count = f64::from(count);
        self.cwnd += if self.cwnd < self.ssthresh { count } else { count / self.cwnd };
        self.cwnd = self.cwnd.min(self.window.into());
    }

    /// Half of it once a round trip (RFC 5681, section 3.2). What was lost is sent again in its turn.
    pub(super) fn lost(&mut self, count: u32, now: u64, round_trip: u64) {
        self.in_flight -= count;
        if now >= self.recovers {
            self.ssthresh = (self.cwnd / 2.0).max(LEAST);
            self.cwnd = self.ssthresh;
            self.recovers = now + round_trip;
        }
    }
}
