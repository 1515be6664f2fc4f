//! Capture files: written in all the forms that `wharf pcap` reads, and read as it writes them.
//!
//! By the drafts (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng) and without the library that
//! `wharf pcap` uses.

use super::random::Random;

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Nanoseconds since 1970.
    pub(super) time: u64,
    /// Length on the wire; `bytes` may be fewer.
    pub(super) original_len: u32,
    pub(super) bytes: Vec<u8>,
}

impl Packet {
    pub(super) fn new(time: u64, bytes: Vec<u8>) -> Self {
        Self { time, original_len: bytes.len() as u32, bytes }
    }
}

/// How a capture is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// pcap with so many nanoseconds a unit of time, 1 or 1,000.
    Pcap { unit: u64, big_endian: bool },
    /// pcapng with timestamps in nanoseconds.
    PcapNg { big_endian: bool },
}

impl Format {
    pub(super) fn any(random: &mut Random) -> Self {
        let big_endian = random.once_in(4);
        match random.below(4) {
            0 => Format::PcapNg { big_endian },
            1 => Format::Pcap { unit: 1_000, big_endian },
            _ => Format::Pcap { unit: 1, big_endian },
        }
    }

    pub(super) fn write(self, packets: &[Packet]) -> Vec<u8> {
        match self {
            Format::Pcap { unit, big_endian } => pcap(packets, unit, Order { big_endian }),
            Format::PcapNg { big_endian } => pcapng(packets, Order { big_endian }),
        }
    }
}

/// In which order the bytes of a number are.
#[derive(Clone, Copy)]
struct Order {
    big_endian: bool,
}

impl Order {
    fn word(self, value: u32) -> [u8; 4] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn half(self, value: u16) -> [u8; 2] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn read(self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const SNAPLEN: u32 = 262_144;
const ETHERNET: u32 = 1;
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

fn pcap(packets: &[Packet], unit: u64, order: Order) -> Vec<u8> {
    let magic = if unit == 1 { NANOSECONDS } else { MICROSECONDS };
    let mut file = order.word(magic).to_vec();
    file.extend([order.half(2), order.half(4)].concat()); // version
    file.extend([0, 0, SNAPLEN, ETHERNET].map(|value| order.word(value)).concat());
    for packet in packets {
        let (seconds, fraction) = (packet.time / 1_000_000_000, packet.time % 1_000_000_000);
        let fraction = fraction / unit;
        let header =
            [seconds as u32, fraction as u32, packet.bytes.len() as u32, packet.original_len];
        file.extend(header.map(|value| order.word(value)).concat());
        file.extend(&packet.bytes);
    }
    file
}

fn pcapng(packets: &[Packet], order: Order) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = order.word(12 + body.len() as u32);
        [&order.word(kind)[..], &len, body, &len].concat()
    };
    let section = [&order.word(0x1a2b_3c4d)[..], &order.half(1), &order.half(0), &[0xff; 8]];
    let mut file = block(0x0a0d_0d0a, &section.concat());
    let resolution = [&order.half(9)[..], &order.half(1), &[9, 0, 0, 0]].concat(); // if_tsresol
    let interface = [
        &order.half(ETHERNET as u16)[..],
        &order.half(0),
        &order.word(SNAPLEN),
        &resolution,
        &[0; 4],
    ];
    file.extend(block(1, &interface.concat()));
    for packet in packets {
        let numbers = [
            0,
            (packet.time >> 32) as u32,
            packet.time as u32,
            packet.bytes.len() as u32,
            packet.original_len,
        ];
        let mut body = numbers.map(|value| order.word(value)).concat();
        body.extend(&packet.bytes);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, &body));
    }
    file
}

/// The packets of a pcap file, up to where it ends or makes no sense.
pub(super) fn read_pcap(file: &[u8]) -> Vec<Packet> {
    let magic: [u8; 4] = match file.first_chunk() {
        Some(magic) => *magic,
        None => return Vec::new(),
    };
    let known = [MICROSECONDS, NANOSECONDS];
    let order = Order { big_endian: known.contains(&u32::from_be_bytes(magic)) };
    let unit = if order.read(magic) == NANOSECONDS { 1 } else { 1_000 };
    let mut packets = Vec::new();
    let mut rest = file.get(FILE_HEADER..).unwrap_or_default();
    while let Some((header, behind)) = rest.split_at_checked(PACKET_HEADER) {
        let word =
            |at: usize| order.read([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let Some((bytes, next)) = behind.split_at_checked(word(8) as usize) else { break };
        let time = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * unit;
        packets.push(Packet { time, original_len: word(12), bytes: bytes.to_vec() });
        rest = next;
    }
    packets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_as_pcap_is_read_again() {
        let packets = [
            Packet::new(1_760_000_000_000_001_000, vec![1; 60]),
            Packet { time: 1_760_000_001_999_999_000, original_len: 1514, bytes: vec![2; 96] },
        ];
        for unit in [1, 1_000] {
            for big_endian in [false, true] {
                let mut file = Format::Pcap { unit, big_endian }.write(&packets);
                assert_eq!(read_pcap(&file), packets);
                file.pop();
                assert_eq!(read_pcap(&file), packets[..1]);
            }
        }
        assert_eq!(read_pcap(b"no"), []);
    }
}
