//! The laws of segmentation, over super-packets of every kind.

use crate::super_packets::{Case, super_packets};
use gso::{MAX_HEADER_LEN, Segmenter};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use testkit::verify;
use wire::{Flags, Headers, Ipv4, Ipv6, Network, Seq, Tcp, Udp, VirtioNetHdr};

/// All frames, by `next_segment`.
fn frames(mut segmenter: Segmenter<'_>) -> Vec<Vec<u8>> {
    let mut header = [0xee; MAX_HEADER_LEN];
    std::iter::from_fn(|| {
        let segment = segmenter.next_segment(&mut header)?;
        Some([&header[..segment.header_len], segment.payload].concat())
    })
    .collect()
}

/// All frames, by `next_into`.
fn frames_into(mut segmenter: Segmenter<'_>) -> Vec<Vec<u8>> {
    let mut out = vec![0xdd; segmenter.max_segment_len()];
    std::iter::from_fn(|| {
        let len = segmenter.next_into(&mut out).unwrap()?;
        Some(out[..len].to_vec())
    })
    .collect()
}

fn cut(packet: &[u8], hdr: &VirtioNetHdr) -> Vec<Vec<u8>> {
    frames(Segmenter::new(packet, hdr).unwrap())
}

/// The flags of every TCP segment of `flags` over `segments` segments.
fn flags_of(flags: Flags, segments: usize) -> Vec<Flags> {
    let builder = PacketBuilder::tcp4().flags(flags).payload_pattern(100 * segments);
    let (packet, hdr) = builder.super_packet(100);
    let tcp_flags = |f: Vec<u8>| Tcp::new(&f[34..]).unwrap().flags();
    cut(&packet, &hdr).into_iter().map(tcp_flags).collect()
}

/// Checks the network header of `frame`, number `n`, against that of the super-packet.
fn check_network(original: &[u8], frame: &[u8], n: usize) {
    let (at, is) = (Headers::parse(original).unwrap(), Headers::parse(frame).unwrap());
    assert_eq!((at.network_at, at.transport_at), (is.network_at, is.transport_at));
    assert_eq!((at.network, at.transport), (is.network, is.transport));
    assert_eq!(is.end, frame.len(), "IP length covers the frame");
    // Ethernet, tags, and all of the IP headers but lengths, ID and checksum are as they were.
    let mut changing: Vec<usize> = Vec::new();
    if let Network::Ipv4 { .. } = at.network {
        let (was, now) =
            (Ipv4::new(&original[at.network_at..]), Ipv4::new(&frame[at.network_at..]));
        assert_eq!(now.unwrap().id(), was.unwrap().id().wrapping_add(n as u16));
        changing.extend([2, 3, 4, 5, 10, 11]);
    } else {
        Ipv6::new(&frame[at.network_at..]).unwrap();
        changing.extend([4, 5]);
    }
    for i in 0..at.transport_at {
        let changes = i >= at.network_at && changing.contains(&(i - at.network_at));
        assert!(changes || original[i] == frame[i], "byte {i} changed");
    }
}

fn check_tcp(case: &Case, original: &[u8], frame: &[u8], n: usize) {
    let at = Headers::parse(original).unwrap().transport_at;
    let (was, is) = (Tcp::new(&original[at..]).unwrap(), Tcp::new(&frame[at..]).unwrap());
    assert_eq!(is.seq(), was.seq() + (n * usize::from(case.gso_size)) as u32);
    let mut flags = was.flags();
    if n > 0 {
        flags = flags.without(Flags::CWR);
    }
    if n + 1 < case.segments() {
        flags = flags.without(Flags::FIN).without(Flags::PSH);
    }
    assert_eq!(is.flags(), flags);
    assert_eq!((is.source(), is.destination()), (was.source(), was.destination()));
    assert_eq!((is.ack(), is.window(), is.urgent()), (was.ack(), was.window(), was.urgent()));
    assert_eq!((is.reserved(), is.option_bytes()), (was.reserved(), was.option_bytes()));
}

