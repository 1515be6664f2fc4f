//! Bytes that look random and are the same in every run.

use degen::Random;

/// Fills `to` with the bytes of stream `stream` from `offset` on: no period in which a lost or a
/// repeated segment could hide.
pub(crate) fn pattern(stream: u64, offset: u64, to: &mut [u8]) {
    let seed = Random::new(stream).at(0);
    let word = |number: u64| Random::new(seed ^ number).at(0).to_le_bytes();
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
