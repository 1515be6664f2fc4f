//! A packet as one typed view: what only a TCP segment has can be asked of a [`TcpPacket`] alone, which only a
//! whole TCP segment gives. An ICMP error has the flow that it quotes, and no flags.

use core::net::SocketAddr;

use crate::icmp::{self, Message, Quoted};
use crate::ip::Addresses;
use crate::{Flags, FlowKey, Headers, Malformed, Network, Sum, Tcp, Transport, checksum, protocol};

/// A packet whose headers were parsed, by its transport. Its checksums are not verified.
#[derive(Clone, Copy, Debug)]
pub enum Packet<'a> {
    /// A TCP segment that is no fragment.
    Tcp(TcpPacket<'a>),
    /// A UDP datagram that is no fragment.
    Udp(UdpPacket<'a>),
    /// A message of ICMP over IPv4, or of ICMPv6 over IPv6, that is no fragment.
    Icmp(IcmpPacket<'a>),
    /// Anything else: a fragment, another transport, or no IP packet.
    Other(Headers),
}

/// A TCP segment in its packet.
#[derive(Clone, Copy, Debug)]
pub struct TcpPacket<'a> {
    bytes: &'a [u8],
    headers: Headers,
}

/// A UDP datagram in its packet.
#[derive(Clone, Copy, Debug)]
pub struct UdpPacket<'a> {
    bytes: &'a [u8],
    headers: Headers,
}

/// An ICMP message in its packet.
#[derive(Clone, Copy, Debug)]
pub struct IcmpPacket<'a> {
    bytes: &'a [u8],
    headers: Headers,
}

impl Headers {
    /// The flow key in `bytes`, the packet that these are the headers of; `None` if the packet is neither a TCP segment nor
    /// a UDP datagram.
    #[inline]
    pub fn key(&self, bytes: &[u8]) -> Option<FlowKey> {
        match self.transport {
            Transport::Tcp | Transport::Udp => Some(FlowKey::read(bytes, self)),
            _ => None,
        }
    }
}

/// The flow of a packet of which only the first bytes are here, as far as the ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstFlow {
    /// It is a TCP segment or a UDP datagram of this flow.
    Of(FlowKey),
    /// It is neither.
    None,
    /// It does not tell: a fragment, or too few bytes, or malformed.
    Unknown,
}

impl FirstFlow {
    /// Parses an Ethernet frame.
    pub fn of_frame(bytes: &[u8]) -> Self {
        Self::of(bytes, Headers::parse_ports(bytes))
    }

    /// Parses an IP packet without a link layer.
    pub fn of_packet(bytes: &[u8]) -> Self {
        Self::of(bytes, Headers::parse_ip_ports(bytes))
    }

    fn of(bytes: &[u8], parsed: Result<Headers, Malformed>) -> Self {
        match parsed {
            Ok(Headers { transport: Transport::Fragment, .. }) | Err(_) => FirstFlow::Unknown,
            Ok(headers) => headers.key(bytes).map_or(FirstFlow::None, FirstFlow::Of),
        }
    }
}

impl<'a> Packet<'a> {
    /// Parses an Ethernet frame: see [`Headers::parse`].
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        Headers::parse(frame).map(|headers| Self::of(frame, headers))
    }

    /// Parses an IP packet without a link layer: see [`Headers::parse_ip`].
    #[inline]
    pub fn parse_ip(packet: &'a [u8]) -> Result<Self, Malformed> {
        Headers::parse_ip(packet).map(|headers| Self::of(packet, headers))
    }

    /// Parses an Ethernet frame, of which `bytes` are the first: see [`Headers::parse_first`].
    pub fn parse_first(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Headers::parse_first(bytes).map(|headers| Self::of(bytes, headers))
    }

    /// Parses a packet that lies in pieces, if there are any in `rest`: see [`Headers::parse_split`].
    pub fn parse_pieces(first: &'a [u8], rest: &[&[u8]]) -> Result<Self, Malformed> {
        match rest {
            [] => Self::parse(first),
            rest => Headers::parse_split(first, rest).map(|headers| Self::of(first, headers)),
        }
    }

    /// `headers` are those of `bytes`, which may be the first of the packet alone.
    #[inline]
    fn of(bytes: &'a [u8], headers: Headers) -> Self {
        match (headers.transport, headers.network) {
            (Transport::Tcp, _) => Packet::Tcp(TcpPacket { bytes, headers }),
            (Transport::Udp, _) => Packet::Udp(UdpPacket { bytes, headers }),
            (Transport::Other(protocol::ICMP), Network::Ipv4 { .. })
            | (Transport::Other(protocol::ICMPV6), Network::Ipv6 { .. }) => {
                Packet::Icmp(IcmpPacket { bytes, headers })
            }
            _ => Packet::Other(headers),
        }
    }

    /// The offsets of its headers.
    #[inline]
    pub fn headers(&self) -> &Headers {
        match self {
            Packet::Tcp(packet) => &packet.headers,
            Packet::Udp(packet) => &packet.headers,
            Packet::Icmp(packet) => &packet.headers,
            Packet::Other(headers) => headers,
        }
    }

    /// The TCP segment, if it is one.
    #[inline]
    pub fn tcp(self) -> Option<TcpPacket<'a>> {
        match self {
            Packet::Tcp(packet) => Some(packet),
            _ => None,
        }
    }

    /// The flow of a TCP segment or a UDP datagram.
    #[inline]
    pub fn key(&self) -> Option<FlowKey> {
        match self {
            Packet::Tcp(packet) => Some(packet.key()),
            Packet::Udp(packet) => Some(packet.key()),
            Packet::Icmp(_) | Packet::Other(_) => None,
        }
    }
}

