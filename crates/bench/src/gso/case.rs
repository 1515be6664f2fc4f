//! Kinds of super-packets.

use crate::packet::Ip;

/// What is cut, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// TCP over IPv4 with timestamps.
    Tcp4,
    /// TCP over IPv6 with timestamps.
    Tcp6,
    /// UDP over IPv4, into datagrams.
    Uso4,
    /// UDP over IPv6, into datagrams.
    Uso6,
    /// A UDP datagram, into IPv4 fragments.
    Frag4,
    /// A UDP datagram, into IPv6 fragments.
    Frag6,
}

impl Case {
    /// All of them, as the figures list them.
    pub const ALL: [Case; 6] =
        [Case::Tcp4, Case::Tcp6, Case::Uso4, Case::Uso6, Case::Frag4, Case::Frag6];

    /// The name in the figures' `case`.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Tcp4 => "tcp4",
            Case::Tcp6 => "tcp6",
            Case::Uso4 => "uso4",
            Case::Uso6 => "uso6",
            Case::Frag4 => "frag4",
            Case::Frag6 => "frag6",
        }
    }

    pub(crate) const fn ip(self) -> Ip {
        match self {
            Case::Tcp4 | Case::Uso4 | Case::Frag4 => Ip::V4,
            Case::Tcp6 | Case::Uso6 | Case::Frag6 => Ip::V6,
        }
    }

    pub(crate) const fn is_tcp(self) -> bool {
        matches!(self, Case::Tcp4 | Case::Tcp6)
    }

    /// Whether it is cut by IP.
    pub(crate) const fn is_fragmented(self) -> bool {
        matches!(self, Case::Frag4 | Case::Frag6)
    }
}
