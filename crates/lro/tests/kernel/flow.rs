//! A sender's connection, and segments of it with everything that may be odd about them.

use degen::Random;
use testkit::packet::PacketBuilder;
use wire::Flags;

use super::packet::{Packet, be16, seal, seal_ip};

/// What the choices of a sequence are drawn from.
#[derive(Clone, Debug)]
pub(crate) struct Rng(Random);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(Random::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// 0 up to but not `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }

    /// True once in `n`.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// How the IPv4 ID goes from segment to segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ids {
    Up,
    Fixed,
    Random,
}

/// What stands after the fixed TCP header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Options {
    None,
    Timestamps,
    /// The same option laid out otherwise.
    OddTimestamps,
    /// Timestamps and a SACK block.
    Sack,
    Unknown,
    /// One whose length lies.
    Malformed,
}

/// A connection at one moment: the headers that its next segment gets.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) v6: bool,
    pub(crate) host: u8,
    pub(crate) ports: [u16; 2],
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) flags: Flags,
    pub(crate) reserved: u8,
    pub(crate) id: u16,
    pub(crate) ids: Ids,
    pub(crate) df: bool,
    pub(crate) reserved_bit: bool,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) label: u32,
    pub(crate) options: Options,
    pub(crate) clock: u32,
    pub(crate) mac: u8,
    pub(crate) tags: Vec<u16>,
    /// Kind and length in bytes.
    pub(crate) extensions: Vec<(u8, usize)>,
}

