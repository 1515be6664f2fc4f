//! Host to wire.

use nic::config::Config;
use testkit::packet::{PacketBuilder, pattern};
use testkit::reassemble::reassemble;
use testkit::verify;
use wire::{GsoType, Headers, VirtioNetHdr};

use super::rig::{Rig, segment, stream};

/// A super-packet of `len` bytes from `seq` on, to be cut at 1,000.
fn super_packet(seq: usize, len: usize) -> (VirtioNetHdr, Vec<u8>) {
    let packet = segment(1, 0).seq(seq as u32).payload(&pattern(seq, len));
    let (bytes, vnet) = packet.super_packet(1000);
    (vnet, bytes)
}

#[test]
fn super_packets_are_cut_and_checksums_completed() {
    let mut rig = Rig::new(&Config::default());
    let (vnet, bytes) = super_packet(0, 60_500);
    rig.host.send(vnet, bytes);
    let (bytes, vnet) = PacketBuilder::udp6().payload_pattern(77).partial();
    rig.host.send(vnet, bytes);
    let whole = PacketBuilder::tcp6().payload_pattern(5).build();
    rig.host.send(VirtioNetHdr::default(), whole.clone());
    rig.settle();
    let mut sent = rig.sent();
    assert_eq!(sent.pop(), Some(whole));
    assert_eq!(sent.pop(), Some(PacketBuilder::udp6().payload_pattern(77).build()));
    assert_eq!(stream(sent.iter().map(Vec::as_slice)), pattern(0, 60_500));
    for frame in &sent {
        assert_eq!(verify::checksums(frame), Ok(()));
    }
    assert_eq!(rig.counter("host", "taken_packets"), 3);
    assert_eq!((rig.counter("gso", "super_packets"), rig.counter("gso", "segments")), (1, 61));
    assert_eq!(rig.counter("wire", "tx_packets"), 63);
}

/// Room comes in pieces of every size; packets large and small wait their turn.
#[test]
fn a_full_wire_makes_the_host_wait_and_loses_nothing() {
    for room in [1, 2, 7, 10, 11] {
        let mut rig = Rig::new(&Config::default());
        let mut seq = 0;
        for len in [5500, 1000, 1, 12_000, 999, 1001] {
            let (vnet, bytes) = super_packet(seq, len);
            rig.host.send(vnet, bytes);
            seq += len;
        }
        rig.wire.set_room(Some(0));
        rig.turn();
        assert!(rig.sent().is_empty());
        let mut sent = Vec::new();
        while stream(sent.iter().map(Vec::as_slice)).len() < seq {
            rig.wire.set_room(Some(room));
            rig.turn();
            let more = rig.sent();
            assert!(!more.is_empty() && more.len() <= room, "{} frames", more.len());
            sent.extend(more);
        }
        rig.wire.set_room(None);
        rig.settle();
        assert!(rig.sent().is_empty());
        assert_eq!(stream(sent.iter().map(Vec::as_slice)), pattern(0, seq));
        // 6 + 1 + 1 + 12 + 1 + 2 frames.
        assert_eq!((rig.counter("gso", "super_packets"), rig.counter("gso", "segments")), (6, 23));
        assert_eq!(rig.counter("host", "taken_packets"), 6);
        assert_eq!(rig.counter("wire", "tx_packets"), 23);
        assert!(rig.counter("wire", "tx_full") > 0);
    }
}

/// Else a worker in front of a wire that is down would never sleep.
#[test]
fn waiting_for_a_full_wire_is_no_work() {
    let mut rig = Rig::new(&Config::default());
    rig.wire.set_room(Some(2));
    let (vnet, bytes) = super_packet(0, 5000);
    rig.host.send(vnet, bytes);
    assert!(rig.turn(), "two segments went out");
    assert!(!rig.turn());
    assert!(!rig.turn());
    rig.wire.set_room(None);
    assert!(rig.turn());
    assert_eq!(rig.sent().len(), 5);
}

#[test]
fn what_cannot_be_cut_is_counted_and_the_next_goes_on() {
    let mut rig = Rig::new(&Config::default());
    let (vnet, bytes) = super_packet(0, 5000);
    let refused = [
        (VirtioNetHdr { gso_size: 0, ..vnet }, "gso_size_zero"),
        (VirtioNetHdr { gso_type: GsoType::Tcpv6, ..vnet }, "type_mismatch"),
        (VirtioNetHdr { csum_start: 9, ..vnet }, "checksum_position"),
    ];
    for (vnet, name) in refused {
        rig.host.send(vnet, bytes.clone());
        rig.settle();
        assert_eq!(rig.counter("gso_refused", name), 1, "{:?}", rig.worker.counters());
    }
    assert_eq!((rig.group("gso_refused"), rig.sent().len()), (3, 0));
    rig.host.send(vnet, bytes);
    rig.settle();
    assert_eq!(rig.sent().len(), 5);
}

