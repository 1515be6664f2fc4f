//! CUBIC (RFC 9438), with HyStart++ for the first slow start (RFC 9406).
//!
//! Windows are kept in bytes; the formulas of RFC 9438 have them in segments (section 4.1).

use super::hystart::HyStart;
use super::{Acked, CongestionControl, PRIVATE_WORDS, Window, fraction, threshold};
use crate::Nanos;

/// The constant C: segments per cubic second (RFC 9438 section 5.1).
const C: f64 = 0.4;
/// beta_cubic as a fraction: what is left of the window after a congestion event (section 4.6).
const BETA: (u32, u32) = (7, 10);
/// (1 + beta_cubic) / 2: fast convergence (section 4.7).
const FAST_CONVERGENCE: (u32, u32) = (17, 20);
/// alpha_cubic = 3 * (1 - beta_cubic) / (1 + beta_cubic) (section 4.3).
const ALPHA: f64 = 9.0 / 17.0;
/// Largest K that a snapshot may have, in seconds: that of a window of 2^32 segments of one byte.
const K_MAX: f32 = 2_206.0;

/// CUBIC.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Cubic {
    stage: Stage,
    /// The stage before the last congestion event, which comes back if that was spurious (section 4.9).
    before: Stage,
    /// Time of the last acknowledgment at which the window could grow; until the next one time does not count
    /// (section 5.8).
    last: Nanos,
    /// The part of an increase that is less than a byte, in units of 1/`cwnd` bytes.
    part: u32,
    hystart: HyStart,
}

/// A congestion avoidance stage, and what the next one will have of the congestion event before it
/// (section 4.1.2). These are the variables that section 4.9.1 saves.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Stage {
    /// When it began, pushed forward by all time that does not count (t_epoch).
    epoch: Nanos,
    /// Window that Reno would have, in bytes (W_est).
    w_est: f64,
    /// Window just before the last reduction, or below it for fast convergence, in bytes (W_max); 0
    /// if there was none since the start or since the last time-out.
    w_max: u32,
    /// The congestion window when the threshold was last set, in bytes (cwnd_prior).
    cwnd_prior: u32,
    /// Seconds that the window takes to get to `w_max` (K).
    k: f32,
    /// Whether the stage has begun.
    begun: bool,
}

impl Stage {
    /// Begins the stage, at the first acknowledgment in congestion avoidance.
    fn begin(&mut self, window: &Window, now: Nanos) {
        self.begun = true;
        self.epoch = now;
        self.w_est = f64::from(window.cwnd);
        if self.w_max <= window.cwnd {
            // After slow start without a loss (section 4.10), after a time-out (section 4.8), or
            // where the window has grown past W_max by itself: convex from here.
            self.w_max = window.cwnd;
            self.k = 0.0;
        } else {
            let missing = f64::from(self.w_max - window.cwnd) / f64::from(window.mss.max(1));
            self.k = libm::cbrt(missing / C) as f32;
        }
    }

    /// Seconds since it began, without the time that does not count (t).
    fn elapsed(&self, now: Nanos) -> f64 {
        since(now, self.epoch) as f64 * 1e-9
    }

    /// W_cubic(t) in bytes (figure 1).
    fn w_cubic(&self, t: f64, mss: u32) -> f64 {
        let distance = t - f64::from(self.k);
        C * distance * distance * distance * f64::from(mss) + f64::from(self.w_max)
    }

    /// What Reno's window gains from an acknowledgment (figure 4).
    fn grow_reno(&mut self, window: &Window, bytes: u32) {
        // Alpha is 1 once the window lost is made up for: from there on Reno's slope is CUBIC's
        // without its smaller reduction (section 4.3).
        let alpha = if self.w_est >= f64::from(self.cwnd_prior) { 1.0 } else { ALPHA };
        let windows = f64::from(bytes) / f64::from(window.cwnd.max(1));
        self.w_est += alpha * windows * f64::from(window.mss);
    }

