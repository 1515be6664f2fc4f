//! Connections of any `Config` freeze into snapshots that validate.

use std::sync::Arc;

use proptest::prelude::*;
use tcp::config::{MILLISECOND, SECOND};
use tcp::snapshot::Snapshot;
use tcp::{
    Config, FourTuple, Id, Keepalive, Nanos, Options, Segment, Stack, StackConfig, Transmit,
};

/// What a stack has by default.
const MEMORY: u64 = 4 << 30;

/// One end, and the connection that it has.
struct End {
    stack: Stack,
    id: Option<Id>,
    config: Arc<Config>,
}

impl End {
    fn new(config: Config, memory: u64) -> End {
        let stack = Stack::new(StackConfig { secret: [7; 16], half_open: 8, connections: 8 });
        End { stack: stack.with_memory(memory), id: None, config: Arc::new(config) }
    }

    fn receive(&mut self, from: &Transmit<'_>, now: Nanos) {
        let path = FourTuple { local: from.path.remote, remote: from.path.local };
        let segment = Segment {
            seq: from.seq,
            ack: from.ack,
            flags: from.flags,
            window: from.window,
            urgent: from.urgent,
            options: Options::parse(from.options.as_slice()),
            payload: &from.payload,
            gso_size: from.gso_size,
            ce: false,
        };
        self.stack.receive(&path, &segment, now);
        while let Some((id, _)) = self.stack.next_event() {
            self.id = Some(id);
        }
    }

    /// Freezes and thaws the connection, if there is one. Fails if the snapshot is refused.
    fn freeze(&mut self, now: Nanos) -> Result<(), TestCaseError> {
        let frozen = self.id.and_then(|id| self.stack.freeze(id, now));
        let Some(snapshot) = frozen else { return Ok(()) };
        prop_assert_eq!(snapshot.validate(), Ok(()), "{:?}", snapshot);
        let decoded = Snapshot::decode(&snapshot.encode());
        prop_assert_eq!(decoded.as_ref(), Ok(&snapshot));
        self.id = self.stack.thaw(&snapshot, Arc::clone(&self.config), now).ok();
        prop_assert!(self.id.is_some());
        Ok(())
    }
}

/// A connection from its first SYN to its end, frozen after everything that happens to it.
fn live(config: &Config, memory: u64, v6: bool) -> Result<(), TestCaseError> {
    let mut ends = [(); 2].map(|()| End::new(config.clone(), memory));
    let (local, remote) =
        if v6 { ("[fd00::1]:4000", "[fd00::2]:80") } else { ("10.0.0.1:4000", "10.0.0.2:80") };
    let path = FourTuple { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
    let mut now = SECOND;
    let listening = Arc::clone(&ends[1].config);
    ends[1].stack.listen(None, 80, listening).unwrap();
    let connecting = Arc::clone(&ends[0].config);
    ends[0].id = ends[0].stack.connect(path, connecting, now).ok();
    let mut opened = false;
    for step in 0..60 {
        now += MILLISECOND;
        for side in 0..2 {
            ends[side].freeze(now)?;
            let [zero, one] = &mut ends;
            let (from, to) = if side == 0 { (zero, one) } else { (one, zero) };
            for _ in 0..100 {
                let Some(segment) = from.stack.poll_transmit(now) else { break };
                to.receive(&segment, now);
            }
            from.freeze(now)?;
        }
        for end in &mut ends {
            let Some(mut socket) = end.id.and_then(|id| end.stack.socket(id, now)) else {
                continue;
            };
            opened |= socket.state().is_synchronized();
            match step {
                10..20 => drop(socket.send(&[7; 3_000])),
                20..40 => drop(socket.receive(&mut [0; 1_000])),
                40.. => socket.shutdown(),
                _ => {}
            }
        }
        // Now and then time passes, perhaps to a timer.
        if step % 5 == 4 {
            now += 100 * MILLISECOND;
        }
        ends.iter_mut().for_each(|end| end.stack.on_time(now));
    }
    prop_assert!(opened);
    Ok(())
}

fn times() -> impl Strategy<Value = Nanos> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(MILLISECOND),
        Just(SECOND),
        Just(3600 * SECOND),
        Just(Nanos::MAX),
    ]
}

fn bytes() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), Just(1), Just(536), Just(65_536), Just(1 << 30), Just(u32::MAX)]
}

prop_compose! {
    fn sizes()(
        mtu in prop_oneof![Just(0), Just(68), Just(128), Just(576), Just(1500), Just(u16::MAX)],
        mss in prop_oneof![Just(0), Just(1), Just(100), Just(u16::MAX)],
        send_buffer in bytes(),
        receive_buffer in bytes(),
        receive_buffer_max in bytes(),
        initial_window in prop_oneof![Just(0), Just(10), Just(u32::MAX)],
        burst in bytes(),
        (timestamps, sack, window_scaling, probe_mtu) in any::<(bool, bool, bool, bool)>(),
    ) -> Config {
        Config {
            mtu,
            mss,
            send_buffer,
            receive_buffer,
            receive_buffer_max,
            initial_window,
            burst,
            timestamps,
            sack,
            window_scaling,
            probe_mtu,
            ..Config::default()
        }
    }
}

prop_compose! {
    fn any_config()(
        sizes in sizes(),
        keepalive in prop::option::of((times(), times(), any::<u8>())),
        user_timeout in times(),
        user_timeout_option: bool,
        delayed_ack in times(),
        (initial_rto, min_rto, max_rto) in (times(), times(), times()),
        (time_wait, fin_wait_2) in (times(), times()),
        retries in prop_oneof![Just(0), Just(15), Just(u8::MAX)],
    ) -> Config {
        let keepalive = keepalive.map(|(idle, interval, probes)| Keepalive { idle, interval, probes });
        Config {
            keepalive,
            user_timeout,
            user_timeout_option,
            delayed_ack,
            initial_rto,
            min_rto,
            max_rto,
            time_wait,
            fin_wait_2,
            retries,
            ..sizes
        }
    }
}

proptest! {
    #[test]
    fn every_connection_that_a_config_allows_freezes(
        config in any_config(),
        memory in prop_oneof![Just(MEMORY), Just(u64::MAX)],
        v6: bool,
    ) {
        live(&config, memory, v6)?;
    }
}

#[test]
fn keepalives_of_zero_and_the_smallest_mtu_freeze() {
    let keepalive = Some(Keepalive { idle: 0, interval: 0, probes: 9 });
    live(&Config { keepalive, ..Config::default() }, MEMORY, false).unwrap();
    live(&Config { mtu: 68, ..Config::default() }, MEMORY, false).unwrap();
    live(&Config { mtu: 68, ..Config::default() }, MEMORY, true).unwrap();
}

#[test]
fn the_largest_buffers_freeze_where_there_is_memory_for_them() {
    let buffers = Config {
        receive_buffer: u32::MAX,
        receive_buffer_max: u32::MAX,
        send_buffer: u32::MAX,
        ..Config::default()
    };
    live(&buffers, 1 << 40, false).unwrap();
    live(&buffers, u64::MAX, true).unwrap();
}
