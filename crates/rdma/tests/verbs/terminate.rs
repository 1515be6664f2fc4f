//! Terminate messages: what they repeat, and that there is one (RFC 5040 sections 4.8 and 5.4).

use rdma::ddp::{self, TaggedError, UntaggedError};
use rdma::mpa::{Config, Initiator, StartupError};
use rdma::rdmap::terminate::{Cause, Llp, Protection, Terminate};
use rdma::rdmap::{Opcode, ReadRequest};
use rdma::verbs::Work;
use rdma::{Event, Status};

use super::raw::{alone, last_words, parse, refused, tagged, untagged};
use crate::world::{BASE, Pair};

/// The header of the segment that failed is repeated as it came, with its length.
#[test]
fn a_terminate_repeats_what_failed() {
    let mut host = alone();
    let (stag, payload) = (host.stag ^ 1, [3; 40]);
    let bytes = tagged(Opcode::Write, false, stag, BASE + 3, &payload);
    let terminate = refused(&mut host, &bytes, TaggedError::InvalidStag.into());
    let failed = terminate.failed.unwrap();
    assert_eq!(usize::from(failed.segment_len), 14 + payload.len());
    let ddp::Header::Tagged(header) = failed.header().unwrap() else { panic!() };
    assert_eq!((header.stag, header.offset, header.last), (stag, BASE + 3, false));
    assert_eq!(failed.read, None);
    // An untagged one.
    let mut host = alone();
    let bytes = untagged(Opcode::Send, true, 1, 0, b"x");
    let failed = refused(&mut host, &bytes, UntaggedError::NoBuffer.into()).failed.unwrap();
    let ddp::Header::Untagged(header) = failed.header().unwrap() else { panic!() };
    assert_eq!((header.queue, header.msn, failed.segment_len), (0, 1, 19));
    // A read, with its request.
    let mut host = alone();
    let (sink_stag, sink_offset, len, source_stag, source_offset) = (7, 8, 9, host.stag ^ 1, BASE);
    let request = ReadRequest { sink_stag, sink_offset, len, source_stag, source_offset };
    let bytes = untagged(Opcode::ReadRequest, true, 1, 0, &request.encode());
    let cause = Cause::Protection(Protection::InvalidStag);
    let failed = refused(&mut host, &bytes, cause).failed.unwrap();
    assert_eq!((failed.read, failed.segment_len), (Some(request), 46));
}

/// Between whole FPDUs, also in the middle of a message, and nothing behind it.
#[test]
fn a_terminate_is_the_last_message() {
    let mut host = alone();
    let sge = host.sge(0, 60_000);
    host.post(1, Work::Write { stag: 5, offset: 0 }, &[sge]);
    host.post(2, Work::Write { stag: 5, offset: 0 }, &[sge]);
    let mut bytes = host.transmit(20_000);
    host.feed_all(&untagged(Opcode::Send, true, 1, 0, &[]));
    assert_eq!(host.sent(), [(1, Status::Flushed), (2, Status::Flushed)]);
    // It waits for room.
    assert!(host.transmit(20).is_empty());
    bytes.extend(host.transmit(100));
    let sent = parse(&bytes);
    let (last, before) = sent.split_last().unwrap();
    assert!(before.iter().all(|(header, _)| !header.is_last()));
    assert!(Terminate::parse(&last.1).is_some());
    assert!(host.transmit(20_000).is_empty());
}

/// Two sides that fail at once both end, each with its own word or the other's.
#[test]
fn both_sides_fail_at_once() {
    let mut pair = Pair::ready();
    let (a, b) = (pair.a.sge(0, 1), pair.b.sge(0, 1));
    pair.a.post(1, Work::Write { stag: 3, offset: 0 }, &[a]);
    pair.b.post(2, Work::Write { stag: 3, offset: 0 }, &[b]);
    let (from_a, from_b) = (pair.a.transmit(4096), pair.b.transmit(4096));
    pair.a.feed_all(&from_b);
    pair.b.feed_all(&from_a);
    let words = [last_words(&mut pair.a).cause, last_words(&mut pair.b).cause];
    assert_eq!(words, [TaggedError::InvalidStag.into(); 2]);
}

/// A Terminate that names nothing, names something unknown, or is cut short ends the stream all the same.
#[test]
fn any_terminate_ends_the_stream() {
    for payload in [vec![0; 4], vec![0xff; 52], [vec![0x11, 0, 0xc0, 0], vec![0; 3]].concat()] {
        let mut host = alone();
        let sge = host.sge(0, 8);
        host.post(1, Work::Read { stag: 9, offset: 0 }, &[sge]);
        host.transmit(4096);
        host.feed_all(&untagged(Opcode::Terminate, true, 1, 0, &payload));
        let events = host.take_events();
        assert!(matches!(events[0], Event::Terminated(..)), "{events:?}");
        assert_eq!(host.sent(), [(1, Status::Flushed)]);
        assert!(host.transmit(4096).is_empty());
    }
}

/// RFC 6581 section 8: an initiator that cannot take the reply says why.
#[test]
fn last_words_of_connection_set_up() {
    let initiator = Initiator::new(Config { ird: 1, ..Config::default() });
    let mut reply = b"MPA ID Rep Frame\x50\x02\x00\x04".to_vec();
    reply.extend([0x80, 1, 0x80, 2]);
    let error = initiator.receive(&reply).unwrap_err();
    assert_eq!(error, StartupError::InsufficientIrd);
    let sent = parse(&initiator.last_words(&reply, error));
    let terminate = Terminate::parse(&sent[0].1).unwrap();
    assert_eq!(terminate.cause, Cause::Llp(Llp::InsufficientIrd));
    // The responder takes it as one.
    let mut host = alone();
    host.feed_all(&initiator.last_words(&reply, error));
    assert!(matches!(host.take_events()[0], Event::Terminated(_, Cause::Llp(_))));
    assert!(initiator.last_words(&reply, StartupError::Rejected).is_empty());
}

/// The completion of the work that a Terminate names has its cause (`vendor_err`).
#[test]
fn the_cause_comes_with_the_completion() {
    let mut pair = Pair::ready();
    let sge = pair.a.sge(0, 8);
    pair.a.post(1, Work::Read { stag: pair.b.stag, offset: BASE }, &[sge]);
    pair.a.post(2, Work::Read { stag: 3, offset: BASE }, &[sge]);
    pair.a.post(3, Work::Read { stag: pair.b.stag, offset: BASE }, &[sge]);
    pair.pump();
    let done = pair.a.poll(pair.a.send_cq);
    let cause = Cause::Protection(Protection::InvalidStag);
    let failed = done.iter().find(|of| of.wr_id == 2).unwrap();
    assert_eq!((failed.status, failed.cause), (Status::RemoteAccess, Some(cause)));
    assert!(done.iter().all(|of| of.wr_id == 2 || of.cause.is_none()));
}
