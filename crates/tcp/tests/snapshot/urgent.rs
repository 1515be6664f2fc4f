//! Urgent data of a valid snapshot stays valid after a read.

use std::sync::Arc;

use tcp::snapshot::Snapshot;
use tcp::{Config, Stack, StackConfig};
use wire::Seq;

use crate::given::snapshot;

const NOW: u64 = 1_000_000_000;

/// The snapshot of the same connection after its application has read some bytes; `None` if it was over.
fn after_a_read(snapshot: &Snapshot, bytes: usize) -> Option<Snapshot> {
    let mut stack = Stack::new(StackConfig { secret: [7; 16], half_open: 1, connections: 8 });
    let id = stack.thaw(snapshot, Arc::new(Config::default()), NOW).unwrap();
    let _ = stack.socket(id, NOW)?.receive(&mut vec![0; bytes]);
    stack.freeze(id, NOW)
}

/// Fuzzing found an urgent pointer at the next byte to be read, which a read left behind in the past.
#[test]
fn a_read_leaves_a_valid_urgent_pointer_valid() {
    let mut thawed = 0;
    for seed in 0..300 {
        let mut snapshot = snapshot(seed);
        let unread = snapshot.receive.queue.len() as i32;
        for (at, inline) in
            (-unread - 2..=2 - unread).chain(-2..=2).flat_map(|at| [(at, false), (at, true)])
        {
            snapshot.receive.urgent = Some(Seq(snapshot.receive.nxt.0.wrapping_add_signed(at)));
            snapshot.socket_options.urgent_inline = inline;
            if snapshot.validate().is_err() {
                continue;
            }
            thawed += 1;
            for bytes in [1, 2, 10_000] {
                let Some(after) = after_a_read(&snapshot, bytes) else { continue };
                let state = after.state;
                assert_eq!(after.validate(), Ok(()), "seed {seed}, {state}, at {at} of {unread}");
            }
        }
    }
    assert!(thawed > 100, "only {thawed} were valid");
}
