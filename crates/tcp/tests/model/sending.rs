//! The congestion window grows by what it lets through, and by nothing else.

use proptest::prelude::*;
use tcp::{Algorithm, Config};
use wire::Flags;

use crate::peer::{Offer, Peer};

proptest! {
    /// A path that drops nothing, and a peer whose window is what bounds the sender (RFC 9438 sections 4.6
    /// and 5.8, RFC 7661): the congestion window stays within twice of what is ever under way.
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
        peer.say(peer.first, peer.theirs, Flags::ACK, &[]);
        let mut end = peer.theirs;
        let mut most = 10 * 1000;
        for _ in 0..rounds {
            let space = peer.stack.connection(peer.id).unwrap().send_space();
            peer.socket().send(&vec![3; space]).unwrap();
            let before = end;
            for said in peer.listen() {
                end += said.payload.len() as u32;
            }
            most = most.max(end - before);
            peer.now += rtt;
            // All of it is acknowledged at once, or segment by segment.
            let mut acked = before;
            while acked != end {
                acked += (end - acked).min(2_000);
                peer.say(peer.first, acked, Flags::ACK, &[]);
            }
        }
        let info = peer.stack.connection(peer.id).unwrap().info();
        prop_assert_eq!(info.retransmits, 0);
        prop_assert!(info.snd_cwnd <= 2 * most + 2_000, "{} for {} under way", info.snd_cwnd, most);
    }
}
