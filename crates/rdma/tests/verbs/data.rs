//! Each kind of work does what it says.

use rdma::mpa::{Config, Rtr};
use rdma::rdmap::atomic::Operation;
use rdma::verbs::{Done, Flags, Payload, Work};
use rdma::{Completion, Event, Status};

use crate::world::{BASE, Pair, Setup};

/// Markers both ways or not, CRCs or not, small segments or large ones.
fn setups() -> Vec<Setup> {
    let mut all = Vec::new();
    for markers in [(false, false), (true, true), (true, false)] {
        for crc in [true, false] {
            for emss in [200, 1448, 65_000] {
                let config = Config { markers: markers.0, crc, ..Config::default() };
                let peer = Config { markers: markers.1, crc, ..Config::default() };
                all.push(Setup { config, peer, emss, ..Setup::default() });
            }
        }
    }
    all
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed * 13 + at / 251) as u8).collect()
}

const LENGTHS: [usize; 9] = [0, 1, 7, 8, 185, 1430, 1431, 4096, 30_000];

#[test]
fn writes_of_any_length() {
    for setup in setups() {
        let mut pair = Pair::ready_with(&setup);
        for (id, len) in LENGTHS.into_iter().enumerate() {
            let bytes = pattern(len, id);
            pair.a.bytes(100, len).copy_from_slice(&bytes);
            pair.b.bytes(1000, 30_100).fill(0xcc);
            let work = Work::Write { stag: pair.b.stag, offset: BASE + 1000 };
            let sge = pair.a.sge(100, len as u32);
            pair.a.post(id as u64, work, &[sge]);
            pair.pump();
            assert_eq!(pair.a.sent(), [(id as u64, Status::Success)], "{setup:?}");
            assert_eq!(pair.b.bytes(1000, len), bytes);
            assert_eq!(pair.b.bytes(1000 + len, 10), [0xcc; 10]);
            // One-sided: the target hears nothing of it.
            assert!(pair.b.received().is_empty() && pair.b.sent().is_empty());
        }
    }
}

#[test]
fn reads_of_any_length() {
    for setup in setups() {
        let mut pair = Pair::ready_with(&setup);
        for (id, len) in LENGTHS.into_iter().enumerate() {
            let bytes = pattern(len, id);
            pair.b.bytes(500, len).copy_from_slice(&bytes);
            pair.a.bytes(0, 30_200).fill(0xcc);
            let work = Work::Read { stag: pair.b.stag, offset: BASE + 500 };
            let sge = pair.a.sge(100, len as u32);
            pair.a.post(id as u64, work, &[sge]);
            pair.pump();
            let done = pair.a.poll(pair.a.send_cq);
            assert_eq!(done.len(), 1);
            assert_eq!(
                (done[0].wr_id, done[0].status, done[0].len),
                (id as u64, Status::Success, len as u32)
            );
            assert_eq!(done[0].done, Done::Read);
            assert_eq!(pair.a.bytes(100, len), bytes);
            assert_eq!(pair.a.bytes(100 + len, 10), [0xcc; 10]);
        }
    }
}

#[test]
fn sends_of_any_length_scattered_and_gathered() {
    for setup in setups() {
        let mut pair = Pair::ready_with(&setup);
        for (id, len) in LENGTHS.into_iter().enumerate() {
            let bytes = pattern(len, id);
            pair.a.bytes(0, len).copy_from_slice(&bytes);
            // Out of three elements, into four, the second of which is empty.
            let (first, second) = (len / 5, len / 3);
            let from = [
                pair.a.sge(0, first as u32),
                pair.a.sge(first, second as u32),
                pair.a.sge(first + second, (len - first - second) as u32),
            ];
            let into = [
                pair.b.sge(40_000, (len / 2) as u32),
                pair.b.sge(0, 0),
                pair.b.sge(10, (len / 4) as u32),
                pair.b.sge(20_000, len as u32),
            ];
            pair.b.receive(100 + id as u64, &into);
            pair.a.send(id as u64, &from);
            pair.pump();
            assert_eq!(pair.a.sent(), [(id as u64, Status::Success)]);
            let received = pair.b.poll(pair.b.receive_cq);
            assert_eq!(received.len(), 1);
            assert_eq!(received[0].wr_id, 100 + id as u64);
            assert_eq!((received[0].done, received[0].len), (Done::Receive, len as u32));
            let (half, quarter) = (len / 2, len / 4);
            let mut got = pair.b.bytes(40_000, half).to_vec();
            got.extend_from_slice(pair.b.bytes(10, quarter));
            got.extend_from_slice(pair.b.bytes(20_000, len - half - quarter));
            assert_eq!(got, bytes, "{len} {setup:?}");
        }
    }
}

#[test]
fn inline_bytes_are_those_of_the_post() {
    let mut pair = Pair::ready();
    let work = Work::Write { stag: pair.b.stag, offset: BASE };
    let mut bytes = *b"inline!!";
    pair.a.post_with(1, work, Payload::Inline(&bytes), Flags::default());
    bytes.fill(0);
    pair.pump();
    assert_eq!(pair.b.bytes(0, 8), b"inline!!");
    assert!(pair.a.sent().is_empty(), "it was not signaled");
    // All of the 236 bytes, and not one more.
    pair.a.post_with(2, work, Payload::Inline(&[7; 236]), Flags::default());
    pair.pump();
    assert_eq!(pair.b.bytes(0, 236), [7; 236]);
}

