//! USO whose datagrams are longer than the MTU: put together again, the fragments are the datagrams
//! that the host meant, which [`Given::cut`] asks of all.

use gso::{FragmentIds, Kind, Segmenter};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use testkit::packet::PacketBuilder;
use testkit::verify;
use wire::{Headers, Ipv4, VirtioNetHdr};

use crate::kernel_fragments::{MOST_FRAGMENTS, Router, with_router};
use crate::outcome::{Given, by_slices};
use crate::super_packets::{Case, super_packets};

/// Bytes of IP, headers that every packet has, that a super-packet's fragments need.
fn least_mtu(packet: &[u8]) -> usize {
    let at = Headers::parse(packet).unwrap();
    // All headers in the first fragment, and its Fragment header.
    at.payload_at - at.network_at + 8
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn fragments_are_the_datagrams_in_pieces(
        case in super_packets(),
        room in prop_oneof![0usize..64, 0usize..2000],
        short in 0usize..40,
        fragment_id: u32,
    ) {
        prop_assume!(!case.tcp && !case.payload.is_empty());
        let (packet, hdr) = case.builder.super_packet(case.gso_size);
        let at = Headers::parse(&packet).unwrap();
        let datagram = usize::from(case.gso_size).min(case.payload.len());
        // Around the size of a datagram, or anything less.
        let most = at.payload_at - at.network_at + datagram - 1;
        prop_assume!(most >= least_mtu(&packet) + 8);
        let mtu = if short < 20 { most - short } else { least_mtu(&packet) + room };
        let mtu = mtu.clamp(least_mtu(&packet), most);
        let outcome = Given::new(&packet, hdr, mtu, fragment_id).cut().unwrap();
        prop_assert_eq!(outcome.kind, Some(if case.v4 { Kind::Frag4 } else { Kind::Frag6 }));
    }
}

/// Bytes of IP payload in each frame, a Fragment header not counted, and its ID.
fn cut(builder: &PacketBuilder, gso_size: u16, mtu: usize) -> Vec<(usize, u32)> {
    let (packet, hdr) = builder.super_packet(gso_size);
    let v4 = packet[14] >> 4 == 4;
    let frames = Given::new(&packet, hdr, mtu, 0x1_0000).cut().unwrap().frames;
    let of = |frame: &Vec<u8>| match v4 {
        true => (frame.len() - 34, u32::from(u16::from_be_bytes([frame[18], frame[19]]))),
        false if frame[20] == 44 => {
            let id = frame[58..62].try_into().unwrap();
            (frame.len() - 62, u32::from_be_bytes(id))
        }
        false => (frame.len() - 54, u32::MAX),
    };
    frames.iter().map(of).collect()
}

/// As much as fits, and a byte more; a last datagram that fits is no fragment, with IPv4 with the ID
/// that it has anyway.
#[test]
fn datagrams_of_some_sizes() {
    let udp4 = |len| PacketBuilder::udp4().id(77).payload_pattern(len);
    assert_eq!(cut(&udp4(1473), 1473, 1500), [(1480, 0), (1, 0)]);
    assert_eq!(
        cut(&udp4(2 * 1473 + 9), 1473, 1500),
        [(1480, 0), (1, 0), (1480, 1), (1, 1), (17, 79)]
    );
    assert_eq!(cut(&udp4(1473 + 1472), 1473, 1500), [(1480, 0), (1, 0), (1480, 78)]);
    let udp6 = |len| PacketBuilder::udp6().payload_pattern(len);
    assert_eq!(cut(&udp6(1453), 1453, 1500), [(1448, 0x1_0000), (13, 0x1_0000)]);
    assert_eq!(
        cut(&udp6(1453 + 1452), 1453, 1500),
        [(1448, 0x1_0000), (13, 0x1_0000), (1460, u32::MAX)]
    );
    assert_eq!(
        cut(&udp6(5000), 4000, 1280),
        [(1232, 0x1_0000), (1232, 0x1_0000), (1232, 0x1_0000), (312, 0x1_0000), (1008, u32::MAX)]
    );
}

/// Of a series that cannot be foreseen each datagram has the next, and the next packet those after.
#[test]
fn each_datagram_has_the_next_id_of_the_series() {
    for builder in [PacketBuilder::udp4(), PacketBuilder::udp6()] {
        let (packet, hdr) = builder.payload_pattern(9000).super_packet(2000);
        let mut ids = FragmentIds::new(5);
        for _ in 0..2 {
            let segmenter = Segmenter::with_mtu(&packet, &hdr, 1500, ids).unwrap();
            // The last one fits.
            assert_eq!((segmenter.gso_segs(), segmenter.fragment_ids()), (9, 4));
            for (n, frame) in by_slices(segmenter.clone()).iter().enumerate().take(8) {
                let id = ids.nth(n as u32 / 2).to_be_bytes();
                let v4 = frame[14] >> 4 == 4;
                assert_eq!(
                    if v4 { &frame[18..20] } else { &frame[58..62] },
                    if v4 { &id[2..] } else { &id }
                );
            }
            ids.advance(segmenter.fragment_ids());
        }
    }
}

