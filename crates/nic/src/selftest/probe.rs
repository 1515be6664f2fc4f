//! Super-packets whose cutting is tried: every type, both IP versions, with a last segment that is as long as the others and
//! one that is shorter.

use gso::Segmenter;
use wire::{ETHERNET_LEN, EtherType, GsoType, IPV4_MIN_LEN, IPV6_LEN};
use wire::{TCP_MIN_LEN, UDP_LEN, VirtioNetHdr, protocol};

/// Payload bytes of a segment, and of a short one.
const GSO_SIZE: usize = 400;
const SHORT: usize = 7;
/// Segments of full size.
const SEGMENTS: usize = 3;
/// Locally administered addresses, so that no host accepts the packets.
pub(crate) const SOURCE: [u8; 6] = *b"\x02wharf";
pub(crate) const DESTINATION: [u8; 6] = *b"\x02nobdy";
/// RFC 5737 and RFC 3849: addresses that no host has. Ports 9 (discard).
const ADDRESSES_V4: [u8; 8] = [192, 0, 2, 1, 192, 0, 2, 2];
const NET_V6: [u8; 4] = [0x20, 0x01, 0x0d, 0xb8];
/// Flags of the TCP header: PSH and ACK, and CWR beside them (RFC 3168).
const PSH_ACK: u8 = 0x18;
const CWR: u8 = 0x80;

/// A packet as it arrived: its header and its bytes.
pub(crate) type Arrived = (VirtioNetHdr, Vec<u8>);

/// The form of a super-packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// UDP (USO), not TCP.
    pub udp: bool,
    /// IPv6, not IPv4.
    pub v6: bool,
    /// With CWR, which only the first segment of TCP may have.
    pub cwr: bool,
    /// The last segment is as long as the others.
    pub full: bool,
}

impl Shape {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Shape> {
        let types = [(false, false), (false, true), (true, false)];
        types.into_iter().flat_map(|(udp, cwr)| {
            [(false, false), (false, true), (true, false), (true, true)].map(|(v6, full)| Shape {
                udp,
                v6,
                cwr,
                full,
            })
        })
    }

    /// The form in words, such as `UDPv6 with a short last segment`.
    pub fn words(&self) -> String {
        let transport = if self.udp { "UDP" } else { "TCP" };
        let version = if self.v6 { 6 } else { 4 };
        let cwr = if self.cwr { " with CWR" } else { "" };
        let last = if self.full { "full" } else { "short" };
        format!("{transport}v{version}{cwr} with a {last} last segment")
    }
}

/// A super-packet for the test.
pub(crate) struct Probe {
    pub(crate) packet: Vec<u8>,
    pub(crate) vnet: VirtioNetHdr,
}