fn check_udp(original: &[u8], frame: &[u8]) {
    let at = Headers::parse(original).unwrap().transport_at;
    let (was, is) = (Udp::new(&original[at..]).unwrap(), Udp::new(&frame[at..]).unwrap());
    assert_eq!((is.source(), is.destination()), (was.source(), was.destination()));
    assert_eq!(usize::from(is.length()), frame.len() - at);
    assert_ne!(is.checksum(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn segments_are_the_super_packet_in_pieces(case in super_packets()) {
        let (packet, hdr) = case.builder.super_packet(case.gso_size);
        let segmenter = Segmenter::new(&packet, &hdr).unwrap();
        prop_assert_eq!(segmenter.gso_segs(), case.segments());
        let longest = segmenter.max_segment_len();
        let frames = frames(segmenter);
        prop_assert_eq!(frames.len(), case.segments());
        prop_assert_eq!(frames.iter().map(Vec::len).max(), Some(longest));

        let mut payload: Vec<u8> = Vec::new();
        for (n, frame) in frames.iter().enumerate() {
            prop_assert_eq!(verify::checksums(frame), Ok(()));
            check_network(&packet, frame, n);
            if case.tcp { check_tcp(&case, &packet, frame, n) } else { check_udp(&packet, frame) }
            let headers = Headers::parse(frame).unwrap();
            payload.extend(&frame[headers.payload_at..headers.end]);
            if n + 1 < frames.len() {
                prop_assert_eq!(headers.payload_len(), usize::from(case.gso_size));
            }
        }
        prop_assert!(payload == case.payload, "the payload is another");
    }

    #[test]
    fn both_ways_give_the_same_frames(case in super_packets()) {
        let (packet, hdr) = case.builder.super_packet(case.gso_size);
        let segmenter = Segmenter::new(&packet, &hdr).unwrap();
        prop_assert!(frames(segmenter.clone()) == frames_into(segmenter));
    }

    #[test]
    fn going_on_after_a_stop_is_as_if_there_had_been_none(
        case in super_packets(),
        stop in any::<prop::sample::Index>(),
    ) {
        let (packet, hdr) = case.builder.super_packet(case.gso_size);
        let mut segmenter = Segmenter::new(&packet, &hdr).unwrap();
        let all = frames(segmenter.clone());
        let stop = stop.index(all.len() + 2);
        segmenter.skip_to(stop);
        prop_assert_eq!(segmenter.position(), stop.min(all.len()));
        prop_assert!(frames(segmenter) == all[stop.min(all.len())..]);
    }

    #[test]
    fn hdr_len_is_not_believed(case in super_packets(), hdr_len: u16) {
        let (packet, hdr) = case.builder.super_packet(case.gso_size);
        let lying = VirtioNetHdr { hdr_len, ..hdr };
        prop_assert!(cut(&packet, &lying) == cut(&packet, &hdr));
    }

    #[test]
    fn a_fixed_id_stays(case in super_packets()) {
        let (packet, hdr) = case.builder.super_packet(case.gso_size);
        let at = Headers::parse(&packet).unwrap().network_at;
        for frame in frames(Segmenter::new(&packet, &hdr).unwrap().fixed_id()) {
            prop_assert_eq!(verify::checksums(&frame), Ok(()));
            if case.v4 {
                prop_assert_eq!(&frame[at + 4..at + 6], &packet[at + 4..at + 6]);
            }
        }
    }
}

#[test]
fn fin_and_psh_are_on_the_last_only_and_cwr_on_the_first_only() {
    let (ack, fin, psh, cwr, ece) = (Flags::ACK, Flags::FIN, Flags::PSH, Flags::CWR, Flags::ECE);
    let all = ack.with(fin).with(psh).with(cwr).with(ece);
    let middle = ack.with(ece);
    assert_eq!(flags_of(all, 3), [middle.with(cwr), middle, middle.with(fin).with(psh)]);
    assert_eq!(flags_of(all, 1), [all]);
}

/// Linux leaves these alone, and so does wharf.
#[test]
fn syn_rst_and_urg_are_on_every_segment() {
    let flags = Flags::SYN.with(Flags::RST).with(Flags::URG);
    assert_eq!(flags_of(flags, 3), [flags; 3]);
}

#[test]
fn accecn_keeps_cwr_and_ae_on_every_segment() {
    let flags = Flags::ACK.with(Flags::CWR);
    let builder = PacketBuilder::tcp6().flags(flags).reserved(1).payload_pattern(250);
    let (packet, hdr) = builder.super_packet(100);
    let frames = frames(Segmenter::new(&packet, &hdr).unwrap().accecn());
    assert_eq!(frames.len(), 3);
    for frame in frames {
        let tcp = Tcp::new(&frame[54..]).unwrap();
        assert_eq!((tcp.flags(), tcp.reserved()), (flags, 1));
        verify::checksums(&frame).unwrap();
    }
}

#[test]
fn one_byte_more_than_a_segment_is_two() {
    for builder in [PacketBuilder::tcp4(), PacketBuilder::udp6()] {
        for (len, expected) in [(0, vec![0]), (1448, vec![1448]), (1449, vec![1448, 1])] {
            let (packet, hdr) = builder.clone().payload_pattern(len).super_packet(1448);
            let lens = cut(&packet, &hdr)
                .iter()
                .map(|f| Headers::parse(f).unwrap().payload_len())
                .collect::<Vec<_>>();
            assert_eq!(lens, expected);
        }
    }
}

#[test]
fn ids_and_sequence_numbers_wrap() {
    let builder = PacketBuilder::tcp4().id(0xffff).seq(u32::MAX - 50).payload_pattern(200);
    let (packet, hdr) = builder.super_packet(100);
    let frames = cut(&packet, &hdr);
    assert_eq!(Ipv4::new(&frames[1][14..]).unwrap().id(), 0);
    assert_eq!(Tcp::new(&frames[1][34..]).unwrap().seq(), Seq(49));
}

/// RFC 768: a computed 0 is sent as 0xFFFF.
#[test]
fn a_udp_checksum_is_never_zero() {
    let sum_of = |payload: [u8; 2]| {
        let (packet, hdr) = PacketBuilder::udp4().payload(&payload).super_packet(2);
        Udp::new(&cut(&packet, &hdr)[0][34..]).unwrap().checksum()
    };
    // The checksum of a payload of 0 is what a payload has to hold for the sum to vanish.
    assert_eq!(sum_of(sum_of([0, 0]).to_be_bytes()), 0xffff);
}

#[test]
fn tcp_without_needs_csum_is_cut_all_the_same() {
    for builder in [PacketBuilder::tcp4(), PacketBuilder::tcp6()] {
        let builder = builder.payload_pattern(3000);
        let (packet, hdr) = builder.super_packet(1000);
        let plain = VirtioNetHdr { needs_csum: false, csum_start: 0, csum_offset: 0, ..hdr };
        assert_eq!(cut(&builder.build(), &plain), cut(&packet, &hdr));
    }
}

/// The host's partial checksum counts the final destination, which the IPv6 header does not name
/// while a Routing header has segments left (RFC 8200 section 8.1).
#[test]
fn the_partial_checksum_is_believed() {
    let via = |last| {
        let mut address = [0xfd; 16];
        address[15] = last;
        address
    };
    let builder = PacketBuilder::tcp6().extension(43, 24).payload_pattern(2000);
    let (to_the_end, hdr) = builder.clone().addresses6(via(1), via(9)).super_packet(1000);
    let (mut via_router, _) = builder.addresses6(via(1), via(5)).super_packet(1000);
    let checksum = usize::from(hdr.csum_start + hdr.csum_offset);
    via_router[checksum..checksum + 2].copy_from_slice(&to_the_end[checksum..checksum + 2]);
    for (a, b) in cut(&via_router, &hdr).iter().zip(cut(&to_the_end, &hdr)) {
        assert_eq!(a[checksum..], b[checksum..]);
    }
}
