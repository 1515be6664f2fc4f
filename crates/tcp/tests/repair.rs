//! Snapshots in Linux's form and back: what is kept by the table in `tcp::repair` is kept, what is lost is
//! named, and any numbers of a kernel give a valid snapshot or an error.

use std::sync::Arc;

use proptest::prelude::*;
use tcp::repair::{Repair, RepairError, RepairPath, RepairWindow};
use tcp::snapshot::{RecoveryState, RoundTrip};
use tcp::{Algorithm, Config, FourTuple, Options, Segment, Snapshot, Stack, StackConfig, State};
use wire::{Flags, Seq, Timestamps};

const NOW: u64 = 1_000_000_000;

fn is_served(state: State) -> bool {
    use State::*;
    !matches!(state, Closed | SynSent | SynReceived | TimeWait)
}

/// The first snapshot from this seed on whose state the kernel takes, or does not.
fn snapshot(seed: u64, served: bool) -> Snapshot {
    let mut seeds = (0..).map(|more| seed.wrapping_add(more));
    seeds
        .find_map(|seed| {
            Some(crate::given::snapshot(seed)).filter(|it| is_served(it.state) == served)
        })
        .unwrap()
}

/// What is left of a snapshot that has been to the kernel in between, by the table.
fn as_it_comes_back(before: &Snapshot) -> Snapshot {
    let mut after = before.clone();
    let (send, receive) = (&mut after.send, &mut after.receive);
    after.agreed.iss = Seq(send.una.0.wrapping_sub(1));
    after.agreed.irs = Seq(receive.nxt.0.wrapping_sub(1));
    after.ts_now = before.ts_now.wrapping_add(before.ts_now & 1);
    send.max_wnd = send.max_wnd.max(send.wnd);
    send.bytes_acked = u32::MAX;
    (send.wl2, send.small, send.urgent) = (send.una, send.una, None);
    receive.out_of_order.clear();
    receive.recent.clear();
    receive.urgent = None;
    receive.ecn_echo = false;
    if !matches!(before.state, State::CloseWait | State::Closing | State::LastAck) {
        receive.fin = None;
    }
    after.control.algorithm = Algorithm::Cubic;
    after.control.private = [0; tcp::congestion::PRIVATE_WORDS];
    after.control.recovery = RecoveryState::Open;
    after.control.recovery_point = send.una;
    (after.control.duplicates, after.control.reordering) = (0, false);
    after.control.reorder_window = 0;
    after
}

