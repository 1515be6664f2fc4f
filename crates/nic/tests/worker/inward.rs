//! Wire to host.

use nic::config::Config;
use nic::port::Refused;
use std::sync::atomic::Ordering;
use testkit::packet::{PacketBuilder, pattern};
use wire::{Flags, GsoType, VirtioNetHdr};

use super::rig::{Rig, read, segment, stream};

fn config(settings: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    settings.iter().for_each(|(key, value)| config.set(key, value).unwrap());
    config
}

#[test]
fn segments_reach_the_host_as_one_packet() {
    let mut rig = Rig::new(&Config::default());
    (0..10).for_each(|n| rig.arrive(&segment(1, n)));
    assert!(rig.turn());
    assert_eq!(rig.delivered(), [], "held until the deadline");
    rig.settle();
    let [(vnet, bytes)] = &rig.delivered()[..] else { panic!("not one packet") };
    assert_eq!((vnet.gso_type, vnet.gso_size, vnet.needs_csum), (GsoType::Tcpv4, 1000, true));
    assert_eq!(stream([&bytes[..]]), pattern(0, 10_000));
    assert_eq!((rig.counter("wire", "rx_packets"), rig.counter("lro", "merged")), (10, 10));
    assert_eq!(rig.counter("host", "delivered_packets"), 1);
    assert_eq!(rig.counter("host", "delivered_bytes"), bytes.len() as u64);
}

#[test]
fn without_lro_frames_arrive_as_they_came_and_at_once() {
    let mut rig = Rig::new(&config(&[("lro.enable", "false")]));
    let frames: Vec<_> = (0..10).map(|n| segment(1, n).padding(n as usize)).collect();
    frames.iter().for_each(|f| rig.arrive(f));
    rig.turn();
    let delivered: Vec<_> = rig.delivered().into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(delivered, frames.iter().map(PacketBuilder::build).collect::<Vec<_>>());
    assert_eq!(rig.counter("lro", "received"), 0);
    rig.settle();
}

#[test]
fn a_deadline_is_kept_to_the_nanosecond_that_a_turn_comes() {
    let mut rig = Rig::new(&config(&[("lro.min_timeout", "50us")]));
    rig.arrive(&segment(1, 0));
    rig.turn();
    rig.now += 49_999;
    rig.turn();
    assert_eq!(rig.delivered().len(), 0);
    rig.now += 1;
    rig.turn();
    assert_eq!(rig.delivered().len(), 1);
}

/// A worker that is behind does not give up waiting for segments that have arrived.
#[test]
fn what_waits_on_the_wire_is_one_burst_however_long_it_takes() {
    let mut rig = Rig::with_chunks(&Config::default(), 1024);
    let (connections, segments) = (50, 5);
    for n in 0..segments {
        (1..=connections).for_each(|port| rig.arrive(&segment(port, n)));
    }
    while rig.turn() {
        rig.now += 10_000_000;
    }
    rig.settle();
    let delivered: Vec<_> = rig.delivered().into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(delivered.len(), usize::from(connections), "one aggregate of each connection");
    assert_eq!(rig.counter("lro", "merged"), u64::from(connections) * u64::from(segments));
}

/// But no longer than LRO has memory for.
#[test]
fn a_backlog_without_end_keeps_nothing_for_ever() {
    let mut rig = Rig::with_chunks(&Config::default(), 256);
    rig.arrive(&segment(1, 0));
    for port in 2..200 {
        (0..64).for_each(|n| rig.arrive(&segment(port, n)));
        rig.turn();
        rig.now += 1_000_000;
        if rig.delivered().iter().any(|(_, bytes)| read(bytes).0 == 0 && bytes.len() < 2000) {
            return rig.settle();
        }
    }
    panic!("the first segment is still held");
}

