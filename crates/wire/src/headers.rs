//! Parsing of a frame: the offset of each header, or why the headers are malformed.

use crate::{
    ETHERNET_LEN, EtherType, Ipv4, Ipv6, Malformed, Tcp, UDP_LEN, Udp, VLAN_LEN, be16, protocol,
};

/// VLAN tags that are parsed: an 802.1ad service tag around an 802.1Q customer tag.
const TAGS_MAX: usize = 2;
/// Bytes of the two ports with which TCP and UDP begin.
const PORTS_LEN: usize = 4;

/// The network layer of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Network {
    /// IPv4, with or without options.
    Ipv4 {
        /// The header is longer than 20 bytes.
        options: bool,
    },
    /// IPv6, with or without extension headers.
    Ipv6 {
        /// Extension headers stand between the fixed header and the transport.
        extensions: bool,
    },
    /// Neither: ARP, LLDP, 802.3 length fields, ...
    Other(EtherType),
}

/// The transport of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// TCP; its fixed header and options are in range.
    Tcp,
    /// UDP; its length is in range.
    Udp,
    /// Another upper-layer protocol.
    Other(u8),
    /// A fragment of an IP datagram; no transport header is looked for.
    Fragment,
    /// Not an IP packet.
    None,
}

/// Where the headers of one Ethernet frame lie, in bytes from its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// The network layer's kind.
    pub network: Network,
    /// The transport's kind.
    pub transport: Transport,
    /// Start of the network header: Ethernet header and VLAN tags together.
    pub network_at: usize,
    /// Start of the transport header.
    pub transport_at: usize,
    /// Start of the transport's payload.
    pub payload_at: usize,
    /// End of the packet by its IP length; what follows is Ethernet padding.
    pub end: usize,
}

