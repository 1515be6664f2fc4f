//! A host's kernel that refuses aggregates of a certain form.

use std::sync::atomic::Ordering;

use nic::config::Config;
use testkit::packet::{PacketBuilder, pattern};
use wire::{Flags, GsoType};

use super::rig::{Rig, stream};

const EINVAL: i32 = 22;
/// Refusals after which a kind is no longer merged.
const REFUSALS: u16 = 8;

/// Four segments of a connection, the last of which is short or as long as the others.
fn arrive(rig: &Rig, packet: fn() -> PacketBuilder, port: u16, last: usize) {
    for n in 0..4_u32 {
        let len = if n == 3 { last } else { 1000 };
        let payload = pattern(n as usize * 1000, len);
        let psh = if n == 3 { Flags::ACK.with(Flags::PSH) } else { Flags::ACK };
        let packet = packet().ports(port, 80).seq(n * 1000).id(n as u16).flags(psh);
        rig.arrive(&packet.payload(&payload));
    }
}

/// A rig whose host refuses aggregates with a short last segment.
fn refusing() -> Rig {
    let rig = Rig::new(&Config::default());
    rig.errno.store(EINVAL, Ordering::Relaxed);
    rig.short_only.store(true, Ordering::Relaxed);
    rig
}

/// All segments of a refused aggregate reach the host, in order. After a few refusals its kind is not merged any more, and
/// others are.
#[test]
fn segments_of_a_refused_aggregate_reach_the_host() {
    let mut rig = refusing();
    for port in 1..=REFUSALS {
        assert_eq!(rig.counter("host", "not_merged"), 0);
        arrive(&rig, PacketBuilder::tcp4, port, 300);
        rig.settle();
        let delivered = rig.delivered();
        assert_eq!(delivered.len(), 4, "one by one");
        assert!(delivered.iter().all(|(vnet, _)| vnet.gso_type == GsoType::None));
        assert_eq!(stream(delivered.iter().map(|(_, b)| &b[..])), pattern(0, 3300));
        assert_eq!(rig.counter("host_cut", "tcp4"), u64::from(port));
    }
    assert_eq!(rig.counter("host", "not_merged"), 1);
    assert_eq!(rig.counter("host_drop", "host_refused"), 0, "nothing is lost");
    assert_eq!(rig.counter("host", "delivered_packets"), 4 * u64::from(REFUSALS));
    // A form that the host would take is not merged either: the next one cannot be known.
    arrive(&rig, PacketBuilder::tcp4, 100, 1000);
    rig.settle();
    let delivered = rig.delivered();
    assert_eq!(delivered.len(), 4);
    assert_eq!(stream(delivered.iter().map(|(_, b)| &b[..])), pattern(0, 4000));
    arrive(&rig, PacketBuilder::tcp6, 100, 1000);
    rig.settle();
    let [(vnet, _)] = &rig.delivered()[..] else { panic!("not one packet") };
    assert_eq!((vnet.gso_type, vnet.gso_size), (GsoType::Tcpv6, 1000));
    assert_eq!(rig.counter("host_cut", "tcp4"), u64::from(REFUSALS));
}

/// A host that takes no packet at all does not refuse aggregates: they are counted as refused, and merging goes on.
#[test]
fn a_host_that_takes_nothing_does_not_end_merging() {
    let mut rig = Rig::new(&Config::default());
    rig.errno.store(EINVAL, Ordering::Relaxed);
    for port in 1..=2 * REFUSALS {
        arrive(&rig, PacketBuilder::tcp4, port, 300);
        rig.settle();
    }
    assert_eq!(rig.counter("host", "not_merged"), 0);
    assert_eq!(rig.counter("host_cut", "tcp4"), 0);
    assert_eq!(rig.counter("host_drop", "host_refused"), 2 * u64::from(REFUSALS));
}

/// Super-packets that arrive on the wire are handed over in the same way.
#[test]
fn segments_of_a_refused_super_packet_from_the_wire_reach_the_host() {
    let mut rig = refusing();
    let (bytes, vnet) = PacketBuilder::tcp4().payload_pattern(9500).super_packet(1000);
    rig.wire.send(vnet, bytes);
    rig.settle();
    let delivered = rig.delivered();
    assert_eq!(delivered.len(), 10);
    assert_eq!(rig.counter("host_cut", "tcp4"), 1);
    assert_eq!(rig.counter("host", "delivered_packets"), 10);
}
