//! Finishing the checksum that a host left partial in a packet of its own size.

use core::ops::Range;

use wire::{Headers, Sum, VirtioNetHdr, checksum};

use crate::udp::never_zero;
use crate::{Refusal, put16};

/// Completes the checksum of `packet` in place, if `hdr` says that it needs it
/// (virtio 1.2 section 5.1.6.2: the sum from `csum_start` to the end, stored `csum_offset` later).
///
/// The end is that of the IP packet: Ethernet padding is not counted. Works for any protocol
/// whose checksum is the Internet checksum; a result of 0 is stored as 0xFFFF, which UDP needs
/// and every other protocol takes for the same number (so does Linux `skb_checksum_help`).
/// `gso_type` is not looked at.
///
/// # Errors
/// [`Refusal::ChecksumRange`] if the checksum lies outside the packet, [`Refusal::Malformed`] if
/// the headers cannot be walked; the packet is then untouched.
pub fn complete_checksum(packet: &mut [u8], hdr: &VirtioNetHdr) -> Result<(), Refusal> {
    if let Some(span) = Span::of(packet, hdr)? {
        let sum = checksum::sum(&packet[span.summed.clone()]);
        span.store(packet, sum);
    }
    Ok(())
}

/// Copies `packet` to the start of `out` and completes its checksum on the way.
///
/// # Errors
/// As [`complete_checksum`], and [`Refusal::BufferTooSmall`] if `out` is shorter than `packet`.
pub fn complete_checksum_into(
    out: &mut [u8],
    packet: &[u8],
    hdr: &VirtioNetHdr,
) -> Result<(), Refusal> {
    let out = out.get_mut(..packet.len()).ok_or(Refusal::BufferTooSmall)?;
    let Some(span) = Span::of(packet, hdr)? else {
        out.copy_from_slice(packet);
        return Ok(());
    };
    let Range { start, end } = span.summed;
    out[..start].copy_from_slice(&packet[..start]);
    let sum = checksum::copy_and_sum(&mut out[start..end], &packet[start..end]);
    out[end..].copy_from_slice(&packet[end..]);
    span.store(out, sum);
    Ok(())
}

/// What is summed, and where the checksum goes.
struct Span {
    summed: Range<usize>,
    field: usize,
}

impl Span {
    /// `None` if the checksum is complete already.
    fn of(packet: &[u8], hdr: &VirtioNetHdr) -> Result<Option<Span>, Refusal> {
        if !hdr.needs_csum {
            return Ok(None);
        }
        let end = Headers::parse(packet)?.end;
        let start = usize::from(hdr.csum_start);
        let field = start + usize::from(hdr.csum_offset);
        if field + 2 > end {
            return Err(Refusal::ChecksumRange);
        }
        Ok(Some(Span { summed: start..end, field }))
    }

    fn store(&self, packet: &mut [u8], sum: Sum) {
        put16(packet, self.field, never_zero(sum.complement()));
    }
}
