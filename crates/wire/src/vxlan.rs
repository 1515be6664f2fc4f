//! VXLAN (RFC 7348), as far as a NIC needs it to find inner headers.

use crate::{Headers, Network, Transport, UdpTunnel, be16};

/// RFC 7348 section 8.
const PORT: u16 = 4789;
const HEADER_LEN: usize = 8;
/// The network identifier is valid (RFC 7348 section 5).
const I_FLAG: u8 = 0x08;

/// Offset of the frame within a VXLAN packet: behind UDP to its port, and the VXLAN header.
pub(crate) fn inner_frame_at(frame: &[u8], headers: &Headers) -> Option<usize> {
    let to_port =
        headers.transport == Transport::Udp && be16(frame, headers.transport_at + 2) == PORT;
    let header = frame.get(headers.payload_at..headers.payload_at + HEADER_LEN)?;
    (to_port && header[0] == I_FLAG).then_some(headers.payload_at + HEADER_LEN)
}

/// Whether `csum_start` certainly points to the outermost transport. `frame` may be the first bytes of a
/// packet.
#[inline]
pub fn is_outermost(frame: &[u8], csum_start: u16) -> bool {
    Headers::parse_first(frame).is_ok_and(|headers| headers.transport_at == usize::from(csum_start))
}

/// The tunnel of a super-packet in VXLAN whose inner transport begins at `csum_start`: the legacy
/// `virtio_net_hdr` has no more about it. `None` if it is not in VXLAN.
pub fn vxlan_tunnel(frame: &[u8], csum_start: u16) -> Option<UdpTunnel> {
    let outer = Headers::parse(frame).ok()?;
    let inner_at = inner_frame_at(frame, &outer)?;
    let inner = Headers::parse(frame.get(inner_at..outer.end)?).ok()?;
    let at = |offset: usize| u16::try_from(inner_at + offset).ok();
    (at(inner.transport_at) == Some(csum_start)).then_some(())?;
    Some(UdpTunnel {
        v6: matches!(outer.network, Network::Ipv6 { .. }),
        csum: be16(frame, outer.transport_at + 6) != 0,
        outer_th_offset: u16::try_from(outer.transport_at).ok()?,
        inner_nh_offset: at(inner.network_at)?,
    })
}