    /// Sets W_max at a congestion event. If the window had not reached the last W_max again, it is set lower,
    /// to make room for other flows (fast convergence, section 4.7).
    fn remember(&mut self, cwnd: u32) {
        self.w_max = if cwnd < self.w_max { fraction(cwnd, FAST_CONVERGENCE) } else { cwnd };
        self.cwnd_prior = cwnd;
        self.begun = false;
    }

    fn words(&self, now: Nanos) -> [u64; 4] {
        [
            u64::from(self.w_max) << 32 | u64::from(self.cwnd_prior),
            now.wrapping_sub(self.epoch),
            self.w_est.to_bits(),
            u64::from(self.k.to_bits()) << 32 | u64::from(self.begun),
        ]
    }

    fn from_words(words: [u64; 4], now: Nanos) -> Self {
        let w_est = f64::from_bits(words[2]);
        let k = f32::from_bits((words[3] >> 32) as u32);
        Stage {
            epoch: now.wrapping_sub(words[1]),
            w_est: if w_est.is_finite() { w_est.clamp(0.0, f64::from(u32::MAX)) } else { 0.0 },
            w_max: (words[0] >> 32) as u32,
            cwnd_prior: words[0] as u32,
            k: if k.is_finite() { k.clamp(0.0, K_MAX) } else { 0.0 },
            begun: words[3] & 1 == 1,
        }
    }
}

impl Cubic {
    /// Slow start. Returns the bytes acknowledged beyond the threshold: they count in congestion avoidance
    /// (section 4.10).
    fn slow_start(&mut self, window: &mut Window, acked: &Acked) -> u32 {
        self.stage.begun = false;
        let mut divisor = 1;
        // RFC 9406 section 4.3: in the first slow start only.
        if window.ssthresh == u32::MAX {
            match self.hystart.on_ack(acked) {
                Some(value) => divisor = value,
                None => {
                    window.ssthresh = window.cwnd;
                    self.stage.cwnd_prior = window.cwnd;
                    return acked.bytes;
                }
            }
        }
        if !acked.cwnd_limited {
            return 0;
        }
        window.grow_to_threshold(acked.bytes / divisor)
    }

    /// Congestion avoidance (sections 4.2 to 4.5).
    fn avoid(&mut self, window: &mut Window, acked: &Acked, bytes: u32) {
        if !self.stage.begun {
            self.stage.begin(window, acked.now);
        }
        self.last = acked.now;
        // No more than a window of bytes counts.
        let bytes = bytes.min(window.cwnd);
        self.stage.grow_reno(window, bytes);
        let t = self.stage.elapsed(acked.now);
        if self.stage.w_cubic(t, window.mss) < self.stage.w_est {
            // The Reno-friendly region (section 4.3).
            window.cwnd = bounded(self.stage.w_est, window.cwnd);
            return;
        }
        let next = self.stage.w_cubic(t + acked.srtt as f64 * 1e-9, window.mss);
        let target = bounded(next, window.cwnd);
        self.approach(window, target, bytes);
    }

    /// Each segment acknowledged raises the window by `(target - cwnd) / cwnd` segments
    /// (sections 4.4 and 4.5).
    fn approach(&mut self, window: &mut Window, target: u32, bytes: u32) {
        let cwnd = u64::from(window.cwnd.max(1));
        let missing = u64::from(target.saturating_sub(window.cwnd));
        // Less than one byte, also where a snapshot has more.
        let part = u64::from(self.part).min(cwnd - 1);
        let due = missing * u64::from(bytes) + part;
        // At most `missing` and one byte, as no more than a window of bytes counts.
        window.cwnd = window.cwnd.saturating_add(u32::try_from(due / cwnd).unwrap_or(u32::MAX));
        self.part = (due % cwnd) as u32;
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        let mut bytes = acked.bytes;
        if window.in_slow_start() {
            bytes = self.slow_start(window, acked);
            if bytes == 0 {
                return;
            }
        }
        if acked.cwnd_limited {
            self.avoid(window, acked, bytes);
        } else if self.stage.begun {
            // While the application has nothing to send the window cannot grow: that time does not count.
            self.on_idle(since(acked.now, self.last));
        }
    }

