//! The headers of a packet that does not lie in one piece: a super-packet that LRO, or the kernel on
//! the other side, has made. These are TCP without IP options or extension headers.

use wire::{
    ETHERNET_LEN, EtherType, Headers, IPV4_MIN_LEN, IPV6_LEN, Malformed, Network, Tcp, Transport,
    protocol,
};

/// Walks the headers, which all lie in `first`.
pub(super) fn parse(first: &[u8], rest: &[&[u8]]) -> Result<Headers, Malformed> {
    let end = first.len() + rest.iter().map(|piece| piece.len()).sum::<usize>();
    let kind = first.get(12..ETHERNET_LEN).ok_or(Malformed::ShortEthernet)?;
    let (network, header_len) = match EtherType(u16::from_be_bytes([kind[0], kind[1]])) {
        EtherType::IPV4 => (Network::Ipv4 { options: false }, IPV4_MIN_LEN),
        EtherType::IPV6 => (Network::Ipv6 { extensions: false }, IPV6_LEN),
        _ => return Err(Malformed::IpVersion),
    };
    let transport_at = ETHERNET_LEN + header_len;
    let ip = first.get(ETHERNET_LEN..transport_at).ok_or(Malformed::ShortIpv4)?;
    let be16 = |at: usize| usize::from(u16::from_be_bytes([ip[at], ip[at + 1]]));
    let (is_tcp, len) = match network {
        Network::Ipv4 { .. } => (ip[0] == 0x45 && ip[9] == protocol::TCP, be16(2)),
        _ => (ip[0] >> 4 == 6 && ip[6] == protocol::TCP, IPV6_LEN + be16(4)),
    };
    let is_fragment = matches!(network, Network::Ipv4 { .. }) && be16(6) & 0x3fff != 0;
    if !is_tcp || is_fragment {
        return Err(Malformed::IpVersion);
    }
    if len != end - ETHERNET_LEN {
        return Err(Malformed::Ipv4TotalLength);
    }
    let tcp_len = Tcp::new(&first[transport_at..])?.header_len();
    Ok(Headers {
        network,
        transport: Transport::Tcp,
        network_at: ETHERNET_LEN,
        transport_at,
        payload_at: transport_at + tcp_len,
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use testkit::packet::PacketBuilder;

    #[test]
    fn a_packet_in_pieces_is_walked_as_one_in_one_piece() {
        for builder in [PacketBuilder::tcp4(), PacketBuilder::tcp6()] {
            let (bytes, _) = builder.options(&[1; 8]).payload_pattern(5000).super_packet(1000);
            let whole = Headers::parse(&bytes).unwrap();
            for at in [whole.payload_at, whole.payload_at + 1, bytes.len() - 1] {
                let (first, rest) = bytes.split_at(at);
                let (one, two) = rest.split_at(rest.len() / 2);
                assert_eq!(parse(first, &[one, two]), Ok(whole));
            }
            assert!(
                parse(&bytes[..whole.payload_at - 1], &[&bytes[whole.payload_at - 1..]]).is_err()
            );
            assert!(parse(&bytes[..100], &[&bytes[100..4000]]).is_err(), "cut short");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_or_refused(first: Vec<u8>, rest: Vec<u8>) {
            let _ = parse(&first, &[&rest]);
        }
    }
}
