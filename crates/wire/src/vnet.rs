//! `virtio_net_hdr`: metadata of a packet between a host port and wharf (virtio 1.2 section 5.1.6; Linux
//! `include/uapi/linux/virtio_net.h`).

/// Bytes of the longest header, `virtio_net_hdr_v1_hash_tunnel` (virtio 1.4 section 5.1.6; Linux
/// 6.17), as TAP uses it after `TUNSETVNETHDRSZ`. Older kernels leave all but the first twelve
/// (`virtio_net_hdr_v1`) alone.
pub const VNET_LEN: usize = 24;
/// Bytes of the legacy header, as AF_PACKET uses it.
pub const VNET_LEGACY_LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
/// `VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM`
const UDP_TUNNEL_CSUM: u8 = 8;
const GSO_ECN: u8 = 0x80;
/// `VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4` and `_IPV6`.
const GSO_UDP_TUNNEL: u8 = 0x60;
const GSO_UDP_TUNNEL_IPV4: u8 = 0x20;
const GSO_UDP_TUNNEL_IPV6: u8 = 0x40;
const OUTER_TH_OFFSET: usize = 20;
const INNER_NH_OFFSET: usize = 22;

/// Type of a super-packet (`gso_type` without the ECN bit).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum GsoType {
    /// Not a super-packet.
    #[default]
    None,
    /// TCP over IPv4.
    Tcpv4,
    /// UDP by IP fragmentation (UFO); not the same as [`GsoType::UdpL4`].
    Udp,
    /// TCP over IPv6.
    Tcpv6,
    /// UDP, each segment with its own UDP header (USO).
    UdpL4,
}

/// Headers of a super-packet in a UDP tunnel, such as VXLAN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpTunnel {
    /// The outer IP header is IPv6 (`VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6`).
    pub v6: bool,
    /// The outer UDP header has a checksum, to be computed for each segment
    /// (`VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM`).
    pub csum: bool,
    /// Offset of the outer UDP header, from the start of the frame.
    pub outer_th_offset: u16,
    /// Offset of the inner IP header, from the start of the frame.
    pub inner_nh_offset: u16,
}

/// A `gso_type` that virtio does not define.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownGsoType(pub u8);

/// `struct virtio_net_hdr_v1`, fields in host order (the header is little-endian).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VirtioNetHdr {
    /// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum at `csum_start + csum_offset` holds only the
    /// folded, uncomplemented pseudo-header sum and is to be completed from `csum_start` on.
    pub needs_csum: bool,
    /// `VIRTIO_NET_HDR_F_DATA_VALID`: the checksum was verified. TUN ignores it on write.
    pub data_valid: bool,
    /// Type of super-packet.
    pub gso_type: GsoType,
    /// `VIRTIO_NET_HDR_GSO_ECN`: TCP with CWR set; CWR goes on the first segment only.
    pub ecn: bool,
    /// Ethernet + IP + TCP header bytes. A hint: on read it can be anything (docs/kernel-rules.md,
    /// rule 13).
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Where the checksum's coverage starts, from the start of the frame.
    pub csum_start: u16,
    /// Offset of the checksum field, from `csum_start`.
    pub csum_offset: u16,
    /// The tunnel that the super-packet is in. `gso_type`, `csum_start` and `csum_offset` are then
    /// those of the inner packet, and `hdr_len` covers all headers.
    pub tunnel: Option<UdpTunnel>,
}

impl VirtioNetHdr {
    /// Decodes the legacy header, which describes no tunnel.
    ///
    /// # Errors
    /// A `gso_type` that the legacy header cannot have.
    pub fn decode_legacy(bytes: &[u8; VNET_LEGACY_LEN]) -> Result<Self, UnknownGsoType> {
        let le16 = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let gso_type = match bytes[1] & !GSO_ECN {
            0 => GsoType::None,
            1 => GsoType::Tcpv4,
            3 => GsoType::Udp,
            4 => GsoType::Tcpv6,
            5 => GsoType::UdpL4,
            other => return Err(UnknownGsoType(other)),
        };
        Ok(VirtioNetHdr {
            needs_csum: bytes[0] & NEEDS_CSUM != 0,
            data_valid: bytes[0] & DATA_VALID != 0,
            gso_type,
            ecn: bytes[1] & GSO_ECN != 0,
            hdr_len: le16(2),
            gso_size: le16(4),
            csum_start: le16(6),
            csum_offset: le16(8),
            tunnel: None,
        })
    }

