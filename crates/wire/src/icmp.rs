//! ICMP for both versions: echo, and the errors that tell a sender what became of its packets
//! (RFC 792, RFC 1191, RFC 4443).

use core::net::SocketAddr;

use crate::ip::Addresses;
use crate::{IPV4_MIN_LEN, IPV6_LEN, Seq, be16, be32, protocol, put16};

/// Bytes in front of what a message carries.
pub const HEADER_LEN: usize = 8;

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// The receiver is to send the same data back.
    EchoRequest,
    /// Something has become of a TCP segment.
    Error {
        /// What has become of it.
        what: Error,
        /// Which it was.
        quoted: Quoted,
    },
    /// Something else.
    Other,
}

/// What has become of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// It was too big for a link (ICMP type 3 code 4, ICMPv6 type 2).
    TooBig {
        /// MTU of that link in bytes. 0 from routers that are older than RFC 1191.
        mtu: u32,
    },
    /// It cannot reach its destination, or took too long on its way there.
    Unreachable {
        /// The destination itself refuses it: protocol or port unreachable (RFC 1122 section 4.2.3.9), or
        /// administratively prohibited (RFC 5461 section 2.1).
        hard: bool,
    },
}

/// The beginning of a TCP segment, as a message quotes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quoted {
    /// From where it was sent.
    pub source: SocketAddr,
    /// Where it was sent.
    pub destination: SocketAddr,
    /// Its sequence number.
    pub seq: Seq,
}

impl Message {
    /// Reads a message of ICMP whose checksum was verified.
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

    /// Reads a message of ICMP for IPv6 whose checksum was verified.
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
    /// Reads as much of an IPv4 packet as a router must quote: its header and eight bytes (RFC 792).
    /// `None` if it is not the beginning of a TCP segment.
    pub fn parse_v4(packet: &[u8]) -> Option<Quoted> {
        let header: &[u8; IPV4_MIN_LEN] = packet.first_chunk()?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        // Only the first fragment has the ports.
        let is_first = be16(header, 6) & 0x1fff == 0;
        let is_tcp = header[0] >> 4 == 4 && header[9] == protocol::TCP;
        if !is_tcp || !is_first || header_len < IPV4_MIN_LEN {
            return None;
        }
        let [source, destination] = [be32(header, 12), be32(header, 16)].map(Into::into);
        let addresses = Addresses::V4 { source, destination };
        Quoted::segment(addresses, packet.get(header_len..)?)
    }

    /// The same of an IPv6 packet without extension headers.
    pub fn parse_v6(packet: &[u8]) -> Option<Quoted> {
        let (header, rest) = packet.split_first_chunk::<IPV6_LEN>()?;
        if header[0] >> 4 != 6 || header[6] != protocol::TCP {
            return None;
        }
        let ip = |at: usize| Some(<[u8; 16]>::try_from(&header[at..at + 16]).ok()?.into());
        let addresses = Addresses::V6 { source: ip(8)?, destination: ip(24)? };
        Quoted::segment(addresses, rest)
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

/// Makes an echo request its reply, but for the checksum, which becomes 0: identifier, sequence number and
/// data stay (RFC 792, RFC 4443 section 4.2).
pub fn make_reply(message: &mut [u8], v6: bool) {
    if message.len() < HEADER_LEN {
        return;
    }
    message[0] = if v6 { 129 } else { 0 };
    put16(message, 2, 0);
}
