//! Each contradiction that a snapshot may hold is refused by its name.

use tcp::options::Block;
use tcp::snapshot::{Flight, RecoveryState, Snapshot, SnapshotError, TIME_MAX};
use tcp::{Keepalive, State};
use wire::Seq;

use crate::given::snapshot;

/// A valid one with something in flight, two blocks out of order and more to send.
fn rich() -> Snapshot {
    let rich = |snapshot: &Snapshot| {
        snapshot.state == State::Established
            && snapshot.receive.out_of_order.len() >= 2
            && snapshot.receive.fin.is_none()
            && snapshot.send.flight.len() >= 2
            && snapshot.local.is_ipv4()
    };
    (0..).map(snapshot).find(rich).unwrap()
}

fn refused(expected: SnapshotError, change: impl FnOnce(&mut Snapshot)) {
    refused_of(rich(), expected, change);
}

fn refused_of(mut snapshot: Snapshot, expected: SnapshotError, change: impl FnOnce(&mut Snapshot)) {
    assert_eq!(snapshot.validate(), Ok(()));
    change(&mut snapshot);
    assert_eq!(snapshot.validate(), Err(expected));
    assert_eq!(Snapshot::decode(&snapshot.encode()), Err(expected));
}

fn in_state(state: State) -> Snapshot {
    (0..).map(snapshot).find(|snapshot| snapshot.state == state).unwrap()
}

#[test]
fn another_version_is_refused_by_its_number() {
    let mut bytes = rich().encode();
    bytes[4] = 9;
    assert_eq!(Snapshot::decode(&bytes), Err(SnapshotError::Version(9)));
    bytes[0] = b'W';
    assert_eq!(Snapshot::decode(&bytes), Err(SnapshotError::NotASnapshot));
}

#[test]
fn addresses_are_two_ends_of_a_connection() {
    for address in
        ["[fd00::1]:80", "0.0.0.0:80", "224.0.0.1:80", "255.255.255.255:80", "10.0.0.1:0"]
    {
        let address = address.parse().unwrap();
        refused(SnapshotError::Addresses, |snapshot| snapshot.local = address);
        refused(SnapshotError::Addresses, |snapshot| snapshot.remote = address);
    }
}

#[test]
fn what_is_in_flight_fills_the_space_between_una_and_nxt() {
    refused(SnapshotError::Flight, |snapshot| snapshot.send.flight.truncate(1));
    refused(SnapshotError::Flight, |snapshot| snapshot.send.flight[0].len += 1);
    refused(SnapshotError::Flight, |snapshot| {
        snapshot.send.flight.push(Flight::default());
    });
    refused(SnapshotError::Flight, |snapshot| {
        snapshot.send.flight[0].sacked = true;
        snapshot.send.flight[0].lost = true;
    });
}

#[test]
fn what_is_in_flight_is_in_the_queue() {
    refused(SnapshotError::SendSequence, |snapshot| {
        let in_flight = snapshot.send.nxt - snapshot.send.una;
        snapshot.send.queue.truncate(in_flight as usize - 1);
        snapshot.send.urgent = None;
    });
    refused(SnapshotError::SendSequence, |snapshot| {
        snapshot.send.nxt = Seq(snapshot.send.una.0.wrapping_sub(1));
    });
    refused(SnapshotError::SendSequence, |snapshot| snapshot.send.wl2 = snapshot.send.nxt + 1);
    refused_of(in_state(State::SynReceived), SnapshotError::SendSequence, |snapshot| {
        snapshot.agreed.iss += 1;
    });
}

#[test]
fn what_was_received_lies_before_what_was_offered() {
    refused(SnapshotError::Window, |snapshot| {
        snapshot.receive.edge = Seq(snapshot.receive.nxt.0.wrapping_sub(2));
    });
    refused(SnapshotError::Window, |snapshot| {
        snapshot.agreed.window_scale = Some((14, 2));
        snapshot.receive.edge = snapshot.receive.nxt + 4 * 65_535 + 1;
    });
    refused(SnapshotError::ReceiveSequence, |snapshot| {
        snapshot.receive.acked = snapshot.receive.nxt + 1;
    });
    refused(SnapshotError::ReceiveSequence, |snapshot| {
        snapshot.send.wl1 = snapshot.receive.edge + 2;
    });
    refused_of(in_state(State::SynSent), SnapshotError::ReceiveSequence, |snapshot| {
        snapshot.receive.queue.push(0);
    });
}

