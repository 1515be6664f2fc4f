//! Whether a segment may join what its flow holds: a function for each question, with the reason for a
//! no (Linux `tcp_gro_receive` and `inet_gro_receive`). Rules are those of docs/kernel-rules.md, 1 to 9.

use wire::{Flags, IPV4_MIN_LEN, TCP_MIN_LEN};

use crate::config::{DATAGRAMS_MAX, IP_MAX};
use crate::descriptor::{Descriptor, IdStep};
use crate::filter::{Carried, Segment};
use crate::mismatch::Mismatch;
use crate::out_of_order::Block;
use crate::{Config, Flush, Profile};

/// Where fields lie in their headers.
const IP_CHECKSUM: usize = 10;
const FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const URGENT: usize = 18;

/// Flags that may differ between the segments of an aggregate: they are OR-ed into it.
const ACCUMULATED: Flags = Flags(Flags::FIN.0 | Flags::PSH.0);

/// Asks all questions but that of the size of a segment of a flow that holds something. Its
/// sequence number may leave a hole in the endpoint profile only, which reorders.
#[inline]
pub(crate) fn ask(
    config: &Config,
    flow: &Descriptor,
    segment: &Segment,
    bytes: &[u8],
) -> Result<(), Mismatch> {
    same_headers(flow.header(), segment, bytes)?;
    match config.profile {
        Profile::Endpoint => endpoint(flow, segment, bytes),
        Profile::Lossless if segment.seq != flow.next_seq => Err(Mismatch::Sequence),
        Profile::Lossless => lossless(flow, segment, bytes),
    }
}

/// The same of a datagram: Linux asks what it asks of TCP but for TCP's own fields
/// (`udp_gro_receive_segment`), in both profiles.
pub(crate) fn ask_datagram(
    flow: &Descriptor,
    segment: &Segment,
    bytes: &[u8],
) -> Result<(), Mismatch> {
    same_front(flow.header(), segment, bytes)?;
    if segment.len > u32::from(flow.gso_size) {
        return Err(Mismatch::Uneven);
    }
    let ipv4 = !segment.key.ipv6;
    if ipv4 && !id_continues(flow, segment.carried.id) {
        return Err(Mismatch::Id);
    }
    // A UDP checksum of 0xFFFF comes back: 0 is sent as that.
    let at = segment.network_at + IP_CHECKSUM;
    if ipv4 && [flow.header(), bytes].iter().any(|header| is_minus_zero(header, at)) {
        return Err(Mismatch::Checksum);
    }
    Ok(())
}

/// Why a datagram, now the last of its run, completes it, if it does.
pub(crate) fn completes_datagrams(config: &Config, flow: &Descriptor) -> Option<Flush> {
    if flow.last_len < flow.gso_size {
        Some(Flush::Short)
    } else if flow.run.len() >= config.max_segments.min(DATAGRAMS_MAX) {
        Some(Flush::Size)
    } else {
        None
    }
}

/// Rule 9: whether the IP packet stays within 65,535 bytes with `len` more.
#[inline]
pub(crate) fn fits(config: &Config, flow: &Descriptor, len: u32) -> bool {
    flow.run.len() < config.max_segments && flow.ip_len() + len <= config.max_aggregate.min(IP_MAX)
}

/// Whether a block may join the run all at once, because each of its segments might have been appended
/// and the run is still not full with it. The block is plain; `first` is what its first segment carried.
#[inline(always)]
pub(crate) fn takes(config: &Config, flow: &Descriptor, block: &Block, first: &Carried) -> bool {
    let room = config.max_aggregate.min(IP_MAX).saturating_sub(flow.ip_len());
    flow.has_run()
        && first.follows(&flow.last)
        && flow.run.len() + block.len() < config.max_segments
        && block.bytes() + u32::from(block.largest.max(flow.gso_size)) <= room
}

/// Why a segment with these flags, now the last of the run, completes it, if it does.
#[inline]
pub(crate) fn completes(config: &Config, flow: &Descriptor, flags: Flags) -> Option<Flush> {
    if flags.any(Flags::FIN) {
        Some(Flush::Fin)
    } else if flags.any(Flags::CWR) && config.profile == Profile::Endpoint {
        // With Accurate ECN it is a bit of a counter (ACE, RFC 9768 section 3.2.2), which those that
        // follow have too; nothing shows here which ECN a connection uses.
        Some(Flush::Mismatch)
    } else if flags.any(Flags::PSH) && config.profile == Profile::Lossless {
        Some(Flush::Psh)
    } else if config.profile == Profile::Lossless && flow.last_len < flow.gso_size {
        Some(Flush::Short)
    } else if is_full(config, flow) {
        Some(Flush::Size)
    } else {
        None
    }
}

/// Whether these flags ask for the run to be flushed as soon as the burst ends.
#[inline]
pub(crate) fn pushes(config: &Config, flags: Flags) -> bool {
    config.flush_on_psh && flags.any(Flags::PSH)
}

/// The paper's threshold: whether one more segment like the largest would not fit. Linux finds out when one
/// comes, as a shorter one may still fit.
#[inline]
pub(crate) fn is_full(config: &Config, flow: &Descriptor) -> bool {
    flow.run.len() >= config.max_segments
        || config.profile == Profile::Endpoint
            && flow.ip_len() + u32::from(flow.gso_size) > config.max_aggregate.min(IP_MAX)
}

/// Rules 4, 6 and 7, which both profiles keep: everything but lengths, IDs, checksums, sequence
/// numbers, acknowledgment, window and options is equal.
#[inline]
fn same_headers(held: &[u8], segment: &Segment, bytes: &[u8]) -> Result<(), Mismatch> {
    same_front(held, segment, bytes)?;
    let tcp = segment.transport_at..segment.payload_at;
    same_flags(&held[tcp.clone()], &bytes[tcp])
}

