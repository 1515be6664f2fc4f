//! Segmentation that the wire's interface can do itself, so that wharf need not (`gso.hardware`).

use gso::Kind;
use sys::ethtool::Ethtool;
use wire::{ETHERNET_LEN, GsoType, Headers, Network, Transport, Udp, VirtioNetHdr};

use super::Traffic;

/// The kinds of super-packets that an interface segments, each by its name in `ethtool -k`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hardware {
    /// `tx-tcp-segmentation`
    pub tcp4: bool,
    /// `tx-tcp6-segmentation`
    pub tcp6: bool,
    /// `tx-tcp-ecn-segmentation`: super-packets with CWR, which only their first segment is to have.
    pub ecn: bool,
    /// `tx-udp-segmentation`
    pub uso: bool,
}

/// A super-packet that an interface is to segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuperPacket {
    /// The header for the interface.
    pub vnet: VirtioNetHdr,
    /// Its kind, for the counters.
    pub kind: Kind,
    gso_segs: usize,
}

impl SuperPacket {
    /// Frames and bytes on the wire of a super-packet of `len` bytes: each segment has the headers.
    pub fn on_the_wire(&self, len: usize) -> Traffic {
        let headers = (self.gso_segs - 1) * usize::from(self.vnet.hdr_len);
        Traffic { frames: self.gso_segs as u64, bytes: (len + headers) as u64 }
    }
}

impl Hardware {
    /// No segmentation.
    pub const NONE: Hardware = Hardware { tcp4: false, tcp6: false, ecn: false, uso: false };

    /// All kinds: the kernel segments those that the interface does not (`validate_xmit_skb`).
    pub const KERNEL: Hardware = Hardware { tcp4: true, tcp6: true, ecn: true, uso: true };

    /// The features of `interface`; none if they cannot be read. Without scatter-gather and checksums the
    /// kernel clears the other features, so they are there where these are.
    pub fn read(interface: &str) -> Hardware {
        let active = Ethtool::open(interface).and_then(|ethtool| ethtool.features());
        let is_on = |name| active.as_ref().is_ok_and(|features| features.get(name) == Some(&true));
        Hardware {
            tcp4: is_on("tx-tcp-segmentation"),
            tcp6: is_on("tx-tcp6-segmentation"),
            ecn: is_on("tx-tcp-ecn-segmentation"),
            uso: is_on("tx-udp-segmentation"),
        }
    }

    /// The header with which the interface can segment `packet`; `None` if it cannot. The segments must fit
    /// `mtu`; those of TCP can be made to.
    pub fn leave(&self, packet: &[u8], vnet: &VirtioNetHdr, mtu: usize) -> Option<SuperPacket> {
        // A device computes the checksum of each segment: it must not be complete already.
        // AF_PACKET's header does not describe tunnels.
        if !vnet.needs_csum || vnet.gso_size == 0 || vnet.tunnel.is_some() {
            return None;
        }
        let headers = Headers::parse(packet).ok()?;
        let (kind, wanted) = match (vnet.gso_type, headers.network, headers.transport) {
            (GsoType::Tcpv4, Network::Ipv4 { .. }, Transport::Tcp) => (Kind::Tcp4, self.tcp4),
            (GsoType::Tcpv6, Network::Ipv6 { .. }, Transport::Tcp) => (Kind::Tcp6, self.tcp6),
            (GsoType::UdpL4, Network::Ipv4 { .. }, Transport::Udp) => (Kind::Uso4, self.uso),
            (GsoType::UdpL4, Network::Ipv6 { .. }, Transport::Udp) => (Kind::Uso6, self.uso),
            _ => return None,
        };
        let csum_at = if vnet.gso_type == GsoType::UdpL4 { 6 } else { 16 };
        let described = usize::from(vnet.csum_start) == headers.transport_at
            && vnet.csum_offset == csum_at
            // Ethernet padding would be taken for payload.
            && headers.end == packet.len();
        let room = mtu.saturating_sub(headers.payload_at - headers.network_at);
        let gso_size = match vnet.gso_type {
            GsoType::UdpL4 => usize::from(vnet.gso_size),
            _ => usize::from(vnet.gso_size).min(room),
        };
        // Packets with tags or extension headers are cut in software: not every device parses them.
        let plain = headers.network_at == ETHERNET_LEN
            && !matches!(headers.network, Network::Ipv6 { extensions: true });
        if !wanted || !described || !plain || (vnet.ecn && !self.ecn) {
            return None;
        }
        let payload = headers.payload_len();
        if gso_size == 0 || gso_size > room || payload <= gso_size {
            return None;
        }
        // Packets that software would refuse are left to software, so that they are counted.
        if vnet.gso_type == GsoType::UdpL4 {
            let udp = Udp::new(packet.get(headers.transport_at..headers.end)?).ok()?;
            let whole = usize::from(udp.length()) == headers.end - headers.transport_at;
            if vnet.ecn || !whole || payload.div_ceil(gso_size) > gso::UDP_MAX_SEGMENTS {
                return None;
            }
        }
        let vnet =
            VirtioNetHdr { hdr_len: headers.payload_at as u16, gso_size: gso_size as u16, ..*vnet };
        Some(SuperPacket { vnet, kind, gso_segs: payload.div_ceil(gso_size) })
    }
}
