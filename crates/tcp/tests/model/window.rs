//! The offered window, as seen by a peer that keeps to it, and by one that does not.

use proptest::prelude::*;
use tcp::Config;
use wire::{Flags, Seq};

use super::peer::{Offer, Peer};

/// Bytes that come, bytes that are read, and whether the peer keeps to the window.
fn step() -> impl Strategy<Value = (u32, usize, bool)> {
    prop_oneof![
        2 => (1u32..1_500, 0usize..4_000, any::<bool>()),
        1 => (1u32..1_500, Just(0), Just(true)),
        2 => (1u32..100, Just(0), Just(true)),
    ]
}

proptest! {
    /// The right edge does not move left by more than scaling loses; no window opens by little, or beyond the
    /// memory; and when all is read the window opens again.
    #[test]
    fn the_offered_window_keeps_its_edge_and_moves_in_steps(
        steps in prop::collection::vec(step(), 1..300),
        buffer in 2_000u32..60_000,
        most in prop_oneof![Just(0_u32), Just(6 << 20), Just(1 << 29)],
        scale in prop::option::of(0u8..15),
        iss in any::<u32>(),
    ) {
        // The largest buffer decides on the scale.
        let receive_buffer_max = buffer.max(most);
        let config = Config { receive_buffer: buffer, receive_buffer_max, ..Config::default() };
        let offer = Offer { sack: true, timestamps: true, window_scale: scale };
        let mut peer = Peer::new(config, offer, iss, 10_000_000);
        let (first, theirs) = (peer.first, peer.theirs);
        let unit = 1 << peer.shift;
        let (mut sent, mut read, mut edge) = (0_u64, 0_u64, u64::from(buffer.min(65_535)));
        let mut full = 0;
        for (len, reads, obeys) in steps {
            let room = edge.saturating_sub(sent).min(u64::from(u32::MAX)) as u32;
            let len = if obeys { len.min(room) } else { len };
            // A full segment is the largest that came, and none is larger than our MSS.
            full = full.max(len.min(room)).min(1448);
            if len > 0 {
                peer.send(first + sent as u32, theirs, Flags::ACK, &vec![5; len as usize]);
                sent += u64::from(len.min(room));
            }
            let mut out = peer.transmit();
            let mut into = vec![0; reads];
            if reads > 0 {
                read += peer.socket().receive(&mut into).unwrap_or(0) as u64;
            }
            out.extend(peer.transmit());
            // It may have grown.
            let buffer = peer.stack.connection(peer.id).unwrap().info().rcv_space;
            let most = u64::from(buffer + (buffer / 8).max(unit));
            for out in out {
                let ack = out.ack.distance(first) as u64;
                let right = ack + (u64::from(out.window) << peer.shift);
                prop_assert!(ack <= sent);
                prop_assert!(right + u64::from(unit) > edge, "{} shrinks to {}", edge, right);
                prop_assert!(right <= read + most, "{} bytes offered of {}", right - read, buffer);
                if right > edge + u64::from(unit) {
                    let step = u64::from((buffer / 2).min(full.max(1)));
                    prop_assert!(right - edge >= step.saturating_sub(u64::from(unit)), "opens by {}", right - edge);
                }
                edge = edge.max(right);
            }
            let held = peer.stack.connection(peer.id).unwrap().readable_len() as u64;
            prop_assert_eq!(held, sent - read);
            prop_assert!(held <= most, "{} bytes are held", held);
        }
        // All is read: there is room again, and a window update or the answer to a probe announces it.
        let mut into = vec![0; (sent - read) as usize];
        read += peer.socket().receive(&mut into).unwrap_or(0) as u64;
        prop_assert_eq!(read, sent);
        let mut out = peer.transmit();
        peer.send(Seq((first + sent as u32).0.wrapping_sub(1)), theirs, Flags::ACK, &[5]);
        out.extend(peer.transmit());
        let window = u32::from(out.last().unwrap().window) << peer.shift;
        prop_assert!(window + unit > (buffer / 2).min(65_535), "{} of {}", window, buffer);
    }
}
