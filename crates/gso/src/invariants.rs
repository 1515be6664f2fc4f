//! What holds of a segmenter between any two calls, and of each segment. Debug builds look at it: tests,
//! simulation and fuzzing run with it.

use crate::Segmenter;
use crate::piece::{MAX_HEADER_LEN, Piece};
use crate::segmenter::TransportPart;

impl Segmenter<'_> {
    /// Panics in a debug build if the segments do not cover the payload: there are `gso_segs`, each but
    /// the last of `gso_size` bytes where lengths are equal, and the place of the next follows from its
    /// number.
    #[inline]
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let (next, all) = (self.next, self.gso_segs);
            debug_assert!(next <= all && all > 0, "segment {next} of {all}");
            debug_assert!(self.header_len <= MAX_HEADER_LEN, "{} of header", self.header_len);
            let (offset, len, size) = (self.offset, self.payload.len(), self.gso_size);
            match &self.transport {
                TransportPart::Tcp(_) | TransportPart::Udp(_) => {
                    debug_assert!(size > 0, "segments of nothing");
                    debug_assert_eq!(all, len.div_ceil(size).max(1), "segments for {len} bytes");
                    let place = (next * size).min(len);
                    debug_assert_eq!(offset.min(len), place, "where segment {next} begins");
                }
                TransportPart::Fragment(part) => {
                    debug_assert!(all == 1 || size % 8 == 0, "{size} bytes to a fragment");
                    debug_assert_eq!(all, part.count(len, size), "fragments of {len} bytes");
                    debug_assert!(next == all || offset == next * size, "fragment {next}");
                }
                TransportPart::Sctp(_) => {
                    debug_assert_eq!(next == all, offset == len, "segments and their chunks");
                }
                TransportPart::Datagrams(part) => debug_assert_eq!(all, part.count()),
                TransportPart::None => {}
            }
        }
    }

    /// The same of the next segment, before it is written.
    #[inline]
    pub(crate) fn debug_check_piece(&self, piece: &Piece<'_>) {
        if cfg!(debug_assertions) {
            debug_assert_eq!(piece.first, self.next == 0 || piece.offset == 0, "the first");
            debug_assert!(piece.header_len <= MAX_HEADER_LEN);
            let (len, most) = (piece.header_len + piece.payload.len(), self.max_segment_len());
            debug_assert!(len <= most, "a segment of {len} bytes, where {most} are the most");
            if !matches!(self.transport, TransportPart::Datagrams(_)) {
                let end = piece.next_offset == self.payload.len();
                debug_assert_eq!(piece.last, end, "the last ends where the payload does");
                let more = piece.next_offset > piece.offset || self.gso_segs == 1;
                debug_assert!(more, "a segment of nothing at {}", piece.offset);
            }
        }
    }
}
