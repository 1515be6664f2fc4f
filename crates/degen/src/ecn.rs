//! Congestion marks: ECN in IP headers.

use wire::{ETHERNET_LEN, EtherType, Ipv4, Ipv6, VLAN_LEN};

/// The two bits of ECN in an IP header (RFC 3168 section 5).
const ECN: u8 = 0b11;
const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;

/// Marks an Ethernet frame's IP packet with CE, if its sender allows it (ECT, RFC 3168 section 5). Returns
/// whether the packet has the mark now.
pub fn mark(frame: &mut [u8]) -> bool {
    let Some((version, packet)) = ip(frame) else { return false };
    match version {
        4 => mark_v4(packet),
        _ => mark_v6(packet),
    }
}

/// The IP packet of an Ethernet frame, behind up to two VLAN tags.
fn ip(frame: &mut [u8]) -> Option<(u8, &mut [u8])> {
    let mut at = ETHERNET_LEN;
    for _ in 0..=2 {
        let ethertype = frame.get(at - 2..at)?;
        match EtherType(u16::from_be_bytes([ethertype[0], ethertype[1]])) {
            EtherType::IPV4 => return Some((4, frame.get_mut(at..)?)),
            EtherType::IPV6 => return Some((6, frame.get_mut(at..)?)),
            tag if tag.is_vlan() => at += VLAN_LEN,
            _ => return None,
        }
    }
    None
}

fn mark_v4(packet: &mut [u8]) -> bool {
    let Ok(mut ip) = Ipv4::new(packet) else { return false };
    let tos = ip.tos();
    if tos & ECN == NOT_ECT {
        return false;
    }
    ip.set_tos(tos | CE);
    true
}

fn mark_v6(packet: &mut [u8]) -> bool {
    let Ok(mut ip) = Ipv6::new(packet) else { return false };
    let class = ip.traffic_class();
    if class & ECN == NOT_ECT {
        return false;
    }
    ip.set_traffic_class(class | CE);
    true
}
