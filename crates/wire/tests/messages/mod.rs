//! ARP, Neighbour Discovery and ICMP messages, and headers that are written.

mod drive;

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use wire::arp::{Arp, Operation};
use wire::icmp::{Error, Message};
use wire::ndp::{self, Ndp, advertisement, solicitation, solicited_node};
use wire::{Headers, Ipv6, Seq};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_keep_the_laws(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        drive::run(&bytes);
    }

    #[test]
    fn split_headers_of_any_bytes_are_parsed_or_refused(first: Vec<u8>, rest: Vec<u8>) {
        let _ = Headers::parse_split(&first, &[&rest]);
    }
}

#[test]
fn an_arp_request_is_answered_to_the_requester() {
    let (own, peer) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
    let request = Arp::request((PEER, peer), own, None);
    assert_eq!(request[..6], [0xff; 6]);
    let request = Arp::parse(&request[14..]).unwrap();
    let reply = request.reply(OWN);
    assert_eq!((&reply[..6], &reply[6..12]), (&PEER[..], &OWN[..]));
    let reply = Arp::parse(&reply[14..]).unwrap();
    assert_eq!((reply.operation, reply.sender, reply.target), (Operation::Reply, own, peer));
    assert_eq!((reply.sender_mac, reply.target_mac), (OWN, PEER));
}

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn read(frame: &[u8]) -> Option<Ndp> {
    let view = Ipv6::new(&frame[14..]).unwrap();
    let address = |bytes: &[u8]| Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap());
    Ndp::parse(&frame[54..], address(view.source()), address(view.destination()))
}

#[test]
fn messages_of_neighbour_discovery_round_trip() {
    let (own, peer) = (ip("fd00::2"), ip("fd00::1"));
    let all = solicitation((PEER, peer), own, None);
    assert_eq!(all[..6], [0x33, 0x33, 0xff, 0, 0, 2]);
    assert_eq!(read(&all), Some(Ndp::Solicitation { target: own, mac: Some(PEER) }));
    let one = solicitation((PEER, peer), own, Some(OWN));
    assert_eq!((&one[..6], &one[38..54]), (&OWN[..], &own.octets()[..]));
    assert!(read(&one).is_some());
    let answer = advertisement(OWN, own, Some((peer, PEER)));
    let expected =
        Ndp::Advertisement { target: own, mac: Some(OWN), solicited: true, overrides: true };
    assert_eq!((read(&answer), &answer[..6]), (Some(expected), &PEER[..]));
    let announcement = advertisement(OWN, own, None);
    assert_eq!(announcement[..6], [0x33, 0x33, 0, 0, 0, 1]);
    let expected =
        Ndp::Advertisement { target: own, mac: Some(OWN), solicited: false, overrides: true };
    assert_eq!(read(&announcement), Some(expected));
    let probe = ndp::probe(OWN, own);
    assert_eq!((&probe[..6], probe.len()), (&all[..6], 78));
    assert_eq!(probe[22..38], [0; 16]);
    assert_eq!(read(&probe), Some(Ndp::Solicitation { target: own, mac: None }));
    for frame in [&all, &one, &answer, &announcement, &probe[..]] {
        testkit::verify::checksums(frame).unwrap();
    }
}

#[test]
fn a_solicitation_from_no_address_is_a_probe_or_refused() {
    let (own, none) = (ip("fd00::2"), Ipv6Addr::UNSPECIFIED);
    // With a link-layer address, or to one host (RFC 4861 section 7.1.1).
    assert_eq!(read(&solicitation((PEER, none), own, None)), None);
    let probe = ndp::probe(PEER, own);
    assert_eq!(Ndp::parse(&probe[54..], none, own), None);
    let expected = Some(Ndp::Solicitation { target: own, mac: None });
    assert_eq!(Ndp::parse(&probe[54..], none, solicited_node(own)), expected);
    assert_eq!(read(&solicitation((PEER, ip("ff02::1")), own, None)), None, "from a group");
    let mut frame = solicitation((PEER, ip("fd00::1")), own, None);
    frame[79] = 0;
    assert_eq!(read(&frame), None, "an option of no length");
}

#[test]
fn a_solicited_node_group_has_the_end_of_the_address() {
    let group = solicited_node(ip("fd00::12:3456:789a"));
    assert_eq!(group, ip("ff02::1:ff56:789a"));
    assert_eq!(ndp::group_mac(group), [0x33, 0x33, 0xff, 0x56, 0x78, 0x9a]);
}

fn message(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0], &word.to_be_bytes()[..], quoted].concat()
}

fn parse(message: &[u8], v6: bool) -> Message {
    if v6 { Message::parse_v6(message) } else { Message::parse_v4(message) }
}

#[test]
fn icmp_errors_identify_their_segment() {
    for (builder, v6) in [(PacketBuilder::tcp4(), false), (PacketBuilder::tcp6(), true)] {
        let packet = builder.ports(7, 4000).seq(0x1234_5678).payload_pattern(100).build();
        // Eight bytes of the segment are all that a router must quote (RFC 792).
        let quoted = &packet[14..14 + if v6 { 48 } else { 28 }];
        let (unreachable, too_big) = if v6 { ((1, 4), (2, 0)) } else { ((3, 3), (3, 4)) };
        for ((kind, code), word, expected) in [
            (unreachable, 0, Error::Unreachable { hard: true }),
            ((unreachable.0, 0), 0, Error::Unreachable { hard: false }),
            (too_big, 1300, Error::TooBig { mtu: 1300 }),
        ] {
            let read = parse(&message(kind, code, word, quoted), v6);
            let Message::Error { what, quoted } = read else { panic!("{read:?}") };
            assert_eq!((what, quoted.seq), (expected, Seq(0x1234_5678)));
            assert_eq!((quoted.source.port(), quoted.destination.port()), (7, 4000));
            assert_eq!(quoted.source.is_ipv6(), v6);
        }
        let short = message(unreachable.0, unreachable.1, 0, &quoted[..quoted.len() - 1]);
        assert_eq!(parse(&short, v6), Message::Other);
    }
}

#[test]
fn a_jumbo_mtu_is_read_as_it_is() {
    let packet = PacketBuilder::tcp6().build();
    let read = parse(&message(2, 0, 100_000, &packet[14..]), true);
    assert!(matches!(read, Message::Error { what: Error::TooBig { mtu: 100_000 }, .. }));
}

#[test]
fn a_later_fragment_has_no_ports() {
    let packet = PacketBuilder::tcp4().fragment(100, true).payload_pattern(20).build();
    assert_eq!(parse(&message(3, 3, 0, &packet[14..]), false), Message::Other);
}

#[test]
fn a_packet_in_pieces_is_parsed_as_one_in_one_piece() {
    for builder in [PacketBuilder::tcp4(), PacketBuilder::tcp6()] {
        let (bytes, _) = builder.options(&[1; 8]).payload_pattern(5000).super_packet(1000);
        let whole = Headers::parse(&bytes).unwrap();
        for at in [whole.payload_at, whole.payload_at + 1, bytes.len() - 1] {
            let (first, rest) = bytes.split_at(at);
            let (one, two) = rest.split_at(rest.len() / 2);
            assert_eq!(Headers::parse_split(first, &[one, two]), Ok(whole));
        }
        let (first, rest) = bytes.split_at(whole.payload_at - 1);
        assert!(Headers::parse_split(first, &[rest]).is_err());
        assert!(Headers::parse_split(&bytes[..100], &[&bytes[100..4000]]).is_err(), "cut short");
    }
}
