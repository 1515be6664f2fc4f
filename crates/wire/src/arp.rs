//! The Address Resolution Protocol for IPv4 over Ethernet (RFC 826, RFC 5227).

use core::net::Ipv4Addr;

use crate::{BROADCAST, ETHERNET_LEN, EtherType, Mac, is_group, write_ethernet};

/// Bytes of an ARP message for IPv4 over Ethernet.
pub const MESSAGE_LEN: usize = 28;

/// Bytes of an Ethernet frame with an ARP message.
pub const FRAME_LEN: usize = ETHERNET_LEN + MESSAGE_LEN;

/// Hardware type, protocol type and the lengths of their addresses: the beginning of every message.
const KIND: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// The operation of a message (`ar$op`, RFC 826).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// It asks which host has the target's address.
    Request,
    /// It is the answer: the sender has its address.
    Reply,
}

/// An ARP message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    /// Request or reply.
    pub operation: Operation,
    /// Ethernet address of the sender: that of a host, in a message that was parsed.
    pub sender_mac: Mac,
    /// IP address of the sender. Unspecified in a probe (RFC 5227 section 1.1).
    pub sender: Ipv4Addr,
    /// In a reply, the Ethernet address of the requester.
    pub target_mac: Mac,
    /// In a request the address that is resolved, in a reply that of the requester.
    pub target: Ipv4Addr,
}

impl Arp {
    /// Parses what follows the Ethernet header. `None` if it is no ARP message for IPv4 over Ethernet, or its
    /// sender is a group.
    pub fn parse(bytes: &[u8]) -> Option<Arp> {
        let message: &[u8; MESSAGE_LEN] = bytes.first_chunk()?;
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
        // No host has a group's address.
        (message[..6] == KIND && !is_group(arp.sender_mac)).then_some(arp)
    }

    /// The message as a frame to `to`.
    pub fn frame(&self, to: Mac) -> [u8; FRAME_LEN] {
        let mut bytes = [0; FRAME_LEN];
        write_ethernet(&mut bytes, to, self.sender_mac, EtherType::ARP);
        let message = &mut bytes[ETHERNET_LEN..];
        message[..6].copy_from_slice(&KIND);
        message[7] = if self.operation == Operation::Request { 1 } else { 2 };
        message[8..14].copy_from_slice(&self.sender_mac);
        message[14..18].copy_from_slice(&self.sender.octets());
        message[18..24].copy_from_slice(&self.target_mac);
        message[24..28].copy_from_slice(&self.target.octets());
        bytes
    }

    /// A request for `target`, broadcast or to `to` alone. A request for one's own address is an announcement
    /// (RFC 5227 section 2.3).
    pub fn request(from: (Mac, Ipv4Addr), target: Ipv4Addr, to: Option<Mac>) -> [u8; FRAME_LEN] {
        let (sender_mac, sender) = from;
        let target_mac = to.unwrap_or_default();
        let arp = Arp { operation: Operation::Request, sender_mac, sender, target_mac, target };
        arp.frame(to.unwrap_or(BROADCAST))
    }

    /// A probe for `target`, broadcast: a request that does not name the sender's IP address, so that no host
    /// learns it (RFC 5227 section 2.1).
    pub fn probe(mac: Mac, target: Ipv4Addr) -> [u8; FRAME_LEN] {
        Arp::request((mac, Ipv4Addr::UNSPECIFIED), target, None)
    }

    /// The reply to this request: `mac` has the address that it resolves.
    pub fn reply(&self, mac: Mac) -> [u8; FRAME_LEN] {
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
