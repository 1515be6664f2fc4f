//! What waits for what: ORD, the read fence, the local fence, and the order of completions.

use rdma::ddp::UntaggedError;
use rdma::rdmap::atomic::Operation;
use rdma::rdmap::{Opcode, ReadRequest, atomic};
use rdma::verbs::{Flags, Payload, Work};
use rdma::{Event, Status};

use super::raw::{alone_with, parse, refused, tagged, untagged};
use crate::world::{BASE, Pair, Setup};

fn with_reads(ird: u16, ord: u16) -> Setup {
    let mut setup = Setup::default();
    (setup.config.ird, setup.config.ord) = (ord.max(1), ord);
    (setup.peer.ird, setup.peer.ord) = (ird, 0);
    setup
}

/// RFC 5040 section 5.2: more reads than the peer takes wait at the sender.
#[test]
fn reads_beyond_ord_wait() {
    let mut pair = Pair::ready_with(&with_reads(2, 16));
    let (stag, offset) = (pair.b.stag, BASE);
    let sge = pair.a.sge(0, 8);
    for id in 1..=4 {
        pair.a.post(id, Work::Read { stag, offset }, &[sge]);
    }
    pair.a.post(5, Work::Atomic { stag, offset, operation: Operation::fetch_add(1) }, &[sge]);
    let sent = parse(&pair.a.transmit(4096));
    assert_eq!(sent.len(), 2, "the peer takes two");
    assert!(!pair.a.rnic.wants_transmit(pair.a.qp));
    assert!(pair.a.transmit(4096).is_empty() && pair.a.transmit(4096).is_empty());
    assert_eq!(pair.a.rnic.counters().ord_waits, 1);
    // What is behind them waits, too: the queue is in order.
    pair.a.post(6, Work::Write { stag, offset }, &[sge]);
    assert!(!pair.a.rnic.wants_transmit(pair.a.qp));
    for (header, payload) in sent {
        let rdma::ddp::Header::Untagged(header) = header else { panic!() };
        let bytes = untagged(Opcode::ReadRequest, true, header.msn, 0, &payload);
        pair.b.feed_all(&bytes);
    }
    pair.pump();
    assert_eq!(pair.a.sent(), [1, 2, 3, 4, 5, 6].map(|id| (id, Status::Success)));
}

/// RFC 5040 section 5.2: a peer that does not wait is told so.
#[test]
fn requests_beyond_ird_end_the_stream() {
    for is_atomic in [false, true] {
        let setup = with_reads(16, 16);
        let ird = u32::from(setup.config.ird);
        let mut host = alone_with(&setup);
        let (stag, offset) = (host.stag, BASE);
        let payload = if is_atomic {
            let operation = Operation::fetch_add(1);
            atomic::Request { id: 0, stag, offset, operation }.encode().to_vec()
        } else {
            let (sink_stag, sink_offset, len) = (1, 0, 8);
            let (source_stag, source_offset) = (stag, offset);
            ReadRequest { sink_stag, sink_offset, len, source_stag, source_offset }
                .encode()
                .to_vec()
        };
        let opcode = if is_atomic { Opcode::AtomicRequest } else { Opcode::ReadRequest };
        for msn in 1..=ird {
            host.feed_all(&untagged(opcode, true, msn, 0, &payload));
        }
        let bytes = untagged(opcode, true, ird + 1, 0, &payload);
        refused(&mut host, &bytes, UntaggedError::NoBuffer.into());
        // With room again, as responses are sent in between, it goes on.
        let mut host = alone_with(&setup);
        for msn in 1..=3 * ird {
            host.feed_all(&untagged(opcode, true, msn, 0, &payload));
            let opcode_back = if is_atomic { Opcode::AtomicResponse } else { Opcode::ReadResponse };
            let sent = parse(&host.transmit(4096));
            assert_eq!(Opcode::parse(sent[0].0.ulp()), Ok(opcode_back));
        }
    }
}

/// The read fence: work waits for the reads and atomics before it, and for those only.
#[test]
fn the_read_fence() {
    let mut pair = Pair::ready();
    let (stag, offset) = (pair.b.stag, BASE);
    let sge = pair.a.sge(0, 8);
    let fenced = Flags { signaled: true, fence: true, ..Flags::default() };
    let write = Work::Write { stag, offset };
    pair.a.post(1, Work::Read { stag, offset }, &[sge]);
    pair.a.post(2, write, &[sge]);
    pair.a.post_with(3, write, Payload::Sges(&[sge]), fenced);
    pair.a.post(4, write, &[sge]);
    let bytes = pair.a.transmit(4096);
    assert_eq!(parse(&bytes).len(), 2, "the third waits, and the fourth behind it");
    assert_eq!(pair.a.rnic.counters().fence_waits, 1);
    // The write is in the stream, but completes behind the read.
    assert_eq!(pair.a.sent(), []);
    pair.b.feed_all(&bytes);
    pair.pump();
    assert_eq!(pair.a.sent(), [1, 2, 3, 4].map(|id| (id, Status::Success)));
    // Nothing is waited for, if there is nothing.
    pair.a.post_with(5, write, Payload::Sges(&[sge]), fenced);
    assert_eq!(parse(&pair.a.transmit(4096)).len(), 1);
}

