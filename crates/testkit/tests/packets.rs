//! The verifier accepts what the builder builds, and refuses what is made wrong on purpose.

use testkit::packet::PacketBuilder;
use testkit::verify::checksums;
use wire::{Flags, Headers, Network, Transport, protocol};

/// One packet of every kind, with every field that it can have.
fn all() -> [PacketBuilder; 4] {
    let dress = |p: PacketBuilder| {
        p.vlan(0x2001).vlan(0x0007).tos(0xb9).ttl(3).payload_pattern(1001).padding(5)
    };
    [
        dress(PacketBuilder::tcp4().ip_options(&[1, 1, 1, 0]).timestamps(7, 9)),
        dress(PacketBuilder::tcp6().extension(protocol::HOP_BY_HOP, 24).options(&[1; 37])),
        dress(PacketBuilder::udp4().id(0xffff).dont_fragment(false)),
        dress(PacketBuilder::udp6().flow_label(0xf_0001).extension(protocol::DESTINATION, 512)),
    ]
}

#[test]
fn complete_packets_verify_and_have_the_offsets_of_wire() {
    for builder in all() {
        let frame = builder.build();
        assert_eq!(checksums(&frame), Ok(()), "{builder:?}");
        let headers = Headers::parse(&frame).unwrap();
        assert_eq!(headers.network_at, 22);
        assert_eq!(headers.transport_at, builder.transport_at());
        assert_eq!(headers.payload_len(), 1001);
        assert_eq!(headers.end + 5, frame.len());
        assert!(matches!(headers.transport, Transport::Tcp | Transport::Udp));
    }
}

#[test]
fn broken_packets_do_not_verify() {
    for builder in all() {
        checksums(&builder.clone().wrong_checksum().build()).unwrap_err();
        checksums(&builder.partial().0).unwrap_err();
        let frame = builder.build();
        checksums(&frame[..frame.len() - 6]).unwrap_err();
    }
    checksums(&PacketBuilder::tcp4().wrong_ip_checksum().build()).unwrap_err();
    checksums(&PacketBuilder::udp6().zero_checksum().build()).unwrap_err();
    checksums(&PacketBuilder::udp4().zero_checksum().build()).unwrap();
}

#[test]
fn fragments_are_fragments() {
    for builder in [PacketBuilder::udp4(), PacketBuilder::udp6()] {
        let frame = builder.payload_pattern(64).fragment(8, true).build();
        assert_eq!(Headers::parse(&frame).unwrap().transport, Transport::Fragment);
        checksums(&frame).unwrap();
    }
}

#[test]
fn other_protocols_have_no_transport_header() {
    let frame = PacketBuilder::ip4(1).payload(&[8, 0, 0xf7, 0xff]).build();
    let headers = Headers::parse(&frame).unwrap();
    assert_eq!(headers.network, Network::Ipv4 { options: false });
    assert_eq!((headers.transport, headers.payload_len()), (Transport::Other(1), 4));
}

#[test]
fn super_packets_have_the_header_to_cut_them() {
    let builder = PacketBuilder::tcp4().flags(Flags::ACK.with(Flags::CWR)).payload_pattern(3000);
    let (frame, hdr) = builder.super_packet(1000);
    assert!(hdr.needs_csum && hdr.ecn);
    assert_eq!((hdr.csum_start, hdr.csum_offset, hdr.hdr_len), (34, 16, 54));
    assert_eq!(frame.len(), 3054);
}
