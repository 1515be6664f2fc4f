//! Each format is read as it is written, and any bytes are read or refused.

mod atomic;
mod siw;
mod startup;

use proptest::prelude::*;
use rdma::ddp::{self, Header, Tagged, Untagged};
use rdma::mpa::frame::{Enhanced, Frame, FrameError, Kind};
use rdma::mpa::{Rtr, RtrKinds};
use rdma::rdmap::terminate::{Cause, Failed, TERMINATE_MAX, Terminate};
use rdma::rdmap::{Opcode, ReadRequest, atomic as atomics};

fn rtr() -> impl Strategy<Value = RtrKinds> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(send, write, read)| RtrKinds {
        send,
        write,
        read,
    })
}

fn enhanced() -> impl Strategy<Value = Enhanced> {
    (0u16..0x4000, 0u16..0x4000, any::<bool>(), rtr())
        .prop_map(|(ird, ord, peer_to_peer, rtr)| Enhanced { ird, ord, peer_to_peer, rtr })
}

fn tagged() -> impl Strategy<Value = Tagged> {
    (any::<bool>(), any::<u8>(), any::<u32>(), any::<u64>())
        .prop_map(|(last, ulp, stag, offset)| Tagged { last, ulp, stag, offset })
}

fn untagged() -> impl Strategy<Value = Untagged> {
    (any::<bool>(), any::<u8>(), any::<[u32; 4]>()).prop_map(
        |(last, ulp, [ulp_word, queue, msn, offset])| Untagged {
            last,
            ulp,
            ulp_word,
            queue,
            msn,
            offset,
        },
    )
}

fn header() -> impl Strategy<Value = Header> {
    prop_oneof![tagged().prop_map(Header::Tagged), untagged().prop_map(Header::Untagged)]
}

fn read_request() -> impl Strategy<Value = ReadRequest> {
    any::<(u32, u64, u32, u32, u64)>().prop_map(
        |(sink_stag, sink_offset, len, source_stag, source_offset)| ReadRequest {
            sink_stag,
            sink_offset,
            len,
            source_stag,
            source_offset,
        },
    )
}

