//! What may be odd about a packet, besides what its path does.

use testkit::packet::PacketBuilder;
use wire::{Flags, protocol};

use super::file::Packet;
use super::random::Random;

/// How often packets are odd.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    /// One packet of so many has a header that others of its connection have not; 0: none has.
    pub(super) odd: u64,
    /// One of so many is damaged: no longer what its checksums or lengths say.
    pub(super) damaged: u64,
    /// One of so many is captured only in part.
    pub(super) cut: u64,
    /// One of so many has its checksum left to the card, as captures on a sender show it.
    pub(super) partial: u64,
}

impl Trouble {
    pub(super) fn any(random: &mut Random) -> Self {
        Self {
            odd: random.pick(&[0, 100, 20]),
            damaged: random.pick(&[0, 0, 150, 30]),
            cut: random.pick(&[0, 0, 0, 0, 100]),
            partial: random.pick(&[0, 0, 0, 1, 10]),
        }
    }

    /// The packet comes at `now`, with what is odd about it.
    pub(super) fn send(
        self,
        random: &mut Random,
        packet: PacketBuilder,
        now: u64,
        packets: &mut Vec<Packet>,
    ) {
        let mut packet = packet;
        if random.once_in(self.odd) {
            packet = odd(random, packet);
        }
        if random.once_in(self.partial) {
            packet = packet.partial_checksum();
        }
        let mut bytes = packet.build();
        if random.once_in(self.damaged) {
            damage(random, packet, &mut bytes);
        }
        let mut packet = Packet::new(now, bytes);
        if random.once_in(self.cut) {
            packet.bytes.truncate(random.pick(&[14, 54, 68, 96]));
        }
        packets.push(packet);
    }
}

/// Another header than its connection's, with right lengths and checksums.
fn odd(random: &mut Random, packet: PacketBuilder) -> PacketBuilder {
    match random.below(17) {
        0 => packet.tos(random.pick(&[1, 3, 8, 0x10])),
        1 => packet.ttl(63),
        2 => packet.flow_label(random.next() as u32),
        3 => packet.vlan(random.next() as u16 & 0xefff),
        4 => packet.padding(random.within(1..20) as usize),
        5 => packet.ip_options(&[1, 1, 1, 0]),
        6 => packet.extension(random.pick(&[protocol::HOP_BY_HOP, protocol::DESTINATION]), 8),
        7 => packet.dont_fragment(false),
        8 => packet.reserved(random.below(16) as u8),
        9 => packet.urgent(random.next() as u16),
        10 => packet.window(random.next() as u16),
        11 => packet.flags(Flags(random.next() as u8)),
        12 => packet.timestamps(random.next() as u32, 7),
        13 => packet.options(&[254, random.pick(&[4, 60]), 1, 2]),
        14 => packet.ack(random.next() as u32),
        15 => packet.macs([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 2]),
        _ => packet.fragment(random.pick(&[0, 8, 1480]), random.once_in(2)),
    }
}

/// What no stack sends.
fn damage(random: &mut Random, packet: PacketBuilder, bytes: &mut Vec<u8>) {
    match random.below(6) {
        0 | 1 => *bytes = packet.wrong_checksum().build(),
        2 => *bytes = packet.wrong_ip_checksum().build(),
        3 => bytes.truncate(random.within(1..bytes.len() as u64) as usize),
        // Any byte of the headers, lengths and versions among them.
        4 => {
            let at = random.below(bytes.len().min(74) as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        _ => {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
        }
    }
}
