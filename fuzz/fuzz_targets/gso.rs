//! Any `virtio_net_hdr` with any packet: nothing panics, no payload is lost, both ways to cut
//! give the same frames, and each frame is sound enough to be parsed.
#![no_main]

use gso::{MAX_HEADER_LEN, Segmenter, complete_checksum, complete_checksum_into};
use libfuzzer_sys::fuzz_target;
use wire::{GsoType, Headers, VNET_LEGACY_LEN, VirtioNetHdr};

fuzz_target!(|bytes: &[u8]| {
    let Some((hdr, packet)) = bytes.split_first_chunk::<VNET_LEGACY_LEN>() else { return };
    let Ok(hdr) = VirtioNetHdr::decode_legacy(hdr) else { return };
    complete(packet, &hdr);
    cut(packet, &hdr);
    believe_the_packet(packet, hdr);
});

/// Takes over into `hdr` what the packet says, so that most inputs get past the first questions.
fn believe_the_packet(packet: &[u8], mut hdr: VirtioNetHdr) {
    let Ok(at) = Headers::parse(packet) else { return };
    hdr.csum_start = at.transport_at as u16;
    for (gso_type, csum_offset) in [(GsoType::Tcpv4, 16), (GsoType::Tcpv6, 16), (GsoType::UdpL4, 6)]
    {
        hdr = VirtioNetHdr { gso_type, csum_offset, ..hdr };
        complete(packet, &hdr);
        cut(packet, &hdr);
    }
}

fn complete(packet: &[u8], hdr: &VirtioNetHdr) {
    let mut copy = vec![0; packet.len()];
    let into = complete_checksum_into(&mut copy, packet, hdr);
    let mut in_place = packet.to_vec();
    assert_eq!(complete_checksum(&mut in_place, hdr), into);
    assert!(in_place == if into.is_ok() { copy.as_slice() } else { packet });
}

fn cut(packet: &[u8], hdr: &VirtioNetHdr) {
    let Ok(mut segmenter) = Segmenter::new(packet, hdr) else { return };
    let original = Headers::parse(packet).expect("cut without being parsed");
    let mut copying = segmenter.clone();
    let mut header = [0; MAX_HEADER_LEN];
    let mut frame = vec![0; segmenter.max_segment_len()];
    let mut taken = 0;
    while let Some(segment) = segmenter.next_segment(&mut header) {
        let len = copying.next_into(&mut frame).expect("max_segment_len").expect("as many");
        let (head, payload) = frame[..len].split_at(segment.header_len);
        assert!(head == &header[..segment.header_len] && payload == segment.payload);
        assert_eq!(payload, &packet[original.payload_at + taken..][..payload.len()]);
        let headers = Headers::parse(&frame[..len]).expect("a frame that cannot be parsed");
        assert_eq!((headers.payload_at, headers.end), (segment.header_len, len));
        taken += payload.len();
    }
    assert_eq!(copying.next_into(&mut frame), Ok(None));
    assert_eq!(taken, original.payload_len());
}
