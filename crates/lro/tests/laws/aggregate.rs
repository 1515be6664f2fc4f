//! What every aggregate must be, whatever the profile: the paper's section IV.D, and what
//! `NEEDS_CSUM` promises. Built naively from the packets that went in.

use testkit::verify::{self, ones_complement_sum};
use wire::GsoType;

use super::naive::{CWR, FIN, PSH, Tcp};
use super::rules::is_before;
use super::run::{Joined, Step};

/// The packets that went into an aggregate.
pub(crate) fn parts(joined: &Joined, steps: &[Step]) -> Vec<Tcp> {
    let read = |at: &usize| match &steps[*at] {
        Step::Frame(frame) => Tcp::read(&frame.bytes).expect("an aggregate of something not TCP"),
        step => panic!("{step:?} in an aggregate"),
    };
    joined.frames.iter().map(read).collect()
}

/// Checks one aggregate against the parts of its packets that it is made of.
pub(crate) fn check(joined: &Joined, steps: &[Step]) {
    let parts = parts(joined, steps);
    check_slices(joined, &parts);
    check_checksum(joined);
    check_vnet(joined, &parts);
    let is = Tcp::read(&joined.bytes).expect("an aggregate that is no TCP packet");
    assert_eq!(is.header_len(), joined.header_len);
    assert_eq!(is.bytes(), joined.bytes, "the IP length is not that of the packet");
    assert!(is.ip_len() <= 65_535);
    let expected = expected(joined, &parts, &is);
    assert!(is == expected, "{is:?}\nis not\n{expected:?}");
    check_news(&is, &parts);
}

/// The parts lie within their packets' payload and continue one another.
fn check_slices(joined: &Joined, parts: &[Tcp]) {
    let mut next = None;
    for ((start, len), part) in joined.slices.iter().zip(parts) {
        let skipped = start.checked_sub(part.header_len()).expect("headers in the payload");
        assert!(*len > 0 && skipped + len <= part.payload.len(), "more than the payload");
        let seq = part.seq().wrapping_add(skipped as u32);
        assert!(next.is_none_or(|next| next == seq), "{seq} after {next:?}");
        next = Some(seq.wrapping_add(*len as u32));
    }
}

/// The packet that the parts make; its TCP checksum is checked elsewhere, and so are the numbers
/// that are only as new as the order of arrival makes them.
fn expected(joined: &Joined, parts: &[Tcp], news: &Tcp) -> Tcp {
    let mut is = parts[0].clone();
    let skipped = joined.slices[0].0 - is.header_len();
    let seq = is.seq().wrapping_add(skipped as u32);
    is.tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    is.payload = joined.bytes[joined.header_len..].to_vec();
    is.tcp[8..12].copy_from_slice(&news.tcp[8..12]);
    is.tcp[14..18].copy_from_slice(&news.tcp[14..18]);
    // Without URG the urgent pointer means nothing, and may be that of any that had this header.
    is.tcp[18..20].copy_from_slice(&news.tcp[18..20]);
    is.tcp[13] |= parts.iter().fold(0, |flags, p| flags | p.flags() & (FIN | PSH));
    if is.timestamps().is_some() {
        is.tcp[24..32].copy_from_slice(&news.tcp[24..32]);
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

/// No acknowledgment of a part is lost, and no part's TSval is made to look newer than it was but
/// by what came in order before (exactly which, the model knows).
fn check_news(is: &Tcp, parts: &[Tcp]) {
    // On a circle there need not be a latest: damaged headers may acknowledge anything.
    let is_latest = |one: &Tcp| parts.iter().all(|part| !is_before(one.ack(), part.ack()));
    assert!(is_latest(is) || !parts.iter().any(is_latest));
    assert_eq!(is.timestamps().is_some(), parts[0].timestamps().is_some());
    if let (Some(is), Some(first)) = (is.timestamps(), parts[0].timestamps()) {
        assert!(!is_before(is.0, first.0));
    }
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
    // Of one, there is nothing to segment: it is no longer as it came.
    let kind = match parts.len() {
        1 => GsoType::None,
        _ if first.is_v6() => GsoType::Tcpv6,
        _ => GsoType::Tcpv4,
    };
    assert_eq!(vnet.gso_type, kind);
    let largest = joined.slices.iter().map(|(_, len)| *len).max().unwrap();
    assert_eq!(usize::from(vnet.gso_size), if parts.len() == 1 { 0 } else { largest });
    assert_eq!(usize::from(vnet.hdr_len), joined.header_len);
    assert_eq!(usize::from(vnet.csum_start), first.link.len() + first.ip.len());
    assert_eq!(vnet.csum_offset, 16);
    assert!(!vnet.ecn);
    assert!(parts.len() == 1 || parts.iter().all(|part| !part.has(CWR)), "ACE has changed");
    assert!(vnet.needs_csum && !vnet.data_valid);
    let fixed = !first.is_v6() && parts.len() > 1 && parts.iter().all(|p| p.id() == first.id());
    assert_eq!(joined.fixed_id, fixed, "IDs {:?}", parts.iter().map(Tcp::id).collect::<Vec<_>>());
}
