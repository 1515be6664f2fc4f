//! A snapshot that waits for a window with data under way, as no connection of an engine does, goes on all
//! the same, and ends.

use std::sync::Arc;

use tcp::{Config, Stack, StackConfig, State};

use crate::given::snapshot;

const NOW: u64 = 1_000_000_000;

/// Fuzzing found one of which a close stopped the only timer.
#[test]
fn what_is_under_way_has_a_timer_after_a_close() {
    let mut thawed = 0;
    for seed in 0..300 {
        let mut snapshot = snapshot(seed);
        if snapshot.state != State::Established || snapshot.send.flight.is_empty() {
            continue;
        }
        let timers = &mut snapshot.timers;
        (timers.retransmit, timers.tail_probe, timers.reorder) = (None, None, None);
        timers.persist = Some(NOW);
        snapshot.receive.queue.clear();
        snapshot.receive.urgent = None;
        if snapshot.validate().is_err() {
            continue;
        }
        thawed += 1;
        let mut stack = Stack::new(StackConfig { secret: [7; 16], half_open: 1, connections: 8 });
        let id = stack.thaw(&snapshot, Arc::new(Config::default()), NOW).unwrap();
        let mut socket = stack.socket(id, NOW).unwrap();
        socket.set_keepalive(None);
        socket.shutdown();
        drop(socket);
        while stack.poll_transmit(NOW).is_some() {}
        assert!(stack.next_deadline().is_some(), "seed {seed}");
    }
    assert!(thawed > 10, "only {thawed} were valid");
}
