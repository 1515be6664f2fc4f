//! Numbers that look random and are the same for the same seed.

use std::ops::Range;

/// One stream of them.
#[derive(Clone, Debug)]
pub(super) struct Random(degen::Random);

impl Random {
    /// The stream of one capture.
    pub(super) fn of(seed: u64, capture: u64) -> Self {
        Self(degen::Random::stream(seed, capture))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// 0 up to but not `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        let number = self.0.below(0, bound);
        self.0.next();
        number
    }

    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True once in `n` times; never with 0.
    pub(super) fn once_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}
