//! CUBIC (RFC 9438).

use super::{Acked, CongestionControl, NewReno, PRIVATE_WORDS, Window};
use crate::Nanos;

/// CUBIC.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cubic {
    reno: NewReno,
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        self.reno.on_ack(window, acked);
    }

    fn on_congestion(&mut self, window: &Window, in_flight: u32, now: Nanos) -> u32 {
        self.reno.on_congestion(window, in_flight, now)
    }

    fn on_timeout(&mut self, window: &Window, in_flight: u32, now: Nanos) -> u32 {
        self.reno.on_timeout(window, in_flight, now)
    }

    fn undo(&mut self) {}

    fn on_idle(&mut self, _idle: Nanos) {}

    fn private(&self, now: Nanos) -> [u64; PRIVATE_WORDS] {
        self.reno.private(now)
    }

    fn restore(&mut self, private: &[u64; PRIVATE_WORDS], now: Nanos) {
        self.reno.restore(private, now);
    }
}
