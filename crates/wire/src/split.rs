//! Headers of a packet that does not lie in one piece: an aggregate of LRO, or a super-packet of a kernel.
//! Such packets are TCP without IP options or extension headers.

use crate::{ETHERNET_LEN, Headers, Malformed, Network, Transport};

impl Headers {
    /// Parses the headers of a TCP packet without IP options or extension headers, which all lie in `first`;
    /// what follows, up to the packet's end, is in `rest`.
    pub fn parse_split(first: &[u8], rest: &[&[u8]]) -> Result<Headers, Malformed> {
        let end = first.len() + rest.iter().map(|piece| piece.len()).sum::<usize>();
        let headers = Headers::parse_first(first)?;
        let is_bare = match headers.network {
            Network::Ipv4 { options } => !options,
            Network::Ipv6 { extensions } => !extensions,
            Network::Other(_) => false,
        };
        if !is_bare || headers.network_at != ETHERNET_LEN || headers.transport != Transport::Tcp {
            return Err(Malformed::IpVersion);
        }
        if headers.end != end {
            return Err(Malformed::Ipv4TotalLength);
        }
        Ok(headers)
    }
}
