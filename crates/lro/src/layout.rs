//! Where the headers of the usual frames lie, which have no more than Ethernet, IP and TCP, and what is
//! read there.

use wire::{IPV4_MIN_LEN, IPV6_LEN, TCP_MIN_LEN};

use crate::filter::Segment;
use crate::link::Link;

/// Bytes of the usual timestamps (RFC 7323 appendix A), and how they begin.
pub(crate) const TIMESTAMPS_LEN: usize = 12;
pub(crate) const TIMESTAMPS: u32 = 0x0101_080a;

/// Where they end, from the IP header on.
const IPV4_PLAIN: usize = IPV4_MIN_LEN + TCP_MIN_LEN;
const IPV4_TIMESTAMPED: usize = IPV4_PLAIN + TIMESTAMPS_LEN;
const IPV6_PLAIN: usize = IPV6_LEN + TCP_MIN_LEN;
const IPV6_TIMESTAMPED: usize = IPV6_PLAIN + TIMESTAMPS_LEN;

/// What headers a flow's segments have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// Others than these, or none that are to be predicted.
    Unusual,
    Ipv4,
    Ipv4Timestamps,
    Ipv6,
    Ipv6Timestamps,
}

impl Layout {
    /// The layout of a segment of the endpoint profile.
    pub(crate) fn of<L: Link>(segment: &Segment) -> Layout {
        let timestamped = segment.carried.timestamps.is_some();
        match (segment.key.ipv6, segment.payload_at - segment.network_at) {
            _ if segment.network_at != L::LEN || segment.key.udp => Layout::Unusual,
            (false, IPV4_PLAIN) => Layout::Ipv4,
            (false, IPV4_TIMESTAMPED) if timestamped => Layout::Ipv4Timestamps,
            (true, IPV6_PLAIN) => Layout::Ipv6,
            (true, IPV6_TIMESTAMPED) if timestamped => Layout::Ipv6Timestamps,
            _ => Layout::Unusual,
        }
    }
}

#[inline(always)]
pub(crate) fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(crate) fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
pub(crate) fn be64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}
