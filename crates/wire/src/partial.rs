//! Partial transport checksums, as senders with checksum offload leave them.

use crate::vxlan::inner_frame_at;
use crate::{Headers, Ipv4, Ipv6, Network, Transport, be16, protocol};

/// Bytes of SCTP's common header, and offset of the checksum in it (RFC 9260 section 3.1).
const SCTP_LEN: usize = 12;
const SCTP_CHECKSUM: usize = 8;

/// `csum_start` and `csum_offset` of `virtio_net_hdr`, if the transport checksum was left to a card: it holds only
/// the folded pseudo-header sum, or 0 in SCTP. Else `None`.
///
/// On a real wire such a frame cannot be distinguished from a damaged one. On one that never leaves the machine (a
/// veth) it can: no kernel writes that value otherwise, but for one frame in 65,536 by chance (one in 2^32 of SCTP),
/// and memory does not damage frames.
pub fn partial_checksum(frame: &[u8]) -> Option<(u16, u16)> {
    let headers = Headers::parse(frame).ok()?;
    if headers.transport == Transport::Other(protocol::SCTP) {
        return partial_sctp(frame, &headers);
    }
    partial_of(frame, &headers).or_else(|| {
        let inner_at = inner_frame_at(frame, &headers)?;
        let inner = frame.get(inner_at..headers.end)?;
        let (start, offset) = partial_of(inner, &Headers::parse(inner).ok()?)?;
        Some((start.checked_add(u16::try_from(inner_at).ok()?)?, offset))
    })
}

/// `sctp_packet_pack` in Linux leaves 0 where the device has `NETIF_F_SCTP_CRC`.
fn partial_sctp(frame: &[u8], headers: &Headers) -> Option<(u16, u16)> {
    let header = frame.get(headers.transport_at..headers.end)?.first_chunk::<SCTP_LEN>()?;
    let start = u16::try_from(headers.transport_at).ok()?;
    (header[SCTP_CHECKSUM..] == [0; 4]).then_some((start, SCTP_CHECKSUM as u16))
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
