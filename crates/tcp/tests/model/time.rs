//! Round-trip time and time-out against RFC 6298, in floating point.

use proptest::prelude::*;
use tcp::config::{MILLISECOND, SECOND};
use tcp::{Config, Reason};
use wire::Flags;

use super::peer::{Offer, Peer};

/// RFC 6298 section 2, with the lower bound that `Config::min_rto` has: of the variation's part.
#[derive(Default)]
struct Rfc6298 {
    estimate: Option<(f64, f64)>,
    /// Time-outs since the last measurement: it stays doubled until there is one (Karn's algorithm).
    doubled: i32,
}

impl Rfc6298 {
    fn measure(&mut self, rtt: f64) {
        self.doubled = 0;
        self.estimate = Some(match self.estimate {
            None => (rtt, rtt / 2.0),
            Some((srtt, rttvar)) => {
                (0.875 * srtt + 0.125 * rtt, 0.75 * rttvar + 0.25 * (srtt - rtt).abs())
            }
        });
    }

    fn rto(&self, config: &Config) -> f64 {
        let (srtt, rttvar) = self.estimate.unwrap();
        let rto = srtt + (4.0 * rttvar).max(config.min_rto as f64);
        (rto * 2.0_f64.powi(self.doubled)).min(config.max_rto as f64)
    }
}

proptest! {
    #[test]
    fn the_time_out_is_that_of_rfc_6298(
        rtts in prop::collection::vec(100_000..3 * SECOND, 1..40),
        handshake in 100_000..2 * SECOND,
        min_rto in prop_oneof![Just(200 * MILLISECOND), Just(SECOND), Just(MILLISECOND)],
    ) {
        // Time-outs only: no tail probes without SACK, and Karn's algorithm without timestamps.
        let config = Config { min_rto, no_delay: true, ..Config::default() };
        let offer = Offer { sack: false, timestamps: false, window_scale: Some(3) };
        let mut peer = Peer::new(config.clone(), offer, 7, handshake);
        let mut model = Rfc6298::default();
        model.measure(handshake as f64);
        let mut end = peer.theirs;
        for rtt in rtts {
            prop_assert_eq!(peer.socket().send(&[1; 100]).unwrap(), 100);
            let sent = peer.now;
            let out = peer.transmit();
            prop_assert_eq!(out.len(), 1);
            end += 100;
            let again = peer.wait(rtt);
            peer.send(peer.first, end, Flags::ACK, &[]);
            peer.transmit();
            let mut since = sent;
            for (at, _) in &again {
                let late = (at - since) as f64 - model.rto(&config);
                prop_assert!(late.abs() < 2e6, "{} ns from the time-out", late);
                (since, model.doubled) = (*at, model.doubled + 1);
            }
            if again.is_empty() {
                prop_assert!((rtt as f64) < model.rto(&config) + 2e6);
                model.measure(rtt as f64);
            }
            let info = peer.stack.connection(peer.id).unwrap().info();
            let (srtt, rttvar) = model.estimate.unwrap();
            prop_assert!((info.rtt as f64 - srtt).abs() < 1_000.0, "{} is not {}", info.rtt, srtt);
            prop_assert!((info.rttvar as f64 - rttvar).abs() < 1_000.0);
        }
    }

    /// Unanswered, it doubles each time up to the largest (section 5.5), and gives up after as many as
    /// the settings say.
    #[test]
    fn it_doubles_and_ends(rtt in 1_000_000..500 * MILLISECOND, retries in 1u8..9) {
        let config = Config { retries, max_rto: 20 * SECOND, ..Config::default() };
        let offer = Offer { sack: false, timestamps: false, window_scale: None };
        let mut peer = Peer::new(config.clone(), offer, 7, rtt);
        let mut model = Rfc6298::default();
        model.measure(rtt as f64);
        peer.socket().send(&[1; 10]).unwrap();
        let mut last = peer.now;
        peer.transmit();
        let again = peer.wait(400 * SECOND);
        prop_assert_eq!(again.len(), usize::from(retries));
        for (at, out) in again {
            prop_assert_eq!(&out.payload, &[1; 10]);
            let late = (at - last) as f64 - model.rto(&config);
            prop_assert!(late.abs() < 2e6, "{} ns from the time-out", late);
            (last, model.doubled) = (at, model.doubled + 1);
        }
        let end = peer.stack.connection(peer.id).unwrap().end();
        prop_assert_eq!(end, Some(Reason::TimedOut));
    }
}
