//! Steering: which lane a packet is for, and of which worker.
//!
//! An address of the engine's is the engine's, with all its ports; everything else is the host's. A connection
//! belongs to the worker whose queue brought its SYN, or that opened it, for as long as it lives. Later packets
//! of it may come by any queue: a card may be told to steer otherwise, and on a veth the sender's CPU decides.
//! The [`FlowIndex`] says whose a packet is then, before anything else is done with it, so that no worker
//! answers for another.

mod index;
mod lookup;
mod subject;

use std::net::IpAddr;

use wire::{ETHERNET_LEN, EtherType, Mac, Packet, is_group, ndp, protocol};

pub(crate) use self::index::{Bucket, FlowIndex};
pub(crate) use self::lookup::{Claims, Found as Entry, Leaving, Lookup, NoEntry, Phase};
pub(crate) use self::subject::{Subject, key_of_path, parse, path_of};

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

/// Offset of the target's address in a frame with an ARP message.
const ARP_TARGET: usize = ETHERNET_LEN + 24;
/// Offset of the target's address in a Neighbour Discovery message (RFC 4861 sections 4.3 to 4.5).
const ND_TARGET: usize = 8;

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
            EtherType::IPV6 => match discovery_target(bytes) {
                Some(target_at) if self.is_v6(bytes, target_at) => Lane::Engine,
                Some(_) => Lane::Both,
                None => Lane::Host,
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

/// Offset of the target in a message of Neighbour Discovery; `None` for other packets.
fn discovery_target(bytes: &[u8]) -> Option<usize> {
    // Nearly all packets are of these, and have no extension headers.
    if let Some(&(protocol::TCP | protocol::UDP)) = bytes.get(ETHERNET_LEN + 6) {
        return None;
    }
    let Ok(Packet::Icmp(message)) = Packet::parse(bytes) else { return None };
    let kind = message.bytes().first().copied().unwrap_or_default();
    // Solicitations of routers to redirects (RFC 4861 section 4).
    let is_one = bytes[ETHERNET_LEN + 7] == ndp::HOP_LIMIT && (133..=137).contains(&kind);
    is_one.then_some(message.headers().transport_at + ND_TARGET)
}

/// Whether all workers with the engine's addresses are to hear it: where neighbours are.
pub(crate) fn is_for_all(bytes: &[u8]) -> bool {
    match ether_type(bytes) {
        EtherType::ARP => true,
        EtherType::IPV6 => discovery_target(bytes).is_some(),
        _ => false,
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
