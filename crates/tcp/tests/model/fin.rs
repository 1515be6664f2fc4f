//! A short stream and its FIN in any order, against the set of sequence numbers that came: the FIN is one
//! of them.

use proptest::prelude::*;
use tcp::Config;
use wire::{Flags, Seq};

use super::peer::{Offer, Peer};

/// Payload of the peer's segments, and how many there are before the FIN.
const MSS: usize = 500;
const SEGMENTS: usize = 8;
/// Bytes of its stream: the FIN's place.
const BYTES: usize = MSS * SEGMENTS;

/// Some segments together: the first, how many, and whether the connection is frozen and thawed then. One
/// behind the last is the FIN.
fn arrivals() -> impl Strategy<Value = Vec<(usize, usize, bool)>> {
    let one = (0..=SEGMENTS, 1usize..4, prop::bool::weighted(0.2));
    prop::collection::vec(one, 0..20)
}

/// The runs behind the first number that did not come.
fn out_of_order(came: &[bool]) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    let mut at = came.iter().position(|came| !came).unwrap_or(came.len());
    while let Some(start) = came[at..].iter().position(|came| *came).map(|more| at + more) {
        at = came[start..].iter().position(|came| !came).map_or(came.len(), |more| start + more);
        all.push((start, at));
    }
    all
}

proptest! {
    #[test]
    fn a_fin_behind_a_hole_is_reported_and_counts_when_the_hole_is_filled(
        arrivals in arrivals(),
        iss in prop_oneof![Just(u32::MAX - 2_000), any::<u32>()],
    ) {
        let config = Config::default();
        let offer = Offer { sack: true, timestamps: false, window_scale: Some(7) };
        let mut peer = Peer::new(config.clone(), offer, iss, 10_000_000);
        let (first, theirs, bytes) = (peer.first, peer.theirs, vec![7; BYTES]);
        let mut came = vec![false; BYTES + 1];
        // In the end all come once more, so that nothing is missing.
        for (from, count, moves) in arrivals.into_iter().chain([(0, SEGMENTS + 1, false)]) {
            let to = (from + count).min(SEGMENTS + 1);
            let (start, end) = (from * MSS, (to * MSS).min(BYTES));
            let fin = to > SEGMENTS;
            let flags = if fin { Flags::ACK.with(Flags::FIN) } else { Flags::ACK };
            peer.send(first + start as u32, theirs, flags, &bytes[start..end]);
            let covers = start..end + usize::from(fin);
            came[covers.clone()].fill(true);
            if moves && came.iter().any(|came| !came) {
                peer.move_on(config.clone());
            }
            let out = peer.transmit();
            let next = came.iter().position(|came| !came).unwrap_or(came.len());
            let there = out_of_order(&came);
            for out in &out {
                prop_assert_eq!(out.ack.distance(first) as usize, next);
            }
            if covers.start > next {
                prop_assert!(!out.is_empty(), "disorder is acknowledged at once");
            }
            let Some(out) = out.first() else { continue };
            let offset = |seq: Seq| seq.distance(first) as usize;
            let reported: Vec<_> =
                out.sack.iter().map(|block| (offset(block.start), offset(block.end))).collect();
            let whole: Vec<_> = reported.iter().filter(|block| there.contains(block)).collect();
            // What is not out of order is a duplicate, of which there is one at most (RFC 2883).
            prop_assert!(whole.len() + 1 >= reported.len(), "{reported:?} of {there:?}");
            prop_assert!(whole.len() >= there.len().min(3), "{reported:?} of {there:?}");
            if covers.start > next {
                let latest = |&&(start, end): &&(usize, usize)| start <= covers.start && covers.end <= end;
                prop_assert!(whole.first().is_some_and(latest), "{reported:?} for {covers:?}");
            }
        }
        let mut read = vec![0; BYTES + 1];
        prop_assert_eq!(peer.socket().receive(&mut read), Ok(BYTES));
        prop_assert!(peer.stack.connection(peer.id).unwrap().is_at_end());
    }
}

/// No data is lost by it.
#[test]
fn a_fin_behind_a_hole_alone_does_not_make_a_close_a_reset() {
    let offer = Offer { sack: true, timestamps: false, window_scale: Some(7) };
    let mut peer = Peer::new(Config::default(), offer, 1, 10_000_000);
    let (first, theirs) = (peer.first, peer.theirs);
    peer.send(first + 1_000, theirs, Flags::ACK.with(Flags::FIN), &[]);
    peer.transmit();
    peer.socket().close();
    let out = peer.transmit();
    assert!(out.iter().all(|out| out.ack == first), "{out:?}");
    assert_eq!(peer.stack.connection(peer.id).unwrap().state(), tcp::State::FinWait1);
}