    /// Decodes the longest header.
    ///
    /// # Errors
    /// A `gso_type` that virtio does not define.
    pub fn decode(bytes: &[u8; VNET_LEN]) -> Result<Self, UnknownGsoType> {
        let le16 = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let mut legacy = [0; VNET_LEGACY_LEN];
        legacy.copy_from_slice(&bytes[..VNET_LEGACY_LEN]);
        legacy[1] &= !GSO_UDP_TUNNEL;
        let v6 = match bytes[1] & GSO_UDP_TUNNEL {
            0 => return Self::decode_legacy(&legacy),
            GSO_UDP_TUNNEL_IPV4 => false,
            GSO_UDP_TUNNEL_IPV6 => true,
            _ => return Err(UnknownGsoType(bytes[1])),
        };
        let tunnel = UdpTunnel {
            v6,
            csum: bytes[0] & UDP_TUNNEL_CSUM != 0,
            outer_th_offset: le16(OUTER_TH_OFFSET),
            inner_nh_offset: le16(INNER_NH_OFFSET),
        };
        Ok(VirtioNetHdr { tunnel: Some(tunnel), ..Self::decode_legacy(&legacy)? })
    }

    /// Encodes the longest header; its first ten bytes are the legacy header if there is no tunnel.
    pub fn encode(&self) -> [u8; VNET_LEN] {
        let mut out = [0; VNET_LEN];
        out[0] = u8::from(self.needs_csum) * NEEDS_CSUM + u8::from(self.data_valid) * DATA_VALID;
        let kind = match self.gso_type {
            GsoType::None => 0,
            GsoType::Tcpv4 => 1,
            GsoType::Udp => 3,
            GsoType::Tcpv6 => 4,
            GsoType::UdpL4 => 5,
        };
        out[1] = kind + u8::from(self.ecn) * GSO_ECN;
        out[2..4].copy_from_slice(&self.hdr_len.to_le_bytes());
        out[4..6].copy_from_slice(&self.gso_size.to_le_bytes());
        out[6..8].copy_from_slice(&self.csum_start.to_le_bytes());
        out[8..10].copy_from_slice(&self.csum_offset.to_le_bytes());
        if let Some(tunnel) = self.tunnel {
            out[0] |= u8::from(tunnel.csum) * UDP_TUNNEL_CSUM;
            out[1] |= if tunnel.v6 { GSO_UDP_TUNNEL_IPV6 } else { GSO_UDP_TUNNEL_IPV4 };
            let mut put = |at: usize, value: u16| {
                out[at..at + 2].copy_from_slice(&value.to_le_bytes());
            };
            put(OUTER_TH_OFFSET, tunnel.outer_th_offset);
            put(INNER_NH_OFFSET, tunnel.inner_nh_offset);
        }
        out
    }

    /// Encodes the legacy header, which cannot describe a tunnel.
    pub fn encode_legacy(&self) -> [u8; VNET_LEGACY_LEN] {
        let mut out = [0; VNET_LEGACY_LEN];
        let plain = VirtioNetHdr { tunnel: None, ..*self };
        out.copy_from_slice(&plain.encode()[..VNET_LEGACY_LEN]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(bytes: [u8; VNET_LEN]) {
            let Ok(hdr) = VirtioNetHdr::decode(&bytes) else { return Ok(()) };
            prop_assert_eq!(VirtioNetHdr::decode(&hdr.encode()), Ok(hdr));
            let written = hdr.encode();
            prop_assert_eq!(written[1..10].to_vec(), bytes[1..10].to_vec());
            if hdr.tunnel.is_some() {
                prop_assert_eq!(written[20..].to_vec(), bytes[20..].to_vec());
            } else {
                prop_assert_eq!(VirtioNetHdr::decode_legacy(&hdr.encode_legacy()), Ok(hdr));
            }
        }
    }

    #[test]
    fn a_tunnel_is_of_one_version() {
        let mut bytes = [0; VNET_LEN];
        bytes[1] = 0x61;
        assert_eq!(VirtioNetHdr::decode(&bytes), Err(UnknownGsoType(0x61)));
    }
}
