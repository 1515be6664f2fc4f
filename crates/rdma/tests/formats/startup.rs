//! Connection set-up between two sides of this crate.

use proptest::prelude::*;
use rdma::mpa::{Config, Initiator, Responder, Role, Rtr, RtrKinds, StartupError};
use rdma::rdmap::terminate::{Cause, Llp};

fn config() -> impl Strategy<Value = Config> {
    let flags = any::<[bool; 6]>();
    (1u8..=2, flags, 0u16..40, 0u16..40).prop_map(|(revision, flags, ird, ord)| {
        let [markers, crc, peer_to_peer, send, write, read] = flags;
        let rtr = RtrKinds { send, write, read };
        Config { revision, markers, crc, ird, ord, peer_to_peer, rtr }
    })
}

proptest! {
    /// RFC 5044 section 7.1 and RFC 6581 section 9: both know the same afterwards, or one knows why not.
    #[test]
    fn both_sides_agree(
        ours in config(),
        theirs in config(),
        data in proptest::collection::vec(any::<u8>(), 0..508),
        reply_data in proptest::collection::vec(any::<u8>(), 0..508),
        ird in 0u16..40,
        ord in 0u16..40,
    ) {
        let (initiator, responder) = (Initiator::new(ours), Responder::new(theirs));
        let request = initiator.request(&data).unwrap();
        for cut in 0..request.len() {
            prop_assert_eq!(responder.receive(&request[..cut]), Ok(None));
        }
        let waiting = match responder.receive(&request) {
            Ok(waiting) => waiting.unwrap(),
            Err(error) => {
                prop_assert_eq!(error, StartupError::Revision(2));
                prop_assert_eq!((ours.revision, theirs.revision), (2, 1));
                // RFC 6581 section 10: the initiator learns that revision 1 is spoken.
                let refusal = responder.refusal();
                prop_assert_eq!(initiator.receive(&refusal), Err(StartupError::Revision(1)));
                return Ok(());
            }
        };
        prop_assert_eq!(&waiting.private_data, &data);
        let (reply, there) = waiting.accept(ird, ord, &reply_data).unwrap();
        prop_assert_eq!(there.role, Role::Responder);
        prop_assert!(there.ird <= ird.min(theirs.ird) && there.ord <= ord.min(theirs.ord));
        let accepted = match initiator.receive(&reply) {
            Ok(accepted) => accepted.unwrap(),
            Err(error) => {
                // It offered nothing that was taken.
                prop_assert_eq!(error, StartupError::NoMatchingRtr);
                prop_assert!(ours.peer_to_peer && ours.rtr.and(theirs.rtr) == RtrKinds::default());
                prop_assert_eq!(error.cause(), Some(Cause::Llp(Llp::NoMatchingRtr)));
                return Ok(());
            }
        };
        let here = accepted.negotiated;
        prop_assert_eq!(accepted.consumed, reply.len());
        prop_assert_eq!(&accepted.private_data, &reply_data);
        prop_assert_eq!(here.role, Role::Initiator);
        prop_assert_eq!(here.crc, ours.crc || theirs.crc);
        prop_assert_eq!(there.crc, here.crc);
        prop_assert_eq!((here.markers_in, here.markers_out), (ours.markers, theirs.markers));
        prop_assert_eq!((there.markers_in, there.markers_out), (theirs.markers, ours.markers));
        prop_assert_eq!(here.rtr, there.rtr);
        if ours.revision == 2 {
            // RFC 6581 section 9.1: nobody has more reads at once than the other takes.
            prop_assert!(here.ord <= there.ird && there.ord <= here.ird);
            prop_assert_eq!(here.rtr.is_some(), ours.peer_to_peer);
        }
    }

    #[test]
    fn a_reject_says_why(ours in config(), data in proptest::collection::vec(any::<u8>(), 0..508)) {
        let responder = Responder::new(Config::default());
        let initiator = Initiator::new(ours);
        let waiting = responder.receive(&initiator.request(&[]).unwrap()).unwrap().unwrap();
        let reply = waiting.reject(&data).unwrap();
        prop_assert_eq!(initiator.receive(&reply), Err(StartupError::Rejected));
        prop_assert_eq!(initiator.reject_data(&reply), &data);
    }
}

