//! Live replies of Linux siw (6.1) to requests: flags, revision and the first private data, in and out.

use rdma::mpa::frame::{Frame, Kind};
use rdma::mpa::{Config, Initiator, Responder, Rtr, RtrKinds, StartupError};

/// Flags, revision and data of the request; flags and data of the reply.
type Row = (u8, u8, &'static [u8], u8, &'static [u8]);

fn request(flags: u8, revision: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"MPA ID Req Frame".to_vec();
    bytes.extend([flags, revision]);
    bytes.extend((data.len() as u16).to_be_bytes());
    bytes.extend(data);
    bytes
}

fn reply(flags: u8, revision: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = request(flags, revision, data);
    bytes[..16].copy_from_slice(b"MPA ID Rep Frame");
    bytes
}

/// siw does not ask for CRCs by itself, and has room for more than these ask for.
fn like_siw() -> Responder {
    Responder::new(Config { crc: false, ird: 128, ord: 128, ..Config::default() })
}

fn answer(request: &[u8]) -> Vec<u8> {
    let waiting = like_siw().receive(request).unwrap().unwrap();
    let (ird, ord) = waiting.resources();
    waiting.accept(ird, ord, &[]).unwrap().0
}

#[test]
fn this_responder_answers_as_siw_does() {
    let rows: [Row; 6] = [
        (0x00, 1, &[], 0x00, &[]),
        (0x40, 1, &[], 0x40, &[]),
        (0x10, 2, &[0, 1, 0, 1], 0x10, &[0, 1, 0, 1]),
        (0x50, 2, &[0x80, 1, 0x80, 1], 0x50, &[0x80, 1, 0x80, 1]),
        (0x50, 2, &[0x80, 1, 0x40, 1], 0x50, &[0x80, 1, 0x40, 1]),
        // None of the ready messages is offered: a write is proposed.
        (0x50, 2, &[0x80, 1, 0x00, 1], 0x50, &[0x80, 1, 0x80, 1]),
    ];
    for (flags, revision, data, flags_out, data_out) in rows {
        let out = answer(&request(flags, revision, data));
        assert_eq!(out, reply(flags_out, revision, data_out), "{flags:02x}/{revision} {data:02x?}");
    }
}

/// Where this responder does otherwise, and why.
#[test]
fn where_siw_is_left() {
    // siw rejects markers (80/1 -> 20, C0/1 -> 60). RFC 5044 section 7.1.1: a sender MUST insert them.
    let waiting = like_siw().receive(&request(0xc0, 1, &[])).unwrap().unwrap();
    let (bytes, negotiated) = waiting.accept(1, 1, &[]).unwrap();
    assert_eq!(bytes, reply(0x40, 1, &[]));
    assert!(negotiated.markers_out && !negotiated.markers_in);
    // siw answers to revision 0. RFC 5044 section 7.1.1: the revision is 1.
    let refused = like_siw().receive(&request(0x00, 0, &[]));
    assert_eq!(refused, Err(StartupError::Revision(0)));
}

#[test]
fn this_initiator_understands_siw() {
    let initiator = |markers, revision, rtr| {
        Initiator::new(Config {
            markers,
            revision,
            crc: false,
            ird: 1,
            ord: 1,
            rtr,
            ..Config::default()
        })
    };
    let one = |markers| initiator(markers, 1, RtrKinds::default());
    // 80/1 -> 20 and close; C0/1 -> 60.
    for flags in [0x20, 0x60] {
        assert_eq!(one(true).receive(&reply(flags, 1, &[])), Err(StartupError::Rejected));
    }
    let accepted = one(false).receive(&reply(0x40, 1, &[])).unwrap().unwrap();
    assert!(accepted.negotiated.crc && accepted.negotiated.rtr.is_none());
    let two = |rtr| initiator(false, 2, rtr);
    let chosen = |rtr: RtrKinds, data: [u8; 4]| {
        two(rtr).receive(&reply(0x50, 2, &data)).map(|accepted| accepted.unwrap().negotiated.rtr)
    };
    let (write, read) = (RtrKinds::from(Rtr::Write), RtrKinds::from(Rtr::Read));
    assert_eq!(chosen(write, [0x80, 1, 0x80, 1]), Ok(Some(Rtr::Write)));
    assert_eq!(chosen(read, [0x80, 1, 0x40, 1]), Ok(Some(Rtr::Read)));
    // What siw proposes where nothing was offered is for the initiator to refuse.
    let send = RtrKinds::from(Rtr::Send);
    assert_eq!(chosen(send, [0x80, 1, 0x80, 1]), Err(StartupError::NoMatchingRtr));
}

/// The requests that were sent to siw are what this initiator writes.
#[test]
fn requests_as_siw_has_seen_them() {
    let config = Config { ird: 1, ord: 1, crc: false, ..Config::default() };
    let bytes = |config| Initiator::new(config).request(&[]).unwrap();
    assert_eq!(bytes(Config { revision: 1, ..config }), request(0x00, 1, &[]));
    assert_eq!(bytes(Config { revision: 1, crc: true, ..config }), request(0x40, 1, &[]));
    assert_eq!(bytes(Config { revision: 1, markers: true, ..config }), request(0x80, 1, &[]));
    let not_either = Config { peer_to_peer: false, ..config };
    assert_eq!(bytes(not_either), request(0x10, 2, &[0, 1, 0, 1]));
    let write = Config { crc: true, rtr: Rtr::Write.into(), ..config };
    assert_eq!(bytes(write), request(0x50, 2, &[0x80, 1, 0x80, 1]));
    assert!(Frame::parse(Kind::Request, &bytes(write)).unwrap().is_some());
}
