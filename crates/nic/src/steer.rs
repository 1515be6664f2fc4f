//! Steering: which lane a packet is for, and of which worker.
//!
//! An address of the engine's is the engine's, with all its ports; everything else is the host's. A connection
//! belongs to the worker whose queue brought its SYN, or that opened it, for as long as it lives. Later packets
//! of it may come by any queue: a card may be told to steer otherwise, and on a veth the sender's CPU decides.
//! The [`FlowIndex`] says whose a packet is then, before anything else is done with it, so that no worker
//! answers for another.

mod index;
mod lookup;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tcp::FourTuple;
use wire::icmp::Message;
use wire::{
    ETHERNET_LEN, EtherType, Flags, FlowKey, Headers, IPV4_MIN_LEN, IPV6_LEN, Mac, Network, Tcp,
    Transport, is_group, ndp, protocol,
};

pub(crate) use self::index::{Bucket, FlowIndex};
pub(crate) use self::lookup::{Claims, Found as Entry, Leaving, Lookup, NoEntry, Phase};

/// The lane of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// The host's.
    Host,
    /// The engine's.
    Engine,
    /// Both: what a neighbour or a router tells all.
    Both,
}

/// Addresses of the engine's beside a host's.
#[derive(Clone, Debug)]
pub(crate) struct Steer {
    mac: Mac,
    v4: Vec<[u8; 4]>,
    v6: Vec<[u8; 16]>,
}

/// Where the target's address stands in an ARP message, and in a Neighbour Discovery message.
const ARP_TARGET: usize = ETHERNET_LEN + 24;
const ND_TARGET: usize = ETHERNET_LEN + IPV6_LEN + 8;

impl Steer {
    /// For these addresses on a wire with this Ethernet address.
    pub(crate) fn new(mac: Mac, own: impl Iterator<Item = IpAddr>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for ip in own {
            match ip {
                IpAddr::V4(ip) => v4.push(ip.octets()),
                IpAddr::V6(ip) => v6.push(ip.octets()),
            }
        }
        Steer { mac, v4, v6 }
    }

    /// The lane of a packet that has come by the wire. ARP requests and neighbour solicitations go by their
    /// target; what else ARP and Neighbour Discovery tell is for both.
    #[inline]
    pub(crate) fn inward(&self, bytes: &[u8]) -> Lane {
        match ether_type(bytes) {
            EtherType::IPV4 if self.is_v4(bytes, ETHERNET_LEN + 16) => Lane::Engine,
            EtherType::IPV6 if self.is_v6(bytes, ETHERNET_LEN + 24) => Lane::Engine,
            EtherType::IPV6 if is_discovery(bytes) => match self.is_v6(bytes, ND_TARGET) {
                true => Lane::Engine,
                false => Lane::Both,
            },
            EtherType::ARP if self.is_v4(bytes, ARP_TARGET) => Lane::Engine,
            EtherType::ARP => Lane::Both,
            _ => Lane::Host,
        }
    }

    /// Whether what the host sends is for the engine, so that it does not go out to a switch and back. Where the
    /// host takes the address for one behind a router, it is the router's.
    #[inline]
    pub(crate) fn is_for_engine(&self, bytes: &[u8]) -> bool {
        let is_here = bytes.first_chunk::<6>().is_some_and(|to| *to == self.mac || is_group(*to));
        is_here && self.inward(bytes) == Lane::Engine
    }

    /// Where what the engine sends goes: whether to the host, and whether to the wire. The two have one
    /// Ethernet address.
    #[inline]
    pub(crate) fn outward(&self, bytes: &[u8]) -> (bool, bool) {
        match bytes.first_chunk::<6>() {
            Some(to) if *to == self.mac => (true, false),
            Some(to) => (is_group(*to), true),
            None => (false, true),
        }
    }

    #[inline]
    fn is_v4(&self, bytes: &[u8], at: usize) -> bool {
        let ip = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
        ip.is_some_and(|ip| self.v4.contains(ip))
    }

    #[inline]
    fn is_v6(&self, bytes: &[u8], at: usize) -> bool {
        let ip = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<16>());
        ip.is_some_and(|ip| self.v6.contains(ip))
    }
}

#[inline]
fn ether_type(bytes: &[u8]) -> EtherType {
    let at = bytes.get(12..).and_then(|bytes| bytes.first_chunk::<2>());
    EtherType(at.map_or(0, |bytes| u16::from_be_bytes(*bytes)))
}

