//! Neighbour Discovery for IPv6 over Ethernet, as far as an end host needs it (RFC 4861, RFC 4862): neighbour
//! solicitations and advertisements.

use core::net::Ipv6Addr;

use crate::ip::{Addresses, IpHeader};
use crate::{
    ETHERNET_LEN, EtherType, IPV6_LEN, Mac, checksum, is_group, protocol, put16, write_ethernet,
};

/// The all-nodes multicast address (RFC 4291 section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// The options with a link-layer address (RFC 4861 section 4.6.1).
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;
/// Bytes of a message, and of its one option.
const MESSAGE: usize = 24;
const OPTION: usize = 8;

/// Hop limit of Neighbour Discovery packets, which shows that they crossed no router (RFC 4861 section 7.1).
pub const HOP_LIMIT: u8 = 255;

/// Bytes of an Ethernet frame with a message and its option.
pub const FRAME_LEN: usize = ETHERNET_LEN + IPV6_LEN + MESSAGE + OPTION;

/// Bytes of an Ethernet frame with a message without its option: a probe.
pub const PROBE_LEN: usize = FRAME_LEN - OPTION;

/// A neighbour solicitation or advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ndp {
    /// It asks which neighbour has `target`.
    Solicitation {
        /// The address that is resolved.
        target: Ipv6Addr,
        /// The sender's Ethernet address, if the option is there.
        mac: Option<Mac>,
    },
    /// The sender has `target`.
    Advertisement {
        /// The address that it has.
        target: Ipv6Addr,
        /// Its Ethernet address, if the option is there.
        mac: Option<Mac>,
        /// The S flag: it answers a solicitation.
        solicited: bool,
        /// The O flag: it overrides a cached address.
        overrides: bool,
    },
}

impl Ndp {
    /// Parses an ICMPv6 message whose checksum and hop limit were verified. `None` if it is neither, or
    /// invalid (RFC 4861 section 7.1).
    pub fn parse(message: &[u8], source: Ipv6Addr, destination: Ipv6Addr) -> Option<Ndp> {
        let (header, options) = message.split_first_chunk::<MESSAGE>()?;
        let target = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..]).ok()?);
        // No packet comes from a group (RFC 4291 section 2.7).
        if header[1] != 0 || target.is_multicast() || source.is_multicast() {
            return None;
        }
        match header[0] {
            SOLICITATION => {
                let mac = option(options, SOURCE_MAC)?;
                let is_probe = source.is_unspecified();
                let to_group = destination == solicited_node(target);
                let believed = !is_probe || to_group && mac.is_none();
                believed.then_some(Ndp::Solicitation { target, mac })
            }
            ADVERTISEMENT => {
                let (solicited, overrides) = (header[4] & 0x40 != 0, header[4] & 0x20 != 0);
                let mac = option(options, TARGET_MAC)?;
                let believed = !(solicited && destination.is_multicast());
                believed.then_some(Ndp::Advertisement { target, mac, solicited, overrides })
            }
            _ => None,
        }
    }
}

/// The Ethernet address in an option of this type, if there is one. `None` if the options are malformed.
fn option(mut options: &[u8], kind: u8) -> Option<Option<Mac>> {
    let mut found = None;
    while !options.is_empty() {
        let (&[this, units], _) = options.split_first_chunk()?;
        let len = usize::from(units) * 8;
        let (option, rest) = options.split_at_checked(len).filter(|_| len > 0)?;
        if this == kind && len == OPTION {
            // No host has a group's address.
            found = option[2..].try_into().ok().filter(|mac: &Mac| !is_group(*mac));
        }
        options = rest;
    }
    Some(found)
}

/// The solicited-node multicast address of `ip` (RFC 4291 section 2.7.1).
pub const fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | ip.to_bits() & 0xff_ffff)
}

/// The Ethernet address of an IPv6 group (RFC 2464 section 7).
pub const fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// A solicitation of `target`, multicast or to `to` alone.
pub fn solicitation(
    (mac, source): (Mac, Ipv6Addr),
    target: Ipv6Addr,
    to: Option<Mac>,
) -> [u8; FRAME_LEN] {
    let group = solicited_node(target);
    let (to, destination) = match to {
        Some(to) => (to, target),
        None => (group_mac(group), group),
    };
    with_option([SOLICITATION, 0], target, (SOURCE_MAC, mac), (source, destination), to)
}

/// An advertisement that `mac` has `target`: to the neighbour that solicited it, or, if that has no address
/// yet, to all nodes, so that it learns of the duplicate (RFC 4861 section 7.2.4, RFC 4862 section 5.4.3).
pub fn advertisement(
    mac: Mac,
    target: Ipv6Addr,
    asked: Option<(Ipv6Addr, Mac)>,
) -> [u8; FRAME_LEN] {
    // O flag; S flag if it goes to one neighbour.
    let (flags, (destination, to)) = match asked {
        Some(asked) => (0x60, asked),
        None => (0x20, (ALL_NODES, group_mac(ALL_NODES))),
    };
    with_option([ADVERTISEMENT, flags], target, (TARGET_MAC, mac), (target, destination), to)
}

/// A probe for `target`, multicast, in duplicate address detection: from the unspecified address, without an
/// option (RFC 4862 section 5.4.2).
pub fn probe(mac: Mac, target: Ipv6Addr) -> [u8; PROBE_LEN] {
    let mut bytes = [0; PROBE_LEN];
    let group = solicited_node(target);
    let addresses = Addresses::V6 { source: Ipv6Addr::UNSPECIFIED, destination: group };
    write(&mut bytes, [SOLICITATION, 0], target, addresses, (mac, group_mac(group)), &[]);
    bytes
}

fn with_option(
    start: [u8; 2],
    target: Ipv6Addr,
    (option, mac): (u8, Mac),
    (source, destination): (Ipv6Addr, Ipv6Addr),
    to: Mac,
) -> [u8; FRAME_LEN] {
    let mut bytes = [0; FRAME_LEN];
    let mut value = [option, 1, 0, 0, 0, 0, 0, 0];
    value[2..].copy_from_slice(&mac);
    write(&mut bytes, start, target, Addresses::V6 { source, destination }, (mac, to), &value);
    bytes
}

fn write(
    bytes: &mut [u8],
    [kind, flags]: [u8; 2],
    target: Ipv6Addr,
    addresses: Addresses,
    (from, to): (Mac, Mac),
    option: &[u8],
) {
    write_ethernet(bytes, to, from, EtherType::IPV6);
    let ip = IpHeader { ttl: HOP_LIMIT, ..IpHeader::new(addresses, protocol::ICMPV6) };
    ip.write(&mut bytes[ETHERNET_LEN..], MESSAGE + option.len());
    let message = &mut bytes[ETHERNET_LEN + IPV6_LEN..];
    (message[0], message[4]) = (kind, flags);
    message[8..24].copy_from_slice(&target.octets());
    message[24..].copy_from_slice(option);
    let sum = ip.pseudo_header(message.len()).plus(checksum::sum(message));
    put16(message, 2, sum.complement());
}
