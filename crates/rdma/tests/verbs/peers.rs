//! What one peer can take of what all share (RFC 5042): receives, entries, events, and memory that it has reached for.

use rdma::mpa::{Negotiated, Role};
use rdma::rdmap::{Opcode, ReadRequest};
use rdma::verbs::{Access, Qp, QpConfig, RecvRequest, State};
use rdma::{Event, Status};

use super::raw::{alone_with, tagged, untagged};
use crate::world::{BASE, Host, Setup};

/// Two queue pairs of one host that share receives.
fn two() -> (Host, rdma::verbs::Srq, [Qp; 2]) {
    let mut host = Host::new(1, &Setup::default(), false);
    let srq = host.rnic.create_srq(host.pd, 32, 4).unwrap();
    let config = QpConfig {
        pd: host.pd,
        send_cq: host.send_cq,
        receive_cq: host.receive_cq,
        srq: Some(srq),
        sends: 4,
        receives: 0,
        send_sges: 1,
        receive_sges: 1,
        inline: 0,
        signal_all: false,
    };
    let (role, crc) = (Role::Responder, true);
    let (markers_in, markers_out, ird, ord, rtr) = (false, false, 4, 4, None);
    let negotiated = Negotiated { role, markers_in, markers_out, crc, ird, ord, rtr };
    let qps = [(); 2].map(|()| {
        let qp = host.rnic.create_qp(config).unwrap();
        host.rnic.modify(qp, State::Init).unwrap();
        host.rnic.start(qp, &negotiated, 1448).unwrap();
        host.rnic.let_wait(qp, true);
        qp
    });
    (host, srq, qps)
}

fn feed(host: &mut Host, qp: Qp, bytes: &[u8]) -> usize {
    host.rnic.receive(qp, &[bytes], &mut host.ram).unwrap()
}

/// RFC 5042: a peer that begins messages and does not end them holds one receive and no more, and one
/// that sends more than there are receives for does not end the streams of others.
#[test]
fn a_peer_does_not_hold_the_receives_of_others() {
    let (mut host, srq, [one, other]) = two();
    let into = host.sge(0, 64);
    for wr_id in 0..3 {
        host.rnic.post_srq_recv(srq, &RecvRequest { wr_id, sges: &[into] }).unwrap();
    }
    for at in 0..10 {
        feed(&mut host, one, &untagged(Opcode::Send, false, 1, at, b"x"));
    }
    assert_eq!(host.rnic.srq_len(srq), 2);
    let well = untagged(Opcode::Send, true, 1, 0, b"well");
    assert_eq!(feed(&mut host, other, &well), well.len());
    assert_eq!(host.received(), [(1, Status::Success)]);
    // The first takes what is left, and wants more: it waits by itself.
    feed(&mut host, one, &untagged(Opcode::Send, true, 1, 10, b"end"));
    feed(&mut host, one, &untagged(Opcode::Send, true, 2, 0, b"all"));
    let more = untagged(Opcode::Send, true, 3, 0, b"more");
    assert_eq!((feed(&mut host, one, &more), host.rnic.is_waiting(one)), (more.len(), true));
    assert_eq!(host.received(), [(0, Status::Success), (2, Status::Success)]);
    host.rnic.let_wait(one, false);
    feed(&mut host, one, &[]);
    assert_eq!(host.rnic.state(one), Ok(State::Sqe));
    assert_eq!(host.rnic.state(other), Ok(State::Rts));
    host.rnic.post_srq_recv(srq, &RecvRequest { wr_id: 9, sges: &[into] }).unwrap();
    feed(&mut host, other, &untagged(Opcode::Send, true, 2, 0, b"on"));
    assert_eq!(host.received().last(), Some(&(9, Status::Success)));
}

/// RFC 5042: entries and events are bounded by what the application has asked for, not by what the peer
/// sends: one event for a queue that is armed, one when it is full, and what ends the stream.
#[test]
fn a_peer_makes_no_more_events_than_were_asked_for() {
    let mut host = alone_with(&Setup { cqe: 8, receives: 32, ..Setup::default() });
    for id in 0..32 {
        host.receive(id, &[]);
    }
    host.rnic.arm_cq(host.receive_cq, true).unwrap();
    let mut events = Vec::new();
    for msn in 1..=1000 {
        host.feed_all(&untagged(Opcode::SendSolicited, true, msn, 0, &[]));
        host.feed_all(&tagged(Opcode::Write, true, 0, 0, &[]));
        events.extend(host.take_events());
    }
    let (cq, qp) = (host.receive_cq, host.qp);
    assert_eq!(events[..2], [Event::Completion(cq), Event::CqError(cq)]);
    assert!(matches!(events[2..], [Event::QpFatal(of, _)] if of == qp), "{events:?}");
    assert_eq!(host.rnic.cq_len(cq), 8);
}

/// What the peer sends is kept nowhere but in registered memory: reads without end are refused at IRD, and what is not
/// a whole FPDU stays with the stream's owner, less than one FPDU of it.
#[test]
fn nothing_that_a_peer_sends_is_kept() {
    let mut host = alone_with(&Setup::default());
    let ird = u32::from(Setup::default().config.ird);
    let (source_stag, source_offset, len) = (host.stag, BASE, 8);
    let request = ReadRequest { sink_stag: 1, sink_offset: 0, len, source_stag, source_offset };
    let request = request.encode();
    let (qp, mut taken) = (host.qp, 0);
    for msn in 1..=10 * ird {
        let bytes = untagged(Opcode::ReadRequest, true, msn, 0, &request);
        // The owner of the stream is left with nothing, well or not.
        assert_eq!(feed(&mut host, qp, &bytes), bytes.len());
        taken += u32::from(host.state() == State::Rts);
    }
    assert_eq!(taken, ird);
    // All of what waits is sent before the end is said: nothing, as the stream has failed.
    let mut sent = 0;
    while host.rnic.wants_transmit(host.qp) {
        sent += host.transmit(4096).len();
    }
    assert!(sent < 200, "{sent}");
}

/// RFC 5042: when the call returns that ends it, no access is granted any more, also to what has been sent
/// before and comes later, and to the rest of a message that has begun.
#[test]
fn access_ends_when_the_call_returns() {
    for is_within in [false, true] {
        let mut host = alone_with(&Setup::default());
        let stag = host.register(0x5000, 4096, Access::ALL);
        if is_within {
            host.feed_all(&tagged(Opcode::Write, false, stag, 0x5000, b"begins"));
            assert_eq!(host.ram.buffers[&2][..6], *b"begins");
        }
        // A part of the FPDU is here already.
        let bytes = tagged(Opcode::Write, true, stag, 0x5006, b"comes later");
        host.feed(&bytes[..20], 20);
        let handle = host.rnic.deregister(stag).unwrap();
        // From here on memory refuses to be touched.
        host.ram.forbidden.insert(handle.0);
        host.feed(&bytes[20..], 20);
        assert_eq!(host.state(), State::Sqe);
        assert_eq!(host.ram.buffers[&2][6..17], [0; 11]);
    }
}
