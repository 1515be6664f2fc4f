//! Who cuts what is sent, and what is sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Who cuts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// No cutting: the host's TCP and IP make packets of the wire's MTU, and everything below handles
    /// these. What the slides call none.
    None,
    /// The host's kernel, by its own GSO, right above wharf.
    Kernel,
    /// wharf, in software.
    Gso,
    /// The card, for which a veth stands in: wharf passes super-packets down whole.
    Tso,
}

impl Case {
    /// All, in the order in which they are shown.
    pub const ALL: [Case; 4] = [Case::None, Case::Kernel, Case::Gso, Case::Tso];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Case::None => "none",
            Case::Kernel => "kernel",
            Case::Gso => "gso",
            Case::Tso => "tso",
        }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Case::ALL.into_iter().find(|case| case.name() == name);
        found.ok_or_else(|| "the cases are none, kernel, gso and tso".to_owned())
    }
}

/// What is sent. The slides' tables are the first four.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// One TCP connection over IPv4.
    Tcp4,
    /// One over IPv6.
    Tcp6,
    /// Datagrams that are longer than the MTU, and become IPv4 fragments.
    Udp4,
    /// The same with IPv6.
    Udp6,
    /// Datagrams of one size, many of them sent at once (`UDP_SEGMENT`), over IPv4.
    Uso4,
    /// The same with IPv6.
    Uso6,
}

impl Protocol {
    /// All, in the order in which they are shown.
    pub const ALL: [Protocol; 6] = [
        Protocol::Tcp4,
        Protocol::Tcp6,
        Protocol::Udp4,
        Protocol::Udp6,
        Protocol::Uso4,
        Protocol::Uso6,
    ];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Tcp4 => "tcp4",
            Protocol::Tcp6 => "tcp6",
            Protocol::Udp4 => "udp4",
            Protocol::Udp6 => "udp6",
            Protocol::Uso4 => "uso4",
            Protocol::Uso6 => "uso6",
        }
    }

    /// Whether there is such a case. Linux has no GSO, and no card, that makes fragments (UFO went with 4.14).
    pub(crate) const fn has(self, case: Case) -> bool {
        !(self.is_fragmented() && matches!(case, Case::Kernel | Case::Tso))
    }

    pub(super) const fn is_tcp(self) -> bool {
        matches!(self, Protocol::Tcp4 | Protocol::Tcp6)
    }

    pub(super) const fn is_fragmented(self) -> bool {
        matches!(self, Protocol::Udp4 | Protocol::Udp6)
    }

    const fn is_ipv6(self) -> bool {
        matches!(self, Protocol::Tcp6 | Protocol::Udp6 | Protocol::Uso6)
    }

    /// Addresses of the sender and of the receiver, and the length of their prefix.
    pub(super) const fn addresses(self) -> (IpAddr, IpAddr, u8) {
        if self.is_ipv6() {
            let near = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
            let far = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
            (IpAddr::V6(near), IpAddr::V6(far), 64)
        } else {
            let (near, far) = (Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2));
            (IpAddr::V4(near), IpAddr::V4(far), 24)
        }
    }

    /// Payload of each datagram, and how many are sent at once.
    pub(super) const fn datagrams(self) -> (usize, usize) {
        match self {
            // What is left of an MTU of 1,500 behind the headers, as often as 65,535 bytes hold it.
            Protocol::Uso4 => (1_472, 44),
            Protocol::Uso6 => (1_452, 44),
            _ => (60_000, 1),
        }
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Protocol::ALL.into_iter().find(|protocol| protocol.name() == name);
        found.ok_or_else(|| "the protocols are tcp4, tcp6, udp4, udp6, uso4 and uso6".to_owned())
    }
}
