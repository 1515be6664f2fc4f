//! The bytes that a source sends: the same for every connection, and nowhere the same within 64 KB, so
//! that what is lost, doubled or moved shows.

/// Bytes after which the pattern begins again: a prime, so that no length of segments divides it.
pub const PERIOD: usize = 65_521;

/// The pattern, twice, so that a period from any place on lies in one piece.
#[derive(Clone, Debug)]
pub struct Pattern(Box<[u8]>);

impl Default for Pattern {
    fn default() -> Self {
        let mut state = 0_u64;
        // splitmix64.
        let word = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)).to_le_bytes()
        };
        let mut bytes: Vec<u8> =
            std::iter::repeat_with(word).take(PERIOD.div_ceil(8)).flatten().take(PERIOD).collect();
        bytes.extend_from_within(..);
        Pattern(bytes.into_boxed_slice())
    }
}

impl Pattern {
    /// The bytes that stand at `offset` of the stream, a period of them.
    #[inline]
    pub fn at(&self, offset: u64) -> &[u8] {
        let from = (offset % PERIOD as u64) as usize;
        &self.0[from..from + PERIOD]
    }

    /// The first place where these bytes are not those at `offset` of the stream, if there is one.
    pub fn mismatch(&self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut at = offset;
        for piece in bytes.chunks(PERIOD) {
            let expected = &self.at(at)[..piece.len()];
            if piece != expected {
                let same = piece.iter().zip(expected).take_while(|(a, b)| a == b).count();
                return Some(at + same as u64);
            }
            at += piece.len() as u64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_moved_or_changed_shows() {
        let pattern = Pattern::default();
        let stream: Vec<u8> = pattern.at(0).iter().cycle().copied().take(300_000).collect();
        for (from, len) in [(0, 300_000), (1, 1), (PERIOD - 1, 2), (PERIOD, 100), (65_536, 200_000)]
        {
            assert_eq!(pattern.mismatch(from as u64, &stream[from..from + len]), None);
            let mut other = stream[from..from + len].to_vec();
            other[len - 1] ^= 1;
            assert_eq!(pattern.mismatch(from as u64, &other), Some((from + len - 1) as u64));
        }
        for moved in [1448, 1460, 8948, 65_536 - 20, 64 * 1448] {
            assert!(pattern.mismatch(0, &stream[moved..moved + 1448]).is_some(), "{moved}");
        }
        assert_eq!(pattern.mismatch(5, &[]), None);
    }
}
