//! The outer headers of a super-packet in a UDP tunnel, such as VXLAN: they are on every segment
//! (Linux `skb_udp_tunnel_segment`).

use wire::{Headers, Ipv4, Ipv6, Network, Sum, Transport, UdpTunnel, checksum, protocol};

use crate::ip::IpPart;
use crate::{Refusal, never_zero, put16};

const LENGTH: usize = 4;
const CHECKSUM: usize = 6;

/// The changing part of the outer IP and UDP headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TunnelPart {
    ip: IpPart,
    /// Where the outer UDP header stands.
    at: usize,
    /// Of the outer pseudo-header less its length, if there is to be a checksum.
    pseudo_header: Option<Sum>,
}

/// Where the headers of the inner packet lie, if the fields that describe the tunnel are true of
/// `packet`.
pub(crate) fn inner(
    packet: &[u8],
    outer: &Headers,
    tunnel: &UdpTunnel,
) -> Result<Headers, Refusal> {
    let at = usize::from(tunnel.inner_nh_offset);
    let described = outer.transport == Transport::Udp
        && matches!(outer.network, Network::Ipv6 { .. }) == tunnel.v6
        && outer.transport_at == usize::from(tunnel.outer_th_offset)
        && at >= outer.payload_at
        // Checksums are of words of 16 bits.
        && (at - outer.payload_at).is_multiple_of(2);
    if !described {
        return Err(Refusal::UdpTunnel);
    }
    let inner = Headers::parse_ip_at(&packet[..outer.end], at)?;
    if inner.end == outer.end { Ok(inner) } else { Err(Refusal::UdpTunnel) }
}

impl TunnelPart {
    /// Clears in `template` what changes.
    pub(crate) fn new(
        template: &mut [u8],
        packet: &[u8],
        outer: &Headers,
        tunnel: &UdpTunnel,
    ) -> Result<TunnelPart, Refusal> {
        let at = outer.transport_at;
        let ip = IpPart::new(template, outer).ok_or(Refusal::UdpTunnel)?;
        put16(template, at + LENGTH, 0);
        let network = &packet[outer.network_at..];
        let pseudo_header = match outer.network {
            _ if !tunnel.csum => None,
            Network::Ipv4 { .. } => Some(Ipv4::new(network)?.pseudo_header(0)),
            _ => Some(Ipv6::new(network)?.pseudo_header(protocol::UDP, 0)),
        };
        if pseudo_header.is_some() {
            put16(template, at + CHECKSUM, 0);
        }
        Ok(TunnelPart { ip, at, pseudo_header })
    }

    /// Outer IP packets carry the ID of the super-packet's.
    pub(crate) fn fix_id(&mut self) {
        self.ip.fix_id();
    }

    /// Fills in the outer headers of segment `nth`, a frame of `frame_len` bytes whose inner headers
    /// are final.
    #[inline]
    pub(crate) fn write(&self, header: &mut [u8], nth: usize, frame_len: usize, payload_sum: Sum) {
        let len = (frame_len - self.at) as u16;
        self.ip.write(header, nth, frame_len);
        let udp = &mut header[self.at..];
        put16(udp, LENGTH, len);
        if let Some(pseudo_header) = self.pseudo_header {
            let sum = pseudo_header.plus_word(len).plus(checksum::sum(udp)).plus(payload_sum);
            put16(udp, CHECKSUM, never_zero(sum.complement()));
        }
    }
}