#[test]
fn blocks_out_of_order_are_sorted_apart_and_within_the_window() {
    let refused = |change: fn(&mut Vec<(Block, Vec<u8>)>)| {
        refused(SnapshotError::OutOfOrder, |snapshot| change(&mut snapshot.receive.out_of_order));
    };
    refused(|out_of_order| out_of_order.swap(0, 1));
    refused(|out_of_order| out_of_order[0].1.push(0));
    refused(|out_of_order| out_of_order[1] = out_of_order[0].clone());
    refused(|out_of_order| {
        let more = out_of_order[1].0.start - out_of_order[0].0.end;
        out_of_order[0].1.extend(vec![0; more as usize]);
        out_of_order[0].0.end = out_of_order[1].0.start;
    });
    refused(|out_of_order| {
        out_of_order[0].1.clear();
        out_of_order[0].0.end = out_of_order[0].0.start;
    });
    refused_of(rich(), SnapshotError::OutOfOrder, |snapshot| {
        snapshot.receive.edge = Seq(snapshot.receive.out_of_order.last().unwrap().0.end.0 - 1);
        snapshot.send.wl1 = snapshot.receive.nxt;
    });
    refused_of(rich(), SnapshotError::Recent, |snapshot| snapshot.receive.recent[0].end += 1);
    refused_of(rich(), SnapshotError::Recent, |snapshot| {
        let first = snapshot.receive.recent[0];
        snapshot.receive.recent.push(first);
    });
}

#[test]
fn states_agree_with_what_was_closed() {
    refused(SnapshotError::State, |snapshot| snapshot.state = State::Closed);
    refused(SnapshotError::Fin, |snapshot| snapshot.send.fin = true);
    refused(SnapshotError::Fin, |snapshot| snapshot.state = State::FinWait1);
    refused(SnapshotError::Fin, |snapshot| snapshot.state = State::TimeWait);
    refused(SnapshotError::Fin, |snapshot| snapshot.state = State::CloseWait);
    refused(SnapshotError::State, |snapshot| {
        snapshot.send.fin = true;
        snapshot.state = State::FinWait2;
    });
    refused(SnapshotError::Fin, |snapshot| {
        snapshot.receive.fin = Some(snapshot.receive.out_of_order[0].0.start);
    });
    refused(SnapshotError::Fin, |snapshot| snapshot.receive.fin = Some(snapshot.receive.edge + 1));
    refused_of(in_state(State::LastAck), SnapshotError::Fin, |snapshot| {
        snapshot.receive.fin = None;
    });
}

#[test]
fn urgent_pointers_point_into_the_queues() {
    refused(SnapshotError::Urgent, |snapshot| snapshot.send.urgent = Some(snapshot.send.una));
    // A SYN is no byte.
    refused_of(in_state(State::SynSent), SnapshotError::Urgent, |snapshot| {
        snapshot.send.urgent = Some(snapshot.send.una + 1);
    });
    refused(SnapshotError::Urgent, |snapshot| {
        let queued = snapshot.send.queue.len() as u32;
        snapshot.send.urgent = Some(snapshot.send.una + queued + 1);
    });
    refused(SnapshotError::Urgent, |snapshot| {
        let queued = snapshot.receive.queue.len() as u32;
        // It is one after the urgent byte: that one was read.
        snapshot.receive.urgent = Some(Seq(snapshot.receive.nxt.0.wrapping_sub(queued)));
    });
}

#[test]
fn sizes_are_those_of_paths_and_windows() {
    refused(SnapshotError::WindowScale, |snapshot| {
        snapshot.agreed.window_scale = Some((15, 0));
    });
    refused(SnapshotError::Window, |snapshot| {
        snapshot.agreed.window_scale = Some((0, 14));
        snapshot.send.max_wnd = 65_536;
    });
    refused(SnapshotError::SegmentSize, |snapshot| snapshot.mss = 0);
    refused(SnapshotError::SegmentSize, |snapshot| snapshot.path_mtu = snapshot.mss);
    refused(SnapshotError::QueueLength, |snapshot| snapshot.receive.buffer = u32::MAX);
    refused(SnapshotError::CongestionWindow, |snapshot| snapshot.control.cwnd = 0);
    refused(SnapshotError::CongestionWindow, |snapshot| snapshot.control.cwnd = u32::MAX);
    refused(SnapshotError::CongestionWindow, |snapshot| snapshot.control.ssthresh = 0);
}

#[test]
fn recovery_ends_within_what_is_in_flight() {
    refused(SnapshotError::Recovery, |snapshot| {
        snapshot.control.recovery = RecoveryState::Recovery;
        snapshot.control.recovery_point = snapshot.send.nxt + 1;
    });
}

#[test]
fn times_are_those_of_a_connection() {
    let long = TIME_MAX + 1;
    refused(SnapshotError::Time, |snapshot| snapshot.timers.persist = Some(long));
    refused(SnapshotError::Time, |snapshot| snapshot.send.flight[0].ago = long);
    refused(SnapshotError::Time, |snapshot| snapshot.receive.ts_recent.1 = long);
    refused(SnapshotError::Time, |snapshot| snapshot.socket_options.user_timeout = long);
    refused(SnapshotError::Time, |snapshot| snapshot.round_trip.srtt = long);
    refused(SnapshotError::Keepalive, |snapshot| {
        snapshot.socket_options.keepalive = Some(Keepalive { interval: 0, ..Keepalive::default() });
    });
}
