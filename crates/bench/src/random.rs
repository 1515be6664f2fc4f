//! Numbers that look random and are the same in every run.

/// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number from 0 to `bound` - 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Fills `to` with the bytes of stream `stream` from `offset` on: no period in which a lost or a
/// repeated segment could hide.
pub(crate) fn pattern(stream: u64, offset: u64, to: &mut [u8]) {
    let seed = Random::new(stream).next();
    let word = |number: u64| Random::new(seed ^ number).next().to_le_bytes();
    let mut at = offset;
    let mut rest = to;
    while !rest.is_empty() {
        let word = word(at / 8);
        let from = &word[(at % 8) as usize..];
        let len = from.len().min(rest.len());
        rest[..len].copy_from_slice(&from[..len]);
        rest = &mut rest[len..];
        at += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_same_however_it_is_cut() {
        let mut whole = [0; 1000];
        pattern(3, 5, &mut whole);
        for cut in [1, 3, 8, 500, 999] {
            let mut parts = [0; 1000];
            let (first, second) = parts.split_at_mut(cut);
            pattern(3, 5, first);
            pattern(3, 5 + cut as u64, second);
            assert_eq!(parts, whole);
        }
        let mut other = [0; 1000];
        pattern(4, 5, &mut other);
        assert_ne!(other, whole);
    }
}
