//! IDs for the IP fragments that wharf makes.

/// A series of IDs that others cannot foresee (RFC 7739). All 2^32 come before one comes again, and
/// of the lower halves, which are all that IPv4 has room for, all 2^16.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FragmentIds {
    secret: u64,
    count: u32,
}

impl FragmentIds {
    /// `secret` is what makes the series its own.
    pub(crate) fn new(secret: u64) -> FragmentIds {
        FragmentIds { secret, count: 0 }
    }

    /// On to the next one.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.count = self.count.wrapping_add(1);
    }

    /// The one at hand.
    #[inline]
    pub(crate) fn current(&self) -> u32 {
        let [low, high] = [self.count as u16, (self.count >> 16) as u16];
        let low = self.mix(low, 0);
        // Whatever is added to it, the upper half stays one of its own for each lower half.
        let high = self.mix(high ^ self.mix(low, 32), 16);
        u32::from(high) << 16 | u32::from(low)
    }

    /// Another number for each number: each step can be undone.
    #[inline]
    fn mix(&self, number: u16, at: u32) -> u16 {
        let [a, b, c, d] = [0, 16, 32, 48].map(|by| self.secret.rotate_left(at + by) as u16);
        let mut x = number.wrapping_add(a).wrapping_mul(b | 1);
        x ^= x >> 7;
        x = x.wrapping_mul(c | 1);
        x ^= x >> 9;
        x = x.wrapping_mul(b | 1) ^ d;
        x ^ (x >> 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_comes_again_before_all_have_come() {
        let mut ids = FragmentIds::new(0x0123_4567_89ab_cdef);
        let mut seen = vec![false; 1 << 16];
        let mut whole = std::collections::HashSet::new();
        for _ in 0..1 << 16 {
            let id = ids.current();
            assert!(!std::mem::replace(&mut seen[usize::from(id as u16)], true));
            assert!(whole.insert(id));
            ids.advance();
        }
        // Into the second round of the lower half.
        for _ in 0..1 << 16 {
            assert!(whole.insert(ids.current()));
            ids.advance();
        }
    }

    #[test]
    fn another_secret_is_another_series() {
        let series = |secret| {
            let mut ids = FragmentIds::new(secret);
            std::array::from_fn::<u32, 8, _>(|_| {
                ids.advance();
                ids.current()
            })
        };
        assert_ne!(series(1), series(2));
        assert_eq!(series(3), series(3));
    }
}
