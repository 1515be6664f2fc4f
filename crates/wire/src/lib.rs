//! Typed views of the bytes that cross a NIC: Ethernet, VLAN, IPv4, IPv6 with its extension headers, TCP with
//! its options, UDP and `virtio_net_hdr`; Internet checksums; sequence numbers; the unit of time; the flow
//! key and its keyed hash; ARP, Neighbour Discovery and ICMP; writing IP headers; bytes that others may change.
//!
//! A *view* (`Ipv4<T>`, `Tcp<T>`, ...) borrows bytes that were checked once, in its `new`, and reads or
//! writes fields by name. [`Headers::parse`] parses a whole frame in one pass and returns the offset of each
//! header, or why the frame is malformed; [`Packet`] adds what only one transport has, and [`Glance`] reads the
//! usual TCP segment in a few instructions. Nothing here allocates, keeps state or panics on bytes from outside.
//!
//! ```
//! use wire::{Headers, Transport};
//! let frame = [0u8; 10];
//! assert_eq!(Headers::parse(&frame), Err(wire::Malformed::ShortEthernet));
//! ```
#![no_std]

pub mod arp;
pub mod bytes;
pub mod cache;
pub mod checksum;
mod ethernet;
pub mod flow;
mod headers;
pub mod icmp;
pub mod ip;
mod ipv4;
mod ipv6;
mod malformed;
pub mod ndp;
mod packet;
mod partial;
mod plain;
mod seq;
mod split;
mod tcp;
mod time;
mod udp;
mod vnet;
mod vxlan;

pub use bytes::Bytes;
pub use checksum::{RxChecksum, Sum};
pub use ethernet::{
    BROADCAST, ETHERNET_LEN, EtherType, MAC_LEN, Mac, VLAN_LEN, is_group, write_ethernet,
};
pub use flow::{FlowHash, FlowKey};
pub use headers::{Headers, Network, Transport};
pub use ipv4::{IPV4_MIN_LEN, Ipv4};
pub use ipv6::{EXTENSIONS_MAX, Extensions, IPV6_LEN, Ipv6};
pub use malformed::Malformed;
pub use packet::{FirstFlow, IcmpError, IcmpPacket, Packet, TcpPacket, UdpPacket};
pub use partial::partial_checksum;
pub use plain::{Glance, Plain};
pub use seq::Seq;
pub use tcp::{Flags, TCP_MIN_LEN, Tcp, TcpOption, TcpOptions, Timestamps};
pub use time::Nanos;
pub use udp::{UDP_LEN, Udp};
pub use vnet::{GsoType, UdpTunnel, UnknownGsoType, VNET_LEGACY_LEN, VNET_LEN, VirtioNetHdr};
pub use vxlan::{is_outermost, vxlan_tunnel};

/// IP protocol and IPv6 next-header numbers (IANA "Protocol Numbers").
pub mod protocol {
    /// IPv6 Hop-by-Hop options (RFC 8200 section 4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 Routing header (RFC 8200 section 4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 Fragment header (RFC 8200 section 4.5).
    pub const FRAGMENT: u8 = 44;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// IPv6 Destination options (RFC 8200 section 4.6).
    pub const DESTINATION: u8 = 60;
    /// IPv4 in IP (RFC 2003).
    pub const IPIP: u8 = 4;
    /// IPv6 in IP (RFC 4213, RFC 2473).
    pub const IPV6: u8 = 41;
    /// Generic routing encapsulation (RFC 2784).
    pub const GRE: u8 = 47;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
}

/// Reads a big-endian `u16` at `at`. The caller has checked the length.
#[inline]
fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a big-endian `u32` at `at`.
#[inline]
fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes a big-endian `u16` at `at`.
#[inline]
fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a big-endian `u32` at `at`.
#[inline]
fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