/// Whether it is a message of Neighbour Discovery to a group, or one that can be.
fn is_discovery(bytes: &[u8]) -> bool {
    let at = ETHERNET_LEN;
    let [next, limit] = match bytes.get(at + 6..).and_then(|bytes| bytes.first_chunk::<2>()) {
        Some(two) => *two,
        None => return false,
    };
    let kind = bytes.get(at + IPV6_LEN).copied().unwrap_or_default();
    // Solicitations of routers to redirects (RFC 4861 section 4).
    next == protocol::ICMPV6 && limit == ndp::HOP_LIMIT && (133..=137).contains(&kind)
}

/// Whether all workers with the engine's addresses are to hear it: where neighbours are.
pub(crate) fn is_for_all(bytes: &[u8]) -> bool {
    match ether_type(bytes) {
        EtherType::ARP => true,
        EtherType::IPV6 => is_discovery(bytes),
        _ => false,
    }
}

/// The ends of the connection that a packet to the engine is about: of a segment, or of one that an ICMP error
/// quotes. With it, whether it is a SYN that may open a connection. `rest` is what follows `bytes`, of a super-packet.
#[inline]
pub(crate) fn connection_of(bytes: &[u8], rest: &[u8]) -> Option<(FourTuple, bool)> {
    let headers = match rest {
        [] => Headers::parse(bytes),
        rest => Headers::parse_split(bytes, &[rest]),
    }
    .ok()?;
    let v6 = match headers.network {
        Network::Ipv4 { .. } => false,
        Network::Ipv6 { .. } => true,
        Network::Other(_) => return None,
    };
    let transport = bytes.get(headers.transport_at..headers.end.min(bytes.len()))?;
    match headers.transport {
        Transport::Tcp => {
            let tcp = Tcp::new(transport).ok()?;
            let (from, to) = addresses(bytes.get(headers.network_at..)?, v6)?;
            let path = FourTuple {
                local: SocketAddr::new(to, tcp.destination()),
                remote: SocketAddr::new(from, tcp.source()),
            };
            let opens = tcp.flags().any(Flags::SYN) && !tcp.flags().any(Flags::ACK);
            Some((path, opens))
        }
        Transport::Other(protocol::ICMPV6) if v6 => quoted(Message::parse_v6(transport)),
        Transport::Other(protocol::ICMP) if !v6 => quoted(Message::parse_v4(transport)),
        _ => None,
    }
}

fn quoted(message: Message) -> Option<(FourTuple, bool)> {
    match message {
        Message::Error { quoted, .. } => {
            Some((FourTuple { local: quoted.source, remote: quoted.destination }, false))
        }
        _ => None,
    }
}

/// The ends of the connection of a segment whose headers are plain: no VLAN, no IPv4 options, no extension headers.
/// Others are few, and need not be announced.
#[inline]
pub(crate) fn path_of(bytes: &[u8]) -> Option<FourTuple> {
    let (v6, next_at, transport_at) = match ether_type(bytes) {
        EtherType::IPV4 if bytes.get(ETHERNET_LEN) == Some(&0x45) => {
            (false, ETHERNET_LEN + 9, ETHERNET_LEN + IPV4_MIN_LEN)
        }
        EtherType::IPV6 => (true, ETHERNET_LEN + 6, ETHERNET_LEN + IPV6_LEN),
        _ => return None,
    };
    let ports = bytes.get(transport_at..)?.first_chunk::<4>()?;
    if bytes[next_at] != protocol::TCP {
        return None;
    }
    let (from, to) = addresses(&bytes[ETHERNET_LEN..], v6)?;
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    Some(FourTuple { local: SocketAddr::new(to, port(2)), remote: SocketAddr::new(from, port(0)) })
}

/// The flow key of a segment whose headers are plain. Others are few.
#[inline]
pub(crate) fn key_of(bytes: &[u8]) -> Option<FlowKey> {
    const PORTS_V4: usize = ETHERNET_LEN + IPV4_MIN_LEN;
    const PORTS_V6: usize = ETHERNET_LEN + IPV6_LEN;
    let ports = |bytes: &[u8], at: usize| {
        u32::from_ne_bytes(bytes[at..].first_chunk::<4>().copied().unwrap_or_default())
    };
    match ether_type(bytes) {
        EtherType::IPV4 => {
            let head = bytes.first_chunk::<{ PORTS_V4 + 4 }>()?;
            if head[ETHERNET_LEN] != 0x45 || head[ETHERNET_LEN + 9] != protocol::TCP {
                return None;
            }
            let addresses = [word(head, ETHERNET_LEN + 12), 0, 0, 0];
            Some(FlowKey { addresses, ports: ports(head, PORTS_V4), ipv6: false, udp: false })
        }
        EtherType::IPV6 => {
            let head = bytes.first_chunk::<{ PORTS_V6 + 4 }>()?;
            if head[ETHERNET_LEN + 6] != protocol::TCP {
                return None;
            }
            let word = |at: usize| word(head, ETHERNET_LEN + at);
            let addresses = [word(8), word(16), word(24), word(32)];
            Some(FlowKey { addresses, ports: ports(head, PORTS_V6), ipv6: true, udp: false })
        }
        _ => None,
    }
}

