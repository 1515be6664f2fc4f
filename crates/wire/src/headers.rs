//! One walk over a frame: where each header lies, or why it cannot be walked.

use core::fmt;

use crate::{ETHERNET_LEN, EtherType, Ipv4, Ipv6, Tcp, UDP_LEN, Udp, VLAN_LEN, be16, protocol};

/// VLAN tags walked: an 802.1ad service tag around an 802.1Q customer tag.
const TAGS_MAX: usize = 2;

/// Why a frame's headers cannot be walked. Every reason has a counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Malformed {
    /// Shorter than an Ethernet header.
    ShortEthernet,
    /// Ends inside a VLAN tag.
    ShortVlan,
    /// Shorter than the fixed IPv4 header.
    ShortIpv4,
    /// EtherType and IP version disagree.
    IpVersion,
    /// IHL under 5, or reaching past the total length.
    Ipv4HeaderLength,
    /// Total length past the end of the frame.
    Ipv4TotalLength,
    /// Shorter than the fixed IPv6 header.
    ShortIpv6,
    /// Payload length past the end of the frame.
    Ipv6PayloadLength,
    /// An extension header reaches past the payload, or the chain is too long.
    Ipv6Extension,
    /// Shorter than the fixed TCP header.
    ShortTcp,
    /// Data offset under 5, or past the end.
    TcpDataOffset,
    /// A TCP option shorter than its own two bytes, or past the header.
    TcpOptionLength,
    /// Shorter than a UDP header.
    ShortUdp,
    /// UDP length under 8, or past the IP payload.
    UdpLength,
}

impl Malformed {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Malformed; 14] = [
        Malformed::ShortEthernet,
        Malformed::ShortVlan,
        Malformed::ShortIpv4,
        Malformed::IpVersion,
        Malformed::Ipv4HeaderLength,
        Malformed::Ipv4TotalLength,
        Malformed::ShortIpv6,
        Malformed::Ipv6PayloadLength,
        Malformed::Ipv6Extension,
        Malformed::ShortTcp,
        Malformed::TcpDataOffset,
        Malformed::TcpOptionLength,
        Malformed::ShortUdp,
        Malformed::UdpLength,
    ];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Malformed::ShortEthernet => "short_ethernet",
            Malformed::ShortVlan => "short_vlan",
            Malformed::ShortIpv4 => "short_ipv4",
            Malformed::IpVersion => "ip_version",
            Malformed::Ipv4HeaderLength => "ipv4_header_length",
            Malformed::Ipv4TotalLength => "ipv4_total_length",
            Malformed::ShortIpv6 => "short_ipv6",
            Malformed::Ipv6PayloadLength => "ipv6_payload_length",
            Malformed::Ipv6Extension => "ipv6_extension",
            Malformed::ShortTcp => "short_tcp",
            Malformed::TcpDataOffset => "tcp_data_offset",
            Malformed::TcpOptionLength => "tcp_option_length",
            Malformed::ShortUdp => "short_udp",
            Malformed::UdpLength => "udp_length",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Malformed {}

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
    /// Walks Ethernet, VLAN tags, IP and extension headers, to the transport's payload.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Headers, Malformed> {
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
            EtherType::IPV4 => Self::parse_ipv4(frame, network_at),
            EtherType::IPV6 => Self::parse_ipv6(frame, network_at),
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

    /// The same of an IP packet without a link layer, as a TUN gives and takes it.
    pub fn parse_ip(packet: &[u8]) -> Result<Headers, Malformed> {
        Self::parse_ip_at(packet, 0)
    }

    /// The same of the IP packet that begins `network_at` bytes into `frame`, as one in a tunnel
    /// does. Places count from the start of `frame`.
    pub fn parse_ip_at(frame: &[u8], network_at: usize) -> Result<Headers, Malformed> {
        match frame.get(network_at).map(|first| first >> 4) {
            Some(4) => Self::parse_ipv4(frame, network_at),
            Some(6) => Self::parse_ipv6(frame, network_at),
            Some(_) => Err(Malformed::IpVersion),
            None => Err(Malformed::ShortIpv4),
        }
    }

    /// Bytes of the transport's payload, Ethernet padding left out.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.end - self.payload_at
    }

    fn parse_ipv4(frame: &[u8], network_at: usize) -> Result<Headers, Malformed> {
        let ip = Ipv4::new(&frame[network_at..])?;
        let header = ip.header_len();
        Self::transport(
            frame,
            Network::Ipv4 { options: header > crate::IPV4_MIN_LEN },
            network_at,
            network_at + header,
            network_at + usize::from(ip.total_len()),
            if ip.is_fragment() { None } else { Some(ip.protocol()) },
        )
    }

    fn parse_ipv6(frame: &[u8], network_at: usize) -> Result<Headers, Malformed> {
        let ip = Ipv6::new(&frame[network_at..])?;
        let extensions = ip.extensions()?;
        let header = crate::IPV6_LEN + extensions.len;
        Self::transport(
            frame,
            Network::Ipv6 { extensions: extensions.len > 0 },
            network_at,
            network_at + header,
            network_at + crate::IPV6_LEN + usize::from(ip.payload_len()),
            if extensions.fragment { None } else { Some(extensions.protocol) },
        )
    }

    #[inline]
    fn transport(
        frame: &[u8],
        network: Network,
        network_at: usize,
        transport_at: usize,
        end: usize,
        upper: Option<u8>,
    ) -> Result<Headers, Malformed> {
        let bytes = &frame[transport_at..end];
        let (transport, header) = match upper {
            None => (Transport::Fragment, 0),
            Some(protocol::TCP) => (Transport::Tcp, Tcp::new(bytes)?.header_len()),
            Some(protocol::UDP) => {
                Udp::new(bytes)?;
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

/// Does the transport checksum hold just the folded pseudo-header sum, as a sender with checksum
/// offload leaves it? Gives `csum_start` and `csum_offset` as `virtio_net_hdr` counts them.
///
/// On a real wire this cannot be told from a damaged frame; on one that never leaves the machine
/// (a veth) it can: no kernel writes that value otherwise, but for one in 65,536 by chance, and
/// then the frame is as whole as memory is.
pub fn partial_checksum(frame: &[u8]) -> Option<(u16, u16)> {
    let headers = Headers::parse(frame).ok()?;
    partial_of(frame, &headers).or_else(|| {
        let inner_at = crate::vxlan::inner_frame_at(frame, &headers)?;
        let inner = frame.get(inner_at..headers.end)?;
        let (start, offset) = partial_of(inner, &Headers::parse(inner).ok()?)?;
        Some((start.checked_add(u16::try_from(inner_at).ok()?)?, offset))
    })
}

fn partial_of(frame: &[u8], headers: &Headers) -> Option<(u16, u16)> {
    let (kind, offset) = match headers.transport {
        Transport::Tcp => (protocol::TCP, 16),
        Transport::Udp => (protocol::UDP, 6),
        _ => return None,
    };
    let network = &frame[headers.network_at..headers.end];
    let len = headers.end - headers.transport_at;
    let pseudo = match headers.network {
        Network::Ipv4 { .. } => Ipv4::new(network).ok()?.pseudo_header(len),
        Network::Ipv6 { .. } => Ipv6::new(network).ok()?.pseudo_header(kind, len),
        Network::Other(_) => return None,
    };
    let field = be16(frame, headers.transport_at + offset);
    (field == pseudo.fold() && field != 0)
        .then_some((u16::try_from(headers.transport_at).ok()?, offset as u16))
}
