//! What RFC 5040, 5041 and 7306 ask of one stream: what follows what, and what a Terminate message ends.

use rdma::rdmap::atomic::{Operation, Request, Response};
use rdma::rdmap::{Opcode, ReadRequest};
use rdma::verbs::{Flags, Payload, State, Work};
use rdma::{Status, ddp};

use super::raw::{alone_with, last_words, parse, tagged, untagged};
use crate::world::{BASE, Host, Setup};

fn short() -> Setup {
    Setup { emss: 200, ..Setup::default() }
}

/// A read request of the peer's, as its message with this number.
fn read(host: &Host, msn: u32, sink_stag: u32, sink_offset: u64, len: u32) -> Vec<u8> {
    let (source_stag, source_offset) = (host.stag, BASE);
    let request = ReadRequest { sink_stag, sink_offset, len, source_stag, source_offset };
    untagged(Opcode::ReadRequest, true, msn, 0, &request.encode())
}

/// RFC 5040 sections 5.2 and 5.5: requests are answered in the order in which they came, each response to the STag and the
/// offset that its request names, though segments are many and own messages lie between.
#[test]
fn reads_are_answered_in_the_order_in_which_they_came() {
    let mut host = alone_with(&short());
    let requests: [(u32, u64, u32); 5] =
        [(0x500, 7, 900), (0x300, 1 << 40, 0), (0x500, 0, 1), (0x400, 3, 500), (0x300, 9, 186)];
    for (msn, (stag, offset, len)) in (1..).zip(requests) {
        let bytes = read(&host, msn, stag, offset, len);
        host.feed_all(&bytes);
    }
    let own = host.sge(0, 700);
    host.post(1, Work::Write { stag: 0x900, offset: 0 }, &[own]);
    host.post(2, Work::Write { stag: 0x900, offset: 0 }, &[own]);
    let mut expected = requests.iter();
    let mut open: Option<(u32, u64, u64)> = None;
    for (header, payload) in parse(&host.transmit(1 << 16)) {
        if Opcode::parse(header.ulp()) != Ok(Opcode::ReadResponse) {
            assert_eq!(open, None, "nothing lies between the segments of a message");
            continue;
        }
        let ddp::Header::Tagged(header) = header else { panic!("{header:?}") };
        let (stag, next, end) = open.take().unwrap_or_else(|| {
            let (stag, offset, len) = *expected.next().unwrap();
            (stag, offset, offset + u64::from(len))
        });
        assert_eq!((header.stag, header.offset), (stag, next));
        let now = next + payload.len() as u64;
        assert_eq!(header.last, now == end);
        open = (!header.last).then_some((stag, now, end));
    }
    assert_eq!((expected.next(), open), (None, None));
}

/// RFC 7306 section 5.2: atomic requests are done and answered in the order in which they came, whatever their
/// numbers are, and each answer has its request's number.
#[test]
fn atomics_are_answered_in_the_order_in_which_they_came() {
    let mut host = alone_with(&short());
    let ids = [9, 3, u32::MAX, 3, 0];
    for (msn, id) in (1..).zip(ids) {
        let (stag, offset, operation) = (host.stag, BASE, Operation::fetch_add(1));
        let request = Request { id, stag, offset, operation };
        host.feed_all(&untagged(Opcode::AtomicRequest, true, msn, 0, &request.encode()));
    }
    let sent = parse(&host.transmit(1 << 16));
    assert_eq!(sent.len(), ids.len());
    for ((at, id), (header, payload)) in (0..).zip(ids).zip(sent) {
        let ddp::Header::Untagged(header) = header else { panic!("{header:?}") };
        assert_eq!((header.queue, header.msn), (3, at + 1));
        let response = Response::parse(payload.first_chunk().unwrap());
        assert_eq!(response, Response { id, original: u64::from(at) });
    }
}

