//! ICMP for both IP versions: echo, and errors (RFC 792, RFC 1191, RFC 4443).

use core::net::SocketAddr;

use crate::ip::Addresses;
use crate::{FlowKey, IPV6_LEN, Ipv4, Ipv6, Seq, be16, be32, protocol, put16};

/// Bytes of a message's header, in front of its data.
pub const HEADER_LEN: usize = 8;

/// An ICMP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// An echo request: its reply has the same data.
    EchoRequest,
    /// An error about a TCP segment.
    Error {
        /// The error.
        what: Error,
        /// The segment that it quotes.
        quoted: Quoted,
    },
    /// Any other message.
    Other,
}

/// An error about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The packet was too big for a link (ICMP type 3 code 4, ICMPv6 type 2).
    TooBig {
        /// MTU of that link in bytes. 0 from routers that do not implement RFC 1191.
        mtu: u32,
    },
    /// Its destination cannot be reached, or its time to live was exceeded.
    Unreachable {
        /// The destination itself refuses it: protocol or port unreachable (RFC 1122 section 4.2.3.9), or
        /// administratively prohibited (RFC 5461 section 2.1).
        hard: bool,
    },
}

/// The addresses, ports and sequence number of a TCP segment, as an ICMP error quotes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted {
    /// Its source.
    pub source: SocketAddr,
    /// Its destination.
    pub destination: SocketAddr,
    /// Its sequence number.
    pub seq: Seq,
}

impl Message {
    /// Parses an ICMP message whose checksum was verified.
    pub fn parse_v4(message: &[u8]) -> Message {
        let Some((header, rest)) = message.split_first_chunk::<HEADER_LEN>() else {
            return Message::Other;
        };
        let what = match (header[0], header[1]) {
            (8, 0) => return Message::EchoRequest,
            (3, 4) => Error::TooBig { mtu: be16(header, 6).into() },
            (3, 2 | 3) => Error::Unreachable { hard: true },
            (3, _) | (11, _) => Error::Unreachable { hard: false },
            _ => return Message::Other,
        };
        Message::of(what, Quoted::parse_v4(rest))
    }

    /// Parses an ICMPv6 message whose checksum was verified.
    pub fn parse_v6(message: &[u8]) -> Message {
        let Some((header, rest)) = message.split_first_chunk::<HEADER_LEN>() else {
            return Message::Other;
        };
        let what = match (header[0], header[1]) {
            (128, 0) => return Message::EchoRequest,
            (2, _) => Error::TooBig { mtu: be32(header, 4) },
            (1, 1 | 4) => Error::Unreachable { hard: true },
            (1, _) | (3, _) => Error::Unreachable { hard: false },
            _ => return Message::Other,
        };
        Message::of(what, Quoted::parse_v6(rest))
    }

    fn of(what: Error, quoted: Option<Quoted>) -> Message {
        quoted.map_or(Message::Other, |quoted| Message::Error { what, quoted })
    }
}

impl Quoted {
    /// Parses as much of an IPv4 packet as a router must quote: its header and eight bytes (RFC 792). `None`
    /// if it is not the beginning of a TCP segment.
    pub fn parse_v4(packet: &[u8]) -> Option<Quoted> {
        let ip = Ipv4::first(packet).ok()?;
        // Only the first fragment has the ports.
        let is_first = ip.fragment_field() & 0x1fff == 0;
        if ip.protocol() != protocol::TCP || !is_first {
            return None;
        }
        Quoted::segment(ip.addresses(), packet.get(ip.header_len()..)?)
    }

    /// The same for an IPv6 packet.
    pub fn parse_v6(packet: &[u8]) -> Option<Quoted> {
        let ip = Ipv6::first(packet).ok()?;
        let extensions = ip.extensions().ok()?;
        if extensions.protocol != protocol::TCP {
            return None;
        }
        Quoted::segment(ip.addresses(), packet.get(IPV6_LEN + extensions.len..)?)
    }

    /// The key of the flow that the quoted segment is of.
    pub fn key(&self) -> FlowKey {
        FlowKey::tcp(self.source, self.destination)
    }

    fn segment(addresses: Addresses, segment: &[u8]) -> Option<Quoted> {
        let start: &[u8; 8] = segment.first_chunk()?;
        Some(Quoted {
            source: SocketAddr::new(addresses.source(), be16(start, 0)),
            destination: SocketAddr::new(addresses.destination(), be16(start, 2)),
            seq: Seq(be32(start, 4)),
        })
    }
}

/// Turns an echo request into its reply, except for the checksum, which is set to 0: identifier, sequence
/// number and data stay (RFC 792, RFC 4443 section 4.2).
pub fn make_reply(message: &mut [u8], v6: bool) {
    if message.len() < HEADER_LEN {
        return;
    }
    message[0] = if v6 { 129 } else { 0 };
    put16(message, 2, 0);
}
