//! Captures of other link layers than Ethernet, and of several interfaces.

use proptest::prelude::*;
use testkit::packet::PacketBuilder;

use super::super::link::Links;
use super::super::{LinkCounts, lro};
use super::*;

const ETHERNET: u32 = 1;
const RAW: u32 = 101;
const SLL: u32 = 113;
const SLL2: u32 = 276;
const WIRELESS: u32 = 105;
const READ: [u32; 4] = [ETHERNET, RAW, SLL, SLL2];

/// An Ethernet frame as a capture of this link type has it.
fn on(link: u32, frame: &[u8]) -> Vec<u8> {
    let (kind, rest) = (&frame[12..14], &frame[14..]);
    match link {
        RAW => rest.to_vec(),
        // Sent to us, from an Ethernet address of six bytes.
        SLL => [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], kind, rest].concat(),
        SLL2 => [kind, &[0, 0, 0, 0, 0, 7, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], rest].concat(),
        _ => frame.to_vec(),
    }
}

fn segment(number: u32) -> Vec<u8> {
    segment_of(0, number)
}

/// A segment of one of several flows.
fn segment_of(flow: u16, number: u32) -> Vec<u8> {
    let segment = PacketBuilder::tcp4().ports(1000 + flow, 80).id(number as u16);
    segment.seq(number * 1000).timestamps(1, 1).payload_pattern(1000).build()
}