proptest! {
    #[test]
    fn what_is_kept_is_kept(seed in any::<u64>()) {
        let before = snapshot(seed, true);
        let (repair, _) = before.to_repair().unwrap();
        let after = Snapshot::from_repair(&repair).unwrap();
        let mut expected = as_it_comes_back(&before);
        // These are rounded or begun anew, and looked at below.
        expected.send.flight = after.send.flight.clone();
        expected.receive.buffer = after.receive.buffer;
        expected.receive.ts_recent = after.receive.ts_recent;
        expected.timers = after.timers;
        expected.moment = after.moment;
        expected.round_trip = after.round_trip;
        expected.control.cwnd = after.control.cwnd;
        expected.control.ssthresh = after.control.ssthresh;
        prop_assert_eq!(&after, &expected);

        let in_flight = before.send.nxt - before.send.una;
        let flight: u32 = after.send.flight.iter().map(|flight| flight.len).sum();
        prop_assert_eq!(flight, in_flight);
        let timers = &after.timers;
        let is_timed = timers.retransmit.or(timers.tail_probe).is_some();
        prop_assert_eq!(is_timed, in_flight > 0);
        let mss = u32::from(before.mss);
        prop_assert_eq!(after.control.cwnd / mss, before.control.cwnd / mss);
        let micros = |time: &RoundTrip| [time.srtt / 1000, time.rttvar / 1000, time.min / 1000];
        prop_assert_eq!(micros(&after.round_trip), micros(&before.round_trip));
        let window = before.receive.edge - before.receive.nxt;
        prop_assert!(after.receive.buffer >= window, "what was offered has room");

        // Once through, nothing more is lost.
        let (again, _) = after.to_repair().unwrap();
        prop_assert_eq!(Snapshot::from_repair(&again).unwrap(), after);
    }

    #[test]
    fn what_is_lost_is_named(seed in any::<u64>()) {
        let before = snapshot(seed, true);
        let (repair, lost) = before.to_repair().unwrap();
        let after = Snapshot::from_repair(&repair).unwrap();
        let out_of_order: usize = before.receive.out_of_order.iter().map(|(_, bytes)| bytes.len()).sum();
        prop_assert_eq!(lost.out_of_order as usize, out_of_order);
        let urgent = before.send.urgent.is_some() || before.receive.urgent.is_some();
        prop_assert_eq!(lost.urgent, urgent);
        prop_assert_eq!(lost.ecn, before.agreed.ecn);
        let plain = before.send.flight.iter().filter(|f| !f.sacked && !f.lost && !f.retransmitted);
        let plain: u32 = plain.map(|flight| flight.len).sum();
        prop_assert_eq!(lost.scoreboard, (before.send.nxt - before.send.una) - plain);
        // Values that the kernel does not accept are no part of what it is given.
        prop_assert_eq!(after.receive.ts_recent.0, repair.ts_recent.unwrap_or(0));
    }

    #[test]
    fn connections_that_the_kernel_does_not_take_are_refused(seed in any::<u64>()) {
        let snapshot = snapshot(seed, false);
        prop_assert_eq!(snapshot.to_repair(), Err(RepairError::State(snapshot.state)));
    }

    /// Any values of a kernel give a valid snapshot, or an error.
    #[test]
    fn any_numbers_give_a_valid_snapshot_or_an_error(
        seed in any::<u64>(),
        state in 0u8..13,
        seqs in any::<[u32; 4]>(),
        few in prop::collection::vec(0u32..20_000, 4),
        many in prop::collection::vec(any::<u32>(), 9),
        fit in any::<bool>(),
    ) {
        let given = crate::given::snapshot(seed);
        let Some(state) = Repair::state_from_kernel(state) else { return Ok(()) };
        let repair = Repair {
            is_deaf: false,
            behind_hole: Vec::new(),
            sacked: Vec::new(),
            local: given.local,
            remote: given.remote,
            state,
            write_seq: Seq(seqs[0]),
            unacknowledged: few[0],
            unsent: few[1],
            rcv_nxt: Seq(seqs[1]),
            send_queue: vec![7; few[if fit { 0 } else { 2 }] as usize],
            recv_queue: vec![8; few[3] as usize],
            timestamps: true,
            sack: true,
            window_scale: given.agreed.window_scale,
            mss_clamp: few[0] as u16,
            ecn: false,
            timestamp: seqs[2],
            ts_recent: None,
            window: RepairWindow {
                snd_wl1: Seq(seqs[1].wrapping_sub(few[2])),
                snd_wnd: many[0] >> (few[0] % 32),
                max_window: many[1] >> (few[0] % 32),
                rcv_wnd: many[2] >> (few[1] % 32),
                rcv_wup: Seq(seqs[if fit { 1 } else { 3 }]),
            },
            path: RepairPath {
                rto: many[3],
                rtt: many[4],
                rttvar: many[5],
                min_rtt: many[6],
                snd_cwnd: many[7],
                snd_ssthresh: many[8],
                snd_mss: few[2],
                rcv_mss: few[3],
                advmss: few[3],
                pmtu: few[2] + 60,
                backoff: seqs[0] as u8,
                last_data_sent: many[0],
            },
            socket_options: given.socket_options,
        };
        if let Ok(snapshot) = Snapshot::from_repair(&repair) {
            prop_assert_eq!(snapshot.validate(), Ok(()));
            let encoded = Snapshot::decode(&snapshot.encode()).unwrap();
            prop_assert_eq!(&encoded, &snapshot);
            prop_assert!(snapshot.to_repair().is_ok());
        }
    }
}

/// A window that is closed while its application has read everything opens again.
#[test]
fn a_closed_window_opens_again() {
    let mut repair = snapshot(7, true).to_repair().unwrap().0;
    repair.recv_queue.clear();
    repair.window.rcv_wnd = 0;
    repair.window.rcv_wup = repair.rcv_nxt;
    let snapshot = Snapshot::from_repair(&repair).unwrap();
    assert!(snapshot.receive.buffer >= 64 << 10);
}

/// A connection that moves again and again would never see its time-out, which starts anew each time.
#[test]
fn what_is_in_flight_is_asked_for_soon() {
    let mut seeds = 0..;
    let repair = seeds.find_map(|seed| {
        let repair = snapshot(seed, true).to_repair().unwrap().0;
        (repair.sack && repair.unacknowledged > repair.unsent).then_some(repair)
    });
    let mut repair = repair.unwrap();
    // As after a connection came back to the kernel.
    repair.path.rtt = 0;
    let timers = Snapshot::from_repair(&repair).unwrap().timers;
    assert_eq!((timers.tail_probe, timers.retransmit), (Some(2_000_000), None));
    repair.sack = false;
    let timers = Snapshot::from_repair(&repair).unwrap().timers;
    assert_eq!((timers.tail_probe, timers.retransmit), (None, Some(1_000_000_000)));
}

