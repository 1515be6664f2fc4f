//! Partial transport checksums, as senders with checksum offload leave them.

use crate::vxlan::inner_frame_at;
use crate::{Headers, Ipv4, Ipv6, Network, Transport, be16, protocol};

/// `csum_start` and `csum_offset` of `virtio_net_hdr`, if the transport checksum holds only the folded
/// pseudo-header sum, as a sender with checksum offload leaves it; else `None`.
///
/// On a real wire such a frame cannot be distinguished from a damaged one. On one that never leaves the machine (a
/// veth) it can: no kernel writes that value otherwise, but for one frame in 65,536 by chance, and memory
/// does not damage frames.
pub fn partial_checksum(frame: &[u8]) -> Option<(u16, u16)> {
    let headers = Headers::parse(frame).ok()?;
    partial_of(frame, &headers).or_else(|| {
        let inner_at = inner_frame_at(frame, &headers)?;
        let inner = frame.get(inner_at..headers.end)?;
        let (start, offset) = partial_of(inner, &Headers::parse(inner).ok()?)?;
        Some((start.checked_add(u16::try_from(inner_at).ok()?)?, offset))
    })
}

fn partial_of(frame: &[u8], headers: &Headers) -> Option<(u16, u16)> {
    let (kind, offset) = match headers.transport {
        Transport::Tcp => (protocol::TCP, 16),
        Transport::Udp => (protocol::UDP, 6),
        _ => return None,
    };
    let network = &frame[headers.network_at..headers.end];
    let len = headers.end - headers.transport_at;
    let pseudo = match headers.network {
        Network::Ipv4 { .. } => Ipv4::new(network).ok()?.pseudo_header(len),
        Network::Ipv6 { .. } => Ipv6::new(network).ok()?.pseudo_header(kind, len),
        Network::Other(_) => return None,
    };
    let field = be16(frame, headers.transport_at + offset);
    (field == pseudo.fold() && field != 0)
        .then_some((u16::try_from(headers.transport_at).ok()?, offset as u16))
}
