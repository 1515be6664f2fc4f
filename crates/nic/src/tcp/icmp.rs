//! ICMP for both versions: what is answered (echo), and what the network says of the endpoint's own
//! packets (RFC 792, RFC 1191, RFC 4443, RFC 5461).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tcp::{FourTuple, Icmp};
use wire::{Seq, protocol};

/// IP protocol number of ICMP for IPv4.
pub(super) const ICMP: u8 = 1;

/// Bytes in front of what a message carries.
const HEADER: usize = 8;

/// What a message is to the endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// An echo request (ping).
    EchoRequest,
    /// The network has something to say of a segment that it sent.
    Error { path: FourTuple, what: Icmp, seq: Seq },
    /// Something else.
    Other,
}

/// ICMP's type and code.
type Kind = (u8, u8);

/// Reads a message of ICMP, or of ICMP for IPv6 if `v6`, whose checksum was verified.
pub(super) fn parse(message: &[u8], v6: bool) -> Message {
    let Some((header, rest)) = message.split_first_chunk::<HEADER>() else { return Message::Other };
    let kind = (header[0], header[1]);
    let what = if v6 { v6_kind(kind, header) } else { v4_kind(kind, header) };
    match what {
        Some(What::Echo) => Message::EchoRequest,
        Some(What::Error(what)) => match if v6 { quoted_v6(rest) } else { quoted_v4(rest) } {
            Some((path, seq)) => Message::Error { path, what, seq },
            None => Message::Other,
        },
        None => Message::Other,
    }
}

enum What {
    Echo,
    Error(Icmp),
}

fn v4_kind((kind, code): Kind, header: &[u8; HEADER]) -> Option<What> {
    let soft = What::Error(Icmp::Unreachable { hard: false });
    let hard = What::Error(Icmp::Unreachable { hard: true });
    match (kind, code) {
        (8, 0) => Some(What::Echo),
        // Fragmentation needed: the MTU is 0 from routers older than RFC 1191, which the engine
        // answers by itself.
        (3, 4) => {
            Some(What::Error(Icmp::TooBig { mtu: u16::from_be_bytes([header[6], header[7]]) }))
        }
        // Protocol and port unreachable (RFC 1122 section 4.2.3.9).
        (3, 2 | 3) => Some(hard),
        (3, _) | (11, _) => Some(soft),
        _ => None,
    }
}

fn v6_kind((kind, code): Kind, header: &[u8; HEADER]) -> Option<What> {
    let soft = What::Error(Icmp::Unreachable { hard: false });
    let hard = What::Error(Icmp::Unreachable { hard: true });
    match (kind, code) {
        (128, 0) => Some(What::Echo),
        (2, _) => {
            let mtu = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
            Some(What::Error(Icmp::TooBig { mtu }))
        }
        // Administratively prohibited and port unreachable (RFC 5461 section 2.1).
        (1, 1 | 4) => Some(hard),
        (1, _) | (3, _) => Some(soft),
        _ => None,
    }
}

/// The beginning of a packet of ours, as a message quotes it: where it was sent, and its sequence
/// number.
fn quoted_v4(packet: &[u8]) -> Option<(FourTuple, Seq)> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    // Only the first fragment has the ports.
    let is_first = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    if header[0] >> 4 != 4 || header_len < header.len() || !is_first || header[9] != protocol::TCP {
        return None;
    }
    let ip = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(&header[at..at + 4]).ok()?));
    quoted(IpAddr::V4(ip(12)?), IpAddr::V4(ip(16)?), packet.get(header_len..)?)
}

fn quoted_v6(packet: &[u8]) -> Option<(FourTuple, Seq)> {
    let (header, rest) = packet.split_first_chunk::<40>()?;
    // What the endpoint sends has no extension headers.
    if header[0] >> 4 != 6 || header[6] != protocol::TCP {
        return None;
    }
    let ip = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).ok()?));
    quoted(IpAddr::V6(ip(8)?), IpAddr::V6(ip(24)?), rest)
}

fn quoted(source: IpAddr, destination: IpAddr, segment: &[u8]) -> Option<(FourTuple, Seq)> {
    let start: &[u8; 8] = segment.first_chunk()?;
    let port = |at: usize| u16::from_be_bytes([start[at], start[at + 1]]);
    let path = FourTuple {
        local: SocketAddr::new(source, port(0)),
        remote: SocketAddr::new(destination, port(2)),
    };
    Some((path, Seq(u32::from_be_bytes([start[4], start[5], start[6], start[7]]))))
}

/// Makes the answer to an echo request of the request, but for its checksum: identifier, sequence
/// number and data are the same (RFC 792, RFC 4443 section 4.2).
pub(super) fn make_reply(message: &mut [u8], v6: bool) {
    if let [kind, _, high, low, ..] = message {
        *kind = if v6 { 129 } else { 0 };
        (*high, *low) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use testkit::packet::PacketBuilder;

    fn message(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
        [&[kind, code, 0, 0], &word.to_be_bytes()[..], quoted].concat()
    }

    #[test]
    fn errors_tell_of_which_segment_they_are() {
        for (builder, v6) in [(PacketBuilder::tcp4(), false), (PacketBuilder::tcp6(), true)] {
            let packet = builder.ports(7, 4000).seq(0x1234_5678).payload_pattern(100).build();
            // Eight bytes of the segment are all that a router must quote (RFC 792).
            let quoted = &packet[14..14 + if v6 { 48 } else { 28 }];
            let (unreachable, too_big) = if v6 { ((1, 4), (2, 0)) } else { ((3, 3), (3, 4)) };
            for ((kind, code), word, expected) in [
                (unreachable, 0, Icmp::Unreachable { hard: true }),
                ((unreachable.0, 0), 0, Icmp::Unreachable { hard: false }),
                (too_big, 1300, Icmp::TooBig { mtu: 1300 }),
            ] {
                let read = parse(&message(kind, code, word, quoted), v6);
                let Message::Error { path, what, seq } = read else { panic!("{read:?}") };
                assert_eq!((what, seq), (expected, Seq(0x1234_5678)));
                assert_eq!((path.local.port(), path.remote.port()), (7, 4000));
                assert_eq!(path.local.is_ipv6(), v6);
            }
            let short = message(unreachable.0, unreachable.1, 0, &quoted[..quoted.len() - 1]);
            assert_eq!(parse(&short, v6), Message::Other);
        }
    }

    #[test]
    fn jumbo_mtus_are_as_large_as_can_be() {
        let packet = PacketBuilder::tcp6().build();
        let read = parse(&message(2, 0, 100_000, &packet[14..]), true);
        assert!(matches!(read, Message::Error { what: Icmp::TooBig { mtu: u16::MAX }, .. }));
    }

    #[test]
    fn a_later_fragment_has_no_ports() {
        let packet = PacketBuilder::tcp4().fragment(100, true).payload_pattern(20).build();
        assert_eq!(parse(&message(3, 3, 0, &packet[14..]), false), Message::Other);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message(bytes: Vec<u8>, v6: bool) {
            let _ = parse(&bytes, v6);
            let mut reply = bytes.clone();
            make_reply(&mut reply, v6);
            prop_assert_eq!(reply.len(), bytes.len());
        }
    }
}
