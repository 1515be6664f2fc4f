//! Header prediction (Van Jacobson, "4BSD TCP Header Prediction", 1990): nearly every frame is a
//! segment of a flow that holds some, with the usual headers and nothing special about it, and most
//! are the next one.
//!
//! This asks all that the [`filter`](crate::filter) and [`merge`](crate::merge) ask, for that one
//! case and the endpoint profile, in as few comparisons as it takes. Whatever it does not expect,
//! bad checksums included, it leaves to them.

use wire::{ETHERNET_LEN, Flags, Seq, Sum, TCP_MIN_LEN, Timestamps, checksum, protocol};

use crate::RxChecksum;
use crate::config::HEADER_MAX;
use crate::descriptor::Descriptor;
use crate::filter::{Carried, Segment};
use crate::key::FlowKey;
use crate::layout::{
    IPV4_PLAIN, IPV4_TCP, IPV4_TIMESTAMPED, IPV6_PLAIN, IPV6_TCP, IPV6_TIMESTAMPED, Layout,
    TIMESTAMPS, be16, be32, be64,
};

/// A segment as its flow's others are.
pub(crate) struct Expected {
    pub(crate) transport_at: usize,
    pub(crate) start: usize,
    pub(crate) seq: Seq,
    pub(crate) len: u32,
    pub(crate) carried: Carried,
}

/// Whether the frame may join what the flow holds, should its sequence number fit, and is whole.
#[inline(always)]
pub(crate) fn expected(flow: &Descriptor, bytes: &[u8], known: RxChecksum) -> Option<Expected> {
    if !flow.is_holding() || known == RxChecksum::MaybePartial {
        return None;
    }
    match flow.layout {
        Layout::Ipv4Timestamps => compare::<IPV4_TCP, IPV4_TIMESTAMPED>(flow, bytes, known),
        Layout::Ipv6Timestamps => compare::<IPV6_TCP, IPV6_TIMESTAMPED>(flow, bytes, known),
        Layout::Ipv4 => compare::<IPV4_TCP, IPV4_PLAIN>(flow, bytes, known),
        Layout::Ipv6 => compare::<IPV6_TCP, IPV6_PLAIN>(flow, bytes, known),
        Layout::Unusual => None,
    }
}

impl Expected {
    /// The same for those who ask more.
    pub(crate) fn segment(&self, key: FlowKey) -> Segment {
        Segment {
            key,
            network_at: ETHERNET_LEN,
            transport_at: self.transport_at,
            payload_at: self.start,
            start: self.start,
            seq: self.seq,
            len: self.len,
            carried: self.carried,
        }
    }
}

/// `TCP` is where that header starts, `HEADER` where it ends: with constant lengths nothing is
/// asked twice.
#[inline(always)]
fn compare<const TCP: usize, const HEADER: usize>(
    flow: &Descriptor,
    bytes: &[u8],
    known: RxChecksum,
) -> Option<Expected> {
    let new: &[u8; HEADER] = bytes.first_chunk()?;
    let held: &[u8; HEADER_MAX] = flow.header_memory();
    let ipv6 = TCP == IPV6_TCP;
    let timestamped = HEADER > TCP + TCP_MIN_LEN;

    // One look at all that must be as it was: MAC addresses, EtherType, version, TOS or class ..
    let mut differs = (be64(new, 0) ^ be64(held, 0)) | (be64(new, 8) ^ be64(held, 8));
    let ip = ETHERNET_LEN;
    if ipv6 {
        // .. flow label, next header, hop limit, addresses ..
        differs |= (be64(new, ip) ^ be64(held, ip)) & 0xffff_ffff_0000_ffff;
        differs |=
            (be64(new, ip + 8) ^ be64(held, ip + 8)) | (be64(new, ip + 16) ^ be64(held, ip + 16));
        differs |=
            (be64(new, ip + 24) ^ be64(held, ip + 24)) | (be64(new, ip + 32) ^ be64(held, ip + 32));
    } else {
        // .. DF, fragment offset, TTL, protocol, addresses ..
        differs |= u64::from(be32(new, ip + 6) ^ be32(held, ip + 6));
        differs |= be64(new, ip + 12) ^ be64(held, ip + 12);
    }
    // .. ports, data offset and all flags but PSH, FIN and CWR, of which none but PSH may be set ..
    differs |= u64::from(be32(new, TCP) ^ be32(held, TCP));
    let (new_flags, held_flags) = (be16(new, TCP + 12), be16(held, TCP + 12));
    let alone = u16::from(Flags::FIN.0 | Flags::CWR.0);
    let free = alone | u16::from(Flags::PSH.0);
    differs |= u64::from((new_flags ^ held_flags) & !free | new_flags & alone);
    // .. and the kind of the options.
    if timestamped {
        differs |= u64::from(be32(new, TCP + TCP_MIN_LEN) ^ TIMESTAMPS);
    }
    let (seq, ack) = (Seq(be32(new, TCP + 4)), Seq(be32(new, TCP + 8)));
    if differs != 0 || !flow.admits(ack) {
        return None;
    }

    let mut timestamps = None;
    if timestamped {
        let at = TCP + TCP_MIN_LEN + 4;
        let (value, echo) = (Seq(be32(new, at)), Seq(be32(new, at + 4)));
        let goes_back = flow.last.timestamps.is_none_or(|last| value.before(last.value));
        if flow.has_data && goes_back {
            return None;
        }
        timestamps = Some(Timestamps { value, echo });
    }
    let end = if ipv6 {
        TCP + usize::from(be16(new, ip + 4))
    } else {
        ETHERNET_LEN + usize::from(be16(new, ip + 2))
    };
    if end <= HEADER || end > bytes.len() {
        return None;
    }
    if !ipv6 && !ipv4_checksum_ok(new) {
        return None;
    }
    if known == RxChecksum::Unverified && !tcp_checksum_ok::<TCP>(&bytes[..end]) {
        return None;
    }
    let id = if ipv6 { 0 } else { be16(new, ip + 4) };
    let flags = Flags(new_flags as u8);
    let carried = Carried { ack, timestamps, window: be16(new, TCP + 14), id, flags, cut: false };
    let len = (end - HEADER) as u32;
    Some(Expected { transport_at: TCP, start: HEADER, seq, len, carried })
}

/// Whether the IPv4 header sums to the zero of ones' complement (RFC 1071).
#[inline(always)]
fn ipv4_checksum_ok<const N: usize>(bytes: &[u8; N]) -> bool {
    let word = |n: usize| u64::from(be32(bytes, ETHERNET_LEN + 4 * n));
    let sum = word(0) + word(1) + word(2) + word(3) + word(4);
    // What folds to 0xFFFF is divisible by it, and no header is all zeros.
    sum.is_multiple_of(0xffff)
}

/// Addresses, ports and payload lie side by side.
#[inline(always)]
fn tcp_checksum_ok<const TCP: usize>(packet: &[u8]) -> bool {
    let addresses_at = if TCP == IPV6_TCP { TCP - 32 } else { TCP - 8 };
    let len = (packet.len() - TCP) as u16;
    let rest = Sum::default().plus_word(protocol::TCP.into()).plus_word(len);
    checksum::sum(&packet[addresses_at..]).plus(rest).fold() == 0xffff
}
