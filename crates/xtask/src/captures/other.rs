//! Packets that are not of a TCP connection.

use testkit::packet::{PacketBuilder, pattern};
use wire::protocol;

use super::damage::Trouble;
use super::file::Packet;
use super::random::Random;

/// Trains of datagrams, mostly of equal size as QUIC sends them.
pub(super) fn datagrams(random: &mut Random, trouble: Trouble, start: u64) -> Vec<Packet> {
    let mut packets = Vec::new();
    let packet = if random.once_in(2) { PacketBuilder::udp6() } else { PacketBuilder::udp4() };
    let packet = packet.ports(50_000 + random.below(4) as u16, random.pick(&[443, 53, 4789]));
    let size = random.pick(&[1350, 1200, 200, 40]);
    let has_checksum = !random.once_in(6);
    let mut now = start;
    let mut id = random.next() as u16;
    for _ in 0..random.within(1..60) {
        let len = match random.below(10) {
            0 => random.below(size + 100),
            1 => size - 1,
            _ => size,
        };
        id = id.wrapping_add(1);
        let payload = pattern(random.below(1000) as usize, len as usize);
        let mut datagram = packet.clone().id(id).payload(&payload);
        if !has_checksum {
            datagram = datagram.zero_checksum();
        }
        trouble.send(random, datagram, now, &mut packets);
        now += random.pick(&[0, 1_000, 50_000, 3_000_000]);
    }
    packets
}

/// The fragments of a datagram, in order or not, with one lost at times.
pub(super) fn fragments(random: &mut Random, trouble: Trouble, start: u64) -> Vec<Packet> {
    let mut packets = Vec::new();
    let v6 = random.once_in(2);
    let kind = random.pick(&[protocol::UDP, protocol::TCP]);
    let count = random.within(2..6) as u16;
    let id = random.next() as u16;
    for n in 0..count {
        // Behind the first, what a builder takes for a payload stands alone.
        let alone = if n == 0 { kind } else { protocol::UDP };
        let packet = if v6 { PacketBuilder::ip6(alone) } else { PacketBuilder::ip4(alone) };
        let payload = pattern(usize::from(n) * 1400, 1400);
        let packet = packet.id(id).dont_fragment(false).payload(&payload);
        let packet = packet.fragment(n * 1408, n + 1 < count);
        if !random.once_in(8) {
            trouble.send(random, packet, start + u64::from(n), &mut packets);
        }
    }
    if random.once_in(3) {
        packets.reverse();
    }
    packets
}

/// What else is on a wire: ARP, ICMP, frames that are no IP, and bytes that are nothing.
pub(super) fn noise(random: &mut Random, trouble: Trouble, now: u64) -> Vec<Packet> {
    let mut packets = Vec::new();
    match random.below(6) {
        0 => trouble.send(
            random,
            PacketBuilder::ip4(protocol::ICMP).payload_pattern(64),
            now,
            &mut packets,
        ),
        1 => trouble.send(
            random,
            PacketBuilder::ip6(protocol::ICMPV6).payload_pattern(64),
            now,
            &mut packets,
        ),
        2 => packets.push(ethernet(now, [0x08, 0x06], 46)),
        3 => packets.push(ethernet(now, [0x88, 0xcc], 60)),
        4 => packets.push(ethernet(now, [0x00, 0x26], 46)), // a length (IEEE 802.3)
        _ => {
            let len = random.within(1..80) as usize;
            let bytes = (0..len).map(|_| random.next() as u8).collect();
            packets.push(Packet::new(now, bytes));
        }
    }
    packets
}

fn ethernet(now: u64, kind: [u8; 2], len: usize) -> Packet {
    let mut bytes = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];
    bytes.extend(kind);
    bytes.extend(pattern(0, len));
    Packet::new(now, bytes)
}