#[test]
fn a_push_is_with_the_host_when_the_wire_is_empty() {
    let push = |n: u32| segment(1, n).flags(Flags::ACK.with(Flags::PSH));
    let mut rig = Rig::with_chunks(&config(&[("poll.batch", "4")]), 512);
    rig.arrive(&push(0));
    rig.turn();
    assert_eq!(rig.delivered().len(), 1);
    // Full batches say that more may wait: a turn takes 16 of 4.
    (1..65).for_each(|n| rig.arrive(&push(n).payload(&[n as u8; 10]).seq(990 + n * 10)));
    rig.turn();
    assert_eq!(rig.delivered().len(), 0);
    rig.turn();
    let [(_, bytes)] = &rig.delivered()[..] else { panic!("not one packet") };
    assert_eq!(read(bytes).1.len(), 640);
    rig.settle();
}

/// A super-packet that the wire has made (a veth with TSO) comes after what is held.
#[test]
fn a_super_packet_from_the_wire_does_not_overtake() {
    let mut rig = Rig::new(&Config::default());
    (0..3).for_each(|n| rig.arrive(&segment(1, n)));
    let (bytes, vnet) = segment(1, 3).payload(&pattern(3000, 9000)).super_packet(1000);
    rig.wire.send(vnet, bytes);
    (12..14).for_each(|n| rig.arrive(&segment(1, n)));
    rig.settle();
    let delivered = rig.delivered();
    assert_eq!(delivered.len(), 3);
    assert_eq!(delivered[1].0, vnet, "as it came");
    assert_eq!(stream(delivered.iter().map(|(_, b)| &b[..])), pattern(0, 14_000));
    assert_eq!(rig.counter("wire", "rx_packets"), 6);
}

/// Others go on as if it had not come.
#[test]
fn a_super_packet_from_the_wire_interrupts_its_own_connection_only() {
    let mut rig = Rig::new(&Config::default());
    (0..3).for_each(|n| rig.arrive(&segment(1, n)));
    (0..3).for_each(|n| rig.arrive(&segment(2, n)));
    let (bytes, vnet) = segment(1, 3).payload(&pattern(3000, 9000)).super_packet(1000);
    rig.wire.send(vnet, bytes);
    (3..6).for_each(|n| rig.arrive(&segment(2, n)));
    rig.settle();
    let delivered = rig.delivered();
    let of = |port: u16| move |b: &&[u8]| b[34..36] == port.to_be_bytes();
    let own = |port| delivered.iter().map(|(_, b)| &b[..]).filter(of(port));
    assert_eq!((own(1).count(), own(2).count()), (2, 1));
    assert_eq!(stream(own(1)), pattern(0, 12_000));
    assert_eq!(stream(own(2)), pattern(0, 6000));
}

/// What the wire says of a checksum is for LRO to use and for the host to know.
#[test]
fn partial_checksums_are_merged_and_passed_on_as_partial() {
    let mut rig = Rig::new(&Config::default());
    for n in 0..2 {
        let (bytes, vnet) = segment(1, n).partial();
        rig.wire.send(vnet, bytes);
    }
    let (bytes, vnet) = PacketBuilder::udp4().payload_pattern(9).partial();
    rig.wire.send(vnet, bytes.clone());
    rig.settle();
    let delivered = rig.delivered();
    assert_eq!(delivered[0], (vnet, bytes));
    assert_eq!(read(&delivered[1].1).1.len(), 2000);
    assert!(delivered[1].0.needs_csum);
    assert_eq!(rig.group("lro_discard"), 0);
}

#[test]
fn damaged_frames_are_counted_and_their_memory_comes_back() {
    let mut rig = Rig::new(&Config::default());
    rig.arrive(&segment(1, 0).wrong_checksum());
    rig.arrive(&segment(1, 0).wrong_ip_checksum());
    rig.wire.send(VirtioNetHdr::default(), vec![0; 5]);
    rig.wire.send(VirtioNetHdr::default(), Vec::new());
    rig.settle();
    assert_eq!(rig.counter("lro_discard", "tcp_checksum"), 1);
    assert_eq!(rig.counter("lro_discard", "ip_checksum"), 1);
    assert_eq!(rig.counter("lro_pass", "short_ethernet"), 2);
    assert_eq!(rig.delivered().len(), 2);
}