/// LRO over a capture: the output, and what was counted.
fn joined(file: &File) -> (Vec<u8>, Statistics, LinkCounts) {
    let reader = Reader::new(&file.0[..]).unwrap();
    let mut writer = Writer::like(Vec::new(), &reader).unwrap();
    let counts = reader.counts();
    let statistics = lro(reader, &Config::default(), &mut writer).unwrap();
    (writer.finish().unwrap(), statistics, counts())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Link type and packets of a pcap file.
fn pcap(bytes: &[u8]) -> (u32, Vec<Vec<u8>>) {
    let (mut packets, mut at) = (Vec::new(), 24);
    while at < bytes.len() {
        let len = word(bytes, at + 8) as usize;
        packets.push(bytes[at + 16..at + 16 + len].to_vec());
        at += 16 + len;
    }
    (word(bytes, 20), packets)
}

/// Link types of a pcapng file, and its packets, each with the number of its interface.
fn pcapng(bytes: &[u8]) -> (Vec<u32>, Vec<(u32, Vec<u8>)>) {
    let (mut links, mut packets, mut at) = (Vec::new(), Vec::new(), 0);
    while at < bytes.len() {
        let len = word(bytes, at + 4) as usize;
        assert_eq!(word(bytes, at + len - 4), len as u32);
        match word(bytes, at) {
            1 => links.push(u32::from(word(bytes, at + 8) as u16)),
            6 => {
                let data = at + 28;
                let len = word(bytes, at + 20) as usize;
                packets.push((word(bytes, at + 8), bytes[data..data + len].to_vec()));
            }
            kind => assert_eq!(kind, 0x0a0d_0d0a),
        }
        at += len;
    }
    (links, packets)
}

/// The same packets of whichever link layer are joined, and have their link header still.
#[test]
fn segments_of_every_link_layer_are_joined() {
    let mut of_ethernet = None;
    for link in READ {
        let mut file = File::pcap(NANOSECONDS, link);
        for number in 0..3 {
            let packet = on(link, &segment(number));
            file.record(1, number, packet.len() as u32, &packet);
        }
        let (out, statistics, counts) = joined(&file);
        let (written, packets) = pcap(&out);
        assert_eq!((written, packets.len()), (link, 1), "link type {link}");
        let header = on(link, &segment(0));
        let len = header.len() - (segment(0).len() - 14);
        assert_eq!(packets[0][..len], header[..len], "link type {link}");
        let packet = of_ethernet.get_or_insert_with(|| packets[0][14..].to_vec());
        assert_eq!(packets[0][len..], packet[..], "link type {link}");
        assert_eq!((statistics.packets_in, statistics.packets_out), (3, 1));
        let total = [3 * header.len() as u64, packets[0].len() as u64];
        assert_eq!(counts.bytes, (link != ETHERNET).then_some(total));
        assert!(counts.entries().all(|entry| entry.value == 0));
    }
}

/// Packets are joined interface by interface; all others are copied, and counted.
#[test]
fn packets_of_interfaces_of_several_kinds_stay_with_their_interface() {
    let links = [ETHERNET, SLL2, WIRELESS, SLL2, RAW];
    let mut file = File::pcapng();
    links.iter().for_each(|link| file.block(1, &[*link, 0], &[]));
    for number in 0..2 {
        for (interface, link) in links.iter().enumerate() {
            let packet = on(*link, &segment_of(interface as u16, number));
            let len = packet.len() as u32;
            file.block(6, &[interface as u32, 0, 1, len, len], &packet);
        }
    }
    let (out, statistics, counts) = joined(&file);
    let (written, packets) = pcapng(&out);
    assert_eq!(written, links);
    let of = |interface: u32| -> Vec<&Vec<u8>> {
        packets.iter().filter(|(at, _)| *at == interface).map(|(_, packet)| packet).collect()
    };
    for (interface, link) in (0..).zip(links) {
        let packets = of(interface);
        if link == WIRELESS {
            let [first, second] = [0, 1].map(|n| on(link, &segment_of(interface as u16, n)));
            assert_eq!(packets, [&first, &second]);
            continue;
        }
        assert_eq!(packets.len(), 1, "interface {interface}");
        let header = on(link, &segment_of(interface as u16, 0));
        let len = header.len() - (segment(0).len() - 14);
        assert_eq!(packets[0].len(), header.len() + 1000);
        assert_eq!(packets[0][..len], header[..len]);
    }
    assert_eq!((statistics.packets_in, statistics.packets_out), (10, 6));
    assert_eq!(counts.entries().next().unwrap().value, 2);
    // It is read as it was written.
    assert_eq!(File(out).read().unwrap().len(), 6);
}

/// Behind a section header interfaces are numbered anew.
#[test]
fn interfaces_of_two_sections_are_told_apart() {
    let mut file = File::pcapng();
    file.block(1, &[ETHERNET, 0], &[]);
    file.block(1, &[RAW, 0], &[]);
    let packet = |link| on(link, &segment(0));
    let put = |file: &mut File, interface, link| {
        let packet = packet(link);
        file.block(6, &[interface, 0, 1, packet.len() as u32, packet.len() as u32], &packet);
    };
    put(&mut file, 1, RAW);
    file.block(0x0a0d_0d0a, &[0x1a2b_3c4d, 1, u32::MAX, u32::MAX], &[]);
    file.block(1, &[SLL, 0], &[]);
    put(&mut file, 0, SLL);
    let (written, packets) = pcapng(&joined(&file).0);
    assert_eq!(written, [ETHERNET, RAW, SLL]);
    assert_eq!(packets, [(1, packet(RAW)), (2, packet(SLL))]);
}

/// A packet of which less than its link header was captured.
#[test]
fn packets_that_were_cut_short_are_copied() {
    for link in [RAW, SLL, SLL2] {
        let mut file = File::pcap(NANOSECONDS, link);
        let whole = on(link, &segment(0));
        for len in [0, 1, 10, 40, whole.len()] {
            file.record(1, 1, whole.len() as u32, &whole[..len]);
        }
        let (out, ..) = joined(&file);
        let packets = pcap(&out).1;
        let lens: Vec<usize> = packets.iter().map(Vec::len).collect();
        assert_eq!(lens, [0, 1, 10, 40, whole.len()], "link type {link}");
        assert!(packets.iter().all(|packet| whole.starts_with(packet)));
    }
}

proptest! {
    /// No packet is another one when it has its link header again.
    #[test]
    fn a_frame_becomes_the_packet_that_it_was(
        packets in proptest::collection::vec(
            (0..5_u32, proptest::collection::vec(any::<u8>(), 0..60), 0..100_u32),
            1..20,
        ),
    ) {
        let interfaces = [ETHERNET, RAW, SLL, SLL2, WIRELESS].map(|link| link as u16).to_vec();
        let mut links = Links::default();
        (links.interfaces, links.is_translated) = (interfaces, true);
        let mut frames = Vec::new();
        for (interface, data, more) in &packets {
            let original_len = data.len() as u32 + more;
            let packet = Packet { time: 7, original_len, data: data.clone() };
            let frame = links.translate(*interface, packet);
            prop_assert_eq!(frame.is_cut_short(), *more > 0);
            frames.push(frame);
        }
        for ((interface, data, more), frame) in packets.iter().zip(frames) {
            let restored = links.restore(frame.original_len, &frame.data);
            prop_assert_eq!(restored, Some((*interface, data.len() as u32 + more, data.clone())));
        }
    }

    /// Whatever a file has, it is read or refused, and written again.
    #[test]
    fn any_blocks_are_read_or_refused(
        blocks in proptest::collection::vec(
            (
                prop_oneof![Just(1_u32), Just(6), Just(3), Just(2), Just(0x0a0d_0d0a), any::<u32>()],
                proptest::collection::vec(prop_oneof![0..8_u32, Just(276), any::<u32>()], 0..8),
                proptest::collection::vec(any::<u8>(), 0..40),
            ),
            0..20,
        ),
        first in prop_oneof![Just(1_u32), Just(101), Just(113), Just(276)],
    ) {
        let mut file = File::pcapng();
        file.block(1, &[first, 0], &[]);
        for (kind, words, bytes) in &blocks {
            file.block(*kind, words, bytes);
        }
        if let Ok(reader) = Reader::new(&file.0[..]) {
            let mut writer = Writer::like(Vec::new(), &reader).unwrap();
            let packets = reader.map_while(Result::ok).map(Ok);
            if lro(packets, &Config::default(), &mut writer).is_ok() {
                let out = File(writer.finish().unwrap());
                prop_assert!(out.read().is_ok());
            }
        }
    }
}
