//! Completion queues and shared receive queues.

use rdma::verbs::{Error, Event, Flags, Payload, QpConfig, RecvRequest, SendRequest, State, Work};
use rdma::{Completion, Status};

use crate::world::{BASE, Host, Pair, Setup};

fn writes(host: &mut Host, stag: u32, count: u64) {
    for id in 0..count {
        host.post(id, Work::Write { stag, offset: BASE }, &[]);
    }
}

#[test]
fn an_overrun_queue_loses_what_is_too_much_and_ends_its_queue_pair() {
    let mut pair = Pair::ready_with(&Setup { cqe: 4, ..Setup::default() });
    let stag = pair.b.stag;
    writes(&mut pair.a, stag, 4);
    pair.pump();
    assert_eq!(pair.a.state(), State::Rts);
    writes(&mut pair.a, stag, 1);
    pair.pump();
    let events = pair.a.take_events();
    assert_eq!(events[0], Event::CqError(pair.a.send_cq));
    assert!(matches!(events[1], Event::QpFatal(..)));
    assert_eq!(pair.a.state(), State::Err);
    assert_eq!(pair.a.sent().len(), 4);
    assert_eq!(pair.a.rnic.counters().lost_completions, 1);
    // The other side is told.
    assert_eq!(pair.b.state(), State::Err);
}

/// Entries that the device has taken count until the application has read them.
#[test]
fn entries_count_until_they_are_released() {
    let mut pair = Pair::ready_with(&Setup { cqe: 4, ..Setup::default() });
    let stag = pair.b.stag;
    let mut taken = [Completion::default(); 4];
    writes(&mut pair.a, stag, 4);
    pair.pump();
    assert_eq!(pair.a.rnic.take_cq(pair.a.send_cq, &mut taken), Ok(4));
    pair.a.rnic.release_cq(pair.a.send_cq, 3);
    writes(&mut pair.a, stag, 3);
    pair.pump();
    assert_eq!(pair.a.state(), State::Rts);
    writes(&mut pair.a, stag, 1);
    pair.pump();
    assert_eq!(pair.a.state(), State::Err);
}

#[test]
fn a_queue_that_is_armed_tells_once() {
    let mut pair = Pair::ready();
    let stag = pair.b.stag;
    let (cq, peer_cq) = (pair.a.send_cq, pair.b.receive_cq);
    writes(&mut pair.a, stag, 1);
    pair.pump();
    assert_eq!(pair.a.take_events(), []);
    // What is there already does not count.
    pair.a.rnic.arm_cq(cq, false).unwrap();
    assert_eq!(pair.a.take_events(), []);
    writes(&mut pair.a, stag, 2);
    pair.pump();
    assert_eq!(pair.a.take_events(), [Event::Completion(cq)]);
    // Solicited only: a Send without it is quiet, one with it is not.
    pair.b.rnic.arm_cq(peer_cq, true).unwrap();
    for id in 1..=3 {
        pair.b.receive(id, &[]);
    }
    let send = Work::Send { invalidate: None };
    pair.a.send(1, &[]);
    pair.pump();
    assert_eq!(pair.b.take_events(), []);
    let flags = Flags { solicited: true, ..Flags::default() };
    pair.a.post_with(2, send, Payload::Sges(&[]), flags);
    pair.pump();
    assert_eq!(pair.b.take_events(), [Event::Completion(peer_cq)]);
    // Any stays any.
    pair.b.rnic.arm_cq(peer_cq, false).unwrap();
    pair.b.rnic.arm_cq(peer_cq, true).unwrap();
    pair.a.send(3, &[]);
    pair.pump();
    assert_eq!(pair.b.take_events(), [Event::Completion(peer_cq)]);
    // An error is solicited.
    pair.b.receive(4, &[]);
    pair.b.rnic.arm_cq(peer_cq, true).unwrap();
    pair.b.rnic.stream_ended(pair.b.qp);
    assert_eq!(pair.b.take_events()[0], Event::Completion(peer_cq));
    // Solicited writes with immediate data as well.
    let mut pair = Pair::ready();
    pair.b.rnic.arm_cq(pair.b.receive_cq, true).unwrap();
    pair.b.receive(1, &[]);
    let work = Work::WriteImmediate { stag: 0, offset: 0, immediate: [0; 4] };
    pair.a.post_with(2, work, Payload::Sges(&[]), flags);
    pair.pump();
    assert_eq!(pair.b.take_events(), [Event::Completion(pair.b.receive_cq)]);
}

