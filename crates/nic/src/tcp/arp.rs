//! The Address Resolution Protocol for IPv4 over Ethernet (RFC 826, RFC 5227).

use std::net::Ipv4Addr;

use wire::{ETHERNET_LEN, EtherType, MAC_LEN};

use super::frame;

/// Bytes of a frame with a message.
pub(super) const ARP_FRAME_LEN: usize = ETHERNET_LEN + 28;

/// Ethernet, IPv4, and the lengths of their addresses: how every message begins.
const KIND: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// Who asks for, or has, an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Request,
    Reply,
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arp {
    pub(super) operation: Operation,
    pub(super) sender_mac: [u8; MAC_LEN],
    /// Unspecified in a probe (RFC 5227 section 1.1).
    pub(super) sender: Ipv4Addr,
    pub(super) target_mac: [u8; MAC_LEN],
    pub(super) target: Ipv4Addr,
}

impl Arp {
    /// Reads what follows the Ethernet header. `None` if it is no such message.
    pub(super) fn parse(bytes: &[u8]) -> Option<Arp> {
        let message: &[u8; 28] = bytes.first_chunk()?;
        let operation = match u16::from_be_bytes([message[6], message[7]]) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return None,
        };
        let mac = |at: usize| message[at..at + 6].try_into().ok();
        let ip = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(&message[at..at + 4]).ok()?));
        let arp = Arp {
            operation,
            sender_mac: mac(8)?,
            sender: ip(14)?,
            target_mac: mac(18)?,
            target: ip(24)?,
        };
        // A group is no host's address.
        (message[..6] == KIND && arp.sender_mac[0] & 1 == 0).then_some(arp)
    }

    /// The message as a frame to `to`.
    pub(super) fn frame(&self, to: [u8; MAC_LEN]) -> [u8; ARP_FRAME_LEN] {
        let mut bytes = [0; ARP_FRAME_LEN];
        frame::write_ethernet(&mut bytes, to, self.sender_mac, EtherType::ARP);
        let message = &mut bytes[ETHERNET_LEN..];
        message[..6].copy_from_slice(&KIND);
        message[7] = if self.operation == Operation::Request { 1 } else { 2 };
        message[8..14].copy_from_slice(&self.sender_mac);
        message[14..18].copy_from_slice(&self.sender.octets());
        message[18..24].copy_from_slice(&self.target_mac);
        message[24..28].copy_from_slice(&self.target.octets());
        bytes
    }

    /// Asks all, or `to` alone, who has `target`.
    pub(super) fn request(
        from: ([u8; MAC_LEN], Ipv4Addr),
        target: Ipv4Addr,
        to: Option<[u8; MAC_LEN]>,
    ) -> [u8; ARP_FRAME_LEN] {
        let (sender_mac, sender) = from;
        let target_mac = to.unwrap_or_default();
        let arp = Arp { operation: Operation::Request, sender_mac, sender, target_mac, target };
        arp.frame(to.unwrap_or(frame::BROADCAST))
    }

    /// Answers this request: `mac` has the address that it asks for.
    pub(super) fn reply(&self, mac: [u8; MAC_LEN]) -> [u8; ARP_FRAME_LEN] {
        let arp = Arp {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: self.target,
            target_mac: self.sender_mac,
            target: self.sender,
        };
        arp.frame(self.sender_mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];

    #[test]
    fn a_request_is_answered_to_who_asks() {
        let (own, peer) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
        let request = Arp::request((PEER, peer), own, None);
        assert_eq!(request[..6], [0xff; 6]);
        let request = Arp::parse(&request[14..]).unwrap();
        let reply = request.reply(OWN);
        assert_eq!((&reply[..6], &reply[6..12]), (&PEER[..], &OWN[..]));
        let reply = Arp::parse(&reply[14..]).unwrap();
        assert_eq!((reply.operation, reply.sender, reply.target), (Operation::Reply, own, peer));
        assert_eq!((reply.sender_mac, reply.target_mac), (OWN, PEER));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_not(bytes: Vec<u8>) {
            if let Some(arp) = Arp::parse(&bytes) {
                prop_assert_eq!(arp.frame([0; 6])[14..].to_vec(), bytes[..28].to_vec());
            }
        }
    }
}