    fn on_congestion(&mut self, window: &Window, _in_flight: u32, _now: Nanos) -> u32 {
        self.before = self.stage;
        self.stage.remember(window.cwnd);
        // A part of the window, not of what is in flight: the window does not grow while it is not used, so
        // it stands for what the path carried (section 4.6; Linux does the same).
        threshold(window, BETA)
    }

    fn on_timeout(&mut self, window: &Window, in_flight: u32, now: Nanos) -> u32 {
        let ssthresh = self.on_congestion(window, in_flight, now);
        // The stage to come starts at its own window, with K = 0 (section 4.8).
        self.stage.w_max = 0;
        ssthresh
    }

    fn undo(&mut self) {
        self.stage = self.before;
    }

    fn on_idle(&mut self, idle: Nanos) {
        if self.stage.begun {
            self.stage.epoch = self.stage.epoch.wrapping_add(idle);
            self.last = self.last.wrapping_add(idle);
        }
    }

    fn private(&self, now: Nanos) -> [u64; PRIVATE_WORDS] {
        let [s0, s1, s2, s3] = self.stage.words(now);
        let [b0, b1, b2, b3] = self.before.words(now);
        let [h0, h1, h2] = self.hystart.words();
        let last = now.wrapping_sub(self.last);
        [s0, s1, s2, s3, b0, b1, b2, b3, last, h0, h1, h2 << 32 | u64::from(self.part)]
    }

    fn restore(&mut self, private: &[u64; PRIVATE_WORDS], now: Nanos) {
        let &[s0, s1, s2, s3, b0, b1, b2, b3, last, h0, h1, mixed] = private;
        *self = Cubic {
            stage: Stage::from_words([s0, s1, s2, s3], now),
            before: Stage::from_words([b0, b1, b2, b3], now),
            last: now.wrapping_sub(last),
            part: mixed as u32,
            hystart: HyStart::from_words([h0, h1, mixed >> 32]),
        };
    }
}

/// The target window: no less than `cwnd`, and at most half as much again (section 4.2).
fn bounded(target: f64, cwnd: u32) -> u32 {
    let cwnd = f64::from(cwnd);
    target.clamp(cwnd, 1.5 * cwnd) as u32
}

/// Time from `then` to `now`; 0 if `then` is later. It wraps, as the clock of a thawed connection may have
/// any origin.
fn since(now: Nanos, then: Nanos) -> Nanos {
    let distance = now.wrapping_sub(then);
    if distance > u64::MAX / 2 { 0 } else { distance }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_loss_at(segments: u32) -> Stage {
        let mut cubic = Cubic::default();
        let mut window = Window { cwnd: segments * 1000, ssthresh: u32::MAX, mss: 1000 };
        window.ssthresh = cubic.on_congestion(&window, 0, 0);
        window.cwnd = window.ssthresh;
        cubic.stage.begin(&window, 5);
        cubic.stage
    }

    /// Figure 2: K = cbrt((W_max - cwnd_epoch) / C), where three tenths of W_max are missing.
    #[test]
    fn k_is_the_cube_root_of_what_is_missing() {
        // The numbers are chosen so that the root is whole: 0.3 W / 0.4 = n^3.
        for (segments, k) in [(36, 3.0), (288, 6.0), (2304, 12.0), (18432, 24.0)] {
            let stage = after_loss_at(segments);
            assert_eq!(stage.k, k);
            let start = stage.w_cubic(0.0, 1000);
            assert!((start - f64::from(segments) * 700.0).abs() < 1e-3, "starts at cwnd: {start}");
            assert_eq!(stage.w_cubic(f64::from(k), 1000), f64::from(segments * 1000));
        }
    }
}
