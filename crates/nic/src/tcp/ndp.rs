//! Neighbour Discovery for IPv6 over Ethernet, as far as a host with addresses of its own needs it
//! (RFC 4861, RFC 4862): who has an address, and saying so.

use std::net::{IpAddr, Ipv6Addr};

use wire::{ETHERNET_LEN, EtherType, IPV6_LEN, MAC_LEN, protocol};

use super::addresses::{group_mac, solicited_node};
use super::frame::{self, Ip};

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// The options with a link-layer address (RFC 4861 section 4.6.1).
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;
/// Bytes of a message, and of its one option.
const MESSAGE: usize = 24;
const OPTION: usize = 8;

/// Packets that have crossed no router have this left (RFC 4861 section 7.1).
pub(super) const HOP_LIMIT: u8 = 255;

/// Bytes of a frame with a message.
pub(super) const NDP_FRAME_LEN: usize = ETHERNET_LEN + IPV6_LEN + MESSAGE + OPTION;

/// What a neighbour says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ndp {
    /// A question which neighbour has `target`. `mac` is that of the sender, if the message has it.
    Solicitation { target: Ipv6Addr, mac: Option<[u8; MAC_LEN]> },
    /// `target` is mine.
    Advertisement {
        target: Ipv6Addr,
        mac: Option<[u8; MAC_LEN]>,
        /// As an answer to a solicitation.
        solicited: bool,
        /// What was known before is wrong.
        overrides: bool,
    },
}