/// What a fenced write sends is what the read before it has brought.
#[test]
fn a_fenced_write_sends_what_was_read() {
    let mut pair = Pair::ready();
    pair.b.bytes(0, 8).copy_from_slice(b"original");
    let stag = pair.b.stag;
    let sge = pair.a.sge(100, 8);
    pair.a.post(1, Work::Read { stag, offset: BASE }, &[sge]);
    let fenced = Flags { signaled: true, fence: true, ..Flags::default() };
    pair.a.post_with(2, Work::Write { stag, offset: BASE + 50 }, Payload::Sges(&[sge]), fenced);
    pair.pump();
    assert_eq!(pair.b.bytes(50, 8), b"original");
}

/// The local fence: all before it is complete.
#[test]
fn the_local_fence() {
    let mut pair = Pair::ready();
    let stag = pair.a.rnic.alloc_region(pair.a.pd, 64).unwrap();
    let sge = pair.a.sge(0, 8);
    let (read, write) = (
        Work::Read { stag: pair.b.stag, offset: BASE },
        Work::Write { stag: pair.b.stag, offset: BASE },
    );
    let fenced = Flags { signaled: true, local_fence: true, ..Flags::default() };
    pair.a.post(1, write, &[sge]);
    pair.a.post_with(2, write, Payload::Sges(&[sge]), fenced);
    pair.a.post(3, read, &[sge]);
    pair.a.post_with(4, write, Payload::Sges(&[sge]), fenced);
    let bytes = pair.a.transmit(4096);
    assert_eq!(parse(&bytes).len(), 3, "a write is done when the stream has it, a read is not");
    pair.b.feed_all(&bytes);
    pair.pump();
    assert_eq!(pair.a.sent(), [1, 2, 3, 4].map(|id| (id, Status::Success)));
    pair.a.rnic.deregister(stag).unwrap();
}

/// Completions of one queue come in the order of its posts, whatever is done first.
#[test]
fn completions_follow_posts() {
    let mut pair = Pair::ready();
    let (stag, offset) = (pair.b.stag, BASE);
    let sge = pair.a.sge(0, 8);
    pair.a.post(1, Work::Read { stag, offset }, &[sge]);
    let unsignaled = Payload::Sges(&[]);
    pair.a.post_with(2, Work::Write { stag, offset }, unsignaled, Flags::default());
    pair.a.post(3, Work::Write { stag, offset }, &[sge]);
    let bytes = pair.a.transmit(4096);
    assert_eq!(pair.a.sent(), []);
    pair.b.feed_all(&bytes);
    pair.pump();
    assert_eq!(pair.a.sent(), [(1, Status::Success), (3, Status::Success)]);
}

/// Responses and own messages take turns, and neither starves.
#[test]
fn responses_do_not_wait_for_own_messages_nor_the_other_way() {
    let mut host = alone_with(&Setup { emss: 1448, ..Setup::default() });
    let (stag, sge) = (host.stag, host.sge(0, 1000));
    let (sink_stag, sink_offset, len, source_stag, source_offset) = (1, 0, 1000, stag, BASE);
    let request = ReadRequest { sink_stag, sink_offset, len, source_stag, source_offset };
    for msn in 1..=4 {
        host.feed_all(&untagged(Opcode::ReadRequest, true, msn, 0, &request.encode()));
        host.post(u64::from(msn), Work::Write { stag: 5, offset: 0 }, &[sge]);
    }
    let sent = parse(&host.transmit(1 << 16));
    let kinds: Vec<_> =
        sent.iter().map(|(header, _)| Opcode::parse(header.ulp()).unwrap()).collect();
    assert_eq!(kinds.len(), 8);
    for pair in kinds.chunks(2) {
        assert!(pair.contains(&Opcode::Write) && pair.contains(&Opcode::ReadResponse), "{kinds:?}");
    }
    host.feed_all(&tagged(Opcode::Write, true, 0, 0, &[]));
    assert!(!host.take_events().iter().any(|event| matches!(event, Event::QpFatal(..))));
}
