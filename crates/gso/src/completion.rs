//! Finishing the checksum that a host left partial in a packet of its own size.

use core::ops::Range;

use wire::checksum::Crc32c;
use wire::{Headers, Sum, Transport, VirtioNetHdr, checksum, protocol};

use crate::{Refusal, never_zero, put16};

/// Completes the checksum of `packet`, an Ethernet frame, in place, if `hdr` says that it needs it
/// (virtio 1.2 section 5.1.6.2: the sum from `csum_start` to the end, stored `csum_offset` later).
///
/// The end is that of the IP packet: Ethernet padding is not counted. Works for any protocol
/// whose checksum is the Internet checksum; a result of 0 is stored as 0xFFFF, which UDP needs
/// and every other protocol takes for the same number (so does Linux `skb_checksum_help`). SCTP
/// gets its CRC32c (RFC 9260 appendix A; Linux `skb_crc32c_csum_help`). `gso_type` is not looked at.
///
/// # Errors
/// [`Refusal::ChecksumRange`] if the checksum lies outside the packet, [`Refusal::Malformed`] if
/// the headers cannot be walked; the packet is then untouched.
pub fn complete_checksum(packet: &mut [u8], hdr: &VirtioNetHdr) -> Result<(), Refusal> {
    if !hdr.needs_csum {
        return Ok(());
    }
    if let Some(completion) = Completion::of(packet, &Headers::parse(packet)?, hdr)? {
        let sum = completion.sum(&packet[completion.summed.clone()]);
        completion.put(&mut packet[completion.field.start..], sum);
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
    if !hdr.needs_csum {
        out.copy_from_slice(packet);
        return Ok(());
    }
    let completion = Completion::of(packet, &Headers::parse(packet)?, hdr)?;
    out.copy_from_slice(packet);
    if let Some(completion) = completion {
        // The copy is in the cache.
        let sum = completion.sum(&out[completion.summed.clone()]);
        completion.put(&mut out[completion.field.start..], sum);
    }
    Ok(())
}

/// What is summed, and where the checksum goes.
pub(crate) struct Completion {
    summed: Range<usize>,
    /// The checksum's place in the packet.
    pub(crate) field: Range<usize>,
    kind: Check,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Internet,
    Crc32c,
}

/// A checksum as it was computed.
enum Value {
    Internet(Sum),
    Crc32c(u32),
}

impl Completion {
    /// `None` if the checksum is complete already.
    pub(crate) fn of(
        packet: &[u8],
        headers: &Headers,
        hdr: &VirtioNetHdr,
    ) -> Result<Option<Completion>, Refusal> {
        if !hdr.needs_csum {
            return Ok(None);
        }
        let is_sctp = headers.transport == Transport::Other(protocol::SCTP);
        let (kind, len) = if is_sctp { (Check::Crc32c, 4) } else { (Check::Internet, 2) };
        let start = usize::from(hdr.csum_start);
        let field = start + usize::from(hdr.csum_offset);
        if field + len > headers.end || headers.end > packet.len() {
            return Err(Refusal::ChecksumRange);
        }
        Ok(Some(Completion { summed: start..headers.end, field: field..field + len, kind }))
    }

    /// Stores the checksum of `packet` to the start of `field`.
    pub(crate) fn store(&self, field: &mut [u8], packet: &[u8]) {
        self.put(field, self.sum(&packet[self.summed.clone()]));
    }

    fn sum(&self, summed: &[u8]) -> Value {
        match self.kind {
            Check::Internet => Value::Internet(checksum::sum(summed)),
            Check::Crc32c => {
                let (before, after) = summed.split_at(self.field.start - self.summed.start);
                let crc = Crc32c::new().plus(before).plus(&[0; 4]).plus(&after[4..]);
                Value::Crc32c(crc.finish())
            }
        }
    }

    fn put(&self, field: &mut [u8], value: Value) {
        match value {
            Value::Internet(sum) => put16(field, 0, never_zero(sum.complement())),
            Value::Crc32c(crc) => field[..4].copy_from_slice(&crc.to_le_bytes()),
        }
    }
}