impl Probe {
    /// Of this form.
    pub(crate) fn new(shape: Shape) -> Probe {
        let payload = SEGMENTS * GSO_SIZE + if shape.full { 0 } else { SHORT };
        let (number, l4_header, csum_offset) = match shape.udp {
            false => (protocol::TCP, TCP_MIN_LEN, 16),
            true => (protocol::UDP, UDP_LEN, 6),
        };
        let l4_len = l4_header + payload;
        let mut ip = if shape.v6 { ipv6(number, l4_len) } else { ipv4(number, l4_len) };
        let partial = match shape.v6 {
            false => wire::checksum::pseudo_v4(&ADDRESSES_V4, number, l4_len),
            true => wire::checksum::pseudo_v6(&ip[8..40], number, l4_len),
        };
        let mut l4 = vec![0; l4_header];
        l4[..4].copy_from_slice(&[0, 9, 0, 9]);
        if shape.udp {
            l4[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
        } else {
            // A sequence number about to wrap, the data offset, flags and window.
            l4[4..8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
            let flags = PSH_ACK | if shape.cwr { CWR } else { 0 };
            l4[12..16].copy_from_slice(&[0x50, flags, 1, 0]);
        }
        l4[csum_offset..csum_offset + 2].copy_from_slice(&partial.fold().to_be_bytes());
        let kind = if shape.v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mut packet = [DESTINATION, SOURCE].concat();
        packet.extend(kind.0.to_be_bytes());
        let csum_start = ETHERNET_LEN + ip.len();
        packet.append(&mut ip);
        packet.append(&mut l4);
        let hdr_len = packet.len() as u16;
        packet.extend((0..payload).map(|n| (n * 31) as u8));
        let vnet = VirtioNetHdr {
            needs_csum: true,
            gso_type: match (shape.udp, shape.v6) {
                (true, _) => GsoType::UdpL4,
                (false, false) => GsoType::Tcpv4,
                (false, true) => GsoType::Tcpv6,
            },
            ecn: shape.cwr,
            hdr_len,
            gso_size: GSO_SIZE as u16,
            csum_start: csum_start as u16,
            csum_offset: csum_offset as u16,
            ..VirtioNetHdr::default()
        };
        Probe { packet, vnet }
    }

    fn header_len(&self) -> usize {
        self.vnet.hdr_len.into()
    }

    /// Whether all of it is in the packets that have arrived.
    pub(crate) fn is_all_of(&self, arrived: &[Arrived]) -> bool {
        let header_len = self.header_len();
        let bytes: usize =
            arrived.iter().map(|(_, packet)| packet.len().saturating_sub(header_len)).sum();
        bytes >= self.packet.len() - header_len
    }

    /// Whether the packets that have arrived are those that wharf makes.
    pub(crate) fn is_cut_right(&self, arrived: &[Arrived]) -> bool {
        let mut frames = Vec::new();
        for (vnet, packet) in arrived {
            match frames_of(packet, vnet) {
                Some(cut) => frames.extend(cut),
                None => return false,
            }
        }
        frames_of(&self.packet, &self.vnet) == Some(frames)
    }
}

/// The frames into which software cuts a packet.
fn frames_of(packet: &[u8], vnet: &VirtioNetHdr) -> Option<Vec<Vec<u8>>> {
    let mut segments = Segmenter::with_mtu(packet, vnet, usize::MAX, 0).ok()?;
    let mut frames = Vec::new();
    let mut frame = vec![0; segments.max_segment_len()];
    while let Some(len) = segments.next_into(&mut frame).ok()? {
        frames.push(frame[..len].to_vec());
    }
    Some(frames)
}

fn ipv4(number: u8, l4_len: usize) -> Vec<u8> {
    let mut ip = vec![0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, number, 0, 0];
    ip.extend(ADDRESSES_V4);
    let total = (IPV4_MIN_LEN + l4_len) as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    let sum = wire::checksum::sum(&ip).complement();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip
}

fn ipv6(number: u8, l4_len: usize) -> Vec<u8> {
    let mut ip = vec![0; IPV6_LEN];
    ip[0] = 0x60;
    ip[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
    (ip[6], ip[7]) = (number, 64);
    for (at, last) in [(8, 1), (24, 2)] {
        ip[at..at + 4].copy_from_slice(&NET_V6);
        ip[at + 15] = last;
    }
    ip
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of a device that cuts right, after `wrong` has changed them.
    fn after(probe: &Probe, wrong: impl FnOnce(&mut Vec<Vec<u8>>)) -> Vec<Arrived> {
        let mut frames = frames_of(&probe.packet, &probe.vnet).unwrap();
        wrong(&mut frames);
        frames.into_iter().map(|frame| (VirtioNetHdr::default(), frame)).collect()
    }

    #[test]
    fn a_device_that_cuts_rightly_or_not_at_all_passes() {
        for shape in Shape::all() {
            let probe = Probe::new(shape);
            let frames = after(&probe, |_| {});
            assert_eq!(frames.len(), SEGMENTS + usize::from(!shape.full));
            assert!(probe.is_cut_right(&frames), "{}", shape.words());
            assert!(probe.is_cut_right(&[(probe.vnet, probe.packet.clone())]));
        }
    }

    /// Each byte of each header counts, and order and number of the packets.
    #[test]
    fn a_device_that_cuts_wrongly_fails() {
        for probe in Shape::all().map(Probe::new) {
            for at in 0..probe.header_len() {
                for n in 0..SEGMENTS {
                    assert!(!probe.is_cut_right(&after(&probe, |frames| frames[n][at] ^= 1)));
                }
            }
            assert!(!probe.is_cut_right(&after(&probe, |frames| frames.swap(1, 2))));
            assert!(!probe.is_cut_right(&after(&probe, |frames| drop(frames.pop()))));
            assert!(!probe.is_cut_right(&after(&probe, |frames| frames.push(frames[2].clone()))));
            assert!(!probe.is_cut_right(&after(&probe, |frames| frames[0].truncate(400))));
            let other_size = VirtioNetHdr { gso_size: 500, ..probe.vnet };
            assert!(!probe.is_cut_right(&[(other_size, probe.packet.clone())]));
        }
    }
}