/// The flow key of the packets that a connection's peer sends.
#[inline]
pub(crate) fn key_of_path(path: &FourTuple) -> FlowKey {
    let [from, to] = [path.remote, path.local].map(|end| end.port().to_be_bytes());
    let ports = u32::from_ne_bytes([from[0], from[1], to[0], to[1]]);
    let (addresses, ipv6) = match (path.remote.ip(), path.local.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ([a, b, c, d], [e, f, g, h]) = (from.octets(), to.octets());
            ([u64::from_ne_bytes([a, b, c, d, e, f, g, h]), 0, 0, 0], false)
        }
        (from, to) => {
            let words = |ip: IpAddr| {
                let octets = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                [word(&octets, 0), word(&octets, 8)]
            };
            let ([a, b], [c, d]) = (words(from), words(to));
            ([a, b, c, d], true)
        }
    };
    FlowKey { addresses, ports, ipv6, udp: false }
}

/// Eight bytes, as they stand there.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..].first_chunk::<8>().copied().unwrap_or_default())
}

/// Whether a segment whose headers are plain is a SYN that may open a connection.
#[inline]
pub(crate) fn is_syn(bytes: &[u8]) -> bool {
    let flags = plain_flags(bytes);
    flags.any(Flags::SYN) && !flags.any(Flags::ACK)
}

/// Whether a packet of which [`path_of`] tells has urgent data.
#[inline]
pub(crate) fn is_urgent(bytes: &[u8]) -> bool {
    plain_flags(bytes).any(Flags::URG)
}

/// The control bits of a TCP segment without options and extension headers of IP.
#[inline]
fn plain_flags(bytes: &[u8]) -> Flags {
    const FLAGS: usize = 13;
    let network = if ether_type(bytes) == EtherType::IPV4 { IPV4_MIN_LEN } else { IPV6_LEN };
    Flags(bytes.get(ETHERNET_LEN + network + FLAGS).copied().unwrap_or(0))
}

/// The same of what is not plain: other headers, and ICMP errors about a connection. UDP has none.
pub(crate) fn uncommon_path_of(bytes: &[u8], rest: &[u8]) -> Option<FourTuple> {
    let next_at = match ether_type(bytes) {
        EtherType::IPV4 => ETHERNET_LEN + 9,
        EtherType::IPV6 => ETHERNET_LEN + 6,
        _ => return None,
    };
    if bytes.get(next_at) == Some(&protocol::UDP) {
        return None;
    }
    connection_of(bytes, rest).map(|(path, _)| path)
}

/// Source and destination.
fn addresses(network: &[u8], v6: bool) -> Option<(IpAddr, IpAddr)> {
    if v6 {
        let ip = |at| Some(Ipv6Addr::from(*network.get(at..)?.first_chunk::<16>()?).into());
        Some((ip(8)?, ip(24)?))
    } else {
        let ip = |at| Some(Ipv4Addr::from(*network.get(at..)?.first_chunk::<4>()?).into());
        Some((ip(12)?, ip(16)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use testkit::packet::PacketBuilder;

    /// The host has no route on the link to the engine's address: its packet is addressed to a router, which sends it
    /// back by the wire. Taken by the short way it would be dropped, as another host's.
    #[test]
    fn what_the_host_sends_to_a_router_goes_there() {
        const MAC: Mac = [2, 0, 0, 0, 0, 1];
        const ROUTER: Mac = [2, 0, 0, 0, 0, 7];
        for (mut packet, at) in [
            (PacketBuilder::tcp4().payload_pattern(10).build(), ETHERNET_LEN + 16),
            (PacketBuilder::tcp6().payload_pattern(10).build(), ETHERNET_LEN + 24),
        ] {
            let to: IpAddr = match at == ETHERNET_LEN + 16 {
                true => IpAddr::from(*packet[at..].first_chunk::<4>().unwrap()),
                false => IpAddr::from(*packet[at..].first_chunk::<16>().unwrap()),
            };
            let steer = Steer::new(MAC, std::iter::once(to));
            for (mac, is_short) in [(MAC, true), ([0xff; 6], true), (ROUTER, false)] {
                packet[..6].copy_from_slice(&mac);
                assert_eq!(steer.is_for_engine(&packet), is_short, "{to} at {mac:02x?}");
            }
        }
    }
}