/// Unsignaled work completes silently, and makes room.
#[test]
fn one_in_many_is_signaled() {
    let mut pair = Pair::ready();
    let work = Work::Write { stag: pair.b.stag, offset: BASE };
    for round in 0..20u64 {
        for id in 0..31 {
            pair.a.post_with(id, work, Payload::Inline(&[1; 8]), Flags::default());
        }
        let signaled = Flags { signaled: true, ..Flags::default() };
        pair.a.post_with(round, work, Payload::Inline(&[2; 8]), signaled);
        pair.pump();
        assert_eq!(pair.a.sent(), [(round, Status::Success)]);
    }
}

#[test]
fn all_are_signaled_if_the_queue_pair_says_so() {
    let mut pair = Pair::ready_with(&Setup { signal_all: true, ..Setup::default() });
    let work = Work::Write { stag: pair.b.stag, offset: BASE };
    pair.a.post_with(3, work, Payload::Inline(&[1; 8]), Flags::default());
    pair.pump();
    assert_eq!(pair.a.sent(), [(3, Status::Success)]);
}

#[test]
fn a_write_with_immediate_data() {
    for setup in setups() {
        let mut pair = Pair::ready_with(&setup);
        for (id, len) in [0, 5, 9000].into_iter().enumerate() {
            let bytes = pattern(len, 3);
            pair.a.bytes(0, len).copy_from_slice(&bytes);
            // The receive's memory is not used.
            pair.b.receive(50, &[]);
            let immediate = [0xde, 0xad, 0xbe, id as u8];
            let work = Work::WriteImmediate { stag: pair.b.stag, offset: BASE + 9, immediate };
            let sge = pair.a.sge(0, len as u32);
            pair.a.post(id as u64, work, &[sge]);
            pair.pump();
            let received = pair.b.poll(pair.b.receive_cq);
            let expected = Completion {
                wr_id: 50,
                qp: pair.b.qp,
                done: Done::ReceiveImmediate,
                len: len as u32,
                immediate: Some(immediate),
                ..Completion::default()
            };
            assert_eq!(received, [expected]);
            assert_eq!(pair.b.bytes(9, len), bytes);
            assert_eq!(pair.a.sent(), [(id as u64, Status::Success)]);
        }
    }
}

#[test]
fn atomics_return_what_was_there() {
    let mut pair = Pair::ready();
    pair.b.bytes(64, 8).copy_from_slice(&10u64.to_ne_bytes());
    let (stag, offset) = (pair.b.stag, BASE + 64);
    let into = pair.a.sge(8, 8);
    let mut run = |operation: Operation| {
        pair.a.post(1, Work::Atomic { stag, offset, operation }, &[into]);
        pair.pump();
        let done = pair.a.poll(pair.a.send_cq);
        assert_eq!((done.len(), done[0].status, done[0].len), (1, Status::Success, 8));
        let was = u64::from_ne_bytes(pair.a.bytes(8, 8).try_into().unwrap());
        let is = u64::from_ne_bytes(pair.b.bytes(64, 8).try_into().unwrap());
        (done[0].done, was, is)
    };
    assert_eq!(run(Operation::fetch_add(5)), (Done::FetchAdd, 10, 15));
    assert_eq!(run(Operation::fetch_add(u64::MAX)), (Done::FetchAdd, 15, 14));
    assert_eq!(run(Operation::compare_swap(14, 99)), (Done::CompareSwap, 14, 99));
    assert_eq!(run(Operation::compare_swap(14, 1)), (Done::CompareSwap, 99, 99));
    assert_eq!(pair.b.rnic.counters().atomics, 4);
}

/// RFC 5044 section 7.1: a responder sends nothing before the initiator's first FPDU, of whatever kind; with
/// RFC 6581 that is a message which nobody hears of.
#[test]
fn the_ready_message_lets_the_responder_send() {
    let kinds = [Rtr::Write, Rtr::Read, Rtr::Send];
    for rtr in kinds.map(Some).into_iter().chain([None]) {
        for ird in [0, 4] {
            let all = rtr.map_or(Default::default(), Into::into);
            let config = Config {
                rtr: all,
                peer_to_peer: rtr.is_some(),
                ird,
                ord: ird,
                ..Config::default()
            };
            let mut pair = Pair::new(&Setup { config, peer: config, ..Setup::default() });
            pair.a.receive(1, &[]);
            pair.b.receive(2, &[]);
            pair.b.send(3, &[]);
            assert!(!pair.b.rnic.wants_transmit(pair.b.qp), "{rtr:?}");
            assert!(pair.b.transmit(4096).is_empty(), "{rtr:?}");
            if rtr.is_none() {
                pair.a.post_with(
                    9,
                    Work::Write { stag: 0, offset: 0 },
                    Payload::Sges(&[]),
                    Flags::default(),
                );
            }
            pair.pump();
            assert_eq!(pair.b.take_events(), [Event::Established(pair.b.qp)]);
            assert_eq!(pair.a.received(), [(1, Status::Success)], "{rtr:?}");
            assert_eq!(pair.b.received(), []);
            assert_eq!(pair.b.sent(), [(3, Status::Success)]);
            assert_eq!(pair.a.sent(), []);
            // The next Send meets the receive that the ready message left alone.
            pair.a.send(4, &[]);
            pair.pump();
            assert_eq!(pair.b.received(), [(2, Status::Success)], "{rtr:?}");
        }
    }
}
