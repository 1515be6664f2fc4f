//! SCTP is dealt out by chunks: none is cut, lost or overtaken, and every packet has its CRC32c.

use gso::{Kind, Refusal};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use testkit::sctp::{SCTP, chunk, chunks, packet};
use testkit::verify;
use wire::VirtioNetHdr;

use crate::outcome::{Given, Outcome};

/// DATA; every chunk of these tests but where another is named.
const DATA: u8 = 0;
const AUTH: u8 = 15;
const COMMON: usize = 12;

fn over_ip(v4: bool, payload: &[u8]) -> PacketBuilder {
    let builder = if v4 { PacketBuilder::ip4(SCTP) } else { PacketBuilder::ip6(SCTP) };
    builder.payload(payload)
}

/// An MTU with room for so many bytes of chunks.
fn mtu(v4: bool, room: usize) -> usize {
    COMMON + room + if v4 { 20 } else { 40 }
}

fn cut(v4: bool, payload: &[u8], room: usize) -> Result<Outcome, Refusal> {
    let packet = over_ip(v4, payload).build();
    Given::new(&packet, VirtioNetHdr::default(), mtu(v4, room), 0x1234).cut()
}

/// The chunks of each packet.
fn dealt(v4: bool, outcome: &Outcome) -> Vec<Vec<Vec<u8>>> {
    let at = if v4 { 34 } else { 54 };
    let of = |frame: &Vec<u8>| chunks(&frame[at..]).unwrap().iter().map(|c| c.to_vec()).collect();
    outcome.frames.iter().map(of).collect()
}

/// As many chunks as fit, one after the other: the law by its definition.
fn bundles(lens: &[usize], room: usize) -> Vec<usize> {
    let (mut bundles, mut left) = (Vec::new(), 0);
    for len in lens.iter().map(|len| len.next_multiple_of(4)) {
        if bundles.is_empty() || len > left {
            bundles.push(0);
            left = room;
        }
        left -= len;
        *bundles.last_mut().unwrap() += 1;
    }
    bundles
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn packets_have_as_many_whole_chunks_as_fit(
        lens in proptest::collection::vec(prop_oneof![4usize..40, 4usize..1400], 1..40),
        room in 1400usize..2000,
        v4: bool,
        tag in proptest::option::of(any::<u16>()),
        id: u16,
        partial: bool,
    ) {
        let all: Vec<Vec<u8>> = lens.iter().map(|len| chunk(DATA, *len)).collect();
        let mut payload = packet(&all);
        let mut hdr = VirtioNetHdr::default();
        if partial {
            // A host that leaves the checksum leaves anything in its field.
            payload[8..12].fill(0x5a);
            let csum_start = if v4 { 34 } else { 54 } + if tag.is_some() { 4 } else { 0 };
            hdr = VirtioNetHdr { needs_csum: true, csum_start, csum_offset: 8, ..hdr };
        }
        let mut builder = over_ip(v4, &payload).id(id).padding(3);
        if let Some(tag) = tag {
            builder = builder.vlan(tag);
        }
        let frame = builder.build();
        let outcome = Given::new(&frame, hdr, mtu(v4, room), 0).cut().unwrap();
        let sent: usize = all.iter().map(Vec::len).sum();
        let kind = if v4 { Kind::Sctp4 } else { Kind::Sctp6 };
        prop_assert_eq!(outcome.kind, (sent > room).then_some(kind));
        let at = builder.transport_at();
        let mut chunks_of = Vec::new();
        for frame in &outcome.frames {
            prop_assert_eq!(verify::checksums(frame), Ok(()));
            // What goes whole has its padding, as far as the MTU has room for it.
            let end = if outcome.kind.is_none() { at + payload.len() } else { frame.len() };
            chunks_of.push(chunks(&frame[at..end]).unwrap());
        }
        let counts: Vec<usize> = chunks_of.iter().map(Vec::len).collect();
        prop_assert_eq!(counts, bundles(&lens, room));
        let out: Vec<usize> = chunks_of.concat().iter().map(|chunk| chunk.len()).collect();
        prop_assert_eq!(out, lens);
    }
}