impl<'a> TcpPacket<'a> {
    /// The offsets of its headers.
    #[inline]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The TCP header, options included, and what follows it in the same piece.
    #[inline]
    pub fn tcp(&self) -> Tcp<&'a [u8]> {
        Tcp::parsed(self.segment())
    }

    /// The control bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        self.tcp().flags()
    }

    /// The key of its flow.
    #[inline]
    pub fn key(&self) -> FlowKey {
        FlowKey::read(self.bytes, &self.headers)
    }

    /// Bytes of payload, Ethernet padding left out.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.headers.payload_len()
    }

    /// Payload that lies in the same piece as the headers.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        let end = self.headers.end.min(self.bytes.len());
        self.bytes.get(self.headers.payload_at..end).unwrap_or_default()
    }

    /// Source and destination address.
    pub fn addresses(&self) -> Addresses {
        addresses(self.bytes, &self.headers)
    }

    /// Source and destination, with their ports.
    pub fn ends(&self) -> (SocketAddr, SocketAddr) {
        let (addresses, tcp) = (self.addresses(), self.tcp());
        (
            SocketAddr::new(addresses.source(), tcp.source()),
            SocketAddr::new(addresses.destination(), tcp.destination()),
        )
    }

    /// Whether the TCP checksum verifies. `rest` is what follows the first piece, if the packet lies in several.
    pub fn checksum_ok(&self, rest: &[&[u8]]) -> bool {
        let first = self.segment();
        let len = self.headers.end - self.headers.transport_at;
        let mut sum = self.addresses().pseudo_header(protocol::TCP, len);
        let mut is_odd = false;
        for piece in core::iter::once(first).chain(rest.iter().copied()) {
            let of_piece = checksum::sum(piece);
            // The first byte of a piece behind an odd number of bytes is the second of its word.
            sum = sum.plus(match is_odd {
                true => Sum::default().plus_word(of_piece.fold().swap_bytes()),
                false => of_piece,
            });
            is_odd ^= piece.len() % 2 == 1;
        }
        sum.fold() == 0xffff
    }

    #[inline]
    fn segment(&self) -> &'a [u8] {
        &self.bytes[self.headers.transport_at..self.headers.end.min(self.bytes.len())]
    }
}

impl UdpPacket<'_> {
    /// The offsets of its headers.
    #[inline]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The key of its flow.
    #[inline]
    pub fn key(&self) -> FlowKey {
        FlowKey::read(self.bytes, &self.headers)
    }
}

/// What an ICMP error says. Any host can send one: whether the connection has sent the quoted segment is for the
/// receiver to check (RFC 5927 section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IcmpError {
    /// The error.
    pub what: icmp::Error,
    /// The segment that it quotes.
    pub quoted: Quoted,
}

impl<'a> IcmpPacket<'a> {
    /// The offsets of its headers.
    #[inline]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The message, whose checksum is not verified.
    pub fn message(&self) -> Message {
        match self.headers.network {
            Network::Ipv6 { .. } => Message::parse_v6(self.bytes()),
            _ => Message::parse_v4(self.bytes()),
        }
    }

    /// The error, if the message is one that quotes a TCP segment.
    pub fn error(&self) -> Option<IcmpError> {
        match self.message() {
            Message::Error { what, quoted } => Some(IcmpError { what, quoted }),
            Message::EchoRequest | Message::Other => None,
        }
    }

    /// The bytes of the message.
    pub fn bytes(&self) -> &'a [u8] {
        &self.bytes[self.headers.transport_at..self.headers.end.min(self.bytes.len())]
    }
}

/// The addresses of an IP packet that was parsed, which are in range.
fn addresses(bytes: &[u8], headers: &Headers) -> Addresses {
    let ip = &bytes[headers.network_at..];
    match headers.network {
        Network::Ipv6 { .. } => Addresses::V6 {
            source: octets::<16>(&ip[8..]).into(),
            destination: octets::<16>(&ip[24..]).into(),
        },
        _ => Addresses::V4 {
            source: octets::<4>(&ip[12..]).into(),
            destination: octets::<4>(&ip[16..]).into(),
        },
    }
}

fn octets<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut octets = [0; N];
    octets.copy_from_slice(&bytes[..N]);
    octets
}
