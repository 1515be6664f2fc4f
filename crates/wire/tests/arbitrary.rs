//! No bytes from outside may make a parser panic, and what it accepts is in range.

use proptest::prelude::*;
use wire::{EtherType, Headers, Network, Tcp, Transport, VirtioNetHdr};

/// A frame that is likely to pass the first checks: valid in most fields, random in all.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![
        Just(EtherType::IPV4.0),
        Just(EtherType::IPV6.0),
        Just(EtherType::VLAN.0),
        Just(EtherType::SERVICE_VLAN.0),
        any::<u16>()
    ];
    (kinds, proptest::collection::vec(any::<u8>(), 0..200), any::<[u8; 6]>()).prop_map(
        |(kind, mut rest, dice)| {
            let mut frame = vec![2; 12];
            frame.extend(kind.to_be_bytes());
            let mut ip = 0;
            if EtherType(kind).is_vlan() && rest.len() > 4 {
                let inner: u16 = if dice[0] & 1 == 0 { 0x0800 } else { 0x86dd };
                rest[2..4].copy_from_slice(&inner.to_be_bytes());
                ip = 4;
            }
            let len = rest.len() - ip;
            if len > 40 {
                if kind == 0x0800 || (ip == 4 && dice[0] & 1 == 0) {
                    rest[ip] = 0x45 + (dice[1] & 1);
                    rest[ip + 2..ip + 4].copy_from_slice(&(len as u16).to_be_bytes());
                    rest[ip + 6] = 0x40;
                    rest[ip + 7] = 0;
                    rest[ip + 9] = [6, 17, dice[2]][usize::from(dice[3] % 3)];
                } else {
                    rest[ip] = 0x60;
                    rest[ip + 4..ip + 6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
                    rest[ip + 6] = [6, 17, 0, 43, 60, 44, dice[2]][usize::from(dice[3] % 7)];
                }
            }
            frame.extend(rest);
            frame
        },
    )
}

fn check(frame: &[u8]) {
    let Ok(h) = Headers::parse(frame) else { return };
    assert!(h.network_at <= h.transport_at);
    assert!(h.transport_at <= h.payload_at);
    assert!(h.payload_at <= h.end);
    assert!(h.end <= frame.len());
    if h.transport == Transport::Tcp {
        let tcp = Tcp::new(&frame[h.transport_at..h.end]).unwrap();
        assert_eq!(tcp.header_len(), h.payload_at - h.transport_at);
        assert!(tcp.options().count() <= tcp.option_bytes().len());
    }
    if matches!(h.network, Network::Other(_)) {
        assert_eq!(h.transport, Transport::None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_do_not_panic(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
        check(&frame);
    }

    #[test]
    fn nearly_valid_frames_do_not_panic(frame in plausible(), cut in any::<prop::sample::Index>()) {
        check(&frame);
        check(&frame[..cut.index(frame.len() + 1)]);
    }

    #[test]
    fn vnet_headers_round_trip(bytes: [u8; 10]) {
        if let Ok(hdr) = VirtioNetHdr::decode_legacy(&bytes) {
            prop_assert_eq!(VirtioNetHdr::decode_legacy(&hdr.encode_legacy()), Ok(hdr));
        }
    }
}

#[test]
fn ethernet_padding_is_not_payload() {
    let mut frame = vec![0u8; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&[0, 40]);
    frame[23] = 6;
    frame[46] = 0x50;
    let h = Headers::parse(&frame).unwrap();
    assert_eq!((h.transport, h.payload_len(), h.end), (Transport::Tcp, 0, 54));
}
