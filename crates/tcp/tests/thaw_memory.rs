//! A snapshot takes memory for its bytes, not for the distances between them.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

#[path = "snapshot/given.rs"]
#[allow(dead_code)] // others need the rest of it
mod given;

use std::sync::Arc;

use sys::allocator::Counting;
use tcp::{Block, Config, Snapshot, Stack, StackConfig, State};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that are allocated to go on with it.
fn allocated(snapshot: &Snapshot) -> u64 {
    let config = StackConfig { secret: [3; 16], half_open: 1, connections: 1 };
    let mut stack = Stack::new(config);
    let before = Counting::allocated();
    stack.thaw(snapshot, Arc::new(Config::default()), 1_000_000_000).unwrap();
    Counting::allocated() - before
}

/// One byte at the end of the largest window that there is.
#[test]
fn a_byte_far_away_takes_no_memory_for_the_way_there() {
    let sought = |snapshot: &Snapshot| {
        snapshot.state == State::Established
            && snapshot.receive.fin.is_none()
            && snapshot.validate().is_ok()
    };
    let mut snapshot = (0..).map(given::snapshot).find(sought).unwrap();
    let receive = &mut snapshot.receive;
    receive.queue.clear();
    receive.urgent = None;
    receive.out_of_order.clear();
    receive.recent.clear();
    let before = allocated(&snapshot);
    let receive = &mut snapshot.receive;
    let peers = snapshot.agreed.window_scale.map_or(0, |(theirs, _)| theirs);
    snapshot.agreed.window_scale = Some((peers, 14));
    receive.edge = receive.nxt + (65_535 << 14);
    let last = Block { start: receive.nxt + ((65_535 << 14) - 1), end: receive.edge };
    receive.out_of_order = vec![(last, vec![7])];
    snapshot.validate().unwrap();
    let more = allocated(&snapshot) - before;
    assert!(more < 256 << 10, "{more} bytes for one");
}
