//! What Linux siw once got wrong (its git log), and what else a peer may send that nobody asked for.

use rdma::ddp::{TaggedError, UntaggedError};
use rdma::rdmap::terminate::{Cause, Llp, Operation};
use rdma::rdmap::{Opcode, ReadRequest};
use rdma::verbs::{Payload, Work};
use rdma::{Status, ddp};

use super::raw::{alone, fpdu, last_words, parse, refused, tagged, untagged, untagged_in};
use crate::world::{BASE, Host};

/// A host that has asked for 16 bytes, and where they go.
fn reading() -> (Host, u32, u64) {
    let mut host = alone();
    let sink = host.sge(32, 16);
    host.post(9, Work::Read { stag: 0x1200, offset: 0 }, &[sink]);
    let sent = parse(&host.transmit(4096));
    let request = ReadRequest::parse(sent[0].1.first_chunk().unwrap());
    assert_eq!((request.sink_stag, request.sink_offset, request.len), (sink.lkey, sink.addr, 16));
    (host, sink.lkey, sink.addr)
}

fn response(last: bool, stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    tagged(Opcode::ReadResponse, last, stag, offset, payload)
}

/// "Fix missing length check in read response": more than was asked for, with Last clear, ran over the sink.
#[test]
fn a_read_response_that_is_longer_than_the_request() {
    for last in [true, false] {
        let (mut host, stag, at) = reading();
        let bytes = response(last, stag, at, &[1; 17]);
        refused(&mut host, &bytes, TaggedError::Bounds.into());
        // In a second segment.
        let (mut host, stag, at) = reading();
        host.feed_all(&response(false, stag, at, &[1; 10]));
        host.ram.log.clear();
        let bytes = response(last, stag, at + 10, &[1; 7]);
        refused(&mut host, &bytes, TaggedError::Bounds.into());
        assert_eq!(host.bytes(48, 8), [0; 8]);
    }
}

#[test]
fn a_read_response_that_is_not_the_one() {
    let mut cases: Vec<(Vec<u8>, Cause)> = Vec::new();
    let (_, stag, at) = reading();
    // Shorter than asked for, and ended.
    cases.push((response(true, stag, at, &[1; 15]), TaggedError::Bounds.into()));
    // Elsewhere: another place of the same region, another STag, another key.
    cases.push((response(true, stag, at + 1, &[1; 16]), TaggedError::Bounds.into()));
    cases.push((response(true, stag ^ 0x100, at, &[1; 16]), TaggedError::InvalidStag.into()));
    cases.push((response(true, stag ^ 1, at, &[1; 16]), TaggedError::InvalidStag.into()));
    for (bytes, cause) in cases {
        let (mut host, ..) = reading();
        host.feed(&bytes, 5);
        let terminate = last_words(&mut host);
        assert_eq!(terminate.cause, cause);
        assert!(terminate.failed.is_some());
        assert_eq!(host.sent(), [(9, Status::BadResponse)]);
    }
    // None was asked for.
    let mut host = alone();
    let bytes = response(true, host.stag, BASE, &[1]);
    refused(&mut host, &bytes, Cause::Operation(Operation::Opcode));
}

/// The region of a read may be gone when the response comes.
#[test]
fn a_read_response_for_a_region_that_is_gone() {
    let (mut host, stag, at) = reading();
    host.rnic.deregister(stag).unwrap();
    host.feed_all(&response(true, stag, at, &[1; 16]));
    let terminate = last_words(&mut host);
    assert_eq!(terminate.cause, TaggedError::InvalidStag.into());
    assert_eq!(host.sent(), [(9, Status::LocalProtection)]);
}

/// "Fix FPDU length underflow": a ULPDU that is shorter than its header.
#[test]
fn a_segment_that_is_shorter_than_its_header() {
    for len in 0..18 {
        let mut ulpdu = vec![0; len];
        // Tagged for the shorter ones, untagged up to 17.
        if let Some(first) = ulpdu.first_mut() {
            *first = if len < 14 { 0xc1 } else { 0x41 };
        }
        let mut host = alone();
        refused(&mut host, &fpdu(&ulpdu), Cause::Llp(Llp::Marker));
        assert_eq!(host.rnic.counters().framing_errors, 1);
    }
}