proptest! {
    #[test]
    fn set_up_frames(
        flags: [bool; 3],
        is_request: bool,
        revision in 1u8..=2,
        enhanced in enhanced(),
        is_enhanced: bool,
        data in proptest::collection::vec(any::<u8>(), 0..=508),
        cut: prop::sample::Index,
    ) {
        let [markers, crc, reject] = flags;
        let kind = if is_request { Kind::Request } else { Kind::Reply };
        let enhanced = (is_enhanced && revision == 2).then_some(enhanced);
        let reject = reject && !is_request;
        let frame = Frame { kind, markers, crc, reject, revision, enhanced, private_data: &data };
        let bytes = frame.encode();
        prop_assert_eq!(Frame::parse(kind, &bytes), Ok(Some((frame, bytes.len()))));
        // A part of it is waited for.
        prop_assert_eq!(Frame::parse(kind, &bytes[..cut.index(bytes.len())]), Ok(None));
    }

    #[test]
    fn any_bytes_are_a_frame_or_none(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..600),
        is_request: bool,
        has_key: bool,
    ) {
        let kind = if is_request { Kind::Request } else { Kind::Reply };
        if has_key {
            let key: &[u8] = if is_request { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" };
            bytes.splice(..0, key.iter().copied());
        }
        if let Ok(Some((frame, len))) = Frame::parse(kind, &bytes) {
            prop_assert!(len <= bytes.len() && frame.private_data.len() <= 512);
        }
    }

    #[test]
    fn segment_headers(header in header(), behind in proptest::collection::vec(any::<u8>(), 0..8)) {
        let mut bytes = match header {
            Header::Tagged(header) => header.encode().to_vec(),
            Header::Untagged(header) => header.encode().to_vec(),
        };
        let len = bytes.len();
        prop_assert_eq!(len, header.len());
        bytes.extend(behind);
        prop_assert_eq!(Header::parse(&bytes), Some(Ok(header)));
        prop_assert_eq!(Header::parse(&bytes[..len - 1]), None);
        // RFC 5041 section 7: another version is told by kind; reserved bits are not looked at.
        bytes[0] ^= 0x3c;
        prop_assert_eq!(Header::parse(&bytes), Some(Ok(header)));
        bytes[0] ^= 0x02;
        let expected = match header {
            Header::Tagged(_) => ddp::Error::Tagged(ddp::TaggedError::Version),
            Header::Untagged(_) => ddp::Error::Untagged(ddp::UntaggedError::Version),
        };
        prop_assert_eq!(Header::parse(&bytes), Some(Err(expected)));
    }

    #[test]
    fn read_requests(request in read_request()) {
        prop_assert_eq!(ReadRequest::parse(&request.encode()), request);
    }

    #[test]
    fn terminates(
        codes: (u8, u8, u8),
        failed in proptest::option::of((any::<u16>(), header(), proptest::option::of(read_request()))),
    ) {
        let cause = Cause::from_codes(codes.0 & 0xf, codes.1 & 0xf, codes.2);
        let failed = failed.map(|(len, header, read)| Failed::new(len, header, read));
        let terminate = Terminate::new(cause, failed);
        let mut buffer = [0; TERMINATE_MAX];
        let bytes = terminate.encode(&mut buffer);
        prop_assert_eq!(Terminate::parse(bytes), Some(terminate));
        for cut in 0..bytes.len() {
            let part = Terminate::parse(&bytes[..cut]);
            prop_assert_eq!(part.is_some(), cut >= 4);
        }
    }

    #[test]
    fn any_bytes_are_a_terminate_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        prop_assert_eq!(Terminate::parse(&bytes).is_some(), bytes.len() >= 4);
    }

    #[test]
    fn atomic_responses(id: u32, original: u64) {
        let response = atomics::Response { id, original };
        prop_assert_eq!(atomics::Response::parse(&response.encode()), response);
    }

    #[test]
    fn control_fields(control: u8) {
        match Opcode::parse(control) {
            Ok(opcode) => prop_assert_eq!(opcode.control(), control & !0x30),
            Err(_) => prop_assert!(control >> 6 != 1 || control & 0xf > 0xb),
        }
    }
}

/// RFC 5044 section 7.1.1: what ends set-up at once.
#[test]
fn set_up_frames_that_are_refused() {
    let frame = Frame {
        kind: Kind::Request,
        markers: false,
        crc: true,
        reject: false,
        revision: 1,
        enhanced: None,
        private_data: &[],
    };
    let good = frame.encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Frame::parse(Kind::Request, &bytes).map(|parsed| parsed.is_some())
    };
    assert_eq!(with(16, 0x40), Ok(true));
    assert_eq!(with(0, b'X'), Err(FrameError::Key));
    assert_eq!(with(16, 0x20), Err(FrameError::Reject));
    // 513 bytes, and with enhanced set-up three.
    assert_eq!(with(18, 2).and(with(19, 1)), Ok(false));
    let mut long = good.clone();
    long[18..20].copy_from_slice(&[2, 1]);
    assert_eq!(Frame::parse(Kind::Request, &long), Err(FrameError::Length));
    let mut short = good.clone();
    short[16..20].copy_from_slice(&[0x10, 2, 0, 3]);
    assert_eq!(Frame::parse(Kind::Request, &short), Err(FrameError::Length));
    // The first wrong byte tells, so that nobody waits for the rest of something else.
    assert_eq!(Frame::parse(Kind::Request, b"GET / HTTP"), Err(FrameError::Key));
    assert_eq!(Frame::parse(Kind::Reply, &good), Err(FrameError::Key));
}

