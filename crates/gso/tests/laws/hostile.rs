//! Whatever comes in, with whatever header, MTU and ID: nothing panics, and what comes out fits and
//! keeps the laws.

use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use testkit::sctp::{SCTP, chunk, packet};
use wire::{VNET_LEGACY_LEN, VirtioNetHdr};

use crate::outcome::Given;
use crate::{fragments, super_packets};

/// With Ethernet and without; the laws are asked by `cut`, the refusal is as good.
fn exercise(packet: &[u8], hdr: VirtioNetHdr, mtu: usize, fragment_id: u32) {
    let given = Given::new(packet, hdr, mtu, fragment_id);
    drop(given.cut());
    drop(Given { bare_ip: true, ..given }.cut());
}

fn mtus() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..120, 68usize..2000, Just(9000), Just(65_535), Just(usize::MAX)]
}

/// Any packet that some other test cuts.
fn sane_packets() -> impl Strategy<Value = (Vec<u8>, VirtioNetHdr)> {
    let super_packets = super_packets::super_packets()
        .prop_map(|case| case.builder.super_packet(case.gso_size.max(100)));
    let fragments = prop_oneof![fragments::cases(true), fragments::cases(false)]
        .prop_map(|case| (case.packet, case.hdr));
    let lens = proptest::collection::vec(4usize..400, 1..20);
    let sctp = (any::<bool>(), lens).prop_map(|(v4, lens)| {
        let chunks: Vec<_> = lens.into_iter().map(|len| chunk(0, len)).collect();
        let builder = if v4 { PacketBuilder::ip4(SCTP) } else { PacketBuilder::ip6(SCTP) };
        (builder.payload(&packet(&chunks)).build(), VirtioNetHdr::default())
    });
    prop_oneof![super_packets, fragments, sctp]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn noise(
        packet in proptest::collection::vec(any::<u8>(), 0..200),
        hdr in any::<[u8; VNET_LEGACY_LEN]>(),
        mtu in mtus(),
        fragment_id: u32,
    ) {
        if let Ok(hdr) = VirtioNetHdr::decode_legacy(&hdr) {
            exercise(&packet, hdr, mtu, fragment_id);
        }
    }

    #[test]
    fn packets_with_a_few_wrong_bytes(
        sane in sane_packets(),
        wrong in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        hdr_wrong in proptest::collection::vec((0..VNET_LEGACY_LEN, any::<u8>()), 0..3),
        gso_type in proptest::option::of(0u8..6),
        cut in any::<prop::sample::Index>(),
        mtu in mtus(),
        fragment_id: u32,
    ) {
        let (mut packet, hdr) = sane;
        // Mostly in the headers, where it matters.
        let headers = packet.len().min(150);
        for (at, byte) in wrong {
            packet[at.index(headers)] = byte;
        }
        let mut bytes = hdr.encode_legacy();
        if let Some(gso_type) = gso_type {
            bytes[1] = gso_type;
        }
        for (at, byte) in hdr_wrong {
            bytes[at] = byte;
        }
        if let Ok(hdr) = VirtioNetHdr::decode_legacy(&bytes) {
            exercise(&packet, hdr, mtu, fragment_id);
            exercise(&packet[..cut.index(packet.len() + 1)], hdr, mtu, fragment_id);
            // A TUN's own, which begins with IP.
            if packet.len() > 14 {
                exercise(&packet[14..], hdr, mtu, fragment_id);
            }
        }
    }
}
