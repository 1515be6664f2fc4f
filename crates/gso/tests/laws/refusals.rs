//! What cannot be cut or completed is refused by name, and nothing panics.

use crate::super_packets::super_packets;
use gso::{
    Kind, MAX_HEADER_LEN, Refusal, Segmenter, UDP_MAX_SEGMENTS, complete_checksum,
    complete_checksum_into,
};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use wire::{GsoType, Malformed, VNET_LEGACY_LEN, VirtioNetHdr};

fn refusal(packet: &[u8], hdr: VirtioNetHdr) -> Refusal {
    Segmenter::new(packet, &hdr).expect_err("not refused")
}

#[test]
fn each_by_its_name() {
    let (packet, hdr) = PacketBuilder::tcp4().payload_pattern(3000).super_packet(1000);
    let with = |gso_type| VirtioNetHdr { gso_type, ..hdr };
    assert_eq!(refusal(&packet, with(GsoType::None)), Refusal::NotSuperPacket);
    assert_eq!(refusal(&packet, with(GsoType::Udp)), Refusal::Ufo);
    assert_eq!(refusal(&packet, with(GsoType::Tcpv6)), Refusal::TypeMismatch);
    assert_eq!(refusal(&packet, with(GsoType::UdpL4)), Refusal::TypeMismatch);
    assert_eq!(refusal(&packet, VirtioNetHdr { gso_size: 0, ..hdr }), Refusal::GsoSizeZero);
    for (csum_start, csum_offset) in [(33, 16), (34, 6), (0xffff, 0xffff), (14, 36)] {
        let hdr = VirtioNetHdr { csum_start, csum_offset, ..hdr };
        assert_eq!(refusal(&packet, hdr), Refusal::ChecksumPosition);
    }
    assert_eq!(refusal(&packet[..53], hdr), Malformed::Ipv4TotalLength.into());
    assert_eq!(refusal(&[], hdr), Malformed::ShortEthernet.into());

    let (packet, hdr) = PacketBuilder::tcp6().payload_pattern(3000).super_packet(1000);
    assert_eq!(
        refusal(&packet, VirtioNetHdr { gso_type: GsoType::Tcpv4, ..hdr }),
        Refusal::TypeMismatch
    );
    let (packet, hdr) =
        PacketBuilder::tcp6().extension(60, MAX_HEADER_LEN).payload_pattern(3000).super_packet(9);
    assert_eq!(refusal(&packet, hdr), Refusal::HeaderTooLong);

    for builder in [PacketBuilder::tcp4(), PacketBuilder::udp6()] {
        let (packet, hdr) = builder.payload_pattern(3000).fragment(0, true).super_packet(1000);
        assert_eq!(refusal(&packet, hdr), Refusal::Fragment);
    }
}

#[test]
fn each_of_udp_by_its_name() {
    let builder = PacketBuilder::udp4().payload_pattern(UDP_MAX_SEGMENTS * 10);
    let (mut packet, hdr) = builder.super_packet(10);
    assert_eq!(Segmenter::new(&packet, &hdr).unwrap().gso_segs(), UDP_MAX_SEGMENTS);
    assert_eq!(refusal(&packet, VirtioNetHdr { gso_size: 9, ..hdr }), Refusal::TooManySegments);
    assert_eq!(refusal(&packet, VirtioNetHdr { ecn: true, ..hdr }), Refusal::TypeMismatch);
    let complete = VirtioNetHdr { needs_csum: false, ..hdr };
    assert_eq!(refusal(&packet, complete), Refusal::ChecksumNotPartial);
    let tcp = VirtioNetHdr { gso_type: GsoType::Tcpv4, ..hdr };
    assert_eq!(refusal(&packet, tcp), Refusal::TypeMismatch);
    packet[38..40].copy_from_slice(&[0, 20]);
    assert_eq!(refusal(&packet, hdr), Refusal::UdpLength);
}

