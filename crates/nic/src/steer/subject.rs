//! The connection that a packet is of, or about.

use tcp::FourTuple;
use wire::{ETHERNET_LEN, Flags, FlowKey, Glance, Packet};

/// A packet that concerns a TCP connection. It is parsed, and nothing of it is validated: neither its checksums nor
/// its numbers. It may select a worker; whether it changes a connection is for the connection's engine to decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// A segment of the connection that its peer sends.
    Segment { key: FlowKey, flags: Flags },
    /// An ICMP error that quotes a segment of this end's.
    Error { key: FlowKey },
}

impl Subject {
    /// Parses a packet without VLAN tags. `rest` is what follows `bytes`, of a super-packet. `None` for packets of no
    /// connection: fragments, other transports, other messages of ICMP, and malformed packets.
    #[inline]
    pub(crate) fn of(bytes: &[u8], rest: &[u8]) -> Option<Self> {
        match Glance::at_frame(bytes) {
            Glance::Tcp(plain) => Some(Subject::Segment { key: plain.key(), flags: plain.flags() }),
            Glance::Neither => None,
            Glance::Unclear => Self::parsed(bytes, rest),
        }
    }

    #[cold]
    fn parsed(bytes: &[u8], rest: &[u8]) -> Option<Self> {
        let packet = parse(bytes, rest)?;
        // A tagged packet is of another network, which may have the same addresses.
        if packet.headers().network_at != ETHERNET_LEN {
            return None;
        }
        match packet {
            Packet::Tcp(segment) => {
                Some(Subject::Segment { key: segment.key(), flags: segment.flags() })
            }
            Packet::Icmp(message) => {
                let key = message.error()?.quoted.key().reversed();
                Some(Subject::Error { key })
            }
            Packet::Udp(_) | Packet::Other(_) => None,
        }
    }

    /// The key of the packets that the connection's peer sends.
    #[inline]
    pub(crate) fn key(&self) -> &FlowKey {
        match self {
            Subject::Segment { key, .. } | Subject::Error { key } => key,
        }
    }

    /// Returns true for a SYN that may open a connection.
    #[inline]
    pub(crate) fn opens(&self) -> bool {
        match self {
            Subject::Segment { flags, .. } => flags.any(Flags::SYN) && !flags.any(Flags::ACK),
            Subject::Error { .. } => false,
        }
    }

    /// Returns true for a segment with urgent data.
    #[inline]
    pub(crate) fn is_urgent(&self) -> bool {
        match self {
            Subject::Segment { flags, .. } => flags.any(Flags::URG),
            Subject::Error { .. } => false,
        }
    }
}

/// Parses a packet; `rest` is what follows `bytes`, of a super-packet.
pub(crate) fn parse<'a>(bytes: &'a [u8], rest: &[u8]) -> Option<Packet<'a>> {
    let rest = if rest.is_empty() { &[][..] } else { &[rest][..] };
    Packet::parse_pieces(bytes, rest).ok()
}

/// The ends of the connection of a segment whose headers are plain: no VLAN tag, no IPv4 options, no extension
/// headers. Others are few, and need not be announced.
#[inline]
pub(crate) fn path_of(bytes: &[u8]) -> Option<FourTuple> {
    let (remote, local) = Glance::at_frame(bytes).plain()?.ends();
    Some(FourTuple { local, remote })
}

/// The flow key of the packets that a connection's peer sends. Link-local addresses have no scope there: all packets of
/// one wire are of one link.
#[inline]
pub(crate) fn key_of_path(path: &FourTuple) -> FlowKey {
    FlowKey::tcp(path.remote, path.local)
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;
    use testkit::forms::{Form, Meaning, Values, all};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Whatever form a packet has, it is of the connection that it names or quotes, and only a segment has flags.
        #[test]
        fn a_packet_of_any_form_is_of_its_connection(
            id: u16,
            flags: u8,
            seq: u32,
            len in 0..1400_usize,
            v6: bool,
        ) {
            let values = Values { id, flags: Flags(flags), seq, len };
            for Form { name, frame, is_tagged, meaning, .. } in all(v6, values) {
                let expected = match meaning {
                    _ if is_tagged => None,
                    Meaning::Segment { ends: (from, to), flags, .. } => {
                        Some(Subject::Segment { key: FlowKey::tcp(from, to), flags })
                    }
                    Meaning::Error { ends: (from, to), .. } => {
                        Some(Subject::Error { key: FlowKey::tcp(to, from) })
                    }
                    Meaning::Nothing => None,
                };
                let subject = Subject::of(&frame, &[]);
                prop_assert_eq!(subject, expected, "{}", name);
                let flags = |flag| subject.is_some_and(|subject| match subject {
                    Subject::Segment { flags, .. } => flags.any(flag),
                    Subject::Error { .. } => false,
                });
                let opens = flags(Flags::SYN) && !flags(Flags::ACK);
                prop_assert_eq!(subject.is_some_and(|subject| subject.opens()), opens);
                prop_assert_eq!(subject.is_some_and(|subject| subject.is_urgent()), flags(Flags::URG));
            }
        }
    }
}
