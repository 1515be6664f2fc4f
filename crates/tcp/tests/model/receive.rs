//! Reassembly and what is acknowledged, against the set of bytes that came.

use proptest::prelude::*;
use tcp::Config;
use wire::{Flags, Seq};

use super::peer::{Offer, Peer, Sent};

/// The peer's stream.
fn stream() -> Vec<u8> {
    (0..60_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[derive(Clone, Copy, Debug)]
enum Happening {
    /// A piece of the stream, from `ahead` of what is acknowledged.
    Piece { ahead: i32, len: u32 },
    /// The application reads.
    Read { most: usize },
    /// Time for acknowledgments that are held back.
    Wait,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let piece = (-2_000..12_000, 1u32..3_000).prop_map(|(ahead, len)| Happening::Piece {
        ahead: if ahead < 0 { ahead } else { ahead & !255 },
        len,
    });
    let next = (1u32..2_000).prop_map(|len| Happening::Piece { ahead: 0, len });
    let read = (1usize..20_000).prop_map(|most| Happening::Read { most });
    let one = prop_oneof![4 => piece, 2 => next, 2 => read, 1 => Just(Happening::Wait)];
    prop::collection::vec(one, 1..120)
}

/// What the peer knows to have been taken.
struct Model {
    came: Vec<bool>,
    read: usize,
}

impl Model {
    fn next(&self) -> usize {
        self.came.iter().position(|came| !came).unwrap_or(self.came.len())
    }

    /// The run of bytes around `at` that came.
    fn block(&self, at: usize) -> (usize, usize) {
        let start = self.came[..at].iter().rposition(|came| !came).map_or(0, |hole| hole + 1);
        let end =
            self.came[at..].iter().position(|came| !came).map_or(self.came.len(), |hole| at + hole);
        (start, end)
    }
}

/// RFC 2018 section 4 and RFC 2883 section 4.
fn check_sack(out: &Sent, model: &Model, first: Seq, latest: Option<(usize, usize)>) {
    let next = model.next();
    let offset = |seq: Seq| seq.distance(first) as usize;
    let mut blocks: Vec<(usize, usize)> =
        out.sack.iter().map(|block| (offset(block.start), offset(block.end))).collect();
    let Some(&(start, end)) = blocks.first() else { return };
    let within = blocks.get(1).is_some_and(|&(s, e)| s <= start && end <= e);
    if end <= next || within {
        // A duplicate: it came, and more than once.
        assert!(model.came[start..end].iter().all(|came| *came), "a duplicate of nothing");
        blocks.remove(0);
    } else if let Some((start, end)) = latest.filter(|(start, _)| *start > next) {
        let (s, e) = blocks[0];
        assert!(s <= start && end <= e, "the first block is where the segment lies");
    }
    for (at, &(start, end)) in blocks.iter().enumerate() {
        assert!(start > next && start < end, "{start}..{end} at {next}");
        assert_eq!(model.block(start), (start, end), "one is a block, no part of one");
        assert!(!blocks[..at].contains(&(start, end)), "a block twice");
    }
}

proptest! {
    #[test]
    fn what_came_is_acknowledged_read_and_reported(
        happenings in happenings(),
        iss in prop_oneof![Just(u32::MAX - 9_000), any::<u32>()],
        timestamps in any::<bool>(),
        buffer in 4_000u32..40_000,
    ) {
        let config = Config { receive_buffer: buffer, receive_buffer_max: buffer, ..Config::default() };
        let offer = Offer { sack: true, timestamps, window_scale: Some(7) };
        let mut peer = Peer::new(config, offer, iss, 10_000_000);
        let (first, theirs, bytes) = (peer.first, peer.theirs, stream());
        let mut model = Model { came: vec![false; bytes.len()], read: 0 };
        // All that the engine may take: the largest right edge that it has offered.
        let mut edge = (buffer.min(65_535)) as usize;
        let mut latest = None;
        for happening in happenings {
            let mut out = Vec::new();
            match happening {
                Happening::Piece { ahead, len } => {
                    let start = (model.next() as i32 + ahead).max(0) as usize;
                    let end = (start + len as usize).min(bytes.len());
                    if start >= end {
                        continue;
                    }
                    let before = model.next();
                    peer.send(first + start as u32, theirs, Flags::ACK, &bytes[start..end]);
                    let taken = end.min(edge);
                    if start < taken {
                        model.came[start..taken].fill(true);
                        latest = Some((start, taken));
                    }
                    out = peer.transmit();
                    let in_order = start == before && model.next() == end;
                    prop_assert!(in_order || !out.is_empty(), "disorder is acknowledged at once");
                }
                Happening::Read { most } => {
                    let mut into = vec![0; most];
                    let got = peer.socket().receive(&mut into).unwrap_or(0);
                    let there = model.next() - model.read;
                    prop_assert_eq!(got, there.min(most));
                    prop_assert_eq!(&into[..got], &bytes[model.read..model.read + got]);
                    model.read += got;
                    out.extend(peer.transmit());
                }
                Happening::Wait => {
                    out.extend(peer.wait(600_000_000).into_iter().map(|(_, out)| out));
                }
            }
            for out in &out {
                prop_assert_eq!(out.ack.distance(first) as usize, model.next());
                check_sack(out, &model, first, latest);
                let right = model.next() + (usize::from(out.window) << peer.shift);
                edge = edge.max(right);
            }
            prop_assert_eq!(peer.stack.connection(peer.id).unwrap().readable_len(), model.next() - model.read);
        }
        // Nothing that came waits for its acknowledgment for longer than half a second.
        peer.wait(500_000_000);
        let snapshot = peer.stack.freeze(peer.id, peer.now).unwrap();
        prop_assert_eq!(snapshot.receive.acked, snapshot.receive.nxt);
        prop_assert_eq!(snapshot.receive.nxt.distance(first) as usize, model.next());
    }
}