impl Flow {
    /// Nothing odd: data segments of an established connection.
    pub(crate) fn plain(v6: bool) -> Self {
        Flow {
            v6,
            host: 1,
            ports: [40000, 5201],
            seq: 1,
            ack: 1,
            window: 501,
            urgent: 0,
            flags: Flags::ACK,
            reserved: 0,
            id: 1,
            ids: Ids::Up,
            df: true,
            reserved_bit: false,
            tos: 0,
            ttl: 64,
            label: 0x12345,
            options: Options::None,
            clock: 1000,
            mac: 1,
            tags: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// What comes after a segment of `len` bytes.
    pub(crate) fn advance(&mut self, len: usize, rng: &mut Rng) {
        self.seq = self.seq.wrapping_add(len as u32);
        self.id = match self.ids {
            Ids::Up => self.id.wrapping_add(1),
            Ids::Fixed => self.id,
            Ids::Random => rng.next() as u16,
        };
    }

    /// Headers and payload, as far as a builder of proper packets goes.
    pub(crate) fn builder(&self, len: usize) -> PacketBuilder {
        let b = if self.v6 { PacketBuilder::tcp6() } else { PacketBuilder::tcp4() };
        let mut v6_host = [0xfd; 16];
        v6_host[15] = self.host;
        let mut b = b
            .macs([2, 0, 0, 0, 0, self.mac], [2, 0, 0, 0, 0, 0xfe])
            .addresses4([10, 0, 0, self.host], [10, 0, 1, 1])
            .addresses6(v6_host, [0xfc; 16])
            .ports(self.ports[0], self.ports[1])
            .seq(self.seq)
            .ack(self.ack)
            .window(self.window)
            .urgent(self.urgent)
            .flags(self.flags)
            .reserved(self.reserved)
            .id(self.id)
            .dont_fragment(self.df)
            .tos(self.tos)
            .ttl(self.ttl)
            .flow_label(self.label)
            .options(&self.option_bytes())
            .payload_pattern(len);
        for tci in &self.tags {
            b = b.vlan(*tci);
        }
        for (kind, len) in &self.extensions {
            b = b.extension(*kind, *len);
        }
        b
    }

    fn option_bytes(&self) -> Vec<u8> {
        let clock = self.clock.to_be_bytes();
        let timestamps = [&[8, 10], &clock[..], &[0, 0, 0, 7]].concat();
        match self.options {
            Options::None => Vec::new(),
            Options::Timestamps => [&[1, 1], &timestamps[..]].concat(),
            Options::OddTimestamps => [&timestamps[..], &[1, 1]].concat(),
            Options::Sack => {
                [&[1, 1], &timestamps[..], &[1, 1, 5, 10], &clock, &[0xff; 4]].concat()
            }
            Options::Unknown => [&[254, 8, 1, 2], &clock[..]].concat(),
            Options::Malformed => [&[254, 60, 1, 2], &clock[..]].concat(),
        }
    }
}

/// Damage to a finished frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
    /// So much is missing of its end.
    Cut(usize),
    /// The IP length is wrong by so much, the headers' checksums right.
    Length(i16),
    /// Another TCP data offset, in words.
    DataOffset(u8),
    /// Another IPv4 version or header length.
    VersionAndLength(u8),
    /// A TCP checksum of 0 or, if `true`, of 0xFFFF in its place.
    TcpZero(bool),
    /// The same for the IPv4 header's.
    IpZero(bool),
    /// The reserved bit of the IPv4 fragment field.
    ReservedBit,
    /// Another byte in what pads the first IPv6 extension header.
    ExtensionByte(u8),
}

/// Damages a frame that was built with `tags` tags.
pub(crate) fn damage(bytes: &mut Vec<u8>, tags: usize, damage: Damage) {
    let ip = 14 + 4 * tags;
    let v6 = bytes[ip] >> 4 == 6;
    match damage {
        Damage::Cut(n) => bytes.truncate(bytes.len().saturating_sub(n).max(ip + 40)),
        Damage::Length(by) => {
            let at = ip + if v6 { 4 } else { 2 };
            let len = be16(bytes, at).wrapping_add_signed(by);
            bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
            if !v6 {
                seal_ip(bytes);
            }
        }
        Damage::DataOffset(words) => {
            let Some(at) = Packet::read(bytes).map(|packet| packet.transport_at) else { return };
            bytes[at + 12] = bytes[at + 12] & 0x0f | words << 4;
            seal(bytes);
        }
        Damage::VersionAndLength(byte) if !v6 => {
            bytes[ip] = byte;
            seal_ip(bytes);
        }
        Damage::ReservedBit if !v6 => {
            bytes[ip + 6] |= 0x80;
            seal_ip(bytes);
        }
        Damage::TcpZero(minus) => tcp_zero(bytes, minus),
        Damage::IpZero(minus) if !v6 => ip_zero(bytes, ip, minus),
        Damage::ExtensionByte(byte) if v6 => bytes[ip + 40 + 5] = byte,
        Damage::VersionAndLength(_)
        | Damage::ReservedBit
        | Damage::IpZero(_)
        | Damage::ExtensionByte(_) => {}
    }
}

/// Has the first two bytes of payload bring the TCP checksum to 0.
fn tcp_zero(bytes: &mut [u8], minus: bool) {
    let Some(packet) = Packet::read(bytes) else { return };
    let (at, payload_at) = (packet.transport_at + 16, packet.payload_at);
    if packet.end.min(bytes.len()) < payload_at + 2 || !packet.tcp_checksum_ok {
        return;
    }
    let sum = u32::from(be16(bytes, payload_at)) + u32::from(be16(bytes, at));
    let word = (sum & 0xffff) as u16 + (sum >> 16) as u16;
    bytes[payload_at..payload_at + 2].copy_from_slice(&word.to_be_bytes());
    bytes[at..at + 2].fill(if minus { 0xff } else { 0 });
}

/// Has the ID bring the IPv4 header's checksum to 0.
fn ip_zero(bytes: &mut [u8], ip: usize, minus: bool) {
    let sum = u32::from(be16(bytes, ip + 4)) + u32::from(be16(bytes, ip + 10));
    let id = (sum & 0xffff) as u16 + (sum >> 16) as u16;
    bytes[ip + 4..ip + 6].copy_from_slice(&id.to_be_bytes());
    bytes[ip + 10..ip + 12].fill(if minus { 0xff } else { 0 });
}