#[test]
fn a_short_buffer_is_refused_and_the_segment_kept() {
    let (packet, hdr) = PacketBuilder::udp6().payload_pattern(2500).super_packet(1000);
    let mut segmenter = Segmenter::new(&packet, &hdr).unwrap();
    let mut out = vec![0; segmenter.max_segment_len()];
    let short = segmenter.max_segment_len() - 1;
    assert_eq!(segmenter.next_into(&mut out[..short]), Err(Refusal::BufferTooSmall));
    assert_eq!(segmenter.position(), 0);
    assert_eq!(segmenter.next_into(&mut out), Ok(Some(short + 1)));
}

/// A packet inside others, with the `virtio_net_hdr` of the inner one, as a host with tunnel offloads
/// but without the fields that describe them would hand it over.
fn tunnelled(
    outer: PacketBuilder,
    around: &[u8],
    inner: &PacketBuilder,
) -> (Vec<u8>, VirtioNetHdr) {
    let (inner, hdr) = inner.super_packet(1000);
    // VXLAN carries the Ethernet header, the others do not.
    let inner = if around.len() == 8 { &inner[..] } else { &inner[14..] };
    let packet = outer.payload(&[around, inner].concat()).build();
    let csum_start = (packet.len() - inner.len()) as u16 + hdr.csum_start
        - if around.len() == 8 { 0 } else { 14 };
    (packet, VirtioNetHdr { csum_start, ..hdr })
}

/// The tunnels of the issue: named, with an MTU and without, whatever they carry.
#[test]
fn tunnels_by_their_names() {
    const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 1, 0];
    const GRE: [u8; 4] = [0, 0, 8, 0];
    let inner = [PacketBuilder::tcp4(), PacketBuilder::tcp6(), PacketBuilder::udp4()];
    for inner in inner.map(|inner| inner.payload_pattern(3000)) {
        for (outer, around, name) in [
            (PacketBuilder::ip4(4), &[][..], Refusal::IpipTunnel),
            (PacketBuilder::ip6(41), &[], Refusal::IpipTunnel),
            (PacketBuilder::ip4(47), &GRE, Refusal::GreTunnel),
            (PacketBuilder::ip6(47), &GRE, Refusal::GreTunnel),
            (PacketBuilder::udp4().ports(1, 4789), &VXLAN, Refusal::UdpTunnel),
            (PacketBuilder::udp6().ports(1, 4789), &VXLAN, Refusal::UdpTunnel),
        ] {
            let (packet, hdr) = tunnelled(outer, around, &inner);
            assert_eq!(refusal(&packet, hdr), name);
            assert_eq!(Segmenter::with_mtu(&packet, &hdr, 1500, 1).err(), Some(name));
            let ufo = VirtioNetHdr { gso_type: GsoType::Udp, ..hdr };
            assert_eq!(Segmenter::with_mtu(&packet, &ufo, 1500, 1).err(), Some(name));
            // Without GSO it is a packet like any other: the inner checksum is completed.
            let plain = VirtioNetHdr { gso_type: GsoType::None, ..hdr };
            let kind = Segmenter::with_mtu(&packet, &plain, 1500, 1).unwrap().kind();
            assert!(matches!(kind, Some(Kind::Frag4 | Kind::Frag6)));
        }
    }
}

