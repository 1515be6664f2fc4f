//! The host's Send Sequence Space (RFC 9293 section 3.3.1), as far as this worker sees it: which
//! acknowledgments the host is known to take.
//!
//! A host drops a segment, data and all, if it acknowledges what was never sent, or what is too old
//! (RFC 5961 section 5.2; Linux `tcp_ack`). That keeps out who knows the ports of a connection but not
//! its numbers. An aggregate has one acknowledgment, so among its segments none may be that the host
//! would have dropped: it would be let in by that of another, or have all others dropped with it. So
//! acknowledgments are joined if they are equal, or if both are known to be taken.
//!
//! - The host's packets tell SND.NXT, on their way to the wire ([`Lro::observe`]).
//! - SND.UNA is the newest acceptable acknowledgment of what was handed on. RFC 5961 takes what is
//!   older by up to MAX.SND.WND, and this does not: so the window's scale need not be known, and what
//!   was handed on while a segment was held does not make that too old.
//! - What begins in the middle, or had packets go another way, begins at SND.NXT, of which nothing can
//!   have been acknowledged yet: a round trip later all is known.
//!
//! Pure acknowledgments of the host's do not move SND.NXT, so they cost nothing: that is all that a
//! host sends which only receives, and its peer's acknowledgments are all equal.

use wire::{
    ETHERNET_LEN, Flags, Headers, IPV4_MIN_LEN, IPV6_LEN, Seq, TCP_MIN_LEN, Tcp, Transport,
    protocol,
};

use crate::key::FlowKey;
use crate::predict::usual_key;
use crate::{Lro, Profile};

/// The largest window (RFC 7323 section 2.3): no host has sent more than that unacknowledged.
const WINDOW_MAX: u32 = 1 << 30;

/// Of IPv4's flags and fragment offset: what tells a fragment.
const OFFSET_AND_MORE: u16 = 0x3fff;

/// SND.UNA and SND.NXT; nothing is known at first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendSpace {
    /// Not before the host's SND.UNA.
    una: Seq,
    /// Not after the host's SND.NXT.
    nxt: Seq,
    is_known: bool,
}

impl SendSpace {
    /// The host's SND.NXT, once it has told.
    pub(crate) fn next_seq(&self) -> Option<Seq> {
        self.is_known.then_some(self.nxt)
    }

    /// Whether the host surely takes a segment with this acknowledgment.
    #[inline(always)]
    pub(crate) fn accepts(&self, ack: Seq) -> bool {
        self.is_known && ack - self.una <= self.nxt - self.una
    }

    /// The host has sent what lies between these.
    fn sends(&mut self, from: Seq, end: Seq) {
        // What came before `from` went another way, perhaps, and so has what acknowledged it.
        if !self.is_known || from.after(self.nxt) {
            *self = SendSpace { una: end, nxt: end, is_known: true };
        } else if end.after(self.nxt) {
            self.nxt = end;
            if self.nxt - self.una > WINDOW_MAX {
                self.una = end;
            }
        }
    }

    /// The host has been handed this acknowledgment.
    #[inline]
    pub(crate) fn acknowledged(&mut self, ack: Seq) {
        if self.accepts(ack) {
            self.una = ack;
        }
    }

    /// The host may have been handed acknowledgments that were not seen.
    pub(crate) fn lose_sight(&mut self) {
        self.una = self.nxt;
    }
}

/// What a packet of the host's tells of that.
#[derive(Clone, Copy)]
pub(crate) struct Said {
    seq: Seq,
    len: u32,
    flags: Flags,
}

impl Said {
    pub(crate) fn new<T: AsRef<[u8]>>(tcp: &Tcp<T>, len: u32) -> Said {
        Said { seq: tcp.seq(), len, flags: tcp.flags() }
    }

    /// Reads it from a packet with no more than Ethernet, IP and TCP; its headers are enough.
    #[inline]
    fn usual(bytes: &[u8]) -> Option<Said> {
        let be16 = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let ip = ETHERNET_LEN;
        let kind = bytes.get(12..15)?;
        let (tcp, end) = if kind == [0x08, 0x00, 0x45] {
            if *bytes.get(ip + 9)? != protocol::TCP || be16(ip + 6)? & OFFSET_AND_MORE != 0 {
                return None;
            }
            (ip + IPV4_MIN_LEN, ip + usize::from(be16(ip + 2)?))
        } else if kind[..2] == [0x86, 0xdd] && *bytes.get(ip + 6)? == protocol::TCP {
            (ip + IPV6_LEN, ip + IPV6_LEN + usize::from(be16(ip + 4)?))
        } else {
            return None;
        };
        let header: &[u8; TCP_MIN_LEN] = bytes.get(tcp..)?.first_chunk()?;
        let payload_at = tcp + usize::from(header[12] >> 4) * 4;
        Some(Said {
            seq: Seq(u32::from_be_bytes([header[4], header[5], header[6], header[7]])),
            len: end.checked_sub(payload_at)? as u32,
            flags: Flags(header[13]),
        })
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

/// UDP, ICMP or ARP, by a look at a plain Ethernet header: what it is to tell apart at no cost.
#[inline]
fn is_no_tcp(bytes: &[u8]) -> bool {
    match bytes.get(12..14) {
        Some([0x08, 0x00]) => bytes.get(23) != Some(&protocol::TCP),
        Some([0x86, 0xdd]) => matches!(bytes.get(20), Some(&protocol::UDP | &protocol::ICMPV6)),
        Some([0x08, 0x06]) => true,
        _ => false,
    }
}

impl<F> Lro<F> {
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
        match Said::usual(bytes) {
            Some(said) if !said.moves() => {}
            Some(said) => {
                if let Some(key) = usual_key(bytes) {
                    self.note(&key.reversed(), &said, bytes);
                }
            }
            None if is_no_tcp(bytes) => {}
            None => self.note_unusual(bytes),
        }
    }

    fn note(&mut self, key: &FlowKey, said: &Said, bytes: &[u8]) {
        if let Some(index) = self.table.peek(key) {
            said.note(&mut self.table[index].send);
            if said.flags.any(Flags::SYN) {
                self.note_syn(index, bytes);
            }
        }
    }

    /// A packet of TCP with VLAN tags, say.
    #[cold]
    fn note_unusual(&mut self, bytes: &[u8]) {
        let Ok(headers) = Headers::parse(bytes) else { return };
        if headers.transport == Transport::Tcp
            && let Ok(tcp) = Tcp::new(&bytes[headers.transport_at..headers.end])
        {
            let said = Said::new(&tcp, headers.payload_len() as u32);
            if said.moves() {
                self.note(&FlowKey::of(bytes, &headers).reversed(), &said, bytes);
            }
        }
    }
}