#[test]
fn chunks_stay_in_order_and_ids_count() {
    let all = [chunk(3, 16), chunk(DATA, 101), chunk(DATA, 50), chunk(7, 8)];
    for v4 in [true, false] {
        let payload = packet(&all);
        let packet = over_ip(v4, &payload).id(0xffff).build();
        let outcome = Given::new(&packet, VirtioNetHdr::default(), mtu(v4, 120), 9).cut().unwrap();
        let without_padding = |n: usize, len| all[n][..len].to_vec();
        let expected = [
            vec![without_padding(0, 16), without_padding(1, 101)],
            vec![without_padding(2, 50), without_padding(3, 8)],
        ];
        assert_eq!(dealt(v4, &outcome), expected);
        if v4 {
            assert_eq!(
                [&outcome.frames[0][18..20], &outcome.frames[1][18..20]],
                [[0xff; 2], [0; 2]]
            );
        }
    }
}

#[test]
fn exactly_what_fits_and_four_bytes_more() {
    let of = |second| packet(&[chunk(DATA, 100), chunk(DATA, second)]);
    for v4 in [true, false] {
        assert_eq!(cut(v4, &of(100), 200).unwrap().kind, None);
        let outcome = cut(v4, &of(101), 200).unwrap();
        assert_eq!(outcome.frames.len(), 2);
        assert_eq!(outcome.frames[1].len() - outcome.frames[0].len(), 4, "padding is sent");
    }
}

/// The last chunk may lack its padding (RFC 9260 section 3.2).
#[test]
fn the_last_chunk_may_lack_its_padding() {
    let mut last = chunk(DATA, 101);
    last.truncate(101);
    let outcome = cut(true, &packet(&[chunk(DATA, 100), last]), 100).unwrap();
    // Its 101 bytes do not fit 100: fragments, which need no padding.
    assert_eq!(outcome.kind, Some(Kind::Frag4));
    let mut last = chunk(DATA, 97);
    last.truncate(97);
    let outcome = cut(true, &packet(&[chunk(DATA, 100), last]), 100).unwrap();
    assert_eq!((outcome.kind, outcome.frames[1].len()), (Some(Kind::Sctp4), 34 + COMMON + 97));
}

/// What cannot be dealt out IP cuts; the CRC32c is completed before.
#[test]
fn what_cannot_be_dealt_out_is_fragmented() {
    let data = chunk(DATA, 600);
    let cut_short = [0, 3, 3, 0, 1, 2].to_vec();
    let no_length = [0, 3, 0, 0].to_vec();
    let half_a_header = [0, 3].to_vec();
    for (name, chunks) in [
        ("too large", vec![data.clone(), chunk(DATA, 1004)]),
        ("authenticated", vec![chunk(AUTH, 28), data.clone(), data.clone()]),
        ("authenticated behind others", vec![data.clone(), chunk(AUTH, 28), data.clone()]),
        ("cut short", vec![data.clone(), data.clone(), cut_short]),
        ("no length", vec![data.clone(), data.clone(), no_length]),
        ("half a header", vec![data.clone(), data.clone(), half_a_header]),
    ] {
        for v4 in [true, false] {
            let mut payload = packet(&chunks);
            let csum_start = if v4 { 34 } else { 54 };
            payload[8..12].fill(0);
            let hdr = VirtioNetHdr {
                needs_csum: true,
                csum_start,
                csum_offset: 8,
                ..VirtioNetHdr::default()
            };
            let frame = over_ip(v4, &payload).build();
            // `cut` puts them together and compares them with the completed packet.
            let outcome = Given::new(&frame, hdr, mtu(v4, 1000), 7).cut().unwrap();
            let kind = if v4 { Kind::Frag4 } else { Kind::Frag6 };
            assert_eq!(outcome.kind, Some(kind), "{name}");
        }
    }
}

/// A common header alone is a packet too, and has no chunks to be dealt out.
#[test]
fn a_packet_without_chunks_is_not_lost() {
    for v4 in [true, false] {
        let frame = over_ip(v4, &packet(&[])).build();
        let cut = |mtu| Given::new(&frame, VirtioNetHdr::default(), mtu, 7).cut();
        assert_eq!(cut(mtu(v4, 0)).unwrap().frames, std::slice::from_ref(&frame));
        let outcome = cut(mtu(v4, 0) - 1);
        if v4 {
            assert_eq!(outcome.unwrap().frames.len(), 2);
        } else {
            assert_eq!(outcome.err(), Some(Refusal::OverMtu));
        }
        assert_eq!(cut(20).err(), Some(Refusal::OverMtu));
    }
}
