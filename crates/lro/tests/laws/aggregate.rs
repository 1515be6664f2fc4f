//! What every aggregate must be, whatever the profile: the paper's section IV.D, and what
//! `NEEDS_CSUM` promises. Built naively from the packets that went in.

use testkit::verify::{self, ones_complement_sum};
use wire::GsoType;

use crate::naive::{CWR, FIN, PSH, Tcp};
use crate::run::{Joined, Step};

/// The packets that went into an aggregate.
pub(crate) fn parts(joined: &Joined, steps: &[Step]) -> Vec<Tcp> {
    let read = |at: &usize| match &steps[*at] {
        Step::Frame(frame) => Tcp::read(&frame.bytes).expect("an aggregate of something not TCP"),
        step => panic!("{step:?} in an aggregate"),
    };
    joined.frames.iter().map(read).collect()
}

/// Checks one aggregate against its packets.
pub(crate) fn check(joined: &Joined, steps: &[Step]) {
    let parts = parts(joined, steps);
    assert!(parts.len() >= 2);
    check_checksum(joined);
    check_vnet(joined, &parts);
    let is = Tcp::read(&joined.bytes).expect("an aggregate that is no TCP packet");
    assert_eq!(is.header_len(), joined.header_len);
    assert_eq!(is.bytes(), joined.bytes, "the IP length is not that of the packet");
    assert!(is.ip_len() <= 65_535);
    assert!(is == expected(&parts, is.checksum()), "{is:?}");
}

/// The packet that the parts make; its TCP checksum is checked elsewhere.
fn expected(parts: &[Tcp], checksum: usize) -> Tcp {
    let (mut is, last) = (parts[0].clone(), &parts[parts.len() - 1]);
    is.payload = parts.iter().flat_map(|p| p.payload.clone()).collect();
    is.tcp[8..12].copy_from_slice(&last.ack().to_be_bytes());
    is.tcp[14..16].copy_from_slice(&last.tcp[14..16]);
    is.tcp[16..18].copy_from_slice(&(checksum as u16).to_be_bytes());
    is.tcp[13] |= parts.iter().fold(0, |flags, p| flags | p.flags() & (FIN | PSH));
    if let Some((_, echo)) = last.timestamps() {
        is.tcp[28..32].copy_from_slice(&echo.to_be_bytes());
    }
    let len = is.ip_len() as u16;
    if is.is_v6() {
        is.ip[4..6].copy_from_slice(&(len - 40).to_be_bytes());
    } else {
        is.ip[2..4].copy_from_slice(&len.to_be_bytes());
        is.ip[10..12].fill(0);
        let sum = !ones_complement_sum(&is.ip);
        is.ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    is
}

/// The field holds the pseudo-header's sum, and completing it gives a packet that verifies.
fn check_checksum(joined: &Joined) {
    let is = Tcp::read(&joined.bytes).unwrap();
    assert_eq!(is.checksum(), usize::from(is.pseudo_sum()));
    let mut whole = joined.bytes.clone();
    let start = usize::from(joined.vnet.csum_start);
    let at = start + usize::from(joined.vnet.csum_offset);
    let complete = !ones_complement_sum(&whole[start..]);
    whole[at..at + 2].copy_from_slice(&complete.to_be_bytes());
    assert_eq!(verify::checksums(&whole), Ok(()));
}

fn check_vnet(joined: &Joined, parts: &[Tcp]) {
    let (vnet, first) = (&joined.vnet, &parts[0]);
    let kind = if first.is_v6() { GsoType::Tcpv6 } else { GsoType::Tcpv4 };
    assert_eq!(vnet.gso_type, kind);
    assert_eq!(Some(usize::from(vnet.gso_size)), parts.iter().map(|p| p.payload.len()).max());
    assert_eq!(usize::from(vnet.hdr_len), joined.header_len);
    assert_eq!(usize::from(vnet.csum_start), first.link.len() + first.ip.len());
    assert_eq!(vnet.csum_offset, 16);
    assert_eq!(vnet.ecn, first.has(CWR));
    assert!(vnet.needs_csum && !vnet.data_valid);
    let fixed = !first.is_v6() && parts.iter().all(|p| p.id() == first.id());
    assert_eq!(joined.fixed_id, fixed, "IDs {:?}", parts.iter().map(Tcp::id).collect::<Vec<_>>());
}
