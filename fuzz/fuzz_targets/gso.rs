//! Any `virtio_net_hdr` with any packet, MTU and ID, with Ethernet and without: nothing panics, and
//! what comes out keeps the laws that the tests of `gso` hold it to. Fragments are put together
//! again, sizes, checksums and chunks looked at, and both ways to cut give the same frames.
#![no_main]

use gso::{Segmenter, complete_checksum, complete_checksum_into};
use libfuzzer_sys::fuzz_target;
use wire::{GsoType, Headers, Network, Transport, UdpTunnel, VNET_LEN, VirtioNetHdr, protocol};

#[path = "../../crates/gso/tests/laws/outcome.rs"]
mod outcome;

use outcome::Given;

/// `virtio_net_hdr`, MTU (0 is none) and ID in front of the packet.
const FRONT: usize = VNET_LEN + 2 + 4;

fuzz_target!(|bytes: &[u8]| {
    let Some((front, packet)) = bytes.split_first_chunk::<FRONT>() else { return };
    let (hdr, rest) = front.split_first_chunk().expect("shorter");
    let Ok(hdr) = VirtioNetHdr::decode(hdr) else { return };
    let mtu = match u16::from_be_bytes([rest[0], rest[1]]) {
        0 => usize::MAX,
        mtu => mtu.into(),
    };
    let fragment_id = u32::from_be_bytes([rest[2], rest[3], rest[4], rest[5]]);
    let given = Given::new(packet, hdr, mtu, fragment_id);
    all(&given);
    all(&Given { bare_ip: true, ..given });
});

/// As it is, and with what the packet says taken over into `hdr`, so that most inputs get past the
/// first questions.
fn all(given: &Given<'_>) {
    cut(given);
    let parse = if given.bare_ip { Headers::parse_ip } else { Headers::parse };
    let Ok(at) = parse(given.packet) else { return };
    every_type(given, &at, None);
    // Behind UDP, or behind VXLAN and Ethernet.
    for inner_at in [at.payload_at, at.payload_at + 8 + 14] {
        let Ok(inner) = Headers::parse_ip_at(&given.packet[..at.end], inner_at) else { continue };
        let tunnel = UdpTunnel {
            v6: matches!(at.network, Network::Ipv6 { .. }),
            csum: given.fragment_id & 1 != 0,
            outer_th_offset: at.transport_at as u16,
            inner_nh_offset: inner_at as u16,
        };
        every_type(given, &inner, Some(tunnel));
    }
}

fn every_type(given: &Given<'_>, at: &Headers, tunnel: Option<UdpTunnel>) {
    let csum_start = at.transport_at as u16;
    let csum_offset = match at.transport {
        Transport::Tcp => 16,
        Transport::Other(protocol::SCTP) => 8,
        _ => 6,
    };
    let hdr = VirtioNetHdr { csum_start, csum_offset, tunnel, ..given.hdr };
    let types = [GsoType::None, GsoType::Tcpv4, GsoType::Tcpv6, GsoType::UdpL4, GsoType::Udp];
    for gso_type in types {
        cut(&Given { hdr: VirtioNetHdr { gso_type, ..hdr }, ..*given });
    }
}

fn cut(given: &Given<'_>) {
    if !given.bare_ip {
        complete(given);
        // Without an MTU the same laws hold.
        if Segmenter::new(given.packet, &given.hdr).is_ok() {
            let any = Given { mtu: usize::MAX, ..*given };
            any.cut().expect("cut without an MTU");
        }
    }
    drop(given.cut());
}

fn complete(given: &Given<'_>) {
    let mut copy = vec![0; given.packet.len()];
    let into = complete_checksum_into(&mut copy, given.packet, &given.hdr);
    let mut in_place = given.packet.to_vec();
    assert_eq!(complete_checksum(&mut in_place, &given.hdr), into);
    match into {
        Ok(()) => assert!(in_place == copy && in_place == given.completed(), "another checksum"),
        Err(_) => assert!(in_place == given.packet, "changed, though refused"),
    }
}
