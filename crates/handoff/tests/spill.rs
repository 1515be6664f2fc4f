//! Spilled bytes: what the guard finds is what the NIC keeps, after each step.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;

use handoff::Epoch;
use handoff::spill::{CHUNK, Direction, Log, Owner, Spill, gather, pieces, words};
use proptest::prelude::*;
use wire::Seq;

const CHUNKS: usize = 6;

/// A connection's bytes in one direction.
struct Model {
    owner: Owner,
    log: Log,
    first: Seq,
    bytes: VecDeque<u8>,
}

proptest! {
    #[test]
    fn what_is_kept_is_found(
        start: [u32; 3],
        steps in proptest::collection::vec((0_usize..3, 0_u8..4, 0_usize..2 * CHUNK), 1..60),
    ) {
        let memory: Vec<AtomicU64> = (0..words(CHUNKS)).map(|_| AtomicU64::new(0)).collect();
        let mut spill = Spill::new(&memory);
        let owner = |place, direction| Owner { place, epoch: Epoch(1), direction };
        let owners =
            [owner(0, Direction::Sent), owner(0, Direction::Received), owner(9, Direction::Sent)];
        let mut all: Vec<Model> = owners.into_iter().zip(start).map(|(owner, start)| Model {
            owner, log: Log::default(), first: Seq(start), bytes: VecDeque::new(),
        }).collect();
        let mut next = 0_u32;
        for (which, step, count) in steps {
            let Model { owner, log, first, bytes } = &mut all[which];
            match step {
                0 => {
                    spill.release(&memory, log, count as u32);
                    let count = count.min(bytes.len());
                    bytes.drain(..count);
                    *first += count as u32;
                }
                1 => {
                    spill.clear(&memory, log);
                    *first += bytes.len() as u32;
                    bytes.clear();
                }
                _ => {
                    let new: Vec<u8> = (0..count).map(|_| { next += 1; (next % 251) as u8 }).collect();
                    let seq = *first + bytes.len() as u32;
                    let room = spill.room(log);
                    let taken = spill.append(&memory, log, *owner, seq, &new);
                    prop_assert_eq!(taken, count.min(room));
                    bytes.extend(&new[..taken]);
                }
            }
            prop_assert_eq!(log.len() as usize, bytes.len());
            for Model { owner, first, bytes, .. } in &all {
                let own: Vec<_> = pieces(&memory).filter(|piece| piece.owner == *owner).collect();
                let found = gather(&own, *first, *first + bytes.len() as u32);
                prop_assert!(found.is_some_and(|found| bytes.iter().eq(&found)));
                prop_assert_eq!(gather(&own, *first, *first + (bytes.len() + CHUNK) as u32), None);
            }
        }
        for Model { log, .. } in &mut all {
            spill.clear(&memory, log);
        }
        prop_assert_eq!(pieces(&memory).count(), 0);
        prop_assert_eq!(spill.room(&Log::default()), CHUNKS * CHUNK);
    }
}
