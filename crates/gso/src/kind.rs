//! The kinds of super-packets: the slides' `gso_type`.

use core::fmt;

use wire::Network;

/// How a packet is cut. Super-packets and segments are counted by it, as the slides' gso-stats does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// TCP over IPv4 (the slides' GSO_TCP4).
    Tcp4,
    /// TCP over IPv6 (GSO_TCP6).
    Tcp6,
    /// UDP over IPv4, a datagram for each segment (virtio's USO).
    Uso4,
    /// The same over IPv6.
    Uso6,
    /// IPv4 fragments, of UDP mostly (GSO_UDP4; virtio's UFO).
    Frag4,
    /// IPv6 fragments (GSO_UDP6).
    Frag6,
    /// SCTP over IPv4, by chunks (GSO_SCTP4, which the slides leave for later).
    Sctp4,
    /// SCTP over IPv6 (GSO_SCTP6).
    Sctp6,
}

impl Kind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Kind; 8] = [
        Kind::Tcp4,
        Kind::Tcp6,
        Kind::Uso4,
        Kind::Uso6,
        Kind::Frag4,
        Kind::Frag6,
        Kind::Sctp4,
        Kind::Sctp6,
    ];

    /// The name in counters and figures.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Tcp4 => "tcp4",
            Kind::Tcp6 => "tcp6",
            Kind::Uso4 => "uso4",
            Kind::Uso6 => "uso6",
            Kind::Frag4 => "frag4",
            Kind::Frag6 => "frag6",
            Kind::Sctp4 => "sctp4",
            Kind::Sctp6 => "sctp6",
        }
    }

    /// `v4` or `v6`, by the version of IP.
    pub(crate) fn by_version(network: Network, v4: Kind, v6: Kind) -> Kind {
        if matches!(network, Network::Ipv4 { .. }) { v4 } else { v6 }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
