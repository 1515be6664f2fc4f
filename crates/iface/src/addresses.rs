//! The host's own addresses, and the next hop of packets to others.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// An address with the length of its network's prefix: `10.0.0.2/24`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The address itself.
    pub ip: IpAddr,
    /// Leading bits that all addresses of the network share.
    pub prefix_len: u8,
}

/// Why addresses or gateways are refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AddressError {
    /// The text is neither an IPv4 nor an IPv6 address.
    NoAddress(String),
    /// The prefix length is longer than the address, or no number.
    NoPrefix(String),
    /// It cannot be the address of a host.
    NotAHost(IpAddr),
    /// An address is given twice.
    Twice(IpAddr),
    /// The gateway is on none of the host's networks.
    FarGateway(IpAddr),
    /// The gateway is one of the host's addresses.
    OwnGateway(IpAddr),
    /// There are two gateways for one IP version.
    SecondGateway(IpAddr),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUCH_AS: &str = "it is such as 10.0.0.2/24 or fd00::2/64";
        match self {
            AddressError::NoAddress(text) => write!(f, "`{text}` is no IP address: {SUCH_AS}"),
            AddressError::NoPrefix(text) => write!(
                f,
                "what follows the `/` of `{text}` is no length of a prefix, which is at most 32 for IPv4 and 128 for IPv6: {SUCH_AS}"
            ),
            AddressError::NotAHost(ip) => write!(f, "{ip} cannot be the address of a host"),
            AddressError::Twice(ip) => write!(f, "{ip} is given twice"),
            AddressError::FarGateway(ip) => {
                write!(f, "the gateway {ip} is on none of the networks of the addresses")
            }
            AddressError::OwnGateway(ip) => {
                write!(f, "the gateway {ip} is one of the addresses themselves")
            }
            AddressError::SecondGateway(ip) => {
                write!(f, "{ip} is a second gateway for its IP version: there can be one")
            }
        }
    }
}

impl Error for AddressError {}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads `10.0.0.2/24`, or `10.0.0.2` for a network of one.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (ip, len) = text.split_once('/').map_or((text, None), |(ip, len)| (ip, Some(len)));
        let ip: IpAddr = ip.parse().map_err(|_| AddressError::NoAddress(text.to_owned()))?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let prefix_len = match len {
            None => most,
            Some(len) => len
                .parse()
                .ok()
                .filter(|len| *len <= most)
                .ok_or_else(|| AddressError::NoPrefix(text.to_owned()))?,
        };
        Ok(Address { ip, prefix_len })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}

impl Address {
    /// Whether it is the network's own address or its broadcast address (RFC 1122 section 3.2.1.3), of a
    /// network that has these (RFC 3021).
    fn is_network_or_broadcast(&self) -> bool {
        let IpAddr::V4(ip) = self.ip else { return false };
        let hosts = u32::MAX.checked_shr(u32::from(self.prefix_len)).unwrap_or(0);
        let host = ip.to_bits() & hosts;
        hosts > 1 && (host == 0 || host == hosts)
    }

    /// Whether `ip` is on the network of this address.
    pub fn is_on_link(&self, ip: IpAddr) -> bool {
        let len = u32::from(self.prefix_len);
        match (self.ip, ip) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                let differ = own.to_bits() ^ ip.to_bits();
                differ.checked_shr(32 - len).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                let differ = own.to_bits() ^ ip.to_bits();
                differ.checked_shr(128 - len).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The addresses of a host and its gateways.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Addresses {
    own: Vec<Address>,
    gateways: Vec<IpAddr>,
}

impl Addresses {
    /// The host's own addresses, at least one, and at most one gateway for each IP version.
    ///
    /// # Errors
    /// [`AddressError`] for addresses that cannot be a host's or are given twice, and for gateways that
    /// cannot be reached.
    pub fn new(own: Vec<Address>, gateways: Vec<IpAddr>) -> Result<Self, AddressError> {
        for (at, address) in own.iter().enumerate() {
            let ip = address.ip;
            let is_none = ip.is_unspecified() || ip.is_multicast() || ip.is_loopback();
            if is_none || is_broadcast(ip) || is_mapped(ip) || address.is_network_or_broadcast() {
                return Err(AddressError::NotAHost(ip));
            }
            if own[..at].iter().any(|other| other.ip == ip) {
                return Err(AddressError::Twice(ip));
            }
        }
        let addresses = Addresses { own, gateways };
        for (at, gateway) in addresses.gateways.iter().enumerate() {
            if addresses.is_own(*gateway) {
                return Err(AddressError::OwnGateway(*gateway));
            }
            let before = &addresses.gateways[..at];
            if before.iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
                return Err(AddressError::SecondGateway(*gateway));
            }
        }
        match addresses.gateways.iter().find(|ip| !addresses.is_on_link(**ip)) {
            Some(gateway) => Err(AddressError::FarGateway(*gateway)),
            None => Ok(addresses),
        }
    }

    /// Adds an address with no network around it, unless it is there.
    pub(crate) fn add_alone(&mut self, ip: IpAddr) {
        let prefix_len = if ip.is_ipv4() { 32 } else { 128 };
        if !self.is_own(ip) {
            self.own.push(Address { ip, prefix_len });
        }
    }

    /// The host's own addresses.
    pub fn own(&self) -> &[Address] {
        &self.own
    }

    /// Whether `ip` is one of the host's own addresses.
    #[inline]
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|own| own.ip == ip)
    }

    fn is_on_link(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|own| own.is_on_link(ip))
            || self.has_version_of(ip) && is_link_local(ip)
    }

    fn has_version_of(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|own| own.ip.is_ipv4() == ip.is_ipv4())
    }

    /// The next hop of a packet to `to`: `to` itself if it is a neighbour, else the gateway. `None` if there
    /// is no route.
    #[inline]
    pub fn next_hop(&self, to: IpAddr) -> Option<IpAddr> {
        if self.is_on_link(to) {
            return Some(to);
        }
        self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == to.is_ipv4())
    }

    /// Source address for packets to `to`: the own address on its network, else the first of its IP version;
    /// `None` if there is none.
    pub fn source_for(&self, to: IpAddr) -> Option<IpAddr> {
        self.source_among(to, |_| true)
    }

    /// The same, among the addresses for which `may` holds.
    pub(crate) fn source_among(&self, to: IpAddr, may: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let fits = |own: &&Address| own.ip.is_ipv4() == to.is_ipv4() && may(own.ip);
        let of_version = || self.own.iter().filter(fits);
        let near = of_version().find(|own| own.is_on_link(to));
        near.or_else(|| of_version().next()).map(|own| own.ip)
    }
}

