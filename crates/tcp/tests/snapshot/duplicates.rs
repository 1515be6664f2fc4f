//! Counting goes on from any count that a snapshot holds, however large.

use std::sync::Arc;

use tcp::{Config, FourTuple, Options, Segment, Stack, StackConfig, State};
use wire::{Flags, Seq, Timestamps};

use crate::given;

#[test]
fn duplicates_are_counted_on_from_any_number() {
    let mut tried = 0;
    for seed in 0..3_000 {
        let mut snapshot = given::snapshot(seed);
        let in_flight = snapshot.send.nxt != snapshot.send.una;
        if snapshot.agreed.sack || !in_flight || snapshot.state != State::Established {
            continue;
        }
        snapshot.control.duplicates = u32::MAX;
        assert_eq!(snapshot.validate(), Ok(()));
        let config = StackConfig { secret: [7; 16], half_open: 8, connections: 8 };
        let mut stack = Stack::new(config);
        let id = stack.thaw(&snapshot, Arc::new(Config::default()), 0).unwrap();
        let path = FourTuple { local: snapshot.local, remote: snapshot.remote };
        let value = Seq(snapshot.receive.ts_recent.0);
        let timestamps = snapshot.agreed.timestamps.then_some(Timestamps { value, echo: Seq(0) });
        let shift = snapshot.agreed.window_scale.map_or(0, |(peer, _)| peer);
        let duplicate = Segment {
            seq: snapshot.receive.nxt,
            ack: snapshot.send.una,
            flags: Flags::ACK,
            window: (snapshot.send.wnd >> shift) as u16,
            urgent: 0,
            options: Options { timestamps, ..Options::default() },
            payload: &[],
            gso_size: 0,
            ce: false,
        };
        // The first may change the window, and is no duplicate then.
        for now in 1..=2 {
            stack.receive(&path, &duplicate, now);
        }
        assert!(stack.connection(id).is_some());
        tried += 1;
    }
    assert!(tried > 100, "{tried}");
}
