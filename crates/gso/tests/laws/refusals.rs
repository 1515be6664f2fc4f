//! What cannot be cut or completed is refused by name, and nothing panics.

use crate::super_packets::super_packets;
use gso::{
    MAX_HEADER_LEN, Refusal, Segmenter, UDP_MAX_SEGMENTS, complete_checksum, complete_checksum_into,
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
