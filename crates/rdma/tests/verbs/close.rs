//! The states of a queue pair, and how a stream ends.

use rdma::Status;
use rdma::mpa::{Config, Role};
use rdma::verbs::{Close, Error, Event, Flags, Payload, RecvRequest, SendRequest, State, Work};

use crate::world::{BASE, Host, Pair, Setup, negotiate};

const SEND: Work = Work::Send { invalidate: None };

fn post(host: &mut Host) -> Result<(), Error> {
    let (payload, flags) = (Payload::Sges(&[]), Flags::default());
    host.rnic.post_send(host.qp, &SendRequest { wr_id: 1, work: SEND, payload, flags })
}

fn post_recv(host: &mut Host) -> Result<(), Error> {
    host.rnic.post_recv(host.qp, &RecvRequest { wr_id: 2, sges: &[] })
}

#[test]
fn what_each_state_takes() {
    let mut host = Host::new(1, &Setup::default(), false);
    let (start, _) = negotiate(Config::default(), Config::default());
    assert_eq!(host.state(), State::Init);
    host.rnic.modify(host.qp, State::Reset).unwrap();
    assert_eq!(post(&mut host), Err(Error::State));
    assert_eq!(post_recv(&mut host), Err(Error::State));
    assert_eq!(host.rnic.start(host.qp, &start, 1448), Err(Error::State));
    for state in [State::Rtr, State::Rts, State::Sqd, State::Sqe] {
        assert_eq!(host.rnic.modify(host.qp, state), Err(Error::State), "{state:?}");
    }
    for state in [State::Init, State::Rtr] {
        host.rnic.modify(host.qp, state).unwrap();
        assert_eq!(post(&mut host), Err(Error::State));
        assert_eq!(post_recv(&mut host), Ok(()));
    }
    for state in [State::Init, State::Rts, State::Sqd] {
        assert_eq!(host.rnic.modify(host.qp, state), Err(Error::State), "{state:?}");
    }
    host.rnic.start(host.qp, &start, 1448).unwrap();
    assert_eq!((start.role, host.state()), (Role::Initiator, State::Rts));
    assert_eq!((post(&mut host), post_recv(&mut host)), (Ok(()), Ok(())));
    assert_eq!(host.rnic.modify(host.qp, State::Init), Err(Error::State));
    host.rnic.modify(host.qp, State::Sqd).unwrap();
    assert_eq!((post(&mut host), post_recv(&mut host)), (Err(Error::State), Ok(())));
    // At once: all that is posted is flushed, sends before receives, and so is what follows.
    host.rnic.modify(host.qp, State::Err).unwrap();
    assert_eq!(host.sent(), [(1, Status::Flushed)]);
    assert_eq!(host.received(), [2, 2, 2, 2].map(|id| (id, Status::Flushed)));
    assert_eq!((post(&mut host), post_recv(&mut host)), (Ok(()), Ok(())));
    assert_eq!(host.sent(), [(1, Status::Flushed)]);
    assert_eq!(host.received(), [(2, Status::Flushed)]);
    assert!(host.transmit(4096).is_empty());
    assert_eq!(host.closed, Some(Close::Abort));
    // And from the begin.
    host.rnic.modify(host.qp, State::Reset).unwrap();
    host.rnic.modify(host.qp, State::Init).unwrap();
    host.rnic.start(host.qp, &start, 1448).unwrap();
    assert_eq!(host.sent(), []);
}

