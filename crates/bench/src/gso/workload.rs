//! The input of every system: one super-packet, again and again.
//!
//! It is as long as whole segments fit into a frame of 65,535 bytes, Ethernet included, which is
//! what a DPDK buffer can hold; a kernel makes whole segments too where it can. Its checksum is
//! partial, as a host hands it over. It lies in the second-level cache.

use gso::UDP_MAX_SEGMENTS;
use wire::{ETHERNET_LEN, Flags, GsoType, VirtioNetHdr, protocol};

use super::case::Case;
use super::figure;
use crate::packet;
use crate::side_by_side::{self, Total};
use crate::{Figure, System};

/// At least so many segments make a lap, the shortest time that is looked at.
const LAP: usize = 4096;

/// Longest frame.
const FRAME_MAX: usize = 65_535;
/// An IPv6 Fragment header (RFC 8200 section 4.5).
const FRAGMENT_LEN: usize = 8;

/// The super-packet of one case at one gso_size.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) case: Case,
    pub(crate) gso_size: u16,
    /// An Ethernet frame.
    pub(crate) packet: Vec<u8>,
    pub(crate) hdr: VirtioNetHdr,
    /// The longest IP packet that is to come out; that of the first segment.
    pub(crate) mtu: usize,
    /// How many are to come out.
    pub(crate) segments: usize,
    /// Bytes of what is cut in each: `gso_size`, for fragments a multiple of 8.
    pub(super) size: usize,
    /// Where in the packet begins what is cut.
    pub(crate) cut_at: usize,
    pub(super) transport_at: usize,
}

impl Workload {
    pub(crate) fn new(case: Case, gso_size: u16) -> Workload {
        let ip = case.ip();
        let protocol = if case.is_tcp() { protocol::TCP } else { protocol::UDP };
        let transport_at = ETHERNET_LEN + ip.header_len();
        let mut transport = if case.is_tcp() {
            packet::tcp_header(Flags::ACK.with(Flags::PSH)).to_vec()
        } else {
            packet::udp_header().to_vec()
        };
        let csum_offset = if case.is_tcp() { 16 } else { 6 };
        let (cut_at, size) = if case.is_fragmented() {
            (transport_at, usize::from(gso_size) & !7)
        } else {
            (transport_at + transport.len(), usize::from(gso_size))
        };
        let mut segments = (FRAME_MAX - cut_at) / size;
        if !case.is_tcp() && !case.is_fragmented() {
            segments = segments.min(UDP_MAX_SEGMENTS);
        }
        let l4_len = cut_at + segments * size - transport_at;
        transport.extend(packet::payload(l4_len - transport.len()));
        if !case.is_tcp() {
            transport[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
        }
        let (mut packet, pseudo_header) = packet::ethernet_and_ip(ip, protocol, l4_len);
        transport[csum_offset..csum_offset + 2]
            .copy_from_slice(&pseudo_header.fold().to_be_bytes());
        packet.extend(transport);
        let hdr = VirtioNetHdr {
            needs_csum: true,
            gso_type: gso_type(case),
            hdr_len: cut_at as u16,
            gso_size: if case.is_fragmented() { 0 } else { gso_size },
            csum_start: transport_at as u16,
            csum_offset: csum_offset as u16,
            ..VirtioNetHdr::default()
        };
        let fragment_header = if case == Case::Frag6 { FRAGMENT_LEN } else { 0 };
        let mtu = cut_at - ETHERNET_LEN + fragment_header + size;
        Workload { case, gso_size, packet, hdr, mtu, segments, size, cut_at, transport_at }
    }

    /// Super-packets of a lap.
    pub(crate) fn lap(&self) -> usize {
        LAP.div_ceil(self.segments)
    }
}

impl side_by_side::Workload for Workload {
    const BENCH: &'static str = "gso";

    /// Six numbers of 32 bits, little-endian, the legacy `virtio_net_hdr`, and the frame.
    fn to_bytes(&self) -> Vec<u8> {
        let numbers =
            [self.segments, self.size, self.mtu, self.cut_at, self.lap(), self.packet.len()];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|&n| (n as u32).to_le_bytes()).collect();
        bytes.extend(self.hdr.encode_legacy());
        bytes.extend(&self.packet);
        bytes
    }

    fn figures(&self, system: System, total: Total) -> Vec<Figure> {
        vec![figure(self, system, "ns_per_segment", total.ns_per_packet)]
    }
}

const fn gso_type(case: Case) -> GsoType {
    match case {
        Case::Tcp4 => GsoType::Tcpv4,
        Case::Tcp6 => GsoType::Tcpv6,
        Case::Uso4 | Case::Uso6 => GsoType::UdpL4,
        Case::Frag4 | Case::Frag6 => GsoType::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gso::GSO_SIZES;
    use crate::side_by_side::Workload as _;

    fn sizes() -> [u16; 6] {
        [*GSO_SIZES.start(), 100, 536, 1448, 8948, *GSO_SIZES.end()]
    }

    /// Just under 64 KB, where UDP's limit of 128 segments allows it; whole segments, two at least.
    #[test]
    fn a_super_packet_is_as_long_as_whole_segments_fit() {
        for case in Case::ALL {
            for gso_size in sizes() {
                let workload = Workload::new(case, gso_size);
                let Workload { cut_at, size, segments, .. } = workload;
                let len = workload.packet.len();
                assert_eq!(len, cut_at + size * segments);
                assert!(len <= FRAME_MAX && segments > 1, "{case:?} {gso_size}: {segments}");
                assert!(segments == UDP_MAX_SEGMENTS || len + size > FRAME_MAX);
                // Its partial checksum and its lengths are right.
                let mut complete = workload.packet.clone();
                gso::complete_checksum(&mut complete, &workload.hdr).unwrap();
                testkit::verify::checksums(&complete).unwrap();
            }
        }
    }

    #[test]
    fn what_peers_read_is_as_long_as_it_says() {
        let workload = Workload::new(Case::Frag6, 536);
        let bytes = workload.to_bytes();
        assert_eq!(bytes.len(), 6 * 4 + 10 + workload.packet.len());
        assert_eq!(bytes[8..12], 584u32.to_le_bytes());
    }
}