#[test]
fn a_shared_receive_queue() {
    let setup = Setup { srq: true, ..Setup::default() };
    let mut pair = Pair::ready_with(&setup);
    let srq = only_srq(&mut pair.b, &setup);
    let own = pair.b.rnic.post_recv(pair.b.qp, &RecvRequest { wr_id: 1, sges: &[] });
    assert_eq!(own, Err(Error::Invalid), "it has none of its own");
    let into = pair.b.sge(0, 16);
    for wr_id in 1..=4 {
        pair.b.rnic.post_srq_recv(srq, &RecvRequest { wr_id, sges: &[into] }).unwrap();
    }
    pair.b.rnic.arm_srq(srq, 3).unwrap();
    let sge = pair.a.sge(0, 10);
    pair.a.send(1, &[sge]);
    pair.pump();
    assert_eq!(pair.b.take_events(), [], "three are left");
    pair.a.send(2, &[sge]);
    pair.a.send(3, &[sge]);
    pair.pump();
    assert_eq!(pair.b.take_events(), [Event::SrqLimit(srq)], "once");
    assert_eq!(pair.b.received(), [1, 2, 3].map(|id| (id, Status::Success)));
    assert_eq!(pair.b.rnic.srq_len(srq), 1);
    // The end of one queue pair flushes nothing that is shared.
    pair.b.rnic.stream_ended(pair.b.qp);
    assert_eq!(pair.b.received(), []);
    let events = pair.b.take_events();
    assert_eq!(events, [Event::LastWqe(pair.b.qp), Event::Disconnected(pair.b.qp)]);
    assert_eq!(pair.b.rnic.srq_len(srq), 1);
    assert_eq!(pair.b.rnic.destroy_srq(srq), Err(Error::Busy));
    pair.b.rnic.destroy_qp(pair.b.qp).unwrap();
    pair.b.rnic.destroy_srq(srq).unwrap();
}

/// The first shared receive queue of a host: names are not told, but one is made like the others.
fn only_srq(host: &mut Host, setup: &Setup) -> rdma::verbs::Srq {
    let second = host.rnic.create_srq(host.pd, setup.receives, setup.sges).unwrap();
    host.rnic.destroy_srq(second).unwrap();
    rdma::verbs::Srq::new(second.0 - 1)
}

#[test]
fn queues_that_are_full() {
    let mut pair = Pair::ready_with(&Setup { sends: 3, receives: 2, ..Setup::default() });
    let stag = pair.b.stag;
    let (payload, flags) = (Payload::Sges(&[]), Flags::default());
    let request = SendRequest { wr_id: 9, work: Work::Write { stag, offset: 0 }, payload, flags };
    for _ in 0..3 {
        pair.a.rnic.post_send(pair.a.qp, &request).unwrap();
    }
    assert_eq!(pair.a.rnic.post_send(pair.a.qp, &request), Err(Error::Full));
    pair.pump();
    assert_eq!(pair.a.rnic.post_send(pair.a.qp, &request), Ok(()));
    pair.a.receive(1, &[]);
    pair.a.receive(2, &[]);
    let third = pair.a.rnic.post_recv(pair.a.qp, &RecvRequest { wr_id: 3, sges: &[] });
    assert_eq!(third, Err(Error::Full));
    assert_eq!(Error::Full.errno(), 12);
}

