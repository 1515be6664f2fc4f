//! Messages of the host itself, until they are sent: replies to ARP, Neighbour Discovery and ping, and its
//! requests. Their memory is bounded and used again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use wire::ip::IpHeader;
use wire::{ETHERNET_LEN, Mac, checksum, protocol, write_ethernet};

/// Messages that may wait: as many as a batch of packets makes.
pub const MESSAGES_MAX: usize = 256;
/// Memory that is kept for the next message: more than one of an MTU of 1500 bytes needs.
const SPARE_LEN: usize = 2048;

/// A frame to send.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The next hop whose Ethernet address is still to be written, if it is not written yet.
    pub(crate) hop: Option<IpAddr>,
    pub(crate) bytes: Vec<u8>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Outgoing>,
    spare: Vec<Vec<u8>>,
    /// Messages are left out: another interface sends them.
    pub(crate) is_muted: bool,
}

impl Outbox {
    /// Memory for one more message; `None` if there may be no more.
    fn memory(&mut self) -> Option<Vec<u8>> {
        let room = self.waiting.len() < MESSAGES_MAX;
        room.then(|| self.spare.pop().unwrap_or_default())
    }

    /// Takes a copy of a complete frame. Returns false if too many wait already.
    pub(crate) fn frame(&mut self, frame: &[u8]) -> bool {
        if self.is_muted {
            return true;
        }
        let Some(mut bytes) = self.memory() else { return false };
        bytes.extend_from_slice(frame);
        self.waiting.push_back(Outgoing { hop: None, bytes });
        true
    }

    /// Takes a copy of an ICMP message, of either version, behind IP headers that it writes, changed by
    /// `change`, which leaves zeros for the checksum. Returns false if too many wait already.
    pub(crate) fn packet(
        &mut self,
        hop: IpAddr,
        from: Mac,
        ip: &IpHeader,
        message: &[u8],
        change: impl FnOnce(&mut [u8]),
    ) -> bool {
        if self.is_muted {
            return true;
        }
        let Some(mut bytes) = self.memory() else { return false };
        let message_at = ETHERNET_LEN + ip.header_len();
        bytes.resize(message_at, 0);
        write_ethernet(&mut bytes, Mac::default(), from, ip.ether_type());
        ip.write(&mut bytes[ETHERNET_LEN..], message.len());
        bytes.extend_from_slice(message);
        let message = &mut bytes[message_at..];
        change(message);
        let mut sum = checksum::sum(message);
        if ip.protocol == protocol::ICMPV6 {
            sum = sum.plus(ip.pseudo_header(message.len()));
        }
        if let Some(field) = message.get_mut(2..4) {
            field.copy_from_slice(&sum.complement().to_be_bytes());
        }
        self.waiting.push_back(Outgoing { hop: Some(hop), bytes });
        true
    }

    /// The next message to send.
    pub(crate) fn next(&mut self) -> Option<Outgoing> {
        self.waiting.pop_front()
    }

    /// Takes back the memory of a message that was sent.
    pub(crate) fn reuse(&mut self, mut bytes: Vec<u8>) {
        if (1..=SPARE_LEN).contains(&bytes.capacity()) && self.spare.len() < MESSAGES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}
