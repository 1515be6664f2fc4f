//! `virtio_net_hdr`: what a host port and wharf tell each other about a packet
//! (virtio 1.2 section 5.1.6; Linux `include/uapi/linux/virtio_net.h`).

/// Bytes of the version 1 header (with `num_buffers`), as TAP uses it after `TUNSETVNETHDRSZ`.
pub const VNET_LEN: usize = 12;
/// Bytes of the legacy header, as AF_PACKET uses it.
pub const VNET_LEGACY_LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_ECN: u8 = 0x80;

/// How a super-packet is to be cut (`gso_type` without the ECN bit).
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
    /// Kind of super-packet.
    pub gso_type: GsoType,
    /// `VIRTIO_NET_HDR_GSO_ECN`: TCP with CWR set; CWR goes on the first segment only.
    pub ecn: bool,
    /// Ethernet + IP + TCP header bytes. A hint: on read it can be anything (facts, rule 13).
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Where checksumming starts, from the start of the frame.
    pub csum_start: u16,
    /// Where the checksum lies, from `csum_start`.
    pub csum_offset: u16,
}

impl VirtioNetHdr {
    /// Reads the first ten bytes of `bytes`, which are common to both lengths.
    pub fn decode(bytes: &[u8; VNET_LEGACY_LEN]) -> Result<Self, UnknownGsoType> {
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
        })
    }

    /// Writes the version 1 header; its first ten bytes are the legacy header.
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
        out
    }

    /// [`encode`](Self::encode) without `num_buffers`.
    pub fn encode_legacy(&self) -> [u8; VNET_LEGACY_LEN] {
        let mut out = [0; VNET_LEGACY_LEN];
        out.copy_from_slice(&self.encode()[..VNET_LEGACY_LEN]);
        out
    }
}