/// Whether it is an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2), which no packet has.
fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// Whether a packet may have this source address: not that of a group, nor the unspecified one (RFC 1122
/// section 3.2.1.3; RFC 4291 section 2.7).
#[inline]
pub(crate) fn is_sender(ip: IpAddr) -> bool {
    !(ip.is_unspecified() || ip.is_multicast() || is_broadcast(ip) || ip.is_loopback())
}

fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}

/// Whether it is a link-local IPv6 address, which is on every link (RFC 4291 section 2.5.6).
fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn addresses(own: &[&str], gateways: &[&str]) -> Result<Addresses, AddressError> {
        let own = own.iter().map(|text| text.parse().unwrap()).collect();
        Addresses::new(own, gateways.iter().map(|text| ip(text)).collect())
    }

    #[test]
    fn an_address_is_read_and_written_alike() {
        for text in ["10.0.0.2/24", "fd00::2/64", "0.0.0.1/0", "::1/0", "192.0.2.1/32"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("fd00::2".parse::<Address>().unwrap().to_string(), "fd00::2/128");
        for wrong in ["", "10.0.0.2/33", "fd00::2/129", "10.0.0/24", "10.0.0.2/", "10.0.0.2/-1"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn network_addresses_and_wrong_gateways_are_refused() {
        let wrong = ["10.0.0.0/24", "10.0.0.255/24", "::ffff:10.0.0.2/96", "224.0.0.1/4", "::1"];
        for text in wrong {
            assert!(matches!(addresses(&[text], &[]), Err(AddressError::NotAHost(_))), "{text}");
        }
        for text in ["10.0.0.0/31", "10.0.0.1/31", "10.0.0.0/32", "10.0.1.0/23", "10.0.0.255"] {
            assert!(addresses(&[text], &[]).is_ok(), "{text}");
        }
        let with = |gateways: &[&str]| addresses(&["10.0.0.2/24", "fd00::2/64"], gateways).err();
        assert_eq!(with(&["10.0.0.2"]), Some(AddressError::OwnGateway(ip("10.0.0.2"))));
        assert_eq!(with(&["10.0.0.1", "fd00::1"]), None);
        let second = ip("10.0.0.3");
        assert_eq!(with(&["10.0.0.1", "10.0.0.3"]), Some(AddressError::SecondGateway(second)));
        assert_eq!(with(&["10.1.0.1"]), Some(AddressError::FarGateway(ip("10.1.0.1"))));
    }

    #[test]
    fn neighbours_are_reached_directly_and_others_by_the_gateway() {
        let all = addresses(&["10.0.0.2/24", "fd00::2/64"], &["10.0.0.1", "fe80::1"]).unwrap();
        assert_eq!(all.next_hop(ip("10.0.0.77")), Some(ip("10.0.0.77")));
        assert_eq!(all.next_hop(ip("10.0.1.77")), Some(ip("10.0.0.1")));
        assert_eq!(all.next_hop(ip("fd00::7")), Some(ip("fd00::7")));
        assert_eq!(all.next_hop(ip("fe80::7")), Some(ip("fe80::7")));
        assert_eq!(all.next_hop(ip("2001:db8::1")), Some(ip("fe80::1")));
        let few = addresses(&["10.0.0.2/24", "10.0.1.2/24"], &[]).unwrap();
        assert_eq!(few.next_hop(ip("10.0.2.1")), None);
        assert_eq!(few.next_hop(ip("fe80::7")), None);
        assert_eq!(few.source_for(ip("10.0.1.1")), Some(ip("10.0.1.2")));
        assert_eq!(few.source_for(ip("10.9.1.1")), Some(ip("10.0.0.2")));
        assert_eq!(few.source_for(ip("fd00::1")), None);
        let whole = addresses(&["10.0.0.2/0"], &[]).unwrap();
        assert_eq!(whole.next_hop(ip("192.0.2.1")), Some(ip("192.0.2.1")));
    }

    #[test]
    fn addresses_of_no_host_and_unreachable_gateways_are_refused() {
        for wrong in ["0.0.0.0/0", "224.0.0.1/8", "ff02::1/64", "255.255.255.255/0", "::1/128"] {
            assert!(matches!(addresses(&[wrong], &[]), Err(AddressError::NotAHost(_))), "{wrong}");
        }
        let twice = addresses(&["10.0.0.2/24", "10.0.0.2/16"], &[]);
        assert_eq!(twice, Err(AddressError::Twice(ip("10.0.0.2"))));
        let far = addresses(&["10.0.0.2/24"], &["10.0.1.1"]);
        assert_eq!(far, Err(AddressError::FarGateway(ip("10.0.1.1"))));
        let other_version = addresses(&["10.0.0.2/24"], &["fe80::1"]);
        assert!(matches!(other_version, Err(AddressError::FarGateway(_))));
    }
}