/// What was posted before goes out, and its responses come in, before the stream is closed.
#[test]
fn closing_in_order() {
    let mut pair = Pair::ready_with(&Setup { emss: 200, ..Setup::default() });
    let (stag, offset) = (pair.b.stag, BASE);
    let sge = pair.a.sge(0, 3000);
    let into = pair.b.sge(0, 3000);
    pair.b.receive(9, &[into]);
    pair.b.receive(10, &[into]);
    pair.a.send(1, &[sge]);
    pair.a.post(2, Work::Read { stag, offset }, &[sge]);
    pair.a.rnic.disconnect(pair.a.qp).unwrap();
    pair.pump();
    assert_eq!(pair.a.sent(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.b.received(), [(9, Status::Success)]);
    assert_eq!(pair.a.closed, Some(Close::Orderly));
    assert_eq!(pair.a.state(), State::Sqd);
    // The peer's end of the stream.
    pair.b.rnic.stream_ended(pair.b.qp);
    assert_eq!(pair.b.received(), [(10, Status::Flushed)]);
    assert_eq!(pair.b.take_events(), [Event::Disconnected(pair.b.qp)]);
    pair.a.rnic.stream_ended(pair.a.qp);
    assert_eq!(pair.a.state(), State::Err);
    assert_eq!(pair.a.take_events(), [Event::Disconnected(pair.a.qp)]);
    pair.a.rnic.stream_ended(pair.a.qp);
    assert_eq!(pair.a.take_events(), [], "told once");
}

/// A responder that may send nothing yet (RFC 5044 section 7.1) may close, and one that has closed may end at once.
#[test]
fn closing_is_no_message() {
    let config = Config { peer_to_peer: false, ..Config::default() };
    let mut pair = Pair::new(&Setup { config, peer: config, ..Setup::default() });
    let b = &mut pair.b;
    assert!(!b.rnic.wants_transmit(b.qp));
    b.rnic.disconnect(b.qp).unwrap();
    assert!(b.rnic.wants_transmit(b.qp));
    assert!(b.transmit(4096).is_empty());
    assert_eq!((b.closed, b.rnic.wants_transmit(b.qp)), (Some(Close::Orderly), false));
    b.rnic.modify(b.qp, State::Err).unwrap();
    assert!(b.rnic.wants_transmit(b.qp));
    assert!(b.transmit(0).is_empty());
    assert_eq!((b.closed, b.rnic.wants_transmit(b.qp)), (Some(Close::Abort), false));
}

/// What a stream that is to be closed waits for is answered by responses, and by nothing else that comes.
#[test]
fn what_is_awaited_changes_with_responses_alone() {
    let mut pair = Pair::ready_with(&Setup { emss: 200, ..Setup::default() });
    let (stag, offset, a) = (pair.b.stag, BASE, pair.a.qp);
    let sge = pair.a.sge(0, 3000);
    assert_eq!(pair.a.rnic.awaited(a), (0, 0));
    pair.a.post(1, Work::Read { stag, offset }, &[sge]);
    pair.a.rnic.disconnect(a).unwrap();
    let request = pair.a.transmit(5000);
    assert_eq!(pair.a.rnic.awaited(a), (1, 0));
    let stag = pair.a.stag;
    pair.b.post(2, Work::Write { stag, offset }, &[]);
    let write = pair.b.transmit(5000);
    assert!(!write.is_empty());
    pair.a.feed_all(&write);
    assert_eq!(pair.a.rnic.awaited(a), (1, 0));
    pair.b.feed_all(&request);
    let response = pair.b.transmit(1000);
    pair.a.feed_all(&response);
    let (requests, bytes) = pair.a.rnic.awaited(a);
    assert!(requests == 1 && (1..3000).contains(&bytes), "{requests} {bytes}");
    pair.pump();
    assert_eq!(pair.a.rnic.awaited(a), (0, 0));
}

/// A stream that is lost in the middle: sends in order, then receives; no success is made up.
#[test]
fn a_stream_that_is_lost() {
    let mut pair = Pair::ready_with(&Setup { emss: 200, ..Setup::default() });
    let (stag, offset) = (pair.b.stag, BASE);
    let sge = pair.a.sge(0, 3000);
    let into = pair.b.sge(0, 3000);
    pair.b.receive(9, &[into]);
    pair.b.receive(10, &[into]);
    pair.a.receive(5, &[]);
    pair.a.post(1, Work::Read { stag, offset }, &[sge]);
    pair.a.post(2, Work::Write { stag, offset }, &[sge]);
    pair.a.send(3, &[sge]);
    pair.a.send(4, &[sge]);
    // The read and the write are sent, the first Send in part.
    let bytes = pair.a.transmit(5000);
    pair.b.feed_all(&bytes);
    pair.a.rnic.stream_ended(pair.a.qp);
    pair.b.rnic.stream_ended(pair.b.qp);
    let statuses = [Status::Flushed, Status::Success, Status::Flushed, Status::Flushed];
    let expected: Vec<_> = [1, 2, 3, 4].into_iter().zip(statuses).collect();
    assert_eq!(pair.a.sent(), expected);
    assert_eq!(pair.a.received(), [(5, Status::Flushed)]);
    // The receive whose message was coming is the first of them.
    assert_eq!(pair.b.received(), [(9, Status::Flushed), (10, Status::Flushed)]);
    assert_eq!(pair.a.state(), State::Err);
    assert!(!pair.a.rnic.wants_transmit(pair.a.qp));
    pair.b.feed_all(b"what comes later is nobody's");
}

/// The peer sends a Terminate: the stream is closed, and what was before it counts.
#[test]
fn after_a_terminate_nothing_is_sent() {
    let mut pair = Pair::ready();
    pair.a.post(1, Work::Write { stag: 0x100, offset: 0 }, &[]);
    let sge = pair.a.sge(0, 1);
    pair.a.post(2, Work::Write { stag: 0x100, offset: 0 }, &[sge]);
    pair.b.receive(8, &[]);
    pair.b.send(7, &[]);
    pair.a.receive(3, &[]);
    pair.pump();
    assert_eq!((pair.a.state(), pair.b.state()), (State::Err, State::Err));
    assert_eq!((pair.a.closed, pair.b.closed), (Some(Close::Orderly), Some(Close::Orderly)));
    assert_eq!(pair.b.received(), [(8, Status::Flushed)]);
    assert!(pair.a.transmit(4096).is_empty());
    assert_eq!(pair.a.rnic.counters().terminates_in, 1);
    assert_eq!(pair.b.rnic.counters().terminates_out, 1);
}

#[test]
fn destroying_ends_it_without_a_word() {
    let mut pair = Pair::ready();
    pair.a.send(1, &[]);
    pair.a.receive(2, &[]);
    assert_eq!(pair.a.rnic.destroy_cq(pair.a.send_cq), Err(Error::Busy));
    pair.a.rnic.destroy_qp(pair.a.qp).unwrap();
    assert_eq!(pair.a.sent(), []);
    assert_eq!(pair.a.rnic.destroy_qp(pair.a.qp), Err(Error::Invalid));
    assert_eq!(post(&mut pair.a), Err(Error::Invalid));
    assert!(!pair.a.rnic.wants_transmit(pair.a.qp));
    for cq in [pair.a.send_cq, pair.a.receive_cq] {
        pair.a.rnic.destroy_cq(cq).unwrap();
    }
}
