//! What the host's packets tell on their way to the wire.

use wire::{
    ETHERNET_LEN, Flags, FlowKey, IPV4_MIN_LEN, IPV6_LEN, Seq, TCP_MIN_LEN, Tcp, Transport,
    protocol,
};

use crate::layout::usual_key;
use crate::link::Link;
use crate::send::SendSpace;
use crate::{Lro, Profile};

/// Of IPv4's flags and fragment offset: what tells a fragment.
const OFFSET_AND_MORE: u16 = 0x3fff;

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

    /// Reads it from a packet with no more than Ethernet, IP and TCP; its headers are enough.
    #[inline]
    fn usual<L: Link>(bytes: &[u8]) -> Option<HostSegment> {
        let be16 = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let ip = L::LEN;
        let version = (L::usual_version(bytes), *bytes.get(ip)?);
        let (tcp, end) = if version == (4, 0x45) {
            if *bytes.get(ip + 9)? != protocol::TCP || be16(ip + 6)? & OFFSET_AND_MORE != 0 {
                return None;
            }
            (ip + IPV4_MIN_LEN, ip + usize::from(be16(ip + 2)?))
        } else if version.0 == 6 && *bytes.get(ip + 6)? == protocol::TCP {
            (ip + IPV6_LEN, ip + IPV6_LEN + usize::from(be16(ip + 4)?))
        } else {
            return None;
        };
        let header: &[u8; TCP_MIN_LEN] = bytes.get(tcp..)?.first_chunk()?;
        let payload_at = tcp + usize::from(header[12] >> 4) * 4;
        Some(HostSegment {
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

/// UDP, ICMP or ARP, by a look at the usual places: what it is to tell apart at no cost.
#[inline]
fn is_no_tcp<L: Link>(bytes: &[u8]) -> bool {
    match L::usual_version(bytes) {
        4 => bytes.get(L::LEN + 9) != Some(&protocol::TCP),
        6 => matches!(bytes.get(L::LEN + 6), Some(&protocol::UDP | &protocol::ICMPV6)),
        _ => L::LEN == ETHERNET_LEN && bytes.get(12..14) == Some(&[0x08, 0x06]),
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
        match HostSegment::usual::<L>(bytes) {
            Some(segment) if !segment.moves() => {}
            Some(segment) => {
                if let Some(key) = usual_key::<L>(bytes) {
                    self.note(&key.reversed(), &segment, bytes);
                }
            }
            None if is_no_tcp::<L>(bytes) => {}
            None => self.note_unusual(bytes),
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
        let Ok(headers) = L::parse(bytes) else { return };
        if headers.transport == Transport::Tcp
            && let Ok(tcp) = Tcp::new(&bytes[headers.transport_at..headers.end])
        {
            let segment = HostSegment::new(&tcp, headers.payload_len() as u32);
            if segment.moves() {
                self.note(&FlowKey::of(bytes, &headers).reversed(), &segment, bytes);
            }
        }
    }
}