impl Ndp {
    /// Reads a message of ICMPv6 whose checksum and hop limit were found right. `None` if it is no
    /// such message, or is not to be believed (RFC 4861 section 7.1).
    pub(super) fn parse(message: &[u8], source: Ipv6Addr, destination: Ipv6Addr) -> Option<Ndp> {
        let (header, options) = message.split_first_chunk::<MESSAGE>()?;
        let target = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..]).ok()?);
        if header[1] != 0 || target.is_multicast() {
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

/// The Ethernet address in an option of this type, if there is one. `None` if the options cannot be
/// read.
fn option(mut options: &[u8], kind: u8) -> Option<Option<[u8; MAC_LEN]>> {
    let mut found = None;
    while !options.is_empty() {
        let (&[this, units], _) = options.split_first_chunk()?;
        let len = usize::from(units) * 8;
        let (option, rest) = options.split_at_checked(len).filter(|_| len > 0)?;
        if this == kind && len == OPTION {
            // A group is no host's address.
            found = option[2..].try_into().ok().filter(|mac: &[u8; MAC_LEN]| mac[0] & 1 == 0);
        }
        options = rest;
    }
    Some(found)
}

/// Asks all, or `to` alone, who has `target`.
pub(super) fn solicitation(
    (mac, source): ([u8; MAC_LEN], Ipv6Addr),
    target: Ipv6Addr,
    to: Option<[u8; MAC_LEN]>,
) -> [u8; NDP_FRAME_LEN] {
    let group = solicited_node(target);
    let (to, destination) = match to {
        Some(to) => (to, target),
        None => (group_mac(group), group),
    };
    write([SOLICITATION, 0], target, (SOURCE_MAC, mac), (source, destination), to)
}

/// Says that `mac` has `target`, to who asked and to where it is, or to all if who asked has no address
/// yet: then it learns that this one is taken (RFC 4861 section 7.2.4, RFC 4862 section 5.4.3).
pub(super) fn advertisement(
    mac: [u8; MAC_LEN],
    target: Ipv6Addr,
    asked: Option<(Ipv6Addr, [u8; MAC_LEN])>,
) -> [u8; NDP_FRAME_LEN] {
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    // Override, and solicited if one neighbour is answered.
    let (flags, (destination, to)) = match asked {
        Some(asked) => (0x60, asked),
        None => (0x20, (ALL_NODES, group_mac(ALL_NODES))),
    };
    write([ADVERTISEMENT, flags], target, (TARGET_MAC, mac), (target, destination), to)
}

fn write(
    [kind, flags]: [u8; 2],
    target: Ipv6Addr,
    (option, mac): (u8, [u8; MAC_LEN]),
    (source, destination): (Ipv6Addr, Ipv6Addr),
    to: [u8; MAC_LEN],
) -> [u8; NDP_FRAME_LEN] {
    let mut bytes = [0; NDP_FRAME_LEN];
    frame::write_ethernet(&mut bytes, to, mac, EtherType::IPV6);
    let ip = Ip {
        ttl: HOP_LIMIT,
        ..Ip::new(IpAddr::V6(source), IpAddr::V6(destination), protocol::ICMPV6)
    };
    ip.write(&mut bytes[ETHERNET_LEN..], MESSAGE + OPTION);
    let message = &mut bytes[ETHERNET_LEN + IPV6_LEN..];
    (message[0], message[4]) = (kind, flags);
    message[8..24].copy_from_slice(&target.octets());
    message[24..26].copy_from_slice(&[option, 1]);
    message[26..32].copy_from_slice(&mac);
    let sum = ip.pseudo_header(message.len()).plus(wire::checksum::sum(message));
    message[2..4].copy_from_slice(&sum.complement().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn read(frame: &[u8]) -> Option<Ndp> {
        let view = wire::Ipv6::new(&frame[14..]).unwrap();
        let address = |bytes: &[u8]| Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap());
        Ndp::parse(&frame[54..], address(view.source()), address(view.destination()))
    }

    #[test]
    fn messages_are_read_as_they_were_meant() {
        let (own, peer) = (ip("fd00::2"), ip("fd00::1"));
        let all = solicitation((PEER, peer), own, None);
        assert_eq!(all[..6], [0x33, 0x33, 0xff, 0, 0, 2]);
        assert_eq!(read(&all), Some(Ndp::Solicitation { target: own, mac: Some(PEER) }));
        let one = solicitation((PEER, peer), own, Some(OWN));
        assert_eq!((&one[..6], &one[38..54]), (&OWN[..], &own.octets()[..]));
        assert!(read(&one).is_some());
        let answer = advertisement(OWN, own, Some((peer, PEER)));
        let expected =
            Ndp::Advertisement { target: own, mac: Some(OWN), solicited: true, overrides: true };
        assert_eq!((read(&answer), &answer[..6]), (Some(expected), &PEER[..]));
        let defence = advertisement(OWN, own, None);
        assert_eq!(defence[..6], [0x33, 0x33, 0, 0, 0, 1]);
        let expected =
            Ndp::Advertisement { target: own, mac: Some(OWN), solicited: false, overrides: true };
        assert_eq!(read(&defence), Some(expected));
        for frame in [all, one, answer, defence] {
            testkit::verify::checksums(&frame).unwrap();
        }
    }

    #[test]
    fn what_is_not_to_be_believed_is_not() {
        let (own, nobody) = (ip("fd00::2"), Ipv6Addr::UNSPECIFIED);
        // An address probe with a link-layer address, or to one host (RFC 4861 section 7.1.1).
        assert_eq!(read(&solicitation((PEER, nobody), own, None)), None);
        let bare = |destination| {
            let frame = solicitation((PEER, nobody), own, None);
            Ndp::parse(&frame[54..78], nobody, destination)
        };
        assert_eq!(bare(own), None);
        let probe = Some(Ndp::Solicitation { target: own, mac: None });
        assert_eq!(bare(solicited_node(own)), probe);
        let mut frame = solicitation((PEER, ip("fd00::1")), own, None);
        frame[79] = 0;
        assert_eq!(read(&frame), None, "an option of no length");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_not(bytes: Vec<u8>, source: u128, destination: u128) {
            let _ = Ndp::parse(&bytes, source.into(), destination.into());
        }
    }
}
