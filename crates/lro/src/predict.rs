//! Header prediction (Van Jacobson, "4BSD TCP Header Prediction", 1990): nearly every frame is the
//! next segment of a flow that holds some, with the usual headers and nothing special about it.
//!
//! This asks all that the [`filter`](crate::filter) and [`merge`](crate::merge) ask, for that one
//! case, in as few comparisons as it takes. Whatever it does not expect, bad checksums included, it
//! leaves to them.

use wire::{ETHERNET_LEN, Flags, IPV4_MIN_LEN, IPV6_LEN, Seq, Sum, TCP_MIN_LEN};
use wire::{Timestamps, checksum, protocol};

use crate::RxChecksum;
use crate::descriptor::Descriptor;
use crate::filter::Carried;
use crate::key::FlowKey;

const IPV4_TCP: usize = ETHERNET_LEN + IPV4_MIN_LEN;
const IPV6_TCP: usize = ETHERNET_LEN + IPV6_LEN;

/// Length of a TCP header with the usual timestamps (RFC 7323 appendix A), and how its options
/// begin.
const TIMESTAMPED: usize = TCP_MIN_LEN + 12;
const TIMESTAMPS: u32 = 0x0101_080a;

/// The next segment in order.
pub(crate) struct Expected {
    pub(crate) start: usize,
    pub(crate) len: u32,
    pub(crate) carried: Carried,
}

#[inline(always)]
fn get<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.first_chunk().copied()
}

/// The flow of a frame with no more than Ethernet, IP and TCP.
#[inline(always)]
pub(crate) fn usual_key(bytes: &[u8]) -> Option<FlowKey> {
    let word = |at| get(bytes, at).map(u64::from_ne_bytes);
    match get(bytes, 12)? {
        [0x08, 0x00, 0x45, _] if *bytes.get(ETHERNET_LEN + 9)? == protocol::TCP => {
            let ports = u32::from_ne_bytes(get(bytes, IPV4_TCP)?);
            let addresses = [word(ETHERNET_LEN + 12)?, 0, 0, 0];
            Some(FlowKey { addresses, ports, ipv6: false, udp: false })
        }
        [0x86, 0xdd, first, _]
            if first >> 4 == 6 && *bytes.get(ETHERNET_LEN + 6)? == protocol::TCP =>
        {
            let ports = u32::from_ne_bytes(get(bytes, IPV6_TCP)?);
            let at = ETHERNET_LEN + 8;
            let addresses = [word(at)?, word(at + 8)?, word(at + 16)?, word(at + 24)?];
            Some(FlowKey { addresses, ports, ipv6: true, udp: false })
        }
        _ => None,
    }
}

