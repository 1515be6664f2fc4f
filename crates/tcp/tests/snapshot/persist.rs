//! A snapshot with a persist timer and data in flight, which no connection of an engine has, is thawed and
//! comes to an end.

use std::sync::Arc;

use tcp::snapshot::Timers;
use tcp::{Config, Stack, StackConfig, State};

use crate::given::snapshot;

const NOW: u64 = 1_000_000_000;

/// Fuzzing found one of which a close stopped the only timer.
#[test]
fn what_is_in_flight_has_a_timer_after_a_close() {
    let mut thawed = 0;
    for seed in 0..300 {
        let mut snapshot = snapshot(seed);
        if snapshot.state != State::Established || snapshot.send.flight.is_empty() {
            continue;
        }
        let timers = &mut snapshot.timers;
        // Nothing else is to be done, and nothing can be sent.
        *timers = Timers { persist: Some(NOW), ..Timers::default() };
        (snapshot.socket_options.keepalive, snapshot.moment.tail_probe) = (None, None);
        snapshot.send.wnd = 0;
        snapshot.send.flight.iter_mut().for_each(|flight| flight.lost = false);
        snapshot.receive.queue.clear();
        snapshot.receive.urgent = None;
        if snapshot.validate().is_err() {
            continue;
        }
        thawed += 1;
        let mut stack = Stack::new(StackConfig { secret: [7; 16], half_open: 1, connections: 8 });
        let id = stack.thaw(&snapshot, Arc::new(Config::default()), NOW).unwrap();
        let mut socket = stack.socket(id, NOW).unwrap();
        socket.close();
        drop(socket);
        let mut now = NOW;
        loop {
            while stack.poll_transmit(now).is_some() {}
            let Some(at) = stack.next_deadline() else { break };
            now = at;
            stack.on_time(now);
        }
        assert!(stack.is_empty(), "seed {seed}: nothing is waited for, and the connection stays");
    }
    assert!(thawed > 10, "only {thawed} were valid");
}
