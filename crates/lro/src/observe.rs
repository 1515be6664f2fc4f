//! What the host's packets tell on their way to the wire.

use wire::{Flags, FlowKey, Glance, Packet, Plain, Seq, Tcp};

use crate::link::Link;
use crate::send::SendSpace;
use crate::{Lro, Profile};

/// What a packet of the host's tells of that.
#[derive(Clone, Copy)]
pub(crate) struct HostSegment {
    seq: Seq,
    len: u32,
    flags: Flags,
}

impl HostSegment {
    pub(crate) fn new<T: AsRef<[u8]>>(tcp: &Tcp<T>, len: u32) -> HostSegment {
        HostSegment { seq: tcp.seq(), len, flags: tcp.flags() }
    }

    /// Reads it from a packet in its plain form; `None` if its lengths contradict each other.
    #[inline]
    fn plain(packet: &Plain<'_>) -> Option<HostSegment> {
        let len = packet.payload_len()? as u32;
        Some(HostSegment { seq: packet.seq(), len, flags: packet.flags() })
    }

    /// Whether it may move SND.NXT.
    #[inline]
    fn moves(&self) -> bool {
        self.len > 0 || self.flags.any(Flags::SYN.with(Flags::FIN).with(Flags::RST))
    }

    pub(crate) fn note(&self, space: &mut SendSpace) {
        let is = |flag: Flags| u32::from(self.flags.any(flag));
        if self.flags.any(Flags::SYN.with(Flags::RST)) {
            *space = SendSpace::default();
        }
        if !self.flags.any(Flags::RST) {
            space.sends(self.seq, self.seq + self.len + is(Flags::SYN) + is(Flags::FIN));
        }
    }
}

impl<F, L: Link> Lro<F, L> {
    /// A packet that the host sends, super-packets included; `bytes` from its Ethernet header to the
    /// end of its TCP header at least, all of it if there is more than Ethernet, IP and TCP.
    ///
    /// To be called for all that leaves by the worker of this `Lro`, before it leaves. Segments whose
    /// acknowledgments differ are joined only in flows of which this was done, as otherwise nothing
    /// tells which of them the host would take (RFC 5961 section 5.2); active ACK speaks for a host
    /// only if it has heard it. A pure acknowledgment costs a look at its header.
    #[inline]
    pub fn observe(&mut self, bytes: &[u8]) {
        if self.config.profile != Profile::Endpoint {
            return; // which asks for equal ones
        }
        if self.acknowledges() {
            return self.hear(bytes);
        }
        match L::glance(bytes) {
            Glance::Tcp(plain) => match HostSegment::plain(&plain) {
                Some(segment) if segment.moves() => {
                    self.note(&plain.key().reversed(), &segment, bytes);
                }
                _ => {}
            },
            Glance::Neither => {}
            Glance::Unclear => self.note_unusual(bytes),
        }
    }

    fn note(&mut self, key: &FlowKey, segment: &HostSegment, bytes: &[u8]) {
        if let Some(index) = self.table.peek(key) {
            segment.note(&mut self.table[index].send);
            if segment.flags.any(Flags::SYN) {
                self.note_host_syn(index, bytes);
            }
        }
    }

    /// A packet of TCP with VLAN tags, say.
    #[cold]
    fn note_unusual(&mut self, bytes: &[u8]) {
        let Ok(Packet::Tcp(packet)) = L::packet(bytes) else { return };
        let segment = HostSegment::new(&packet.tcp(), packet.payload_len() as u32);
        if segment.moves() {
            self.note(&packet.key().reversed(), &segment, bytes);
        }
    }
}
