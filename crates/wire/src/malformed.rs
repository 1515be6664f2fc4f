//! Why headers are malformed.

use core::fmt;

/// Why a frame's headers cannot be parsed. Every reason has a counter.
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

    /// The counter's name, in snake case.
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
