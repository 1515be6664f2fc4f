//! What the endpoint itself has to say, between being asked and the port's being free: answers to ARP,
//! Neighbour Discovery and ping, and its own questions. Its memory is bounded and used again.

use std::collections::VecDeque;
use std::net::IpAddr;

use wire::{ETHERNET_LEN, checksum, protocol};

use super::frame::{self, Ip};
use super::neighbours::Mac;

/// Messages that may wait: as many as a turn receives.
const MESSAGES_MAX: usize = 256;

/// A frame to send.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Whose Ethernet address is still to be written, if it is not there already.
    pub(super) hop: Option<IpAddr>,
    pub(super) bytes: Vec<u8>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Outgoing>,
    spare: Vec<Vec<u8>>,
}

impl Outbox {
    /// Memory for one more message, if there may be one more.
    fn memory(&mut self) -> Option<Vec<u8>> {
        let room = self.waiting.len() < MESSAGES_MAX;
        room.then(|| self.spare.pop().unwrap_or_default())
    }

    /// Takes a copy of a complete frame. False if too many wait already.
    pub(super) fn frame(&mut self, frame: &[u8]) -> bool {
        let Some(mut bytes) = self.memory() else { return false };
        bytes.extend_from_slice(frame);
        self.waiting.push_back(Outgoing { hop: None, bytes });
        true
    }

    /// Takes a copy of a message of ICMP, of either version, behind headers of its own, changed by
    /// `change`, which leaves zeros for the checksum. False if too many wait already.
    pub(super) fn packet(
        &mut self,
        hop: IpAddr,
        from: Mac,
        ip: &Ip,
        message: &[u8],
        change: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(mut bytes) = self.memory() else { return false };
        let message_at = ETHERNET_LEN + ip.header_len();
        bytes.resize(message_at, 0);
        frame::write_ethernet(&mut bytes, Mac::default(), from, ip.ether_type());
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

    /// The next to send.
    pub(super) fn next(&mut self) -> Option<Outgoing> {
        self.waiting.pop_front()
    }

    /// Takes back the memory of one that was sent.
    pub(super) fn reuse(&mut self, mut sent: Outgoing) {
        sent.bytes.clear();
        self.spare.push(sent.bytes);
    }
}
