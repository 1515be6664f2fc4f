//! Header prediction (Van Jacobson, "4BSD TCP Header Prediction", 1990): nearly every frame is a
//! segment of a flow that holds some, with the usual headers and nothing special about it, and most
//! are the next one.
//!
//! This asks all that the [`filter`](crate::filter) and [`merge`](crate::merge) ask, for that one
//! case and the endpoint profile, in as few comparisons as it takes. Whatever it does not expect,
//! bad checksums included, it leaves to them.

use wire::{Flags, FlowKey, IPV4_MIN_LEN, Seq, Sum, TCP_MIN_LEN, Timestamps, checksum, protocol};

use crate::RxChecksum;
use crate::config::HEADER_MAX;
use crate::descriptor::Descriptor;
use crate::filter::{Carried, Segment};
use crate::layout::{Layout, TIMESTAMPS, be16, be32, be64};
use crate::link::Link;

/// A segment as its flow's others are.
pub(crate) struct Expected {
    pub(crate) network_at: usize,
    pub(crate) transport_at: usize,
    pub(crate) start: usize,
    pub(crate) seq: Seq,
    pub(crate) len: u32,
    pub(crate) carried: Carried,
}

/// Whether the frame may join what the flow holds, should its sequence number fit, and is whole.
///
/// `L::LEN` is a constant, so one of the two is all that is compiled: no type can compute the places yet.
#[inline(always)]
pub(crate) fn expected<L: Link>(
    flow: &Descriptor,
    bytes: &[u8],
    known: RxChecksum,
) -> Option<Expected> {
    if !flow.is_holding() {
        return None;
    }
    if L::LEN == 0 {
        return match flow.layout {
            Layout::Ipv4Timestamps => compare::<0, 20, 52>(flow, bytes, known),
            Layout::Ipv6Timestamps => compare::<0, 40, 72>(flow, bytes, known),
            Layout::Ipv4 => compare::<0, 20, 40>(flow, bytes, known),
            Layout::Ipv6 => compare::<0, 40, 60>(flow, bytes, known),
            Layout::Unusual => None,
        };
    }
    match flow.layout {
        Layout::Ipv4Timestamps => compare::<14, 34, 66>(flow, bytes, known),
        Layout::Ipv6Timestamps => compare::<14, 54, 86>(flow, bytes, known),
        Layout::Ipv4 => compare::<14, 34, 54>(flow, bytes, known),
        Layout::Ipv6 => compare::<14, 54, 74>(flow, bytes, known),
        Layout::Unusual => None,
    }
}

impl Expected {
    /// The same for those who ask more.
    pub(crate) fn segment(&self, key: FlowKey) -> Segment {
        Segment {
            key,
            network_at: self.network_at,
            transport_at: self.transport_at,
            payload_at: self.start,
            start: self.start,
            seq: self.seq,
            len: self.len,
            carried: self.carried,
        }
    }
}

/// `IP` and `TCP` are where those headers start, `HEADER` is where they end: with constant lengths nothing is
/// asked twice.
#[inline(always)]
fn compare<const IP: usize, const TCP: usize, const HEADER: usize>(
    flow: &Descriptor,
    bytes: &[u8],
    known: RxChecksum,
) -> Option<Expected> {
    let new: &[u8; HEADER] = bytes.first_chunk()?;
    let held: &[u8; HEADER_MAX] = flow.header_memory();
    let ipv6 = TCP != IP + IPV4_MIN_LEN;
    let timestamped = HEADER > TCP + TCP_MIN_LEN;

    // The next frame is of another flow more often than it differs otherwise, and ports tell most.
    if be32(new, TCP) != be32(held, TCP) {
        return None;
    }
    // One look at all that must be as it was: MAC addresses, EtherType, version, TOS or class ..
    let mut differs = if IP == 0 {
        u64::from(be16(new, 0) ^ be16(held, 0))
    } else {
        (be64(new, 0) ^ be64(held, 0)) | (be64(new, 8) ^ be64(held, 8))
    };
    let ip = IP;
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
    // .. data offset and all flags but PSH, FIN and CWR, of which none but PSH may be set ..
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
        IP + usize::from(be16(new, ip + 2))
    };
    if end <= HEADER || end > bytes.len() {
        return None;
    }
    if !ipv6 && !ipv4_checksum_ok::<IP, HEADER>(new) {
        return None;
    }
    let is_right = match known {
        RxChecksum::Verified => true,
        RxChecksum::Unverified => tcp_checksum_ok::<IP, TCP>(&bytes[..end]),
        RxChecksum::MaybePartial => {
            tcp_checksum_is_partial::<IP, TCP, HEADER>(new, end)
                || tcp_checksum_ok::<IP, TCP>(&bytes[..end])
        }
    };
    if !is_right {
        return None;
    }
    let id = if ipv6 { 0 } else { be16(new, ip + 4) };
    let flags = Flags(new_flags as u8);
    let carried = Carried { ack, timestamps, window: be16(new, TCP + 14), id, flags, cut: false };
    let len = (end - HEADER) as u32;
    Some(Expected { network_at: IP, transport_at: TCP, start: HEADER, seq, len, carried })
}

/// Whether the IPv4 header sums to the zero of ones' complement (RFC 1071).
#[inline(always)]
fn ipv4_checksum_ok<const IP: usize, const N: usize>(bytes: &[u8; N]) -> bool {
    let word = |n: usize| u64::from(be32(bytes, IP + 4 * n));
    let sum = word(0) + word(1) + word(2) + word(3) + word(4);
    // What folds to 0xFFFF is divisible by it, and no header is all zeros.
    sum.is_multiple_of(0xffff)
}

/// Returns true if the checksum field holds the pseudo-header's sum alone, as a kernel on this machine leaves it. The
/// packet ends at `end`.
#[inline(always)]
fn tcp_checksum_is_partial<const IP: usize, const TCP: usize, const HEADER: usize>(
    header: &[u8; HEADER],
    end: usize,
) -> bool {
    let addresses_at = addresses_at::<IP, TCP>();
    let words = (addresses_at..TCP).step_by(4).map(|at| u64::from(be32(header, at)));
    let len = (end - TCP) as u16;
    let sum = words.sum::<u64>() + u64::from(protocol::TCP) + u64::from(len);
    // Both are 0 for no packet, and otherwise equal if they are the same modulo 0xFFFF.
    let field = be16(header, TCP + 16);
    field != 0 && (sum - 1) % 0xffff + 1 == u64::from(field)
}

/// Offset of the addresses in the IP header, which end where TCP begins.
#[inline(always)]
const fn addresses_at<const IP: usize, const TCP: usize>() -> usize {
    if TCP != IP + IPV4_MIN_LEN { TCP - 32 } else { TCP - 8 }
}

/// Addresses, ports and payload lie side by side.
#[inline(always)]
fn tcp_checksum_ok<const IP: usize, const TCP: usize>(packet: &[u8]) -> bool {
    let addresses_at = addresses_at::<IP, TCP>();
    let len = (packet.len() - TCP) as u16;
    let rest = Sum::default().plus_word(protocol::TCP.into()).plus_word(len);
    checksum::sum_payload(&packet[addresses_at..]).plus(rest).fold() == 0xffff
}
