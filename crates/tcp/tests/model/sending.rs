//! The congestion window grows by what was sent within it, and by nothing else.

use proptest::prelude::*;
use tcp::{Algorithm, Config};
use wire::Flags;

use super::peer::{Offer, Peer};

proptest! {
    /// A path that drops nothing, and a peer whose window is what bounds the sender (RFC 9438 sections 4.6
    /// and 5.8, RFC 7661): the congestion window stays within twice of what is ever in flight.
    #[test]
    fn a_window_that_is_not_used_does_not_grow(
        window in 2_000_u16..60_000,
        rtt in 1_000_000..200_000_000_u64,
        reno in any::<bool>(),
        rounds in 30..150,
    ) {
        let congestion = if reno { Algorithm::NewReno } else { Algorithm::Cubic };
        let config = Config { congestion, send_buffer: 200_000, ..Config::default() };
        let offer = Offer { sack: true, timestamps: true, window_scale: None };
        let mut peer = Peer::new(config, offer, 7, rtt);
        peer.window = window;
        peer.send(peer.first, peer.theirs, Flags::ACK, &[]);
        let mut end = peer.theirs;
        let mut most = 10 * 1000;
        for _ in 0..rounds {
            let space = peer.stack.connection(peer.id).unwrap().send_space();
            peer.socket().send(&vec![3; space]).unwrap();
            let before = end;
            for out in peer.transmit() {
                end += out.payload.len() as u32;
            }
            most = most.max(end - before);
            peer.now += rtt;
            // All of it is acknowledged at once, or segment by segment.
            let mut acked = before;
            while acked != end {
                acked += (end - acked).min(2_000);
                peer.send(peer.first, acked, Flags::ACK, &[]);
            }
        }
        let info = peer.stack.connection(peer.id).unwrap().info();
        prop_assert_eq!(info.retransmits, 0);
        prop_assert!(info.snd_cwnd <= 2 * most + 2_000, "{} for {} in flight", info.snd_cwnd, most);
    }

    /// A window of one to two segments, and a peer that acknowledges at once: more than half of what it
    /// offers goes in each round trip, all of it (RFC 9293 section 3.8.6.2.1).
    #[test]
    fn a_window_of_less_than_two_segments_is_filled(
        window in 537_u16..2_000,
        rtt in 1_000_000..200_000_000_u64,
        (sack, timestamps) in any::<(bool, bool)>(),
    ) {
        let offer = Offer { sack, timestamps, window_scale: None };
        let config = Config { send_buffer: 200_000, ..Config::default() };
        let mut peer = Peer::offering(config, offer, 7, rtt, window);
        let mut end = peer.theirs;
        for round in 0..30 {
            let space = peer.stack.connection(peer.id).unwrap().send_space();
            peer.socket().send(&vec![3; space]).unwrap();
            let mut sent = 0;
            for out in peer.transmit() {
                sent += out.payload.len() as u32;
            }
            // Two full segments, timestamps taken off, may be a little less than the window.
            let worth = u32::from(window).min(2 * 988);
            prop_assert!(sent >= worth, "round {}: {} of {}", round, sent, window);
            end += sent;
            peer.now += rtt;
            peer.send(peer.first, end, Flags::ACK, &[]);
        }
    }
}
