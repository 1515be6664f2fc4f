//! Round-trip time and the retransmission time-out (RFC 6298), and the smallest recent round-trip time
//! (RFC 8985 section 6.1).

use crate::Nanos;
use crate::config::{Config, SECOND};

/// For how long the smallest round trip counts.
const MIN_WINDOW: Nanos = 300 * SECOND;
/// Longest round-trip time that is taken.
pub(crate) const LONGEST: Nanos = 3600 * SECOND;
/// The time-out after that of a SYN has expired (RFC 6298 section 5.7; TCP_TIMEOUT_FALLBACK in Linux).
const FALLBACK: Nanos = 3 * SECOND;
/// Two ticks of a coarse clock (RFC 6298 section 2, G).
const GRANULARITY: Nanos = 1_000_000;

/// The estimate. Times in nanoseconds; 32 bits of microseconds would do, but need conversions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rtt {
    /// Smoothed; 0 before the first measurement.
    pub(crate) srtt: Nanos,
    pub(crate) rttvar: Nanos,
    pub(crate) min: Nanos,
    pub(crate) min_at: Nanos,
    /// How often the time-out was doubled since the last measurement (RFC 6298 section 5.5).
    pub(crate) backoff: u8,
}

impl Rtt {
    /// Takes a measurement of a segment that was sent once (Karn's algorithm, RFC 6298 section 3).
    pub(crate) fn measure(&mut self, rtt: Nanos, now: Nanos) {
        let rtt = rtt.clamp(1, LONGEST);
        if self.min == 0 || rtt <= self.min || now.saturating_sub(self.min_at) > MIN_WINDOW {
            self.min = rtt;
            self.min_at = now;
        }
        if self.srtt == 0 {
            self.srtt = rtt;
            self.rttvar = rtt / 2;
        } else {
            self.rttvar = self.rttvar - self.rttvar / 4 + self.srtt.abs_diff(rtt) / 4;
            self.srtt = (self.srtt - self.srtt / 8 + rtt / 8).max(1);
        }
        self.backoff = 0;
    }

    /// The SYN was sent more than once, and its acknowledgment measured nothing: data begins with a
    /// time-out of 3 s (RFC 6298 section 5.7; tcp_init_metrics in Linux, which keeps it in the variation
    /// too).
    pub(crate) fn use_fallback(&mut self) {
        if self.srtt == 0 {
            self.rttvar = FALLBACK;
        }
    }

    /// The time-out, back-off included.
    pub(crate) fn rto(&self, config: &Config) -> Nanos {
        self.first_rto(config).saturating_mul(1 << self.backoff.min(20)).min(largest(config))
    }

    /// The time-out without back-off. The lower bound is one of the variation's part, as in Linux, so
    /// that it always exceeds the round trip by `min_rto`.
    pub(crate) fn first_rto(&self, config: &Config) -> Nanos {
        if self.srtt == 0 {
            // Without a round trip there is only what `use_fallback` has set.
            let fallback = self.rttvar.min(largest(config));
            return config.initial_rto.max(fallback).max(GRANULARITY);
        }
        let margin = (4 * self.rttvar).max(config.min_rto).max(GRANULARITY);
        let rto = self.srtt.saturating_add(margin);
        rto.min(largest(config))
    }
}

/// The largest time-out. It is no less than the clock's granularity, so that the timer does not expire at
/// once.
fn largest(config: &Config) -> Nanos {
    config.max_rto.max(GRANULARITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MILLISECOND;

    #[test]
    fn first_and_second_measurement_are_those_of_the_rfc() {
        let mut rtt = Rtt::default();
        let config = Config::default();
        assert_eq!(rtt.rto(&config), SECOND);
        rtt.measure(100 * MILLISECOND, 0);
        assert_eq!((rtt.srtt, rtt.rttvar), (100 * MILLISECOND, 50 * MILLISECOND));
        assert_eq!(rtt.rto(&config), 300 * MILLISECOND);
        rtt.measure(200 * MILLISECOND, 1);
        assert_eq!(rtt.srtt, 112_500_000);
        assert_eq!(rtt.rttvar, 62_500_000);
        assert_eq!(rtt.min, 100 * MILLISECOND);
        rtt.backoff = 3;
        assert_eq!(rtt.rto(&config), 8 * (112_500_000 + 250_000_000));
        rtt.backoff = 60;
        assert_eq!(rtt.rto(&config), config.max_rto);
    }
}