/// RFC 6581 section 9.1: a responder that wants more reads than the initiator takes.
#[test]
fn a_responder_with_too_many_reads() {
    let initiator = Initiator::new(Config { ird: 1, rtr: Rtr::Write.into(), ..Config::default() });
    let mut reply = b"MPA ID Rep Frame\x50\x02\x00\x04".to_vec();
    reply.extend([0x80, 1, 0x80, 2]);
    let error = initiator.receive(&reply).unwrap_err();
    assert_eq!(error, StartupError::InsufficientIrd);
    assert_eq!(error.cause(), Some(Cause::Llp(Llp::InsufficientIrd)));
    // 0x3FFF says that it is not negotiated here.
    let open = [0xbf, 0xff, 0xbf, 0xff];
    reply.splice(20.., open);
    let accepted = initiator.receive(&reply).unwrap().unwrap();
    assert_eq!((accepted.negotiated.ird, accepted.negotiated.ord), (1, 16));
}

/// RFC 6581 section 9: an enhanced request has an enhanced reply of the same revision.
#[test]
fn replies_of_another_kind() {
    let initiator = Initiator::new(Config::default());
    let reply = |flags: u8, revision: u8| {
        let mut bytes = b"MPA ID Rep Frame".to_vec();
        bytes.extend([flags, revision, 0, 0]);
        initiator.receive(&bytes).unwrap_err()
    };
    assert_eq!(reply(0x40, 2), StartupError::NotEnhanced);
    assert_eq!(reply(0x40, 1), StartupError::Revision(1));
}

#[test]
fn private_data_that_do_not_fit() {
    let two = Initiator::new(Config::default());
    assert!(two.request(&[0; 508]).is_ok());
    assert_eq!(two.request(&[0; 509]), Err(StartupError::PrivateData));
    let one = Initiator::new(Config { revision: 1, ..Config::default() });
    assert!(one.request(&[0; 512]).is_ok());
    assert_eq!(one.request(&[0; 513]), Err(StartupError::PrivateData));
}

/// RFC 5044 section 7.1.2: an initiator sends nothing behind its request before it has the reply.
#[test]
fn data_before_the_reply() {
    let mut request = Initiator::new(Config::default()).request(&[1, 2]).unwrap();
    request.push(0);
    let refused = Responder::new(Config::default()).receive(&request);
    assert_eq!(refused, Err(StartupError::Early));
}

/// RFC 6581 section 9: only revision 2 has the bit S and the fields of IRD and ORD. With revision 1 private data begin
/// behind the header, the bit is zero, and the reply is as the request.
#[test]
fn revision_1_has_no_fields_of_revision_2() {
    let initiator = Initiator::new(Config { revision: 1, ..Config::default() });
    let request = initiator.request(b"asks").unwrap();
    let waiting = Responder::new(Config::default()).receive(&request).unwrap().unwrap();
    assert_eq!(waiting.private_data, b"asks");
    let (accepts, there) = waiting.accept(4, 5, b"says").unwrap();
    let rejects = waiting.reject(b"says").unwrap();
    for (frame, data) in [(&request, b"asks"), (&accepts, b"says"), (&rejects, b"says")] {
        // Flags without S and the reserved bits, the revision, the length.
        assert_eq!((frame[16] & 0x1f, frame[17], &frame[18..20]), (0, 1, &[0, 4][..]));
        assert_eq!(&frame[20..], data);
    }
    let here = initiator.receive(&accepts).unwrap().unwrap().negotiated;
    assert_eq!((here.rtr, there.rtr), (None, None));
}
