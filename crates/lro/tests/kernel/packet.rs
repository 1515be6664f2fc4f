//! What the rules ask of a frame, read naively from its bytes.

use testkit::verify::{ones_complement_sum, pseudo_header};

/// How the IP packet's length and the frame's go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    Exact,
    /// Bytes follow the IP packet.
    Padded,
    /// The IP packet would reach past the frame, or is too short for its own headers.
    Lying,
}

/// A whole TCP packet over IP, as far as its headers lie in the frame.
#[derive(Clone, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) v6: bool,
    pub(crate) tags: usize,
    pub(crate) network_at: usize,
    pub(crate) transport_at: usize,
    pub(crate) payload_at: usize,
    /// Where the packet ends by its IP length, which may lie.
    pub(crate) end: usize,
    pub(crate) length: Length,
    pub(crate) tcp_checksum_ok: bool,
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

impl<'a> Packet<'a> {
    /// `None` for anything else: not IP, a fragment, another protocol, or a header that does not
    /// lie in the frame.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let mut network_at = 14;
        while matches!(be16(bytes.get(..network_at)?, network_at - 2), 0x8100 | 0x88a8) {
            network_at += 4;
        }
        let tags = (network_at - 14) / 4;
        let v6 = match be16(bytes, network_at - 2) {
            0x0800 => false,
            0x86dd => true,
            _ => return None,
        };
        let ip = bytes.get(network_at..)?;
        let (header, end) = if v6 { v6_header(ip)? } else { v4_header(ip)? };
        let (transport_at, end) = (network_at + header, network_at + end);
        let tcp = bytes.get(transport_at..).filter(|tcp| tcp.len() >= 20)?;
        let tcp_header = usize::from(tcp[12] >> 4) * 4;
        if !(20..=tcp.len()).contains(&tcp_header) {
            return None;
        }
        let payload_at = transport_at + tcp_header;
        let length = match end {
            end if end > bytes.len() || end < payload_at => Length::Lying,
            end if end < bytes.len() => Length::Padded,
            _ => Length::Exact,
        };
        let mut packet = Packet {
            bytes,
            v6,
            tags,
            network_at,
            transport_at,
            payload_at,
            end,
            length,
            tcp_checksum_ok: false,
        };
        packet.tcp_checksum_ok = length != Length::Lying
            && ones_complement_sum(&[&packet.pseudo_header(), packet.segment()].concat()) == 0xffff;
        Some(packet)
    }

    pub(crate) fn ip(&self) -> &'a [u8] {
        &self.bytes[self.network_at..self.transport_at]
    }

    pub(crate) fn tcp(&self) -> &'a [u8] {
        &self.bytes[self.transport_at..self.payload_at]
    }

    pub(crate) fn payload(&self) -> &'a [u8] {
        &self.bytes[self.payload_at..self.end]
    }

    /// The TCP packet; there is one if the length does not lie.
    fn segment(&self) -> &'a [u8] {
        &self.bytes[self.transport_at..self.end]
    }

    pub(crate) fn addresses(&self) -> &'a [u8] {
        if self.v6 { &self.ip()[8..40] } else { &self.ip()[12..20] }
    }

    fn pseudo_header(&self) -> Vec<u8> {
        pseudo_header(self.addresses(), 6, self.end - self.transport_at)
    }

    /// IPv4 options or IPv6 extension headers.
    pub(crate) fn has_ip_extras(&self) -> bool {
        self.ip().len() > if self.v6 { 40 } else { 20 }
    }

    pub(crate) fn ip_checksum_ok(&self) -> bool {
        self.v6 || ones_complement_sum(self.ip()) == 0xffff
    }

    /// The highest bit of the IPv4 fragment field (RFC 791: reserved, must be zero).
    pub(crate) fn has_reserved_bit(&self) -> bool {
        !self.v6 && self.ip()[6] & 0x80 != 0
    }

    pub(crate) fn seq(&self) -> u32 {
        be32(self.tcp(), 4)
    }

    pub(crate) fn flags(&self) -> u8 {
        self.tcp()[13]
    }

    /// IPv4 identification.
    pub(crate) fn id(&self) -> u16 {
        be16(self.ip(), 4)
    }

    /// Whether every TCP option has a length that fits.
    pub(crate) fn options_ok(&self) -> bool {
        let mut rest = &self.tcp()[20..];
        loop {
            match *rest {
                [] | [0, ..] => return true,
                [1, ref after @ ..] => rest = after,
                [_, len, ..] if len >= 2 && usize::from(len) <= rest.len() => {
                    rest = &rest[usize::from(len)..];
                }
                _ => return false,
            }
        }
    }
}

/// Header length and packet length.
fn v4_header(ip: &[u8]) -> Option<(usize, usize)> {
    let header = usize::from(ip.first()? & 15) * 4;
    let here = ip[0] >> 4 == 4 && header >= 20 && ip.len() >= header;
    let fits = here && ip[9] == 6 && be16(ip, 6) & 0x3fff == 0;
    fits.then(|| (header, usize::from(be16(ip, 2))))
}

/// The same with all extension headers but Fragment.
fn v6_header(ip: &[u8]) -> Option<(usize, usize)> {
    if ip.len() < 40 || ip[0] >> 4 != 6 {
        return None;
    }
    let (mut next, mut at) = (ip[6], 40);
    while matches!(next, 0 | 43 | 60) {
        next = *ip.get(at)?;
        at += 8 + 8 * usize::from(*ip.get(at + 1)?);
    }
    (next == 6 && at <= ip.len()).then(|| (at, 40 + usize::from(be16(ip, 4))))
}

/// Makes the checksums of a frame right again after bytes in it were changed, where its length
/// does not lie.
pub(crate) fn seal(bytes: &mut [u8]) {
    seal_ip(bytes);
    let Some(packet) = Packet::read(bytes).filter(|packet| packet.length != Length::Lying) else {
        return;
    };
    let at = packet.transport_at + 16;
    let mut whole = [&packet.pseudo_header(), packet.segment()].concat();
    let place = whole.len() - packet.segment().len() + 16;
    whole[place..place + 2].fill(0);
    let checksum = !ones_complement_sum(&whole);
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The same for the IPv4 header's checksum alone.
pub(crate) fn seal_ip(bytes: &mut [u8]) {
    let mut at = 14;
    while matches!(be16(bytes, at - 2), 0x8100 | 0x88a8) {
        at += 4;
    }
    if be16(bytes, at - 2) != 0x0800 {
        return;
    }
    let end = bytes.len().min(at + usize::from(bytes[at] & 15) * 4);
    bytes[at + 10..at + 12].fill(0);
    let checksum = !ones_complement_sum(&bytes[at..end]);
    bytes[at + 10..at + 12].copy_from_slice(&checksum.to_be_bytes());
}
