//! NewReno: slow start and congestion avoidance of RFC 5681 section 3.1 with the byte counting of
//! RFC 3465. What RFC 6582 adds, when recovery ends, is loss recovery's concern.

use super::{Acked, CongestionControl, PRIVATE_WORDS, Window, threshold};
use crate::Nanos;

/// Reno's additive increase and multiplicative decrease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewReno {
    /// Bytes acknowledged since the window last grew, in congestion avoidance (RFC 3465 section
    /// 2.1, `bytes_acked`).
    acked: u32,
    /// `acked` before the last congestion event, which comes back if that was spurious.
    before: u32,
}

impl CongestionControl for NewReno {
    /// RFC 3465's limit L of two segments per acknowledgment in slow start is not kept: receivers
    /// that merge segments acknowledge forty and more at once. Linux keeps none either.
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        if !acked.cwnd_limited {
            return;
        }
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            bytes = window.grow_to_threshold(bytes);
        }
        // At most one segment per round trip (RFC 5681 section 3.1): no more than a window counts.
        self.acked = self.acked.min(window.cwnd).saturating_add(bytes.min(window.cwnd));
        if self.acked >= window.cwnd {
            self.acked -= window.cwnd;
            window.cwnd = window.cwnd.saturating_add(window.mss);
        }
    }

    /// Half of the window (RFC 5681 equation 4). The RFC has half of what is in flight, lest the window
    /// have grown unused; ours does not grow then. Linux does the same.
    fn on_congestion(&mut self, window: &Window, _in_flight: u32, _now: Nanos) -> u32 {
        self.before = self.acked;
        self.acked = 0;
        threshold(window, (1, 2))
    }

    fn on_timeout(&mut self, window: &Window, in_flight: u32, now: Nanos) -> u32 {
        self.on_congestion(window, in_flight, now)
    }

    fn undo(&mut self) {
        self.acked = self.before;
    }

    fn on_idle(&mut self, _idle: Nanos) {}

    fn private(&self, _now: Nanos) -> [u64; PRIVATE_WORDS] {
        let mut words = [0; PRIVATE_WORDS];
        words[0] = u64::from(self.before) << 32 | u64::from(self.acked);
        words
    }

    fn restore(&mut self, private: &[u64; PRIVATE_WORDS], _now: Nanos) {
        self.acked = private[0] as u32;
        self.before = (private[0] >> 32) as u32;
    }
}
