//! NewReno (RFC 5681 section 3.1, RFC 6582; appropriate byte counting of RFC 3465 with L = 2).

use super::{Acked, CongestionControl, PRIVATE_WORDS, Window};
use crate::Nanos;

/// Reno's additive increase and multiplicative decrease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewReno {
    /// Bytes acknowledged since the window last grew, in congestion avoidance.
    acked: u32,
}

impl CongestionControl for NewReno {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        if !acked.cwnd_limited {
            return;
        }
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            let room = window.ssthresh - window.cwnd;
            let grown = bytes.min(room);
            window.cwnd = window.cwnd.saturating_add(grown);
            bytes -= grown;
        }
        self.acked = self.acked.saturating_add(bytes);
        while self.acked >= window.cwnd {
            self.acked -= window.cwnd;
            window.cwnd = window.cwnd.saturating_add(window.mss);
        }
    }

    fn on_congestion(&mut self, window: &Window, _in_flight: u32, _now: Nanos) -> u32 {
        self.acked = 0;
        (window.cwnd / 2).max(2 * window.mss)
    }

    fn on_timeout(&mut self, window: &Window, in_flight: u32, now: Nanos) -> u32 {
        self.on_congestion(window, in_flight, now)
    }

    fn undo(&mut self) {
        self.acked = 0;
    }

    fn on_idle(&mut self, _idle: Nanos) {}

    fn private(&self, _now: Nanos) -> [u64; PRIVATE_WORDS] {
        let mut words = [0; PRIVATE_WORDS];
        words[0] = u64::from(self.acked);
        words
    }

    fn restore(&mut self, private: &[u64; PRIVATE_WORDS], _now: Nanos) {
        self.acked = u32::try_from(private[0]).unwrap_or(0);
    }
}
