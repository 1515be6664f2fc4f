//! Partial checksums of plain packets, completed.

use crate::super_packets::super_packets;
use gso::{Refusal, complete_checksum, complete_checksum_into};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use testkit::verify;
use wire::{Malformed, VirtioNetHdr};

proptest! {
    #[test]
    fn completed_is_as_if_never_partial(case in super_packets()) {
        let (mut packet, hdr) = case.builder.partial();
        let mut copy = vec![0; packet.len() + 7];
        prop_assert_eq!(complete_checksum_into(&mut copy, &packet, &hdr), Ok(()));
        prop_assert_eq!(complete_checksum(&mut packet, &hdr), Ok(()));
        prop_assert!(packet == copy[..packet.len()]);
        prop_assert_eq!(&copy[packet.len()..], [0; 7]);
        prop_assert_eq!(verify::checksums(&packet), Ok(()));
        // The same bytes but for a TCP checksum of 0, whose other name is 0xFFFF.
        let complete = case.builder.build();
        let at = usize::from(hdr.csum_start + hdr.csum_offset);
        if complete[at..at + 2] != [0, 0] {
            prop_assert!(packet == complete);
        }
    }
}

#[test]
fn without_needs_csum_nothing_changes() {
    let (packet, hdr) = PacketBuilder::udp4().payload_pattern(9).partial();
    let hdr = VirtioNetHdr { needs_csum: false, ..hdr };
    let (mut in_place, mut copy) = (packet.clone(), vec![0; packet.len()]);
    complete_checksum(&mut in_place, &hdr).unwrap();
    complete_checksum_into(&mut copy, &packet, &hdr).unwrap();
    assert_eq!((&in_place, &copy), (&packet, &packet));
}

/// The host fills in what csum_start says, whatever lies there: here UDP inside GRE.
#[test]
fn any_protocol_that_sums_from_csum_start() {
    const GRE: u8 = 47;
    let inner = PacketBuilder::udp4().payload_pattern(33);
    let (inner_packet, inner_hdr) = inner.partial();
    let around = |inner: &[u8]| {
        let gre = [&[0, 0, 8, 0], &inner[14..]].concat();
        PacketBuilder::ip6(GRE).payload(&gre).padding(3).build()
    };
    let mut packet = around(&inner_packet);
    let hdr = VirtioNetHdr { csum_start: inner_hdr.csum_start + 40 + 4, ..inner_hdr };
    complete_checksum(&mut packet, &hdr).unwrap();
    assert_eq!(packet, around(&inner.build()));
}

#[test]
fn a_zero_becomes_ffff() {
    let checksum_of = |payload: [u8; 2]| {
        let (mut packet, hdr) = PacketBuilder::udp6().payload(&payload).partial();
        complete_checksum(&mut packet, &hdr).unwrap();
        [packet[60], packet[61]]
    };
    assert_eq!(checksum_of(checksum_of([0, 0])), [0xff, 0xff]);
}

#[test]
fn what_lies_outside_is_refused() {
    // 26 bytes of IP payload, then padding that is no place for a checksum.
    let (mut packet, hdr) = PacketBuilder::tcp4().payload_pattern(6).padding(40).partial();
    for (csum_start, csum_offset, expected) in [
        (34, 24, Ok(())),
        (34, 25, Err(Refusal::ChecksumRange)),
        (60, 0, Err(Refusal::ChecksumRange)),
        (0xffff, 0xffff, Err(Refusal::ChecksumRange)),
    ] {
        let hdr = VirtioNetHdr { csum_start, csum_offset, ..hdr };
        assert_eq!(complete_checksum(&mut packet, &hdr), expected);
    }
    let hdr = VirtioNetHdr { needs_csum: true, ..hdr };
    let mut out = [0; 100];
    assert_eq!(complete_checksum_into(&mut out[..99], &packet, &hdr), Err(Refusal::BufferTooSmall));
    let short = complete_checksum(&mut packet[..20], &hdr);
    assert_eq!(short, Err(Malformed::ShortIpv4.into()));
}
