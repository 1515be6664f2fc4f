//! Any bytes as a frame: no view panics, and what is accepted lies inside the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Headers, Ipv4, Ipv6, Network, Tcp, Transport, Udp, VirtioNetHdr, checksum};

fuzz_target!(|bytes: &[u8]| {
    if let Some((hdr, _)) = bytes.split_first_chunk()
        && let Ok(hdr) = VirtioNetHdr::decode_legacy(hdr)
    {
        assert_eq!(VirtioNetHdr::decode_legacy(&hdr.encode_legacy()), Ok(hdr));
    }
    checksums(bytes);
    if let Ok(headers) = Headers::parse(bytes) {
        walk(bytes, &headers);
    }
});

/// All ways to sum agree.
fn checksums(bytes: &[u8]) {
    let sum = checksum::sum(bytes).fold();
    let mut copy = vec![0; bytes.len()];
    assert_eq!(checksum::copy_and_sum(&mut copy, bytes).fold(), sum);
    assert_eq!(copy, bytes);
    // 0 and 0xFFFF are one number in one's complement.
    let words = bytes.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(*w.get(1).unwrap_or(&0)));
    assert_eq!(words.sum::<u64>() % 0xffff, u64::from(sum) % 0xffff);
}

/// Everything that can be read of a frame.
fn walk(frame: &[u8], at: &Headers) {
    assert!(at.network_at <= at.transport_at && at.transport_at <= at.payload_at);
    assert!(at.payload_at <= at.end && at.end <= frame.len());
    let network = &frame[at.network_at..at.end];
    match at.network {
        Network::Ipv4 { .. } => {
            let ip = Ipv4::new(network).expect("parsed before");
            assert_eq!(ip.header_len(), at.transport_at - at.network_at);
            let _ = (ip.checksum_ok(), ip.pseudo_header(network.len()));
        }
        Network::Ipv6 { .. } => {
            let ip = Ipv6::new(network).expect("parsed before");
            let extensions = ip.extensions().expect("parsed before");
            let _ = ip.pseudo_header(extensions.protocol, network.len());
        }
        Network::Other(_) => assert_eq!(at.transport, Transport::None),
    }
    let transport = &frame[at.transport_at..at.end];
    match at.transport {
        Transport::Tcp => {
            let tcp = Tcp::new(transport).expect("parsed before");
            assert!(tcp.options().count() <= tcp.option_bytes().len());
        }
        Transport::Udp => {
            let udp = Udp::new(transport).expect("parsed before");
            assert!(usize::from(udp.length()) <= transport.len());
        }
        Transport::Other(_) | Transport::Fragment | Transport::None => {}
    }
}
