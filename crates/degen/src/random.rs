//! Pseudorandom numbers, the same for the same seed.

use crate::Probability;

/// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). Each number
/// follows from its place alone, so a packet draws the same ones whatever was drawn for the others.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// What lies between the states of one number and the next.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// A stream of numbers.
    pub const fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A stream of its own for `purpose`, so that what is drawn for one does not change what is drawn
    /// for another.
    pub fn stream(seed: u64, purpose: u64) -> Self {
        Random(Random(Random(seed).at(0) ^ purpose).at(0))
    }

    /// The next number, and on.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "it never ends, so nothing to iterate over")]
    pub fn next(&mut self) -> u64 {
        let next = self.at(0);
        self.0 = self.0.wrapping_add(GAMMA);
        next
    }

    /// The next number, from 0 to `bound` - 1, and on.
    #[inline]
    pub fn next_below(&mut self, bound: u64) -> u64 {
        let next = self.below(0, bound);
        self.next();
        next
    }

    /// Fills `to` with the next numbers, the least significant byte first.
    pub fn fill(&mut self, to: &mut [u8]) {
        for word in to.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes()[..word.len()]);
        }
    }

    /// The number that stands at `place`, counted from the [`next`](Self::next) one.
    #[inline]
    pub const fn at(&self, place: u64) -> u64 {
        let z = self.0.wrapping_add(GAMMA.wrapping_mul(place.wrapping_add(1)));
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number from 0 to `bound` - 1.
    #[inline]
    pub fn below(&self, place: u64, bound: u64) -> u64 {
        ((u128::from(self.at(place)) * u128::from(bound)) >> 64) as u64
    }

    /// A number above 0 and up to 1.
    #[inline]
    pub fn fraction(&self, place: u64) -> f64 {
        const STEPS: f64 = (1_u64 << 53) as f64;
        ((self.at(place) >> 11) + 1) as f64 / STEPS
    }

    /// Whether it happens to the packet at `place`.
    #[inline]
    pub fn happens(&self, place: u64, probability: Probability) -> bool {
        probability != Probability::NEVER
            && self.below(place, Probability::WHOLE.into()) < probability.parts().into()
    }
}