#[test]
fn what_the_host_refuses_is_counted_by_reason_and_its_memory_comes_back() {
    const EIO: i32 = 5;
    const ENOMEM: i32 = 12;
    const EINVAL: i32 = 22;
    let cases =
        [(EIO, Refused::HostDown), (ENOMEM, Refused::HostFull), (EINVAL, Refused::HostRefused)];
    for (errno, why) in cases {
        let mut rig = Rig::new(&Config::default());
        rig.errno.store(errno, Ordering::Relaxed);
        (0..5).for_each(|n| rig.arrive(&segment(1, n))); // one aggregate
        rig.arrive(&segment(2, 0)); // alone
        rig.arrive(&PacketBuilder::udp4()); // passes
        let (bytes, vnet) = segment(3, 0).payload_pattern(5000).super_packet(1000);
        rig.wire.send(vnet, bytes);
        rig.settle();
        assert_eq!(rig.counter("host_drop", why.name()), 4);
        assert_eq!((rig.group("host_drop"), rig.counter("host", "delivered_packets")), (4, 0));
        rig.errno.store(0, Ordering::Relaxed);
        rig.arrive(&segment(1, 5));
        rig.settle();
        assert_eq!(rig.counter("host", "delivered_packets"), 1);
    }
}

/// However many connections are held, there is memory left to receive into.
#[test]
fn more_connections_than_memory_lose_nothing() {
    let mut rig = Rig::new(&Config::default());
    for round in 0..5 {
        (0..300).for_each(|port| rig.arrive(&segment(port, round)));
    }
    rig.settle();
    let delivered = rig.delivered();
    let total: usize = delivered.iter().map(|(_, bytes)| read(bytes).1.len()).sum();
    assert_eq!(total, 5 * 300 * 1000);
    let of = |port: u16| move |b: &&[u8]| b[34..36] == port.to_be_bytes();
    for port in 0..300 {
        let own = delivered.iter().map(|(_, bytes)| &bytes[..]).filter(of(port));
        assert_eq!(stream(own), pattern(0, 5000));
    }
}

#[test]
fn another_configuration_in_mid_flow_loses_and_reorders_nothing() {
    let mut rig = Rig::new(&Config::default());
    let changes = [
        ("lro.enable", "false"),
        ("lro.profile", "lossless"),
        ("lro.enable", "true"),
        ("lro.max_aggregate", "3000"),
        ("lro.max_timeout", "1us"),
        ("lro.max_aggregate", "65535"),
        ("lro.max_segments", "2"),
    ];
    let mut config = Config::default();
    for (n, (key, value)) in (0..).zip(changes) {
        (5 * n..5 * n + 5).for_each(|n| rig.arrive(&segment(1, n)));
        rig.turn();
        config.set_at_run_time(key, value).unwrap();
        rig.handle.reconfigure(&config);
        rig.arrive(&segment(2, n));
    }
    rig.settle();
    let delivered = rig.delivered();
    let of = |port: u16| move |b: &&[u8]| b[34..36] == port.to_be_bytes();
    for (port, total) in [(1, 35_000), (2, 7_000)] {
        let own = delivered.iter().map(|(_, bytes)| &bytes[..]).filter(of(port));
        assert_eq!(stream(own), pattern(0, total));
    }
}

#[test]
fn turning_lro_off_lets_go_of_what_is_held() {
    let mut rig = Rig::new(&Config::default());
    (0..3).for_each(|n| rig.arrive(&segment(1, n)));
    rig.turn();
    let mut config = Config::default();
    config.set("lro.enable", "false").unwrap();
    rig.handle.reconfigure(&config);
    rig.arrive(&segment(1, 3));
    rig.turn();
    let lens: Vec<_> = rig.delivered().iter().map(|(_, b)| read(b).1.len()).collect();
    assert_eq!(lens, [3000, 1000]);
}