/// Of these, what comes before the transport's header.
#[inline]
fn same_front(held: &[u8], segment: &Segment, bytes: &[u8]) -> Result<(), Mismatch> {
    let Segment { network_at, transport_at, payload_at, .. } = *segment;
    if held.len() != payload_at {
        return Err(Mismatch::Options);
    }
    let new = &bytes[..payload_at];
    if held[..network_at] != new[..network_at] {
        return Err(Mismatch::Link);
    }
    let network = network_at..transport_at;
    if !same_network(segment.key.ipv6, &held[network.clone()], &new[network]) {
        return Err(Mismatch::Network);
    }
    Ok(())
}

#[inline]
fn same_network(ipv6: bool, held: &[u8], new: &[u8]) -> bool {
    if ipv6 {
        // Version, class and label; next header and hop limit; extension headers.
        held[..4] == new[..4] && held[6..8] == new[6..8] && held[40..] == new[40..]
    } else {
        // Version and IHL, TOS; DF (a fragment is not here); TTL and protocol. Addresses are
        // the flow's key.
        held.len() == IPV4_MIN_LEN && held[..2] == new[..2] && held[6..10] == new[6..10]
    }
}

/// Data offset, reserved bits (AE among them) and all flags but FIN and PSH are equal, and CWR is not
/// on the new segment (rule 4). The header that is held may have it: where the run does, the endpoint
/// profile has flushed it by now ([`completes`]), and [`lossless`] asks once more; where the first of
/// a block does, that is sent on by itself.
#[inline]
fn same_flags(held: &[u8], new: &[u8]) -> Result<(), Mismatch> {
    let ignored = Flags::CWR.with(ACCUMULATED);
    if held[12] != new[12]
        || Flags(new[13]).any(Flags::CWR)
        || Flags(held[13]).without(ignored) != Flags(new[13]).without(ignored)
    {
        return Err(Mismatch::Flags);
    }
    Ok(())
}

/// The acknowledgment is the same, or the host takes both, and it and TSval do not move back; the
/// options are of the same kinds; the window may be anything.
#[inline]
fn endpoint(flow: &Descriptor, segment: &Segment, bytes: &[u8]) -> Result<(), Mismatch> {
    let kinds = segment.transport_at + TCP_MIN_LEN;
    let kinds = kinds..(kinds + 4).min(segment.payload_at);
    if flow.header()[kinds.clone()] != bytes[kinds] {
        return Err(Mismatch::Options);
    }
    if !flow.admits(segment.carried.ack) {
        return Err(Mismatch::Ack);
    }
    not_older(flow, segment)
}

/// Whether the host believes the timestamp. One from before that of data in order is an old
/// duplicate's (PAWS, RFC 7323 section 5.3), which must not be made to look right by what it joins.
#[inline]
pub(crate) fn not_older(flow: &Descriptor, segment: &Segment) -> Result<(), Mismatch> {
    match (flow.last.timestamps, segment.carried.timestamps) {
        (Some(last), Some(new)) if flow.has_data && new.value.before(last.value) => {
            Err(Mismatch::Options)
        }
        _ => Ok(()),
    }
}

/// Rules 1, 2 and 6: what Linux GRO asks on top, and what it does not ask but would not restore.
#[inline]
fn lossless(flow: &Descriptor, segment: &Segment, bytes: &[u8]) -> Result<(), Mismatch> {
    let Segment { network_at, transport_at, payload_at, .. } = *segment;
    let (held, new) = (flow.header(), &bytes[..payload_at]);
    if segment.carried.ack != flow.last.ack {
        return Err(Mismatch::Ack);
    }
    if segment.carried.window != flow.last.window {
        return Err(Mismatch::Window);
    }
    let options = transport_at + TCP_MIN_LEN..;
    if held[options.clone()] != new[options] {
        return Err(Mismatch::Options);
    }
    if segment.len > u32::from(flow.gso_size) || flow.last_len < flow.gso_size {
        return Err(Mismatch::Uneven);
    }
    let ipv4 = !segment.key.ipv6;
    if ipv4 && !id_continues(flow, segment.carried.id) {
        return Err(Mismatch::Id);
    }
    // CWR is part of a counter with Accurate ECN (RFC 9768), so since Linux 6.18 it must be
    // equal; the new segment has none.
    if Flags(held[transport_at + FLAGS]).any(Flags::CWR) {
        return Err(Mismatch::Flags);
    }
    let urgent = transport_at + URGENT..transport_at + URGENT + 2;
    if held[urgent.clone()] != new[urgent] {
        return Err(Mismatch::Urgent);
    }
    let checksum = transport_at + TCP_CHECKSUM;
    let ip_checksum = network_at + IP_CHECKSUM;
    let not_restored = |header: &&[u8]| {
        is_minus_zero(header, checksum) || ipv4 && is_minus_zero(header, ip_checksum)
    };
    if [held, new].iter().any(not_restored) {
        return Err(Mismatch::Checksum);
    }
    Ok(())
}

/// Whether this checksum is the other zero of ones' complement, which is never written for TCP and IPv4.
#[inline]
fn is_minus_zero(header: &[u8], at: usize) -> bool {
    header[at..at + 2] == [0xff; 2]
}

/// Rule 6: up by one (wrap included) or fixed, chosen at the second packet, never mixed.
fn id_continues(flow: &Descriptor, id: u16) -> bool {
    let up = id == flow.last.id.wrapping_add(1);
    let same = id == flow.last.id;
    match flow.id_step {
        IdStep::Undecided => up || same,
        IdStep::Moving => up,
        IdStep::Fixed => same,
    }
}