/// Is the frame, whose [usual key](usual_key) is the flow's, the segment that continues the flow's
/// run, may it join it (endpoint profile), and is it whole?
#[inline(always)]
pub(crate) fn expected(flow: &Descriptor, bytes: &[u8], known: RxChecksum) -> Option<Expected> {
    if !flow.has_run() || !flow.islands.is_empty() || known == RxChecksum::MaybePartial {
        return None;
    }
    let held = flow.header();
    let transport_at = if flow.key.ipv6 { IPV6_TCP } else { IPV4_TCP };
    let timestamped = held.len() == transport_at + TIMESTAMPED;
    if !timestamped && held.len() != transport_at + TCP_MIN_LEN {
        return None;
    }
    // MAC addresses, EtherType, IP version, TOS or class.
    if get::<16>(bytes, 0)? != get::<16>(held, 0)? {
        return None;
    }
    let end = if flow.key.ipv6 { ipv6_end(bytes, held)? } else { ipv4_end(bytes, held)? };
    let tcp: [u8; TCP_MIN_LEN] = get(bytes, transport_at)?;
    let flags = Flags(tcp[13]);
    let ours = Flags(*held.get(transport_at + 13)?);
    // FIN, SYN, RST, URG and CWR are for others; ECE must be as it was, ACK be set.
    let plain = Flags::ACK.0 | Flags::PSH.0 | Flags::ECE.0;
    if tcp[12] != *held.get(transport_at + 12)?
        || flags.0 & !plain != 0
        || !flags.any(Flags::ACK)
        || (flags.0 ^ ours.0) & Flags::ECE.0 != 0
    {
        return None;
    }
    let be32 = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    let (seq, ack) = (Seq(be32(4)), Seq(be32(8)));
    if seq != flow.next_seq || ack.before(flow.last.ack) {
        return None;
    }
    let timestamps = match flow.last.timestamps {
        Some(last) if timestamped => Some(forward(bytes, transport_at + TCP_MIN_LEN, last)?),
        None if !timestamped => None,
        _ => return None,
    };
    let start = held.len();
    if end <= start || end > bytes.len() {
        return None;
    }
    if known == RxChecksum::Unverified && !tcp_checksum_ok(bytes, flow.key.ipv6, end) {
        return None;
    }
    let id = if flow.key.ipv6 { 0 } else { u16::from_be_bytes(get(bytes, ETHERNET_LEN + 4)?) };
    let window = u16::from_be_bytes([tcp[14], tcp[15]]);
    let carried = Carried { ack, timestamps, window, id, flags };
    Some(Expected { start, len: (end - start) as u32, carried })
}

/// The timestamps, if that is what the options are and TSval does not go back.
#[inline(always)]
fn forward(bytes: &[u8], at: usize, last: Timestamps) -> Option<Timestamps> {
    let option: [u8; 12] = get(bytes, at)?;
    let be32 = |at: usize| {
        u32::from_be_bytes([option[at], option[at + 1], option[at + 2], option[at + 3]])
    };
    let (value, echo) = (Seq(be32(4)), Seq(be32(8)));
    (be32(0) == TIMESTAMPS && !value.before(last.value)).then_some(Timestamps { value, echo })
}

/// Where the IP packet ends, if DF, the fragment offset, TTL and the protocol are as before and the
/// header's checksum verifies.
#[inline(always)]
fn ipv4_end(bytes: &[u8], held: &[u8]) -> Option<usize> {
    let header: [u8; IPV4_MIN_LEN] = get(bytes, ETHERNET_LEN)?;
    if get::<4>(held, ETHERNET_LEN + 6)? != [header[6], header[7], header[8], header[9]] {
        return None;
    }
    let words = header.as_chunks::<4>().0.iter();
    let sum: u64 = words.map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    // What is divisible by 0xFFFF folds to 0xFFFF, as the sum is not 0.
    sum.is_multiple_of(0xffff).then_some(())?;
    Some(ETHERNET_LEN + usize::from(u16::from_be_bytes([header[2], header[3]])))
}

/// The same for IPv6: class, flow label, next header and hop limit are as before.
#[inline(always)]
fn ipv6_end(bytes: &[u8], held: &[u8]) -> Option<usize> {
    let header: [u8; 8] = get(bytes, ETHERNET_LEN)?;
    let same = u64::from_be_bytes(header) ^ u64::from_be_bytes(get(held, ETHERNET_LEN)?);
    if same & 0xffff_ffff_0000_ffff != 0 {
        return None;
    }
    Some(IPV6_TCP + usize::from(u16::from_be_bytes([header[4], header[5]])))
}

/// Addresses, ports and payload lie side by side.
#[inline(always)]
fn tcp_checksum_ok(bytes: &[u8], ipv6: bool, end: usize) -> bool {
    let (addresses_at, transport_at) =
        if ipv6 { (ETHERNET_LEN + 8, IPV6_TCP) } else { (ETHERNET_LEN + 12, IPV4_TCP) };
    let rest =
        Sum::default().plus_word(protocol::TCP.into()).plus_word((end - transport_at) as u16);
    checksum::sum(&bytes[addresses_at..end]).plus(rest).fold() == 0xffff
}
