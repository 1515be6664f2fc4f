//! Writing IP headers, and the addresses of IP headers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::{self, Sum};
use crate::{EtherType, IPV4_MIN_LEN, IPV6_LEN, Ipv4, Ipv6, put16, put32};

/// Default time to live and hop limit (RFC 1340).
pub const TTL: u8 = 64;

/// Don't Fragment.
const DF: u16 = 0x4000;

/// Source and destination of a packet, both of one IP version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source.
        source: Ipv4Addr,
        /// Destination.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Source.
        source: Ipv6Addr,
        /// Destination.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// Source and destination; `None` if one is IPv4 and the other IPv6.
    #[inline]
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Addresses::V4 { source, destination })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Addresses::V6 { source, destination })
            }
            _ => None,
        }
    }

    /// The source address.
    #[inline]
    pub const fn source(&self) -> IpAddr {
        match *self {
            Addresses::V4 { source, .. } => IpAddr::V4(source),
            Addresses::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// The destination address.
    #[inline]
    pub const fn destination(&self) -> IpAddr {
        match *self {
            Addresses::V4 { destination, .. } => IpAddr::V4(destination),
            Addresses::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }

    /// The addresses of a packet in the other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Addresses::V4 { source, destination } => {
                Addresses::V4 { source: destination, destination: source }
            }
            Addresses::V6 { source, destination } => {
                Addresses::V6 { source: destination, destination: source }
            }
        }
    }

    /// The pseudo-header's sum for an upper-layer packet of `len` bytes.
    #[inline]
    pub fn pseudo_header(&self, protocol: u8, len: usize) -> Sum {
        let mut bytes = [0; 32];
        match self {
            Addresses::V4 { source, destination } => {
                bytes[..4].copy_from_slice(&source.octets());
                bytes[4..8].copy_from_slice(&destination.octets());
                checksum::pseudo_v4(&bytes[..8], protocol, len)
            }
            Addresses::V6 { source, destination } => {
                bytes[..16].copy_from_slice(&source.octets());
                bytes[16..].copy_from_slice(&destination.octets());
                checksum::pseudo_v6(&bytes, protocol, len)
            }
        }
    }
}

/// Fields of an IP header without options or extension headers, beside its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpHeader {
    /// Source and destination.
    pub addresses: Addresses,
    /// Protocol number of the payload: see [`protocol`](crate::protocol).
    pub protocol: u8,
    /// Time to live; the hop limit, in IPv6.
    pub ttl: u8,
    /// DSCP and ECN; the traffic class, in IPv6.
    pub tos: u8,
    /// IPv6 only: 20 bits (RFC 6437).
    pub flow_label: u32,
}

impl IpHeader {
    /// A header with the default TTL, and a TOS and flow label of 0.
    pub const fn new(addresses: Addresses, protocol: u8) -> Self {
        IpHeader { addresses, protocol, ttl: TTL, tos: 0, flow_label: 0 }
    }

    /// Bytes of the header.
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self.addresses {
            Addresses::V4 { .. } => IPV4_MIN_LEN,
            Addresses::V6 { .. } => IPV6_LEN,
        }
    }

    /// The EtherType of a frame with this packet.
    #[inline]
    pub const fn ether_type(&self) -> EtherType {
        match self.addresses {
            Addresses::V4 { .. } => EtherType::IPV4,
            Addresses::V6 { .. } => EtherType::IPV6,
        }
    }

    /// Most bytes behind the header.
    #[inline]
    pub const fn payload_max(&self) -> usize {
        match self.addresses {
            Addresses::V4 { .. } => u16::MAX as usize - IPV4_MIN_LEN,
            Addresses::V6 { .. } => u16::MAX as usize,
        }
    }

    /// Writes the header of a packet with `len` bytes behind it, at most
    /// [`payload_max`](Self::payload_max). IPv4 packets have DF and are atomic, so their ID is 0
    /// (RFC 6864 section 4.1).
    ///
    /// # Panics
    /// If `into` is shorter than the header.
    #[inline]
    pub fn write(&self, into: &mut [u8], len: usize) {
        debug_assert!(len <= self.payload_max(), "{len} bytes do not fit into an IP packet");
        match self.addresses {
            Addresses::V4 { source, destination } => self.write_v4(into, len, source, destination),
            Addresses::V6 { source, destination } => self.write_v6(into, len, source, destination),
        }
    }

    #[inline]
    fn write_v4(&self, into: &mut [u8], len: usize, source: Ipv4Addr, destination: Ipv4Addr) {
        let header = &mut into[..IPV4_MIN_LEN];
        header.fill(0);
        header[0] = 0x45;
        header[1] = self.tos;
        put16(header, 2, (IPV4_MIN_LEN + len) as u16);
        put16(header, 6, DF);
        header[8] = self.ttl;
        header[9] = self.protocol;
        header[12..16].copy_from_slice(&source.octets());
        header[16..20].copy_from_slice(&destination.octets());
        let checksum = checksum::sum(header).complement();
        put16(header, 10, checksum);
    }

    #[inline]
    fn write_v6(&self, into: &mut [u8], len: usize, source: Ipv6Addr, destination: Ipv6Addr) {
        put32(into, 0, 6 << 28 | u32::from(self.tos) << 20 | self.flow_label & 0xf_ffff);
        put16(into, 4, len as u16);
        into[6] = self.protocol;
        into[7] = self.ttl;
        into[8..24].copy_from_slice(&source.octets());
        into[24..40].copy_from_slice(&destination.octets());
    }

    /// The pseudo-header's sum for `len` bytes behind the header.
    #[inline]
    pub fn pseudo_header(&self, len: usize) -> Sum {
        self.addresses.pseudo_header(self.protocol, len)
    }
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Source and destination.
    #[inline]
    pub fn addresses(&self) -> Addresses {
        let ip = |b: &[u8]| Ipv4Addr::new(b[0], b[1], b[2], b[3]);
        Addresses::V4 { source: ip(self.source()), destination: ip(self.destination()) }
    }
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Source and destination.
    #[inline]
    pub fn addresses(&self) -> Addresses {
        Addresses::V6 { source: v6(self.source()), destination: v6(self.destination()) }
    }
}

/// An IPv6 address from its 16 bytes.
#[inline]
fn v6(bytes: &[u8]) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    Ipv6Addr::from(octets)
}