impl Headers {
    /// Parses Ethernet, VLAN tags, IP and extension headers, up to the transport's payload.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Headers, Malformed> {
        Self::walk::<true, false>(frame)
    }

    /// Parses the headers of a frame of which only the first bytes are here. All headers must be among them;
    /// the lengths of the packet are those that its IP and UDP headers state, and are not checked.
    pub fn parse_first(frame: &[u8]) -> Result<Headers, Malformed> {
        Self::walk::<false, false>(frame)
    }

    /// Parses the first bytes of a frame as far as the ports of TCP and UDP; the rest of their headers may be missing.
    pub(crate) fn parse_ports(frame: &[u8]) -> Result<Headers, Malformed> {
        Self::walk::<false, true>(frame)
    }

    /// The same for an IP packet without a link layer.
    pub(crate) fn parse_ip_ports(packet: &[u8]) -> Result<Headers, Malformed> {
        Self::walk_ip::<false, true>(packet, 0)
    }

    /// `WHOLE`: all bytes of the frame are here. `PORTS`: of the transport no more than the ports need be.
    #[inline(never)]
    fn walk<const WHOLE: bool, const PORTS: bool>(frame: &[u8]) -> Result<Headers, Malformed> {
        if frame.len() < ETHERNET_LEN {
            return Err(Malformed::ShortEthernet);
        }
        let mut network_at = ETHERNET_LEN;
        let mut kind = EtherType(be16(frame, 12));
        for _ in 0..TAGS_MAX {
            if !kind.is_vlan() {
                break;
            }
            network_at += VLAN_LEN;
            if frame.len() < network_at {
                return Err(Malformed::ShortVlan);
            }
            kind = EtherType(be16(frame, network_at - 2));
        }
        match kind {
            EtherType::IPV4 => Self::parse_ipv4::<WHOLE, PORTS>(frame, network_at),
            EtherType::IPV6 => Self::parse_ipv6::<WHOLE, PORTS>(frame, network_at),
            other => Ok(Headers {
                network: Network::Other(other),
                transport: Transport::None,
                network_at,
                transport_at: network_at,
                payload_at: network_at,
                end: frame.len(),
            }),
        }
    }

    /// The same for an IP packet without a link layer, as read from and written to a TUN.
    pub fn parse_ip(packet: &[u8]) -> Result<Headers, Malformed> {
        Self::parse_ip_at(packet, 0)
    }

    /// The same for the IP packet that begins `network_at` bytes into `frame`, such as one in a tunnel.
    /// Offsets count from the start of `frame`.
    pub fn parse_ip_at(frame: &[u8], network_at: usize) -> Result<Headers, Malformed> {
        Self::walk_ip::<true, false>(frame, network_at)
    }

    #[inline]
    fn walk_ip<const WHOLE: bool, const PORTS: bool>(
        frame: &[u8],
        network_at: usize,
    ) -> Result<Headers, Malformed> {
        match frame.get(network_at).map(|first| first >> 4) {
            Some(4) => Self::parse_ipv4::<WHOLE, PORTS>(frame, network_at),
            Some(6) => Self::parse_ipv6::<WHOLE, PORTS>(frame, network_at),
            Some(_) => Err(Malformed::IpVersion),
            None => Err(Malformed::ShortIpv4),
        }
    }

    /// The TCP header in `bytes`, the whole packet that these are the headers of; `None` if it is no TCP segment.
    #[inline]
    pub fn tcp<'a>(&self, bytes: &'a [u8]) -> Option<Tcp<&'a [u8]>> {
        if self.transport != Transport::Tcp {
            return None;
        }
        bytes.get(self.transport_at..self.end).map(Tcp::parsed)
    }

    /// Bytes of the transport's payload, Ethernet padding left out.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.end - self.payload_at
    }

    fn parse_ipv4<const WHOLE: bool, const PORTS: bool>(
        frame: &[u8],
        network_at: usize,
    ) -> Result<Headers, Malformed> {
        let bytes = &frame[network_at..];
        let ip = if WHOLE { Ipv4::new(bytes)? } else { Ipv4::first(bytes)? };
        let (header, total) = (ip.header_len(), usize::from(ip.total_len()));
        if !WHOLE && header > total {
            return Err(Malformed::Ipv4HeaderLength);
        }
        Self::transport::<WHOLE, PORTS>(
            frame,
            Network::Ipv4 { options: header > crate::IPV4_MIN_LEN },
            network_at,
            network_at + header,
            network_at + total,
            if ip.is_fragment() { None } else { Some(ip.protocol()) },
        )
    }

    fn parse_ipv6<const WHOLE: bool, const PORTS: bool>(
        frame: &[u8],
        network_at: usize,
    ) -> Result<Headers, Malformed> {
        let bytes = &frame[network_at..];
        let ip = if WHOLE { Ipv6::new(bytes)? } else { Ipv6::first(bytes)? };
        let extensions = ip.extensions()?;
        let header = crate::IPV6_LEN + extensions.len;
        Self::transport::<WHOLE, PORTS>(
            frame,
            Network::Ipv6 { extensions: extensions.len > 0 },
            network_at,
            network_at + header,
            network_at + crate::IPV6_LEN + usize::from(ip.payload_len()),
            if extensions.fragment { None } else { Some(extensions.protocol) },
        )
    }

    #[inline]
    fn transport<const WHOLE: bool, const PORTS: bool>(
        frame: &[u8],
        network: Network,
        network_at: usize,
        transport_at: usize,
        end: usize,
        upper: Option<u8>,
    ) -> Result<Headers, Malformed> {
        let bytes = &frame[transport_at..if WHOLE { end } else { end.min(frame.len()) }];
        let (transport, header) = match upper {
            None => (Transport::Fragment, 0),
            Some(protocol::TCP | protocol::UDP) if PORTS && bytes.len() < PORTS_LEN => {
                return Err(Malformed::ShortTcp);
            }
            Some(protocol::TCP) if PORTS => (Transport::Tcp, 0),
            Some(protocol::UDP) if PORTS => (Transport::Udp, 0),
            Some(protocol::TCP) => (Transport::Tcp, Tcp::new(bytes)?.header_len()),
            Some(protocol::UDP) => {
                if WHOLE {
                    Udp::new(bytes)?;
                } else if bytes.len() < UDP_LEN {
                    return Err(Malformed::ShortUdp);
                }
                (Transport::Udp, UDP_LEN)
            }
            Some(other) => (Transport::Other(other), 0),
        };
        Ok(Headers {
            network,
            transport,
            network_at,
            transport_at,
            payload_at: transport_at + header,
            end,
        })
    }
}