/// DF keeps routers from cutting, not the sender's card; where nothing is cut it stays.
#[test]
fn df_is_cleared_where_a_datagram_is_cut() {
    let (packet, hdr) = PacketBuilder::udp4().payload_pattern(4100).super_packet(4000);
    let frames = Given::new(&packet, hdr, 1500, 1).cut().unwrap().frames;
    let flags: Vec<u8> = frames.iter().map(|frame| frame[20] & 0xe0).collect();
    assert_eq!(flags, [0x20, 0x20, 0, 0x40]);
    verify::checksums(&frames[3]).unwrap();
}

/// What is said of TCP changes nothing of what IP cuts.
#[test]
fn accecn_is_for_tcp() {
    let (uso, hdr) = PacketBuilder::udp6().payload_pattern(9000).super_packet(2000);
    let (udp, plain) = PacketBuilder::udp4().payload_pattern(9000).partial();
    for (packet, hdr) in [(uso, hdr), (udp, plain)] {
        let segmenter = Segmenter::with_mtu(&packet, &hdr, 1500, 1).unwrap();
        assert!(by_slices(segmenter.clone().accecn()) == by_slices(segmenter));
    }
}

/// What other packets' fragments take.
#[test]
fn one_packet_takes_one_id_or_none() {
    let used = |builder: PacketBuilder, mtu| {
        let (packet, hdr) = builder.payload_pattern(3000).partial();
        Segmenter::with_mtu(&packet, &hdr, mtu, 1).unwrap().fragment_ids()
    };
    assert_eq!([1500, 9000].map(|mtu| used(PacketBuilder::udp4(), mtu)), [1, 0]);
    assert_eq!([1500, 9000].map(|mtu| used(PacketBuilder::tcp6(), mtu)), [0, 0]);
    let (packet, hdr) = PacketBuilder::udp6().payload_pattern(3000).super_packet(1000);
    let of = |hdr: &VirtioNetHdr| Segmenter::new(&packet, hdr).unwrap().fragment_ids();
    assert_eq!(of(&hdr), 0);
}

/// Fragments without their IDs, which wharf does not take from the packet.
fn without_ids(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for packet in &mut packets {
        if packet[6] & 0x3f != 0 || packet[7] != 0 {
            packet[4..6].fill(0);
            Ipv4::new(&mut packet[..]).unwrap().fill_checksum();
        }
    }
    packets
}

fn route(router: &mut Router, case: &Case, mtu: usize) {
    let (packet, hdr) = case.builder.super_packet(case.gso_size);
    let at = Headers::parse(&packet).unwrap();
    let tags = (at.network_at - 14) as u16;
    let hdr =
        VirtioNetHdr { csum_start: hdr.csum_start - tags, hdr_len: hdr.hdr_len - tags, ..hdr };
    let bare = VirtioNetHdr { csum_start: hdr.csum_start - 14, ..hdr };
    let packet = &packet[at.network_at..at.end];
    let given = Given { bare_ip: true, ..Given::new(packet, bare, mtu, 1) };
    let ours = given.cut().unwrap().frames;
    let theirs = router.cut(packet, &hdr, mtu, ours.len());
    assert!(without_ids(ours) == without_ids(theirs), "MTU {mtu}, {case:?}");
}

/// As Linux does where it routes what may be cut: it makes the datagrams, and fragments of each.
#[test]
fn as_the_kernel_cuts() {
    with_router(|mut router| {
        let strategy =
            (super_packets(), 8usize..1600).prop_filter("not to be cut", |(case, room)| {
                let datagram = case.payload.len().min(case.gso_size.into());
                let frames = case.segments() * (datagram / (room & !7) + 2);
                !case.tcp && case.v4 && datagram > *room && frames <= MOST_FRAGMENTS
            });
        let mut runner = TestRunner::new(Config::default());
        for _ in 0..300 {
            let (mut case, room) = strategy.new_tree(&mut runner).unwrap().current();
            case.builder = case.builder.dont_fragment(false).ttl(64);
            let (packet, _) = case.builder.super_packet(case.gso_size);
            let at = Headers::parse(&packet).unwrap();
            route(&mut router, &case, (at.transport_at - at.network_at + room).max(68));
        }
    });
}
