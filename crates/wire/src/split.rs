//! Headers of a packet that does not lie in one piece: an aggregate of LRO, or a super-packet of a kernel.
//! Such packets are TCP without IP options or extension headers.

use crate::{
    ETHERNET_LEN, EtherType, Headers, IPV4_MIN_LEN, IPV6_LEN, Malformed, Network, Tcp, Transport,
    be16, protocol,
};

impl Headers {
    /// Parses the headers of a TCP packet without IP options or extension headers, which all lie in `first`;
    /// what follows, up to the packet's end, is in `rest`.
    pub fn parse_split(first: &[u8], rest: &[&[u8]]) -> Result<Headers, Malformed> {
        let end = first.len() + rest.iter().map(|piece| piece.len()).sum::<usize>();
        let ethernet = first.get(..ETHERNET_LEN).ok_or(Malformed::ShortEthernet)?;
        let (network, header_len) = match EtherType(be16(ethernet, 12)) {
            EtherType::IPV4 => (Network::Ipv4 { options: false }, IPV4_MIN_LEN),
            EtherType::IPV6 => (Network::Ipv6 { extensions: false }, IPV6_LEN),
            _ => return Err(Malformed::IpVersion),
        };
        let transport_at = ETHERNET_LEN + header_len;
        let ip = first.get(ETHERNET_LEN..transport_at).ok_or(Malformed::ShortIpv4)?;
        let (is_tcp, len) = match network {
            Network::Ipv4 { .. } => {
                (ip[0] == 0x45 && ip[9] == protocol::TCP, usize::from(be16(ip, 2)))
            }
            _ => (ip[0] >> 4 == 6 && ip[6] == protocol::TCP, IPV6_LEN + usize::from(be16(ip, 4))),
        };
        let is_fragment = matches!(network, Network::Ipv4 { .. }) && be16(ip, 6) & 0x3fff != 0;
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
}
