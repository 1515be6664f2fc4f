//! Of which acknowledgments it is known that the host takes them (RFC 5961 section 5.2): the crate's
//! documentation written anew.

use super::naive::{FIN, RST, SYN, Tcp};
use super::rules::is_before;

/// The host's SND.UNA and SND.NXT, as far as they were seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent(Option<(u32, u32)>);

impl Sent {
    /// The host sends this.
    pub(crate) fn hear(&mut self, packet: &Tcp) {
        if packet.has(RST) {
            self.0 = None;
            return;
        }
        if packet.payload.is_empty() && !packet.has(SYN | FIN) {
            return;
        }
        let len = packet.payload.len() as u32;
        let controls = u32::from(packet.has(SYN)) + u32::from(packet.has(FIN));
        let end = packet.seq().wrapping_add(len + controls);
        self.0 = Some(match self.0 {
            Some((una, nxt)) if !packet.has(SYN) && !is_before(nxt, packet.seq()) => {
                (una, if is_before(nxt, end) { end } else { nxt })
            }
            _ => (end, end), // what is before went another way
        });
    }

    /// Whether anything is known of the host.
    pub(crate) fn is_known(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn accepts(&self, ack: u32) -> bool {
        self.0.is_some_and(|(una, nxt)| !is_before(ack, una) && !is_before(nxt, ack))
    }

    /// The host has been given this.
    pub(crate) fn acknowledged(&mut self, ack: u32) {
        if self.accepts(ack)
            && let Some((una, _)) = &mut self.0
        {
            *una = ack;
        }
    }

    /// The host may have been given others.
    pub(crate) fn loses_sight(&mut self) {
        self.0 = self.0.map(|(_, nxt)| (nxt, nxt));
    }
}