/// "Fix accessing the context before the header is complete": the header may come byte by byte.
#[test]
fn a_header_that_comes_byte_by_byte() {
    let mut host = alone();
    let into = host.sge(0, 16);
    host.receive(1, &[into]);
    let bytes = [
        tagged(Opcode::Write, true, host.stag, BASE + 100, b"write"),
        untagged(Opcode::Send, false, 1, 0, b"be"),
        untagged(Opcode::Send, true, 1, 2, b"gin"),
    ]
    .concat();
    for byte in bytes {
        host.feed(&[byte], 1);
    }
    assert_eq!(host.bytes(0, 5), b"begin");
    assert_eq!(host.bytes(100, 5), b"write");
    assert_eq!(host.received(), [(1, Status::Success)]);
}

/// Any operation at any queue, and those that are none.
#[test]
fn operations_where_they_do_not_belong() {
    let opcode = Cause::Operation(Operation::Opcode);
    for queue in 0..4 {
        for operation in Opcode::ALL {
            if operation.queue() == Some(queue) {
                continue;
            }
            let bytes = untagged_in(operation, queue, true, 1, 0, &[0; 8]);
            refused(&mut alone(), &bytes, opcode);
        }
    }
    for operation in Opcode::ALL.into_iter().filter(|of| of.queue().is_some()) {
        let mut host = alone();
        let bytes = tagged(operation, true, host.stag, BASE, b"x");
        refused(&mut host, &bytes, opcode);
    }
    // No operation, and another version of RDMAP.
    let ulpdu = |control: u8| {
        let mut bytes = vec![0xc1, control];
        bytes.resize(15, 0);
        fpdu(&bytes)
    };
    for number in 0xc..=0xf {
        refused(&mut alone(), &ulpdu(0x40 | number), opcode);
    }
    for version in [0x00, 0x80, 0xc0] {
        refused(&mut alone(), &ulpdu(version), Cause::Operation(Operation::Version));
    }
}

/// RFC 5041 section 7: the version, the queue, the number and the offset of a segment.
#[test]
fn segments_that_are_not_the_next() {
    let send = Opcode::Send;
    let cases: [(Vec<u8>, UntaggedError); 7] = [
        (untagged_in(send, 4, true, 1, 0, &[]), UntaggedError::InvalidQueue),
        (untagged_in(send, u32::MAX, true, 1, 0, &[]), UntaggedError::InvalidQueue),
        (untagged(send, true, 2, 0, &[]), UntaggedError::MsnRange),
        (untagged(send, true, 0, 0, &[]), UntaggedError::MsnRange),
        (untagged(send, true, 1, 1, &[]), UntaggedError::InvalidOffset),
        (untagged(send, true, 1, u32::MAX, &[]), UntaggedError::InvalidOffset),
        (untagged(send, true, 1, 0, &[]), UntaggedError::NoBuffer),
    ];
    for (bytes, error) in cases {
        refused(&mut alone(), &bytes, error.into());
    }
    for (first, error) in [
        (0xc2, ddp::Error::Tagged(TaggedError::Version)),
        (0x40, ddp::Error::Untagged(UntaggedError::Version)),
    ] {
        let mut ulpdu = vec![0; 20];
        ulpdu[..2].copy_from_slice(&[first, 0x43]);
        let terminate = refused(&mut alone(), &fpdu(&ulpdu), Cause::Ddp(error));
        assert_eq!(terminate.failed.unwrap().header(), None, "its version is another");
    }
    // In the middle of a message: another number, another offset, another kind, another message.
    for (bytes, cause) in [
        (untagged(send, true, 2, 0, &[]), UntaggedError::MsnRange.into()),
        (untagged(send, true, 1, 3, &[]), UntaggedError::InvalidOffset.into()),
        (untagged(Opcode::SendSolicited, true, 1, 2, &[]), Cause::Operation(Operation::Opcode)),
        (untagged(Opcode::Immediate, true, 1, 2, &[0; 8]), Cause::Operation(Operation::Opcode)),
    ] {
        let mut host = alone();
        let into = host.sge(0, 16);
        host.receive(1, &[into]);
        host.feed_all(&untagged(send, false, 1, 0, b"ab"));
        host.ram.log.clear();
        refused(&mut host, &bytes, cause);
    }
    // A tagged message within another.
    let (mut host, stag, at) = reading();
    host.feed_all(&tagged(Opcode::Write, false, stag, BASE, b"ab"));
    let bytes = response(true, stag, at, &[1; 16]);
    refused(&mut host, &bytes, Cause::Operation(Operation::Opcode));
}

