//! Packets of any kind and an MTU: TCP that gives way to it, packets that fit. Of USO that does not:
//! [`datagrams`](crate::datagrams).

use gso::{Kind, Refusal, Segmenter, complete_checksum};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use testkit::verify;
use wire::{Flags, GsoType, Headers, Ipv4, Tcp, VirtioNetHdr};

use crate::outcome::Given;
use crate::super_packets::super_packets;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Super-packets whose `gso_size` the MTU has no room for, among others.
    #[test]
    fn segments_fit_the_mtu(case in super_packets(), room in 1usize..3000) {
        let (packet, hdr) = case.builder.super_packet(case.gso_size);
        let at = Headers::parse(&packet).unwrap();
        let mtu = at.payload_at - at.network_at + room;
        let size = room.min(case.gso_size.into());
        prop_assume!(case.tcp || case.payload.len().min(case.gso_size.into()) <= room);
        let frames = Given::new(&packet, hdr, mtu, 0).cut().unwrap().frames;
        prop_assert_eq!(frames.len(), case.payload.len().div_ceil(size).max(1));
        for frame in frames {
            prop_assert_eq!(verify::checksums(&frame), Ok(()));
        }
    }

    /// TCP that is no super-packet is cut by the room that there is, or goes whole.
    #[test]
    fn plain_tcp_fits_the_mtu(
        case in super_packets(),
        flags: u8,
        room in 1usize..3000,
        partial: bool,
    ) {
        prop_assume!(case.tcp);
        let builder = case.builder.flags(Flags(flags).without(Flags::URG));
        let (packet, hdr) = match partial {
            true => builder.partial(),
            false => (builder.build(), VirtioNetHdr::default()),
        };
        let at = Headers::parse(&packet).unwrap();
        let mtu = at.payload_at - at.network_at + room;
        let outcome = Given::new(&packet, hdr, mtu, 0).cut().unwrap();
        prop_assert_eq!(outcome.frames.len(), case.payload.len().div_ceil(room).max(1));
        let kind = if case.v4 { Kind::Tcp4 } else { Kind::Tcp6 };
        prop_assert_eq!(outcome.kind, (case.payload.len() > room).then_some(kind));
    }

    #[test]
    fn what_fits_is_the_packet_with_its_checksum_completed(
        case in super_packets(),
        partial: bool,
        more in 0usize..200,
    ) {
        let (mut packet, hdr) = match partial {
            true => case.builder.partial(),
            false => (case.builder.build(), VirtioNetHdr::default()),
        };
        // Room for the padding as well.
        let mtu = packet.len() - Headers::parse(&packet).unwrap().network_at + more;
        let outcome = Given::new(&packet, hdr, mtu, 0).cut().unwrap();
        complete_checksum(&mut packet, &hdr).unwrap();
        prop_assert!(outcome.kind.is_none() && outcome.frames == [packet]);
    }
}

/// Padding is no reason to refuse a packet, and no reason to send a frame that no wire takes.
#[test]
fn padding_over_the_mtu_is_left_out() {
    for builder in [PacketBuilder::udp4(), PacketBuilder::tcp6()] {
        let (packet, hdr) = builder.payload_pattern(1000).padding(900).partial();
        let frames = Given::new(&packet, hdr, 1500, 0).cut().unwrap().frames;
        assert_eq!(frames[0].len(), 14 + 1500);
    }
}

/// What is no IP goes as it is, or not at all.
#[test]
fn other_packets_fit_or_are_refused() {
    let mut packet = PacketBuilder::tcp4().payload_pattern(1460).build();
    packet[12..14].copy_from_slice(&[0x88, 0x08]);
    let hdr = VirtioNetHdr::default();
    assert_eq!(Given::new(&packet, hdr, 1500, 0).cut().unwrap().frames, [packet.clone()]);
    assert_eq!(Given::new(&packet, hdr, 1499, 0).cut().err(), Some(Refusal::OverMtu));
}

/// docs/kernel-rules.md, rule 10, also where it is the MTU that decides: IDs and sequence numbers wrap, CWR is on the first
/// (with AccECN on all), FIN and PSH on the last.
#[test]
fn flags_and_numbers_of_segments_that_the_mtu_makes() {
    let flags = Flags::ACK.with(Flags::CWR).with(Flags::FIN).with(Flags::PSH).with(Flags::ECE);
    let builder = PacketBuilder::tcp4().flags(flags).id(0xffff).seq(u32::MAX).reserved(1);
    let packet = builder.payload_pattern(2921).build();
    for accecn in [false, true] {
        let given = Given::new(&packet, VirtioNetHdr::default(), 1500, 0);
        let mut segmenter = given.segmenter().unwrap();
        if accecn {
            segmenter = segmenter.accecn();
        }
        let frames = crate::outcome::by_slices(segmenter);
        let tcp = |n: usize| Tcp::new(&frames[n][34..]).unwrap();
        let middle = Flags::ACK.with(Flags::ECE);
        let cwr = if accecn { middle.with(Flags::CWR) } else { middle };
        let expected = [middle.with(Flags::CWR), cwr, cwr.with(Flags::FIN).with(Flags::PSH)];
        assert_eq!([0, 1, 2].map(|n| tcp(n).flags()), expected);
        assert_eq!([0, 1, 2].map(|n| tcp(n).seq().0), [u32::MAX, 1459, 2919]);
        assert_eq!([0, 1, 2].map(|n| tcp(n).reserved()), [1; 3]);
        assert_eq!(frames.len(), 3);
        let id = |n: usize| Ipv4::new(&frames[n][14..]).unwrap().id();
        assert_eq!([0, 1, 2].map(id), [0xffff, 0, 1]);
    }
}

/// Exactly what fits, and a byte more, of every kind that has segments.
#[test]
fn exactly_one_segment_and_one_byte_more() {
    for (builder, v4) in [
        (PacketBuilder::tcp4(), true),
        (PacketBuilder::tcp6(), false),
        (PacketBuilder::udp4(), true),
        (PacketBuilder::udp6(), false),
    ] {
        for len in [999, 1000, 1001, 2000, 2001] {
            let (packet, hdr) = builder.clone().id(0xffff).payload_pattern(len).super_packet(1000);
            let outcome = Given::new(&packet, hdr, 1500, 0).cut().unwrap();
            assert_eq!(outcome.frames.len(), len.div_ceil(1000));
            if v4 && len > 1000 {
                assert_eq!(outcome.frames[1][18..20], [0, 0], "the ID wraps");
            }
        }
    }
}

/// A packet that is cut because it is too long loses nothing that says how: a TCP super-packet of
/// one segment is the packet itself.
#[test]
fn a_super_packet_of_one_segment_is_the_packet() {
    let builder = PacketBuilder::tcp6().flags(Flags(0xff)).payload_pattern(100);
    let (packet, hdr) = builder.super_packet(100);
    assert_eq!(hdr.gso_type, GsoType::Tcpv6);
    assert_eq!(Given::new(&packet, hdr, 1500, 0).cut().unwrap().frames, [builder.build()]);
}

/// The urgent pointer counts from the segment's own sequence number, so the segment is not cut.
#[test]
fn urgent_data_goes_in_fragments() {
    let builder = PacketBuilder::tcp4().flags(Flags::ACK.with(Flags::URG)).urgent(3);
    let packet = builder.payload_pattern(4000).build();
    let segments = Segmenter::with_mtu(&packet, &VirtioNetHdr::default(), 1500, 7).unwrap();
    assert_eq!((segments.kind(), segments.gso_segs()), (Some(Kind::Frag4), 3));
}
