//! Numbers that look random and are the same for the same seed.

use crate::Probability;

/// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream of numbers.
    pub const fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A stream of its own for `purpose`, so that what is drawn for one does not change what is drawn
    /// for another.
    pub fn stream(seed: u64, purpose: u64) -> Self {
        let seed = Random(seed).next();
        Random(Random(seed ^ purpose).next())
    }

    /// Any number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it never ends, so nothing to iterate over")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number from 0 to `bound` - 1.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number above 0 and up to 1.
    #[inline]
    pub fn fraction(&mut self) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        ((self.next() >> 11) + 1) as f64 / STEPS
    }

    /// Does it happen this time? What can never, or must always, draws a number all the same.
    #[inline]
    pub fn happens(&mut self, probability: Probability) -> bool {
        self.below(Probability::WHOLE.into()) < probability.parts().into()
    }
}