#[test]
fn over_mtu() {
    let over = |packet: &[u8], hdr, mtu| {
        assert_eq!(Segmenter::with_mtu(packet, &hdr, mtu, 1).err(), Some(Refusal::OverMtu));
    };
    // USO: no room for eight bytes in a fragment, or for the headers in the first (RFC 7112).
    let (packet, hdr) = PacketBuilder::udp4().payload_pattern(3000).super_packet(1473);
    over(&packet, hdr, 27);
    assert!(Segmenter::with_mtu(&packet, &hdr, 28, 1).is_ok());
    let builder = PacketBuilder::udp6().extension(43, 8).extension(60, 16);
    let (packet, hdr) = builder.payload_pattern(3000).super_packet(1473);
    over(&packet, hdr, 79);
    assert!(Segmenter::with_mtu(&packet, &hdr, 80, 1).is_ok());
    // Not even a header.
    let (packet, hdr) = PacketBuilder::udp4().super_packet(1000);
    over(&packet, hdr, 27);
    // No room for a byte of payload, or for eight in a fragment.
    let (packet, hdr) = PacketBuilder::tcp6().payload_pattern(3000).super_packet(1000);
    over(&packet, hdr, 60);
    assert!(Segmenter::with_mtu(&packet, &hdr, 61, 1).is_ok());
    let packet = PacketBuilder::ip6(253).payload_pattern(3000).build();
    over(&packet, VirtioNetHdr::default(), 55);
    assert!(Segmenter::with_mtu(&packet, &VirtioNetHdr::default(), 56, 1).is_ok());
    over(&packet, VirtioNetHdr::default(), 0);
    // UFO of less than what a fragment's offset counts in.
    let (packet, hdr) = PacketBuilder::udp4().payload_pattern(3000).partial();
    over(&packet, VirtioNetHdr { gso_type: GsoType::Udp, gso_size: 7, ..hdr }, 1500);
}

#[test]
fn ufo_by_its_names() {
    let (packet, hdr) = PacketBuilder::udp4().payload_pattern(3000).partial();
    let hdr = VirtioNetHdr { gso_type: GsoType::Udp, gso_size: 1000, ..hdr };
    assert_eq!(refusal(&packet, hdr), Refusal::Ufo);
    let refused = |packet: &[u8], hdr| Segmenter::with_mtu(packet, &hdr, 1500, 1).unwrap_err();
    assert_eq!(refused(&packet, VirtioNetHdr { gso_size: 0, ..hdr }), Refusal::GsoSizeZero);
    assert_eq!(refused(&packet, VirtioNetHdr { ecn: true, ..hdr }), Refusal::TypeMismatch);
    for (csum_start, csum_offset) in [(33, 6), (34, 16), (14, 26)] {
        let hdr = VirtioNetHdr { csum_start, csum_offset, ..hdr };
        assert_eq!(refused(&packet, hdr), Refusal::ChecksumPosition);
    }
    let (tcp, _) = PacketBuilder::tcp4().payload_pattern(3000).partial();
    assert_eq!(refused(&tcp, hdr), Refusal::TypeMismatch);
    let fragment = PacketBuilder::udp4().payload_pattern(3000).fragment(0, true).build();
    assert_eq!(refused(&fragment, hdr), Refusal::Fragment);
}

/// Fragments may be cut again, but no datagram is longer than 65,535 bytes.
#[test]
fn fragments_that_reach_too_far() {
    let hdr = VirtioNetHdr::default();
    for builder in [PacketBuilder::ip4(253), PacketBuilder::ip6(253)] {
        let of = |len| builder.clone().payload_pattern(len).fragment(62_536, false).build();
        let cut = |packet: &[u8]| Segmenter::with_mtu(packet, &hdr, 1500, 1).err();
        assert_eq!(cut(&of(3000)), Some(Refusal::Fragment));
        assert_eq!(cut(&of(2999)), None);
    }
    let cut_short = PacketBuilder::ip6(44).extension(60, 1400).payload(&[253, 0, 0, 1]).build();
    let refused = Segmenter::with_mtu(&cut_short, &hdr, 1400, 1).unwrap_err();
    assert_eq!(refused, Malformed::Ipv6Extension.into());
}

