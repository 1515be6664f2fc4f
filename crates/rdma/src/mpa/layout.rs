//! Where an FPDU's bytes and the markers lie in a stream (RFC 5044 sections 4.1 to 4.3).

/// Bytes of the stream from marker to marker (RFC 5044 section 4.3).
pub const MARKER_INTERVAL: usize = 512;
/// A marker: 16 reserved bits, and how far the FPDU's ULPDU length lies behind.
pub const MARKER_LEN: usize = 4;
/// The ULPDU length.
pub(crate) const LENGTH_LEN: usize = 2;
/// The CRC, whose bytes are there in any case.
pub(crate) const CRC_LEN: usize = 4;
/// The longest ULPDU that is sent (RFC 5044 section 4.1: the sender MUST NOT use more).
pub const MULPDU_MAX: usize = 64_768;
/// The shortest MULPDU that DDP can work with (RFC 5041 section 3 by way of RFC 5044 section 4.5).
pub const MULPDU_MIN: usize = 128;
/// What an FPDU takes of a stream at most: the longest length that its field can say, with padding, CRC and markers.
pub const FPDU_MAX: usize = wire_len(0, body_len(u16::MAX as usize), true);

/// ULPDU length, ULPDU, padding to a multiple of four (RFC 5044 section 4.1), and CRC.
pub(crate) const fn body_len(ulpdu: usize) -> usize {
    (LENGTH_LEN + ulpdu).next_multiple_of(4) + CRC_LEN
}

/// What a body takes of a stream from `position` on, markers included. A marker where the body begins is its
/// own; one where it ends belongs to the next FPDU (RFC 5044 section 4.3).
pub(crate) const fn wire_len(position: u64, body: usize, markers: bool) -> usize {
    if !markers {
        return body;
    }
    let first = to_marker(position);
    if body <= first {
        return body;
    }
    body + MARKER_LEN * (body - first).div_ceil(MARKER_INTERVAL - MARKER_LEN)
}

/// Bytes from `position` to the next place of a marker; zero at such a place. The first place is where full
/// operation begins (RFC 5044 section 4.3).
pub(crate) const fn to_marker(position: u64) -> usize {
    let phase = (position % MARKER_INTERVAL as u64) as usize;
    (MARKER_INTERVAL - phase) % MARKER_INTERVAL
}

/// The MULPDU: the longest ULPDU of which an FPDU still fits into one TCP segment of `emss` bytes (the effective
/// maximum segment size; RFC 5044 section 4.5), within [`MULPDU_MIN`] and [`MULPDU_MAX`].
pub fn mulpdu(emss: usize, markers: bool) -> usize {
    let of_markers = if markers { MARKER_LEN * emss.div_ceil(MARKER_INTERVAL) } else { 0 };
    let around = LENGTH_LEN + CRC_LEN + of_markers + emss % 4;
    emss.saturating_sub(around).clamp(MULPDU_MIN, MULPDU_MAX)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    /// One byte after the other, with a marker wherever one is due before it.
    fn counted(position: u64, body: usize) -> usize {
        let mut at = position;
        for _ in 0..body {
            if at.is_multiple_of(512) {
                at += 4;
            }
            at += 1;
        }
        (at - position) as usize
    }

    proptest! {
        #[test]
        fn markers_are_counted_as_they_lie(position in 0u64..2048, words in 1usize..3000) {
            let (position, body) = (position * 4, words * 4);
            prop_assert_eq!(wire_len(position, body, true), counted(position, body));
            prop_assert_eq!(wire_len(position, body, false), body);
        }

        /// RFC 5044 section 4.5: an FPDU of a whole MULPDU fits into a segment.
        #[test]
        fn a_mulpdu_fits_into_a_segment(emss in 148usize..64_800, position in 0u64..128, markers: bool) {
            let longest = mulpdu(emss, markers);
            // Aligned: the segment begins with the FPDU.
            let len = wire_len(position * 4, body_len(longest), markers);
            prop_assert!(longest == MULPDU_MIN || len <= emss, "{} in {}", len, emss);
        }
    }

    #[test]
    fn the_longest_fpdu_is_bounded() {
        assert_eq!(body_len(u16::MAX as usize), 65_544);
        assert_eq!(FPDU_MAX, 65_544 + 4 * 130);
        assert_eq!(mulpdu(1460, false), 1454);
        assert_eq!(mulpdu(0, true), MULPDU_MIN);
        assert_eq!(mulpdu(usize::MAX >> 1, true), MULPDU_MAX);
    }
}