/// Requests that no queue pair could do.
#[test]
fn requests_that_are_malformed() {
    let mut pair = Pair::ready();
    let sge = pair.a.sge(0, 8);
    let (stag, offset) = (pair.b.stag, BASE);
    let operation = rdma::rdmap::atomic::Operation::fetch_add(1);
    let read = Work::Read { stag, offset };
    let atomic = Work::Atomic { stag, offset, operation };
    let send = Work::Send { invalidate: None };
    let four = pair.a.sge(0, 4);
    let long = rdma::verbs::Sge { len: u32::MAX, ..sge };
    let cases: [(Work, Payload<'_>); 9] = [
        (send, Payload::Sges(&[sge; 5])),
        (send, Payload::Sges(&[long])),
        (send, Payload::Inline(&[0; 237])),
        (read, Payload::Sges(&[sge, sge])),
        (read, Payload::Inline(&[])),
        (atomic, Payload::Sges(&[])),
        (atomic, Payload::Sges(&[four])),
        (atomic, Payload::Sges(&[four, four])),
        (Work::LocalInvalidate { stag }, Payload::Sges(&[sge])),
    ];
    for (work, payload) in cases {
        let request = SendRequest { wr_id: 1, work, payload, flags: Flags::default() };
        let refused = pair.a.rnic.post_send(pair.a.qp, &request);
        assert_eq!(refused, Err(Error::Invalid), "{request:?}");
    }
    let refused = pair.a.rnic.post_recv(pair.a.qp, &RecvRequest { wr_id: 1, sges: &[sge; 5] });
    assert_eq!(refused, Err(Error::Invalid));
    let refused = pair.a.rnic.post_recv(pair.a.qp, &RecvRequest { wr_id: 1, sges: &[long, long] });
    assert_eq!(refused, Err(Error::Invalid));
    assert!(!pair.a.rnic.wants_transmit(pair.a.qp));
    let config = |inline| QpConfig {
        pd: pair.a.pd,
        send_cq: pair.a.send_cq,
        receive_cq: pair.a.receive_cq,
        srq: None,
        sends: 1,
        receives: 1,
        send_sges: 1,
        receive_sges: 1,
        inline,
        signal_all: false,
    };
    let (most, over) = (config(256), config(257));
    assert!(pair.a.rnic.create_qp(most).is_ok());
    assert_eq!(pair.a.rnic.create_qp(over), Err(Error::Invalid));
}

/// A message that meets no receive waits for one, if it is let: it is as if it and what follows had not come.
#[test]
fn a_message_waits_for_a_receive() {
    for (crc, srq) in [(true, false), (false, true)] {
        let config = rdma::mpa::Config { crc, ..Default::default() };
        let setup = Setup { emss: 300, srq, config, peer: config, ..Setup::default() };
        let mut pair = Pair::ready_with(&setup);
        let (b, stag) = (pair.b.qp, pair.b.stag);
        let shared = srq.then(|| only_srq(&mut pair.b, &setup));
        let post = |host: &mut Host, id: u64| {
            let into = host.sge(4096 * id as usize, 1000);
            let request = RecvRequest { wr_id: id, sges: &[into] };
            match shared {
                None => host.rnic.post_recv(host.qp, &request).unwrap(),
                Some(srq) => host.rnic.post_srq_recv(srq, &request).unwrap(),
            }
        };
        pair.b.rnic.let_wait(b, true);
        pair.a.bytes(0, 4000).iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        let sges = [pair.a.sge(0, 1000), pair.a.sge(1000, 8), pair.a.sge(2000, 1000)];
        post(&mut pair.b, 1);
        pair.a.send(1, &sges[..1]);
        pair.a.post(2, Work::Write { stag, offset: BASE + 8 }, &sges[1..2]);
        let immediate = Work::WriteImmediate { stag, offset: BASE + 16, immediate: [1, 2, 3, 4] };
        pair.a.post(3, immediate, &sges[1..2]);
        pair.a.send(4, &sges[2..]);
        let stream = pair.a.transmit(1 << 16);
        let mut host = pair.b;
        // What is behind the message that waits is not done.
        host.feed(&stream, 7);
        assert!(host.rnic.is_waiting(b) && host.state() == State::Rts);
        assert_eq!(host.received(), [(1, Status::Success)]);
        let (counters, held) = (*host.rnic.counters(), host.held.clone());
        host.feed(&[], 100);
        let again = *host.rnic.counters();
        assert_eq!(
            (again.fpdus_in, again.placed_bytes),
            (counters.fpdus_in, counters.placed_bytes)
        );
        assert_eq!((again.receive_waits, counters.receive_waits), (2, 1));
        assert_eq!(host.held, held);
        post(&mut host, 2);
        host.feed(&[], usize::MAX);
        let done = host.poll(host.receive_cq);
        assert_eq!(done.len(), 1);
        assert_eq!((done[0].wr_id, done[0].len, done[0].immediate), (2, 8, Some([1, 2, 3, 4])));
        assert!(host.rnic.is_waiting(b));
        post(&mut host, 3);
        host.feed(&[], 50);
        assert!(!host.rnic.is_waiting(b) && host.held.is_empty());
        assert_eq!(host.received(), [(3, Status::Success)]);
        let written = |offset: usize| u8::try_from((1000 + offset) % 256).unwrap();
        assert_eq!(
            host.bytes(8, 16).to_vec(),
            (0..16).map(|at| written(at % 8)).collect::<Vec<_>>()
        );
        let last: Vec<u8> = (2000..3000).map(|at: usize| at as u8).collect();
        assert_eq!(host.bytes(3 * 4096, 1000).to_vec(), last);
        // One that has waited long enough ends the stream.
        pair.a.send(5, &sges[..1]);
        let stream = pair.a.transmit(1 << 16);
        host.feed(&stream, usize::MAX);
        assert!(host.rnic.is_waiting(b) && host.state() == State::Rts);
        host.rnic.let_wait(b, false);
        host.feed(&[], usize::MAX);
        assert_eq!((host.state(), host.rnic.counters().no_buffer_errors), (State::Sqe, 1));
        assert!(!host.rnic.is_waiting(b));
    }
}

/// Nothing waits on a stream that has ended: by the application, or by a completion queue that has no room for what came
/// before the message.
#[test]
fn nothing_waits_on_a_stream_that_has_ended() {
    for overruns in [false, true] {
        let mut pair = Pair::ready_with(&Setup { cqe: 1, ..Setup::default() });
        let b = pair.b.qp;
        pair.b.rnic.let_wait(b, true);
        let received = if overruns { 2 } else { 1 };
        for id in 0..received {
            pair.b.receive(id, &[]);
        }
        for id in 0..=received {
            pair.a.send(id, &[]);
        }
        let stream = pair.a.transmit(1 << 16);
        pair.b.feed(&stream, usize::MAX);
        assert_eq!(
            (pair.b.rnic.is_waiting(b), pair.b.state() == State::Rts),
            (!overruns, !overruns)
        );
        pair.b.rnic.modify(b, State::Err).unwrap();
        assert!(!pair.b.rnic.is_waiting(b));
    }
}
