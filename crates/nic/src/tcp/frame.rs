//! Writing frames of the endpoint's own: the headers in front of what it says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::{ETHERNET_LEN, EtherType, IPV4_MIN_LEN, IPV6_LEN, MAC_LEN};

/// To all on the link.
pub(super) const BROADCAST: [u8; MAC_LEN] = [0xff; MAC_LEN];

/// Time to live and hop limit of what the endpoint sends (RFC 1340 has 64).
pub(super) const TTL: u8 = 64;

/// Don't Fragment.
const DF: u16 = 0x4000;

/// What an IP header says beside its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ip {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    /// Hop limit, in IPv6.
    pub(super) ttl: u8,
    /// DSCP and ECN; the traffic class, in IPv6.
    pub(super) tos: u8,
    /// IPv6 only: 20 bits (RFC 6437).
    pub(super) flow_label: u32,
}

impl Ip {
    /// From an own address to another, with nothing special.
    pub(super) fn new(source: IpAddr, destination: IpAddr, protocol: u8) -> Self {
        Ip { source, destination, protocol, ttl: TTL, tos: 0, flow_label: 0 }
    }

    /// Bytes of the header.
    #[inline]
    pub(super) fn header_len(&self) -> usize {
        if self.destination.is_ipv4() { IPV4_MIN_LEN } else { IPV6_LEN }
    }

    /// The type of an Ethernet frame with it.
    #[inline]
    pub(super) fn ether_type(&self) -> EtherType {
        if self.destination.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 }
    }

    /// Writes the header for `len` bytes behind it. An IPv4 packet is never fragmented, so its ID is 0
    /// (RFC 6864 section 4.1). `len` is below 64 KB, as that of all that the endpoint sends.
    #[inline]
    pub(super) fn write(&self, into: &mut [u8], len: usize) {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.write_v4(into, len, source, destination);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.write_v6(into, len, source, destination);
            }
            // The versions of a path's ends are the same.
            _ => {}
        }
    }

    #[inline]
    fn write_v4(&self, into: &mut [u8], len: usize, source: Ipv4Addr, destination: Ipv4Addr) {
        let header = &mut into[..IPV4_MIN_LEN];
        header.fill(0);
        header[0] = 0x45;
        header[1] = self.tos;
        let total = (IPV4_MIN_LEN + len) as u16;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[6..8].copy_from_slice(&DF.to_be_bytes());
        header[8] = self.ttl;
        header[9] = self.protocol;
        header[12..16].copy_from_slice(&source.octets());
        header[16..20].copy_from_slice(&destination.octets());
        let checksum = wire::checksum::sum(header).complement();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    #[inline]
    fn write_v6(&self, into: &mut [u8], len: usize, source: Ipv6Addr, destination: Ipv6Addr) {
        let first = 6 << 28 | u32::from(self.tos) << 20 | self.flow_label & 0xf_ffff;
        into[..4].copy_from_slice(&first.to_be_bytes());
        into[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        into[6] = self.protocol;
        into[7] = self.ttl;
        into[8..24].copy_from_slice(&source.octets());
        into[24..40].copy_from_slice(&destination.octets());
    }

    /// The pseudo-header's sum for `len` bytes behind the header.
    #[inline]
    pub(super) fn pseudo_header(&self, len: usize) -> wire::Sum {
        let mut addresses = [0; 32];
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                addresses[..4].copy_from_slice(&source.octets());
                addresses[4..8].copy_from_slice(&destination.octets());
                wire::checksum::pseudo_v4(&addresses[..8], self.protocol, len)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                addresses[..16].copy_from_slice(&source.octets());
                addresses[16..].copy_from_slice(&destination.octets());
                wire::checksum::pseudo_v6(&addresses, self.protocol, len)
            }
            _ => wire::Sum::default(),
        }
    }
}

/// Writes an Ethernet header.
#[inline]
pub(super) fn write_ethernet(
    into: &mut [u8],
    to: [u8; MAC_LEN],
    from: [u8; MAC_LEN],
    kind: EtherType,
) {
    into[..6].copy_from_slice(&to);
    into[6..12].copy_from_slice(&from);
    into[12..ETHERNET_LEN].copy_from_slice(&kind.0.to_be_bytes());
}
