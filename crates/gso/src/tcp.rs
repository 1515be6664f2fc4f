//! What changes in the TCP header from segment to segment (Linux `tcp_gso_segment`): sequence
//! number, flags, checksum.
//!
//! SYN, RST and URG are copied to every segment, as Linux does: no stack makes super-packets of
//! such segments, and wharf changes nothing that it need not.

use wire::{Flags, Seq, Sum, TCP_MIN_LEN, checksum};

use crate::piece::Piece;
use crate::{be16, put16};

const SEQ: usize = 4;
/// Data offset, reserved bits and flags, as one word.
const OFFSET_AND_FLAGS: usize = 12;
/// Where the checksum lies in the header: virtio's `csum_offset`.
pub(crate) const CHECKSUM: usize = 16;

/// The changing part of the TCP header that stands at `at`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpPart {
    pub(crate) at: usize,
    /// Pseudo-header less its length, header less what changes.
    sum: Sum,
    /// The same with the length and the flags of a full segment in the middle.
    full: Sum,
    seq: Seq,
    offset_and_flags: u16,
    /// Bits that all segments but the first lose.
    first_only: Flags,
}

impl TcpPart {
    /// Clears in `template`, which ends with the TCP header, what changes; sums what does not.
    pub(crate) fn new(template: &mut [u8], at: usize, pseudo_header: Sum) -> TcpPart {
        let header = &mut template[at..];
        let seq = Seq(u32::from(be16(header, SEQ)) << 16 | u32::from(be16(header, SEQ + 2)));
        let offset_and_flags = be16(header, OFFSET_AND_FLAGS);
        for field in [SEQ, SEQ + 2, OFFSET_AND_FLAGS, CHECKSUM] {
            put16(header, field, 0);
        }
        let sum = pseudo_header.plus(checksum::sum(header));
        TcpPart { at, sum, full: sum, seq, offset_and_flags, first_only: Flags::CWR }
    }

    /// CWR stays on every segment: with AccECN it is one bit of a counter (RFC 9768).
    pub(crate) fn keep_cwr(&mut self) {
        self.first_only = Flags::default();
    }

    /// Writes what all segments have that are in the middle and of `l4_len` bytes to `template`, so
    /// that [`write_full`](Self::write_full) need not.
    pub(crate) fn settle(&mut self, template: &mut [u8], l4_len: usize) {
        let flags = self.flags(false, false);
        put16(&mut template[self.at..], OFFSET_AND_FLAGS, flags);
        self.full = self.sum.plus_word(l4_len as u16).plus_word(flags);
    }

    /// Fills in a full segment in the middle, `offset` bytes into the payload.
    #[inline]
    pub(crate) fn write_full(&self, header: &mut [u8], offset: usize, payload_sum: Sum) {
        let Some(tcp) = header[self.at..].first_chunk_mut::<TCP_MIN_LEN>() else { return };
        let seq = self.seq + offset as u32;
        let sum = self.full.plus_double(seq.0).plus(payload_sum);
        tcp[SEQ..SEQ + 4].copy_from_slice(&seq.0.to_be_bytes());
        put16(tcp, CHECKSUM, sum.complement());
    }

    /// Fills in one segment; `header` ends with the TCP header.
    #[inline]
    pub(crate) fn write(&self, header: &mut [u8], piece: &Piece<'_>, payload_sum: Sum) {
        let tcp = &mut header[self.at..];
        let l4_len = (tcp.len() + piece.payload.len()) as u16;
        let seq = self.seq + piece.offset as u32;
        let flags = self.flags(piece.first, piece.last);
        let sum = self.sum.plus_word(l4_len).plus_double(seq.0).plus_word(flags).plus(payload_sum);
        tcp[SEQ..SEQ + 4].copy_from_slice(&seq.0.to_be_bytes());
        put16(tcp, OFFSET_AND_FLAGS, flags);
        put16(tcp, CHECKSUM, sum.complement());
    }

    /// CWR on the first only; FIN and PSH on the last only (Linux `tcp_gso_segment`).
    #[inline]
    fn flags(&self, first: bool, last: bool) -> u16 {
        let mut lost = Flags::default();
        if !first {
            lost = lost.with(self.first_only);
        }
        if !last {
            lost = lost.with(Flags::FIN).with(Flags::PSH);
        }
        self.offset_and_flags & !u16::from(lost.0)
    }
}
