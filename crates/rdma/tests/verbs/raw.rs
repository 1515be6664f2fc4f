//! FPDUs by hand: what a peer may send that this crate would not.

use rdma::ddp::{Tagged, Untagged};
use rdma::mpa::{Negotiated, Role};
use rdma::rdmap::Opcode;
use rdma::rdmap::terminate::{Cause, Terminate};
use rdma::verbs::State;
use rdma::{Status, ddp};
use wire::checksum::Crc32c;

use crate::world::{Host, Setup};

/// A whole FPDU, without markers, with a CRC.
pub(crate) fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut bytes = (ulpdu.len() as u16).to_be_bytes().to_vec();
    bytes.extend_from_slice(ulpdu);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let crc = Crc32c::new().plus(&bytes).finish().to_le_bytes();
    bytes.extend(crc);
    bytes
}

/// A segment of a tagged message.
pub(crate) fn tagged(
    opcode: Opcode,
    last: bool,
    stag: u32,
    offset: u64,
    payload: &[u8],
) -> Vec<u8> {
    let header = Tagged { last, ulp: opcode.control(), stag, offset };
    fpdu(&[&header.encode(), payload].concat())
}

/// A segment of an untagged message.
pub(crate) fn untagged(
    opcode: Opcode,
    last: bool,
    msn: u32,
    offset: u32,
    payload: &[u8],
) -> Vec<u8> {
    untagged_in(opcode, opcode.queue().unwrap(), last, msn, offset, payload)
}

pub(crate) fn untagged_in(
    opcode: Opcode,
    queue: u32,
    last: bool,
    msn: u32,
    offset: u32,
    payload: &[u8],
) -> Vec<u8> {
    let header = Untagged { last, ulp: opcode.control(), ulp_word: 0, queue, msn, offset };
    fpdu(&[&header.encode(), payload].concat())
}

/// A host whose peer is the test.
pub(crate) fn alone() -> Host {
    alone_with(&Setup::default())
}

pub(crate) fn alone_with(setup: &Setup) -> Host {
    let mut host = Host::new(1, setup, setup.srq);
    let negotiated = Negotiated {
        role: Role::Responder,
        markers_in: false,
        markers_out: false,
        crc: true,
        ird: setup.config.ird,
        ord: setup.config.ord,
        rtr: None,
    };
    host.rnic.start(host.qp, &negotiated, setup.emss).unwrap();
    // The first FPDU, so that it may send.
    host.feed_all(&tagged(Opcode::Write, true, 0, 0, &[]));
    host.take_events();
    host
}

/// The FPDUs of a stream without markers: header, payload.
pub(crate) fn parse(mut bytes: &[u8]) -> Vec<(ddp::Header, Vec<u8>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        let body = (2 + len).next_multiple_of(4);
        let crc = Crc32c::new().plus(&bytes[..body]).finish().to_le_bytes();
        assert_eq!(bytes[body..body + 4], crc);
        let ulpdu = &bytes[2..2 + len];
        let header = ddp::Header::parse(ulpdu).unwrap().unwrap();
        all.push((header, ulpdu[header.len()..].to_vec()));
        bytes = &bytes[body + 4..];
    }
    all
}

/// The Terminate message that the host sends, which is the last.
pub(crate) fn last_words(host: &mut Host) -> Terminate {
    assert_eq!(host.state(), State::Sqe);
    let bytes = host.transmit(1 << 16);
    assert_eq!(host.state(), State::Err);
    assert!(host.closed.is_some());
    let (header, payload) = parse(&bytes).pop().unwrap();
    let ddp::Header::Untagged(header) = header else { panic!("{header:?}") };
    assert_eq!((header.queue, header.msn, header.offset, header.last), (2, 1, 0, true));
    assert_eq!(Opcode::parse(header.ulp), Ok(Opcode::Terminate));
    assert!(host.transmit(1 << 16).is_empty());
    Terminate::parse(&payload).unwrap()
}

/// The host does not take these bytes, for this cause; what it had posted is flushed.
pub(crate) fn refused(host: &mut Host, bytes: &[u8], cause: Cause) -> Terminate {
    let writes = host.ram.log.len();
    host.feed_all(bytes);
    assert_eq!(host.ram.log.len(), writes, "something was placed");
    let terminate = last_words(host);
    assert_eq!(terminate.cause, cause, "{}", terminate.cause);
    for (_, status) in host.sent().into_iter().chain(host.received()) {
        assert_ne!(status, Status::Success);
    }
    terminate
}