/// The kernel's clock is put ahead when it gives a connection away: an echo of what it sent before is no round trip.
#[test]
fn what_the_kernel_has_sent_measures_no_round_trip() {
    const AHEAD: u32 = 24_000;
    let (mut before, mut after) = (0, 0);
    for seed in 0..300 {
        let (repair, _) = snapshot(seed, true).to_repair().unwrap();
        let mut given = Snapshot::from_repair(&repair).unwrap();
        (given.socket_options.user_timeout, given.socket_options.keepalive) = (0, None);
        let sent = given.send.nxt - given.send.una;
        given.send.queue.truncate(sent as usize);
        let is_segment = (1..=u32::from(given.mss)).contains(&sent);
        if !repair.timestamps || given.state != State::Established || !is_segment {
            continue;
        }
        let measures = |echo: u32| {
            let mut stack =
                Stack::new(StackConfig { secret: [7; 16], half_open: 1, connections: 8 });
            let id = stack.thaw(&given, Arc::new(Config::default()), NOW).unwrap();
            // All is sent again, so that only a timestamp can measure.
            let (mut now, mut path) = (NOW, None);
            while stack.connection(id).unwrap().info().retransmitted < sent {
                now = stack.next_deadline().unwrap();
                stack.on_time(now);
                while let Some(transmit) = stack.poll_transmit(now) {
                    path = Some(transmit.path);
                }
            }
            let rtt = stack.connection(id).unwrap().info().rtt;
            let value = Seq(given.receive.ts_recent.0.wrapping_add(1));
            let times = Timestamps { value, echo: Seq(echo) };
            let segment = Segment {
                seq: given.receive.nxt,
                ack: given.send.nxt,
                flags: Flags::ACK,
                window: 0,
                urgent: 0,
                options: Options { timestamps: Some(times), ..Options::default() },
                payload: &[],
                gso_size: 0,
                ce: false,
            };
            stack.receive(&path.unwrap(), &segment, now);
            let info = stack.connection(id).unwrap().info();
            assert_eq!(info.unacked, 0, "seed {seed}: it is acknowledged");
            info.rtt != rtt
        };
        before += usize::from(measures(given.ts_now.wrapping_sub(AHEAD)));
        after += usize::from(measures(given.ts_now));
    }
    assert_eq!(before, 0, "{before} measured what came before");
    assert!(after > 10, "{after} measured what came after");
}

/// The kernel stamps segments with the time at which its pace lets them go, and may have sent later ones than it tells. The
/// peer, which echoes them, would drop what bears earlier ones.
#[test]
fn timestamps_go_on_from_what_the_peer_echoes() {
    const AHEAD: u32 = 12_454;
    let mut told = 0;
    for seed in 0..300 {
        let (repair, _) = snapshot(seed, true).to_repair().unwrap();
        let given = Snapshot::from_repair(&repair).unwrap();
        if !repair.timestamps || given.state != State::Established {
            continue;
        }
        let mut stack = Stack::new(StackConfig { secret: [7; 16], half_open: 1, connections: 8 });
        let id = stack.thaw(&given, Arc::new(Config::default()), NOW).unwrap();
        let value = Seq(given.receive.ts_recent.0.wrapping_add(1));
        let first = given.ts_now.wrapping_add(AHEAD);
        // The last is no echo of anybody's.
        for (echo, least) in
            [(first, first), (first.wrapping_sub(3), first), (first.wrapping_add(1 << 30), first)]
        {
            let options = Options {
                timestamps: Some(Timestamps { value, echo: Seq(echo) }),
                ..Options::default()
            };
            let segment = Segment {
                // Of a keepalive, which is answered at once.
                seq: given.receive.nxt + u32::MAX,
                ack: given.send.una,
                flags: Flags::ACK,
                window: 1000,
                urgent: 0,
                options,
                payload: &[],
                gso_size: 0,
                ce: false,
            };
            let path = FourTuple { local: given.local, remote: given.remote };
            stack.receive(&path, &segment, NOW);
            while let Some(transmit) = stack.poll_transmit(NOW) {
                let sent = Options::parse(transmit.options.as_slice()).timestamps.unwrap().value;
                assert!(sent.after(Seq(least)) && sent.before(Seq(least) + 1000), "seed {seed}");
                told += 1;
            }
        }
        let standing = stack.connection(id).unwrap().standing();
        assert_eq!(standing.ts_ahead, AHEAD + 1, "seed {seed}");
    }
    assert!(told > 50, "{told} segments");
}