/// The same questions are asked of packets that are no super-packets.
#[test]
fn plain_packets_by_their_names() {
    let refused = |packet: &[u8], hdr, mtu| Segmenter::with_mtu(packet, &hdr, mtu, 1).unwrap_err();
    let (tcp, hdr) = PacketBuilder::tcp4().payload_pattern(3000).partial();
    let moved = VirtioNetHdr { csum_offset: 6, ..hdr };
    assert_eq!(refused(&tcp, moved, 1500), Refusal::ChecksumPosition);
    let past = VirtioNetHdr { csum_offset: 3019, ..hdr };
    assert_eq!(refused(&tcp, past, 9000), Refusal::ChecksumRange);
    // In front of what a fragment carries.
    let (udp, hdr) = PacketBuilder::udp4().payload_pattern(3000).partial();
    let in_ip = VirtioNetHdr { csum_start: 14, csum_offset: 10, ..hdr };
    assert_eq!(refused(&udp, in_ip, 1500), Refusal::ChecksumPosition);
    // Found by fuzzing: up to its end, and across it.
    let (options, _) = PacketBuilder::udp4().ip_options(&[1; 8]).payload_pattern(3000).partial();
    for csum_offset in [6, 7] {
        let before = VirtioNetHdr { csum_start: 34, csum_offset, ..hdr };
        assert_eq!(refused(&options, before, 1500), Refusal::ChecksumPosition);
        assert_eq!(refused(&options, before, 9000), Refusal::ChecksumPosition);
    }
    let deep = VirtioNetHdr { csum_start: 400, ..hdr };
    assert_eq!(refused(&udp, deep, 1500), Refusal::HeaderTooLong);
    let long = PacketBuilder::ip6(253).extension(60, MAX_HEADER_LEN).payload_pattern(3000).build();
    assert_eq!(refused(&long, VirtioNetHdr::default(), 1500), Refusal::HeaderTooLong);
    assert_eq!(refused(&udp[..60], hdr, 1500), Malformed::Ipv4TotalLength.into());
    assert_eq!(
        Segmenter::of_ip(&[0x50; 40], &hdr, 1500, 1).err(),
        Some(Malformed::IpVersion.into())
    );
    assert_eq!(Segmenter::of_ip(&[], &hdr, 1500, 1).err(), Some(Malformed::ShortIpv4.into()));
}

/// Both ways through, on whatever came.
fn exercise(packet: &[u8], hdr: &VirtioNetHdr) {
    let mut out = vec![0; packet.len()];
    let into = complete_checksum_into(&mut out, packet, hdr);
    let mut in_place = packet.to_vec();
    assert_eq!(complete_checksum(&mut in_place, hdr), into);
    assert!(into.is_err() || in_place == out);
    assert!(into.is_ok() || in_place == packet);

    let Ok(mut segmenter) = Segmenter::new(packet, hdr) else { return };
    let mut again = segmenter.clone();
    let mut header = [0; MAX_HEADER_LEN];
    out.resize(segmenter.max_segment_len(), 0);
    let mut taken = 0;
    while let Some(segment) = segmenter.next_segment(&mut header) {
        let len = again.next_into(&mut out).unwrap().unwrap();
        assert!(out[..len] == [&header[..segment.header_len], segment.payload].concat());
        taken += segment.payload.len();
    }
    assert_eq!(again.next_into(&mut out), Ok(None));
    assert!(taken <= packet.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn noise(
        packet in proptest::collection::vec(any::<u8>(), 0..200),
        hdr in any::<[u8; VNET_LEGACY_LEN]>(),
    ) {
        if let Ok(hdr) = VirtioNetHdr::decode_legacy(&hdr) {
            exercise(&packet, &hdr);
        }
    }

    #[test]
    fn super_packets_with_a_few_wrong_bytes(
        case in super_packets(),
        wrong in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        hdr_wrong in proptest::collection::vec((0..VNET_LEGACY_LEN, any::<u8>()), 0..2),
        cut in any::<prop::sample::Index>(),
    ) {
        let (mut packet, hdr) = case.builder.super_packet(case.gso_size.max(100));
        // Mostly in the headers, where it matters.
        let headers = packet.len().min(150);
        for (at, byte) in wrong {
            packet[at.index(headers)] = byte;
        }
        let mut bytes = hdr.encode_legacy();
        for (at, byte) in hdr_wrong {
            bytes[at] = byte;
        }
        if let Ok(hdr) = VirtioNetHdr::decode_legacy(&bytes) {
            exercise(&packet, &hdr);
            exercise(&packet[..cut.index(packet.len() + 1)], &hdr);
        }
    }
}
