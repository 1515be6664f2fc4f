//! Steering tags: 24 random bits that name a region or window, and a byte of its owner's (the key).
//!
//! RFC 5042: STags MUST NOT be easy to guess. The 24 bits come from a keyed
//! hash; those that are free again are not used before others by any rule.

use alloc::vec;
use alloc::vec::Vec;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;

/// The 24 bits.
pub(crate) fn index(stag: u32) -> u32 {
    stag >> 8
}

/// No place.
const NONE: u32 = u32::MAX;

/// From 24 random bits to a place, by open addressing: the bits are random, and so are their own hash.
#[derive(Debug)]
pub(crate) struct Stags {
    /// Index and place; a power of two, less than half full.
    slots: Vec<(u32, u32)>,
    mask: u32,
    key: SipHasher13,
    drawn: u64,
}

impl Stags {
    pub(crate) fn new(limit: usize, secret: [u8; 16]) -> Self {
        // At most a quarter of the 24 bits, so that a random one is free as a rule.
        let slots = (limit.clamp(1, 1 << 22) * 2).next_power_of_two();
        Self {
            slots: vec![(0, NONE); slots],
            mask: slots as u32 - 1,
            key: SipHasher13::new_with_key(&secret),
            drawn: 0,
        }
    }

    /// An STag for this place: a free index, and the first key, which is random, too. No index is zero, as many
    /// take zero for no STag at all.
    pub(crate) fn draw(&mut self, place: u32) -> u32 {
        loop {
            let mut hasher = self.key;
            hasher.write_u64(self.drawn);
            self.drawn += 1;
            let stag = hasher.finish() as u32;
            let index = index(stag);
            if index != 0 && self.find(index).is_none() {
                self.insert(index, place);
                return stag;
            }
        }
    }

    fn insert(&mut self, index: u32, place: u32) {
        let mut at = index & self.mask;
        while self.slots[at as usize].1 != NONE {
            at = (at + 1) & self.mask;
        }
        self.slots[at as usize] = (index, place);
    }

    fn slot(&self, index: u32) -> Option<u32> {
        let mut at = index & self.mask;
        loop {
            let (found, place) = self.slots[at as usize];
            if place == NONE {
                return None;
            }
            if found == index {
                return Some(at);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// The place of an index.
    #[inline]
    pub(crate) fn find(&self, index: u32) -> Option<u32> {
        self.slot(index).map(|at| self.slots[at as usize].1)
    }

    /// Those behind it move up, so that none is hidden by the hole.
    pub(crate) fn remove(&mut self, index: u32) {
        let Some(mut hole) = self.slot(index) else { return };
        let mut at = hole;
        loop {
            self.slots[hole as usize].1 = NONE;
            loop {
                at = (at + 1) & self.mask;
                let (found, place) = self.slots[at as usize];
                if place == NONE {
                    return;
                }
                let home = found & self.mask;
                let from_home = at.wrapping_sub(home) & self.mask;
                let from_hole = at.wrapping_sub(hole) & self.mask;
                if from_home >= from_hole {
                    self.slots[hole as usize] = (found, place);
                    hole = at;
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #[test]
        fn as_a_map(steps in proptest::collection::vec(any::<(bool, prop::sample::Index)>(), 0..200)) {
            let mut stags = Stags::new(8, [7; 16]);
            let mut map: BTreeMap<u32, u32> = BTreeMap::new();
            for (place, (adds, which)) in steps.into_iter().enumerate() {
                if adds && map.len() < 8 {
                    let index = index(stags.draw(place as u32));
                    prop_assert!(index > 0 && index < 1 << 24);
                    prop_assert!(map.insert(index, place as u32).is_none());
                } else if !map.is_empty() {
                    let index = *map.keys().nth(which.index(map.len())).unwrap();
                    stags.remove(index);
                    map.remove(&index);
                    prop_assert_eq!(stags.find(index), None);
                }
                for (index, place) in &map {
                    prop_assert_eq!(stags.find(*index), Some(*place));
                }
            }
        }
    }

    /// RFC 5042: one STag does not tell of others, nor does one run of another.
    #[test]
    fn another_secret_gives_other_stags() {
        let draw = |secret| {
            let mut stags = Stags::new(64, [secret; 16]);
            (0..64).map(|place| stags.draw(place)).collect::<std::vec::Vec<_>>()
        };
        let (a, b) = (draw(1), draw(2));
        // The first key is as random as the index: 64 of 256 values meet seldom.
        for of in [&a, &b] {
            let keys: BTreeSet<u32> = of.iter().map(|stag| stag & 0xff).collect();
            assert!(keys.len() > 40, "{keys:?}");
        }
        let same = a.iter().zip(&b).filter(|(a, b)| **a & 0xff == **b & 0xff).count();
        assert!(same < 8, "{same} keys are the same with another secret");
        let [a, b] = [a, b].map(|of| of.into_iter().map(index).collect::<std::vec::Vec<_>>());
        assert!(a.iter().all(|index| !b.contains(index)));
        let steps = a.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 256).count();
        assert!(steps < 3, "{a:?}");
    }
}