/// The fragments of a datagram have one ID, though the wire takes them one by one; another datagram
/// has another.
#[test]
fn what_is_too_long_for_the_wire_becomes_fragments() {
    let mut rig = Rig::new(&Config::default());
    let datagram = |n: usize| PacketBuilder::udp4().payload(&pattern(n, 4000));
    for n in [1, 2] {
        let (bytes, vnet) = datagram(n).partial();
        rig.host.send(vnet, bytes);
    }
    let mut sent = Vec::new();
    while sent.len() < 6 {
        rig.wire.set_room(Some(1));
        rig.turn();
        sent.extend(rig.sent());
    }
    rig.settle();
    assert!(rig.sent().is_empty());
    let id = |frame: &Vec<u8>| [frame[18], frame[19]];
    assert!(sent[..3].iter().all(|frame| id(frame) == id(&sent[0])));
    assert!(sent[3..].iter().all(|frame| id(frame) == id(&sent[3])));
    assert_ne!(id(&sent[0]), id(&sent[3]));
    for (n, fragments) in [1, 2].into_iter().zip(sent.chunks(3)) {
        assert!(fragments.iter().all(|frame| frame.len() <= 1514));
        let body: Vec<u8> = fragments.iter().flat_map(|frame| &frame[34..]).copied().collect();
        assert_eq!(body, datagram(n).build()[34..]);
    }
    let count = |name| [("gso_frag4", name)];
    for ((group, name), value) in
        [count("super_packets"), count("segments"), count("bytes"), count("max_burst")]
            .into_iter()
            .flatten()
            .zip([2, 6, 2 * 4042, 4042])
    {
        assert_eq!(rig.counter(group, name), value, "{name}");
    }
}

/// The same of a super-packet whose datagrams are too long: each has an ID that no other has, of its
/// own packet or of the next, though the wire takes the frames one by one.
#[test]
fn datagrams_that_are_too_long_for_the_wire_become_fragments() {
    for builder in [PacketBuilder::udp4(), PacketBuilder::udp6()] {
        let mut rig = Rig::new(&Config::default());
        for n in [0, 1] {
            let (bytes, vnet) =
                builder.clone().payload(&pattern(n * 9000, 9000)).super_packet(2000);
            rig.host.send(vnet, bytes);
        }
        let mut sent = Vec::new();
        while sent.len() < 18 {
            rig.wire.set_room(Some(1));
            rig.turn();
            let more = rig.sent();
            assert_eq!(more.len(), 1, "{:?}", rig.worker.counters());
            sent.extend(more);
        }
        rig.settle();
        assert!(rig.sent().is_empty() && sent.iter().all(|frame| frame.len() <= 1514));
        let (mut ids, mut payload) = (Vec::new(), Vec::new());
        for packet in sent.chunks(9) {
            for datagram in packet.chunks(2) {
                let mut whole = datagram[0].clone();
                if let [first, second] = datagram {
                    let put_together = reassemble(&[&first[14..], &second[14..]]).unwrap();
                    ids.push(put_together.id);
                    whole = [&first[..14], &put_together.packet].concat();
                }
                assert_eq!(verify::checksums(&whole), Ok(()));
                let headers = Headers::parse(&whole).unwrap();
                payload.extend_from_slice(&whole[headers.payload_at..headers.end]);
            }
        }
        assert!(payload == pattern(0, 18_000), "another payload");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 8, "an ID came twice: {ids:?}");
        let kind = if sent[0][14] >> 4 == 4 { "gso_frag4" } else { "gso_frag6" };
        assert_eq!((rig.counter(kind, "super_packets"), rig.counter(kind, "segments")), (2, 18));
        assert_eq!(rig.group("gso_refused"), 0);
    }
}

/// The wire's MTU bounds segments, also when it shrinks.
#[test]
fn segments_fit_the_wire() {
    let mut rig = Rig::new(&Config::default());
    rig.handle.set_mtu(600);
    let (vnet, bytes) = super_packet(0, 10_000);
    rig.host.send(vnet, bytes);
    let (bytes, vnet) = segment(1, 10).payload(&pattern(10_000, 1000)).partial();
    rig.host.send(vnet, bytes);
    rig.settle();
    let sent = rig.sent();
    assert!(sent.iter().all(|frame| frame.len() <= 614 && verify::checksums(frame).is_ok()));
    assert_eq!(stream(sent.iter().map(Vec::as_slice)), pattern(0, 11_000));
    // 18 of 560 bytes and the rest, then 2.
    assert_eq!(
        (rig.counter("gso_tcp4", "super_packets"), rig.counter("wire", "tx_packets")),
        (2, 20)
    );
}

/// A wire whose MTU changes while it has a part of a packet gets the rest as it was begun.
#[test]
fn a_packet_under_way_is_cut_as_it_was_begun() {
    let mut rig = Rig::new(&Config::default());
    let (vnet, bytes) = super_packet(0, 10_000);
    rig.host.send(vnet, bytes);
    let (vnet, bytes) = super_packet(10_000, 2_000);
    rig.host.send(vnet, bytes);
    rig.wire.set_room(Some(3));
    rig.turn();
    rig.handle.set_mtu(600);
    rig.turn();
    rig.wire.set_room(None);
    rig.settle();
    let sent = rig.sent();
    assert_eq!(stream(sent.iter().map(Vec::as_slice)), pattern(0, 12_000));
    assert!(sent[..10].iter().all(|frame| frame.len() == 1054));
    assert!(sent[10..].iter().all(|frame| frame.len() <= 614));
}
