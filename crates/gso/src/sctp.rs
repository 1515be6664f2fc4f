//! Cutting SCTP (RFC 9260) into packets of whole chunks: the slides' future work.
//!
//! A chunk is never cut, as that would take new transmission sequence numbers. A packet whose
//! chunks cannot be dealt out is left to IP fragmentation, as a sending SCTP leaves it.

use wire::checksum::Crc32c;

use crate::be16;

/// Bytes of the common header: ports, verification tag, checksum.
pub(crate) const HEADER_LEN: usize = 12;
const CHECKSUM: usize = 8;
/// Type, flags and length of a chunk.
const CHUNK_HEADER_LEN: usize = 4;
/// An AUTH chunk authenticates the chunks behind it in its packet (RFC 4895 section 6.3).
const AUTH: u8 = 15;

/// The changing part of the common header that stands at `at`: its checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SctpPart {
    at: usize,
    crc: Crc32c,
    /// Most bytes of chunks in one packet.
    room: usize,
}

impl SctpPart {
    /// Clears the checksum in `template`, which ends with the common header.
    pub(crate) fn new(template: &mut [u8], at: usize, room: usize) -> SctpPart {
        let header = &mut template[at..];
        header[CHECKSUM..].fill(0);
        SctpPart { at, crc: Crc32c::new().plus(header), room }
    }

    /// Fills in one packet (RFC 9260 appendix A).
    #[inline]
    pub(crate) fn write(&self, header: &mut [u8], chunks: &[u8]) {
        let checksum = self.crc.plus(chunks).finish();
        header[self.at + CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    }

    /// How many bytes of `chunks` the next packet has: as many chunks as fit.
    #[inline]
    pub(crate) fn bundle(&self, chunks: &[u8]) -> usize {
        let mut len = 0;
        while let Some(chunk) = chunk_len(&chunks[len..]) {
            if len > 0 && len + chunk > self.room {
                break;
            }
            len += chunk;
        }
        len
    }

    /// How many packets `chunks` become. `None` if they cannot be dealt out: there are none, one
    /// is larger than a packet, one is cut short, or one depends on those beside it.
    pub(crate) fn packets(&self, mut chunks: &[u8]) -> Option<usize> {
        if chunks.is_empty() {
            return None;
        }
        let mut rest = chunks;
        while !rest.is_empty() {
            let len = chunk_len(rest)?;
            if len > self.room || rest[0] == AUTH {
                return None;
            }
            rest = &rest[len..];
        }
        let mut packets = 0;
        while !chunks.is_empty() {
            chunks = &chunks[self.bundle(chunks)..];
            packets += 1;
        }
        Some(packets)
    }
}

/// Bytes of the first chunk, padded to a multiple of four (RFC 9260 section 3.2); the last may lack
/// its padding. `None` at the end, and if the chunk is malformed.
#[inline]
fn chunk_len(chunks: &[u8]) -> Option<usize> {
    if chunks.len() < CHUNK_HEADER_LEN {
        return None;
    }
    let len = usize::from(be16(chunks, 2));
    if len < CHUNK_HEADER_LEN || len > chunks.len() {
        return None;
    }
    Some(len.next_multiple_of(4).min(chunks.len()))
}
