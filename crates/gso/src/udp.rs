//! What changes in the UDP header from datagram to datagram (Linux `__udp_gso_segment`): length
//! and checksum. This is USO, where each segment is a datagram of its own.

use wire::{Sum, UDP_LEN, checksum};

use crate::piece::Piece;
use crate::{Refusal, be16, never_zero, put16};

/// Datagrams that one super-packet may hold (Linux `UDP_MAX_SEGMENTS`).
pub const UDP_MAX_SEGMENTS: usize = 128;

const LENGTH: usize = 4;
/// Where the checksum lies in the header: virtio's `csum_offset`.
pub(crate) const CHECKSUM: usize = 6;

/// The changing part of the UDP header that stands at `at`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpPart {
    pub(crate) at: usize,
    /// Pseudo-header less its length, and the ports.
    sum: Sum,
    /// The same with the length of a full datagram, twice.
    full: Sum,
}

impl UdpPart {
    /// Clears in `template`, which ends with the UDP header, what changes; sums what does not.
    /// `l4_len` is the IP payload of the super-packet.
    pub(crate) fn new(
        template: &mut [u8],
        at: usize,
        pseudo_header: Sum,
        l4_len: usize,
    ) -> Result<UdpPart, Refusal> {
        let header = &mut template[at..];
        if usize::from(be16(header, LENGTH)) != l4_len {
            return Err(Refusal::UdpLength);
        }
        put16(header, LENGTH, 0);
        put16(header, CHECKSUM, 0);
        let sum = pseudo_header.plus(checksum::sum(header));
        Ok(UdpPart { at, sum, full: sum })
    }

    /// Writes what all datagrams of `l4_len` bytes have to `template`, so that
    /// [`write_full`](Self::write_full) need not.
    pub(crate) fn settle(&mut self, template: &mut [u8], l4_len: usize) {
        put16(&mut template[self.at..], LENGTH, l4_len as u16);
        self.full = self.sum.plus_word(l4_len as u16).plus_word(l4_len as u16);
    }

    /// Fills in a full datagram.
    #[inline]
    pub(crate) fn write_full(&self, header: &mut [u8], payload_sum: Sum) {
        let Some(udp) = header[self.at..].first_chunk_mut::<UDP_LEN>() else { return };
        put16(udp, CHECKSUM, never_zero(self.full.plus(payload_sum).complement()));
    }

    /// Fills in one datagram; `header` ends with the UDP header.
    #[inline]
    pub(crate) fn write(&self, header: &mut [u8], piece: &Piece<'_>, payload_sum: Sum) {
        self.write_at(&mut header[self.at..], piece.payload.len(), payload_sum);
    }

    /// Fills in the header of a datagram with `len` bytes of payload.
    #[inline]
    pub(crate) fn write_at(&self, udp: &mut [u8], len: usize, payload_sum: Sum) {
        let l4_len = (UDP_LEN + len) as u16;
        // Once for the pseudo-header, once for the field.
        let sum = self.sum.plus_word(l4_len).plus_word(l4_len).plus(payload_sum);
        put16(udp, LENGTH, l4_len);
        put16(udp, CHECKSUM, never_zero(sum.complement()));
    }
}