/// RFC 5040 section 4.8 and figures of RFC 5041, 5044 and 6581: codes as their tables have them.
#[test]
fn codes_of_the_tables() {
    use rdma::rdmap::terminate::{Llp, Operation, Protection};
    for (cause, codes) in [
        (Cause::Local, (0, 0, 0)),
        (Cause::Protection(Protection::InvalidStag), (0, 1, 0)),
        (Cause::Protection(Protection::Bounds), (0, 1, 1)),
        (Cause::Protection(Protection::Access), (0, 1, 2)),
        (Cause::Protection(Protection::NotAssociated), (0, 1, 3)),
        (Cause::Protection(Protection::Wrap), (0, 1, 4)),
        (Cause::Protection(Protection::CannotInvalidate), (0, 1, 9)),
        (Cause::Protection(Protection::Unspecified), (0, 1, 0xff)),
        (Cause::Operation(Operation::Version), (0, 2, 5)),
        (Cause::Operation(Operation::Opcode), (0, 2, 6)),
        (Cause::Operation(Operation::CatastrophicStream), (0, 2, 7)),
        (Cause::Operation(Operation::CatastrophicGlobal), (0, 2, 8)),
        (Cause::Operation(Operation::CannotInvalidate), (0, 2, 9)),
        (Cause::Operation(Operation::Unspecified), (0, 2, 0xff)),
        (Cause::Ddp(ddp::Error::Catastrophic), (1, 0, 0)),
        (ddp::TaggedError::InvalidStag.into(), (1, 1, 0)),
        (ddp::TaggedError::Bounds.into(), (1, 1, 1)),
        (ddp::TaggedError::NotAssociated.into(), (1, 1, 2)),
        (ddp::TaggedError::Wrap.into(), (1, 1, 3)),
        (ddp::TaggedError::Version.into(), (1, 1, 4)),
        (ddp::UntaggedError::InvalidQueue.into(), (1, 2, 1)),
        (ddp::UntaggedError::NoBuffer.into(), (1, 2, 2)),
        (ddp::UntaggedError::MsnRange.into(), (1, 2, 3)),
        (ddp::UntaggedError::InvalidOffset.into(), (1, 2, 4)),
        (ddp::UntaggedError::TooLong.into(), (1, 2, 5)),
        (ddp::UntaggedError::Version.into(), (1, 2, 6)),
        (Cause::Llp(Llp::ConnectionLost), (2, 0, 1)),
        (Cause::Llp(Llp::Crc), (2, 0, 2)),
        (Cause::Llp(Llp::Marker), (2, 0, 3)),
        (Cause::Llp(Llp::InvalidFrame), (2, 0, 4)),
        (Cause::Llp(Llp::Local), (2, 0, 5)),
        (Cause::Llp(Llp::InsufficientIrd), (2, 0, 6)),
        (Cause::Llp(Llp::NoMatchingRtr), (2, 0, 7)),
    ] {
        assert_eq!(cause.codes(), codes, "{cause}");
        assert_eq!(Cause::from_codes(codes.0, codes.1, codes.2), cause);
    }
}

/// RFC 5040 section 4.8: the header of what failed goes with errors about a message, and no other.
#[test]
fn only_errors_about_a_message_name_one() {
    let header = Header::Tagged(Tagged { last: true, ulp: 0x40, stag: 1, offset: 2 });
    let failed = Some(Failed::new(20, header, None));
    for (cause, names) in [
        (Cause::Local, false),
        (Cause::Ddp(ddp::Error::Catastrophic), false),
        (Cause::Llp(rdma::rdmap::terminate::Llp::Crc), false),
        (ddp::TaggedError::Bounds.into(), true),
        (Cause::Operation(rdma::rdmap::terminate::Operation::Opcode), true),
    ] {
        assert_eq!(Terminate::new(cause, failed).failed.is_some(), names, "{cause}");
    }
}

#[test]
fn the_ready_message_that_is_preferred() {
    assert_eq!(RtrKinds::ALL.preferred(), Some(Rtr::Write));
    assert_eq!(RtrKinds { write: false, ..RtrKinds::ALL }.preferred(), Some(Rtr::Read));
    assert_eq!(RtrKinds::from(Rtr::Send).preferred(), Some(Rtr::Send));
    assert_eq!(RtrKinds::default().preferred(), None);
}
