//! Duplicate acknowledgments against a receiver that processes one segment after the other and answers each
//! (RFC 5681 section 4.2), where answers to segments that come together may be joined.

use proptest::prelude::*;
use tcp::Config;
use wire::{Flags, Seq};

use super::peer::{Offer, Peer, Sent};

/// Payload of the peer's segments: all of them fit the first window.
const MSS: usize = 100;
/// Segments in its stream.
const SEGMENTS: usize = 200;

/// Segments that came as one: the first, how many, and whether the connection is frozen and thawed then.
#[derive(Clone, Copy, Debug)]
struct Joined {
    first: usize,
    count: usize,
    moves: bool,
}

fn batches() -> impl Strategy<Value = Vec<Vec<Joined>>> {
    let first = prop_oneof![1 => Just(0), 4 => 1usize..40];
    let joined = (first, 1usize..12, prop::bool::weighted(0.1))
        .prop_map(|(first, count, moves)| Joined { first, count, moves });
    prop::collection::vec(prop::collection::vec(joined, 1..6), 1..12)
}

/// What is to be acknowledged since the last acknowledgment.
#[derive(Debug, Default)]
struct Due {
    /// Duplicates of the current RCV.NXT, one for each segment.
    duplicates: usize,
    /// One more for all others that SACK reports; data may carry it.
    compressed: bool,
    /// Something came in order: it may be acknowledged by itself.
    in_order: bool,
    /// Duplicates of RCV.NXT that were sent one by one, with SACK.
    singly: usize,
}

impl Due {
    fn disorder(&mut self, count: usize, sack: bool) {
        let one_by_one = if sack { count.min(3 - self.singly) } else { count };
        self.singly += if sack { one_by_one } else { 0 };
        self.duplicates += one_by_one;
        self.compressed |= one_by_one < count;
    }

    fn least(&self) -> usize {
        self.duplicates + usize::from(self.compressed)
    }
}

fn duplicates(out: &[Sent], before: (Seq, u16)) -> usize {
    let mut last = before;
    let mut count = 0;
    for out in out {
        // RFC 5681 section 2: no data, and neither acknowledgment nor window moves.
        count += usize::from(out.payload.is_empty() && (out.ack, out.window) == last);
        last = (out.ack, out.window);
    }
    count
}

proptest! {
    #[test]
    fn each_segment_out_of_order_draws_a_duplicate(
        batches in batches(),
        sack: bool,
        talks: bool,
        iss in prop_oneof![Just(u32::MAX - 9_000), any::<u32>()],
    ) {
        let config = Config { receive_buffer: 1 << 20, ..Config::default() };
        let offer = Offer { sack, timestamps: false, window_scale: Some(7) };
        let mut peer = Peer::new(config.clone(), offer, iss, 10_000_000);
        let (first, mut theirs) = (peer.first, peer.theirs);
        let bytes = vec![7; SEGMENTS * MSS];
        let mut came = [false; SEGMENTS];
        let (mut next, mut due, mut last) = (0, Due::default(), (first, 0));
        for batch in batches {
            if talks {
                // Data of the connection's own is no acknowledgment that counts.
                peer.socket().send(&[1; 100]).unwrap();
            }
            for Joined { first: from, count, moves } in batch {
                if next == SEGMENTS {
                    break;
                }
                let from = (next + from).min(SEGMENTS - 1);
                let to = (from + count).min(SEGMENTS);
                let seq = first + (from * MSS) as u32;
                let gso_size = if to - from > 1 { MSS as u16 } else { 0 };
                peer.send_joined(seq, theirs, Flags::ACK, &bytes[from * MSS..to * MSS], gso_size);
                came[from..to].fill(true);
                if from == next {
                    next = came.iter().position(|came| !came).unwrap_or(SEGMENTS);
                    // Duplicates of the old RCV.NXT are no longer due.
                    due = Due { in_order: true, ..Due::default() };
                } else {
                    due.disorder(to - from, sack);
                }
                if moves {
                    peer.move_on(config.clone());
                }
            }
            let out = peer.transmit();
            for out in &out {
                prop_assert_eq!(out.ack.distance(first) as usize, next * MSS);
                theirs += out.payload.len() as u32;
            }
            let pure = out.iter().filter(|out| out.payload.is_empty()).count();
            prop_assert!(pure <= due.least() + usize::from(due.in_order), "{} for {:?}", pure, due);
            // The first one may also acknowledge new data; then it is no duplicate.
            let first_is_new = out.first().is_some_and(|out| (out.ack, out.window) != last);
            let reported = duplicates(&out, last);
            let with_data = out.iter().any(|out| !out.payload.is_empty());
            let others = usize::from(first_is_new) + usize::from(due.compressed && with_data);
            prop_assert!(reported + others >= due.least(), "{} for {:?}", reported, due);
            if let Some(out) = out.last() {
                last = (out.ack, out.window);
            }
            due = Due { singly: due.singly, ..Due::default() };
        }
    }
}

/// The engine's answers to a hole and then segments that come together.
fn answers(sack: bool, payload: usize, gso_size: u16) -> usize {
    let offer = Offer { sack, timestamps: false, window_scale: Some(7) };
    let mut peer = Peer::new(Config::default(), offer, 1, 10_000_000);
    let (seq, ack) = (peer.first + 5_000, peer.theirs);
    peer.send_joined(seq, ack, Flags::ACK, &vec![7; payload], gso_size);
    peer.transmit().len()
}

#[test]
fn an_aggregate_draws_as_many_as_it_was_segments() {
    assert_eq!(answers(false, 9_001, 1_000), 10);
    assert_eq!(answers(true, 9_001, 1_000), 4);
    assert_eq!([answers(false, 2_000, 1_000), answers(true, 2_000, 1_000)], [2, 2]);
    assert_eq!([answers(false, 1_000, 0), answers(true, 1_000, 0)], [1, 1]);
}

#[test]
fn what_claims_to_be_many_segments_draws_no_more_bytes_than_came() {
    // An acknowledgment by IPv6 and with timestamps has 72 bytes.
    for payload in [1, 2, 50, 1_400, 20_000] {
        for gso_size in [1, 7, 71, 72, 536] {
            let bytes = 72 * answers(false, payload, gso_size);
            assert!(bytes <= payload.max(3 * 72), "{bytes} for {payload} by {gso_size}");
        }
    }
}

#[test]
fn a_hole_that_is_filled_at_once_draws_one_acknowledgment() {
    let offer = Offer { sack: false, timestamps: false, window_scale: Some(7) };
    let mut peer = Peer::new(Config::default(), offer, 1, 10_000_000);
    let (first, ack) = (peer.first, peer.theirs);
    for at in [1, 2, 3, 4, 0] {
        peer.send(first + at * 1_000, ack, Flags::ACK, &[7; 1_000]);
    }
    let out = peer.transmit();
    assert_eq!(out.len(), 1, "duplicates of 5001 would have what follows sent twice: {out:?}");
    assert_eq!(out[0].ack, first + 5_000);
}
