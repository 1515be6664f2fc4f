//! A glance at a packet: the form that nearly every TCP segment has, which is read in a few instructions, and all others,
//! which [`Packet`](crate::Packet) parses. The parser takes some 80 instructions for a segment over IPv4, and this some 20
//! (callgrind); LRO has some 340 in all for each segment that it merges.

use core::net::SocketAddr;

use crate::{
    ETHERNET_LEN, EtherType, Flags, FlowKey, IPV4_MIN_LEN, IPV6_LEN, Seq, TCP_MIN_LEN, be16, be32,
    protocol,
};

const V4_LEN: usize = IPV4_MIN_LEN + TCP_MIN_LEN;
const V6_LEN: usize = IPV6_LEN + TCP_MIN_LEN;

/// IPv4 flags, fragment offset, time to live and protocol: the bits that tell a whole TCP segment.
const FORM_MASK: u32 = 0x3fff_00ff;

/// A packet at first sight.
#[derive(Clone, Copy, Debug)]
pub enum Glance<'a> {
    /// A TCP segment in its plain form.
    Tcp(Plain<'a>),
    /// Certainly neither TCP nor an ICMP message about it.
    Neither,
    /// A packet that must be parsed.
    Unclear,
}

/// A TCP segment that is no fragment and whose headers are plain: no VLAN tag, no IPv4 options, no extension
/// headers. Its fixed headers are here. The lengths that they state are not checked.
#[derive(Clone, Copy, Debug)]
pub enum Plain<'a> {
    /// Over IPv4: the fixed headers of IP and TCP.
    V4(&'a [u8; V4_LEN]),
    /// Over IPv6.
    V6(&'a [u8; V6_LEN]),
}

impl<'a> Glance<'a> {
    /// Looks at an Ethernet frame, of which `bytes` may be the first.
    #[inline(always)]
    pub fn at_frame(bytes: &'a [u8]) -> Self {
        let Some(front) = bytes.first_chunk::<{ ETHERNET_LEN + V4_LEN }>() else {
            return Glance::Unclear;
        };
        match EtherType(be16(front, 12)) {
            EtherType::IPV4 => Self::at_v4(tail(front)),
            EtherType::IPV6 => match bytes.first_chunk::<{ ETHERNET_LEN + V6_LEN }>() {
                Some(front) => Self::at_v6(tail(front)),
                None => Glance::Unclear,
            },
            EtherType::ARP => Glance::Neither,
            _ => Glance::Unclear,
        }
    }

    /// Looks at an IP packet without a link layer.
    #[inline(always)]
    pub fn at_packet(bytes: &'a [u8]) -> Self {
        let Some(front) = bytes.first_chunk::<V4_LEN>() else { return Glance::Unclear };
        match front[0] >> 4 {
            4 => Self::at_v4(front),
            6 => bytes.first_chunk::<V6_LEN>().map_or(Glance::Unclear, Self::at_v6),
            _ => Glance::Unclear,
        }
    }

    #[inline(always)]
    fn at_v4(ip: &'a [u8; V4_LEN]) -> Self {
        if be32(ip, 6) & FORM_MASK == u32::from(protocol::TCP) && ip[0] == 0x45 {
            return Glance::Tcp(Plain::V4(ip));
        }
        // The protocol has the same place whatever options there are.
        match ip[9] {
            protocol::TCP | protocol::ICMP => Glance::Unclear,
            _ => Glance::Neither,
        }
    }

    #[inline(always)]
    fn at_v6(ip: &'a [u8; V6_LEN]) -> Self {
        if ip[6] == protocol::TCP && ip[0] >> 4 == 6 {
            return Glance::Tcp(Plain::V6(ip));
        }
        match ip[6] {
            protocol::UDP => Glance::Neither,
            _ => Glance::Unclear,
        }
    }

    /// The segment in its plain form, if it is one.
    #[inline(always)]
    pub fn plain(self) -> Option<Plain<'a>> {
        match self {
            Glance::Tcp(plain) => Some(plain),
            Glance::Neither | Glance::Unclear => None,
        }
    }
}

impl Plain<'_> {
    /// The key of its flow.
    #[inline(always)]
    pub fn key(&self) -> FlowKey {
        match *self {
            Plain::V4(ip) => {
                let addresses = [word(ip, 12), 0, 0, 0];
                FlowKey { addresses, ports: ports(ip, IPV4_MIN_LEN), ipv6: false, udp: false }
            }
            Plain::V6(ip) => {
                let addresses = [word(ip, 8), word(ip, 16), word(ip, 24), word(ip, 32)];
                FlowKey { addresses, ports: ports(ip, IPV6_LEN), ipv6: true, udp: false }
            }
        }
    }

    /// Source and destination, with their ports.
    #[inline]
    pub fn ends(&self) -> (SocketAddr, SocketAddr) {
        let tcp = self.tcp();
        let (from, to) = match *self {
            Plain::V4(ip) => (octets::<4>(&ip[12..]).into(), octets::<4>(&ip[16..]).into()),
            Plain::V6(ip) => (octets::<16>(&ip[8..]).into(), octets::<16>(&ip[24..]).into()),
        };
        (SocketAddr::new(from, be16(tcp, 0)), SocketAddr::new(to, be16(tcp, 2)))
    }

    /// The control bits.
    #[inline(always)]
    pub fn flags(&self) -> Flags {
        Flags(self.tcp()[13])
    }

    /// The sequence number.
    #[inline(always)]
    pub fn seq(&self) -> Seq {
        Seq(be32(self.tcp(), 4))
    }

    /// Bytes of payload, by the lengths that IP and TCP state; `None` if these contradict each other.
    #[inline(always)]
    pub fn payload_len(&self) -> Option<usize> {
        let header = usize::from(self.tcp()[12] >> 4) * 4;
        let (len, before) = match *self {
            Plain::V4(ip) => (be16(ip, 2), IPV4_MIN_LEN),
            Plain::V6(ip) => (be16(ip, 4), 0),
        };
        usize::from(len).checked_sub(before + header)
    }

    #[inline(always)]
    fn tcp(&self) -> &[u8; TCP_MIN_LEN] {
        match self {
            Plain::V4(ip) => tail(ip),
            Plain::V6(ip) => tail(ip),
        }
    }
}

/// The last bytes of an array, which is longer.
#[inline(always)]
fn tail<const N: usize, const LEN: usize>(bytes: &[u8; LEN]) -> &[u8; N] {
    const { assert!(N <= LEN) };
    bytes.last_chunk().unwrap_or(&[0; N])
}

/// Eight bytes, as they lie there.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let b = &bytes[at..at + 8];
    u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
}

#[inline(always)]
fn ports<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn octets<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}