/// RFC 5041 section 5.3, RFC 5040 section 5.5: Sends are told as they came. That all is placed in this order, too, is
/// more than the RFCs ask for, and what programs count on that wait for the last byte.
#[test]
fn what_comes_later_is_placed_later() {
    let mut host = alone_with(&Setup::default());
    let into = host.sge(100, 8);
    let stag = host.stag;
    host.receive(1, &[into]);
    host.receive(2, &[into]);
    host.ram.log.clear();
    let behind = [
        tagged(Opcode::Write, true, stag, BASE, b"new."),
        untagged(Opcode::Send, true, 1, 0, b"first"),
        tagged(Opcode::Write, true, stag, BASE, b"last"),
        untagged(Opcode::Send, true, 2, 0, b"second"),
    ];
    host.feed_all(&behind.concat());
    let places: Vec<u64> = host.ram.log.iter().map(|(_, offset, ..)| *offset).collect();
    assert_eq!(places, [0, 100, 0, 100]);
    assert_eq!(host.received(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(
        (host.bytes(0, 4).to_vec(), host.bytes(100, 6).to_vec()),
        (b"last".to_vec(), b"second".to_vec())
    );
}

/// RFC 5040 section 4.1: the field has an STag in Sends that invalidate, and is zero in all others.
#[test]
fn sends_that_invalidate_nothing_name_no_stag() {
    let mut host = alone_with(&short());
    let sge = host.sge(0, 500);
    for (solicited, invalidate) in
        [(false, None), (true, Some(0x1234_5678)), (true, None), (false, Some(0x1234_5678))]
    {
        let flags = Flags { solicited, ..Flags::default() };
        host.post_with(1, Work::Send { invalidate }, Payload::Sges(&[sge]), flags);
        let sent = parse(&host.transmit(1 << 16));
        assert!(sent.len() > 2);
        for (header, _) in sent {
            let ddp::Header::Untagged(header) = header else { panic!("{header:?}") };
            let opcode = Opcode::parse(header.ulp).unwrap();
            assert_eq!(opcode, Opcode::send(solicited, invalidate.is_some()));
            assert_eq!(header.ulp_word, invalidate.unwrap_or(0));
        }
    }
}

/// RFC 5040 sections 4.8 and 5.4: there is one Terminate message at most, none in answer to one, and the stream is to
/// be closed.
#[test]
fn one_terminate_and_none_in_answer() {
    let terminate = untagged(Opcode::Terminate, true, 1, 0, &[0, 0, 0, 0]);
    let bad = tagged(Opcode::Write, true, 0x1200, 0, b"bad");
    for (first, is_own) in [(&bad, true), (&terminate, false)] {
        let mut host = alone_with(&Setup::default());
        host.feed_all(first);
        if is_own {
            last_words(&mut host);
        }
        for more in [&bad, &terminate, &bad] {
            host.feed_all(more);
            host.post(1, Work::Send { invalidate: None }, &[]);
            assert!(host.transmit(1 << 16).is_empty());
        }
        assert_eq!(host.rnic.counters().terminates_out, u64::from(is_own));
        assert!(host.closed.is_some());
        assert_eq!(host.state(), State::Err);
        assert!(host.rnic.disconnect(host.qp).is_err());
    }
}

/// RFC 5041 section 5.3, RFC 5044 section 4: nothing of an FPDU that has not come whole is placed, and of a message of
/// which a part is placed nothing is told, however the stream ends.
#[test]
fn a_stream_that_ends_within_an_fpdu() {
    for is_send in [true, false] {
        let mut host = alone_with(&Setup::default());
        let (stag, into) = (host.stag, host.sge(0, 100));
        host.receive(1, &[into]);
        host.post(2, Work::Read { stag: 0x500, offset: 0 }, &[into]);
        host.transmit(1 << 16);
        host.feed_all(&untagged(Opcode::Send, false, 1, 0, b"a part"));
        let placed = host.ram.log.len();
        let bytes = match is_send {
            true => untagged(Opcode::Send, true, 1, 6, b"the rest"),
            false => tagged(Opcode::Write, true, stag, BASE + 200, b"written"),
        };
        // Without its last byte.
        host.feed(&bytes[..bytes.len() - 1], 7);
        assert_eq!(host.received(), []);
        host.rnic.stream_ended(host.qp);
        assert_eq!(host.received(), [(1, Status::Flushed)]);
        assert_eq!(host.sent(), [(2, Status::Flushed)]);
        assert_eq!(host.ram.log.len(), placed);
    }
}