/// RFC 5040 section 4.4, RFC 7306 sections 5.2 and 6.3: messages that have one length.
#[test]
fn requests_of_another_length() {
    for (opcode, len) in [
        (Opcode::ReadRequest, 28),
        (Opcode::AtomicRequest, 52),
        (Opcode::AtomicResponse, 12),
        (Opcode::Immediate, 8),
        (Opcode::ImmediateSolicited, 8),
    ] {
        let unspecified = Cause::Operation(Operation::Unspecified);
        let short = untagged(opcode, true, 1, 0, &vec![0; len - 1]);
        refused(&mut alone(), &short, unspecified);
        let long = untagged(opcode, true, 1, 0, &vec![0; len + 1]);
        refused(&mut alone(), &long, UntaggedError::TooLong.into());
        let open = untagged(opcode, false, 1, 0, &vec![0; len]);
        refused(&mut alone(), &open, unspecified);
    }
    let mut host = alone();
    refused(
        &mut host,
        &untagged(Opcode::Terminate, true, 1, 0, &[0; 3]),
        Cause::Operation(Operation::Unspecified),
    );
}

/// RFC 5044 section 4.4: nothing of an FPDU whose CRC is wrong is placed.
#[test]
fn a_crc_that_is_wrong() {
    let mut host = alone();
    let mut bytes = tagged(Opcode::Write, true, host.stag, BASE, b"damaged");
    bytes[20] ^= 1;
    let terminate = refused(&mut host, &bytes, Cause::Llp(Llp::Crc));
    assert_eq!(terminate.failed, None);
    assert_eq!(host.rnic.counters().crc_errors, 1);
}

/// RFC 5040 section 5.4: what was well before an error is placed and told; what follows it is not looked at.
#[test]
fn what_is_before_and_behind_an_error() {
    let mut host = alone();
    let (into, stag) = (host.sge(0, 8), host.stag);
    host.receive(1, &[into]);
    host.receive(2, &[into]);
    host.post_with(3, Work::Write { stag: 0, offset: 0 }, Payload::Sges(&[]), Default::default());
    let bytes = [
        tagged(Opcode::Write, true, stag, BASE + 50, b"before"),
        untagged(Opcode::Send, true, 1, 0, b"before"),
        tagged(Opcode::Write, true, stag ^ 1, BASE + 60, b"denied"),
        tagged(Opcode::Write, true, stag, BASE + 70, b"behind"),
        untagged(Opcode::Send, true, 2, 0, b"behind"),
    ]
    .concat();
    host.feed_all(&bytes);
    assert_eq!(host.bytes(50, 6), b"before");
    assert_eq!(host.bytes(60, 16), [0; 16]);
    assert_eq!(host.received(), [(1, Status::Success), (2, Status::Flushed)]);
    assert_eq!(host.sent(), [(3, Status::Flushed)]);
    assert!(host.rnic.counters().discarded_bytes > 40);
    assert_eq!(last_words(&mut host).cause, TaggedError::InvalidStag.into());
    // Nor later.
    host.feed_all(&untagged(Opcode::Send, true, 2, 0, b"later"));
    assert_eq!(host.received(), []);
}
