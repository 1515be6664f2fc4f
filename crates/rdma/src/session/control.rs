//! The first page of the shared memory: who sleeps, and which queue pairs have new work.

use core::sync::atomic::{AtomicU64, Ordering};

use super::LINE;
use super::area::PAGE;

/// Most queue pairs of a process: one word has a bit for each word of bits.
pub const QPS_MAX: usize = 64 * 64;
/// Words of it.
pub const WORDS: usize = PAGE;

/// Where the word of words with bits lies, and the bits.
const SUMMARY: usize = LINE;
const BITS: usize = 2 * LINE;
const _: () = assert!(BITS + QPS_MAX / 64 <= WORDS);

const AWAKE: u64 = 0;
const ASLEEP: u64 = 1;

/// The first page.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a>(&'a [AtomicU64; WORDS]);

impl<'a> Control<'a> {
    /// In this memory; `None` if that is too short.
    pub fn new(memory: &'a [AtomicU64]) -> Option<Self> {
        memory.first_chunk().map(Control)
    }

    fn asleep(&self) -> &'a AtomicU64 {
        &self.0[0]
    }

    /// The application has posted to this queue pair. Returns whether the device is to be woken.
    ///
    /// The bits and the sleeper's word are sequentially consistent: either the device, which looks at the bits once
    /// more after it has said that it sleeps, sees them, or this sees that it sleeps.
    #[inline]
    pub fn post(&self, place: usize) -> bool {
        let (word, bit) = (place / 64 % 64, place % 64);
        self.0[BITS + word].fetch_or(1 << bit, Ordering::AcqRel);
        self.0[SUMMARY].fetch_or(1 << word, Ordering::SeqCst);
        self.must_ring()
    }

    /// Whether the device is to be woken, by one of those who ask.
    #[inline]
    pub fn must_ring(&self) -> bool {
        let asleep = self.asleep();
        asleep.load(Ordering::SeqCst) == ASLEEP && asleep.swap(AWAKE, Ordering::SeqCst) == ASLEEP
    }

    /// Whether a bit is set.
    #[inline]
    pub fn has_posts(&self) -> bool {
        self.0[SUMMARY].load(Ordering::SeqCst) != 0
    }

    /// The device takes all bits: calls `each` with the place of each queue pair.
    #[inline]
    pub fn take_posts(&self, mut each: impl FnMut(usize)) {
        if !self.has_posts() {
            return;
        }
        let mut words = self.0[SUMMARY].swap(0, Ordering::SeqCst);
        while words != 0 {
            let word = words.trailing_zeros() as usize;
            words &= words - 1;
            let mut bits = self.0[BITS + word].swap(0, Ordering::AcqRel);
            while bits != 0 {
                each(word * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// The device is about to sleep. Returns whether it may: if not, there are posts, and it is awake.
    pub fn sleep(&self) -> bool {
        self.asleep().swap(ASLEEP, Ordering::SeqCst);
        if self.has_posts() {
            self.wake();
            return false;
        }
        true
    }

    /// The device is awake.
    pub fn wake(&self) {
        self.asleep().store(AWAKE, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn posts_are_taken_once_and_wake_once() {
        let memory: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let control = Control::new(&memory).unwrap();
        assert!(!control.post(5));
        assert!(!control.sleep(), "there are posts");
        assert!(!control.post(4095), "it did not sleep");
        let mut places = vec![];
        control.take_posts(|place| places.push(place));
        assert_eq!(places, [5, 4095]);
        assert!(control.sleep());
        assert_eq!([control.post(64), control.post(64)], [true, false]);
        control.wake();
        control.take_posts(|place| places.push(place));
        control.take_posts(|place| places.push(place));
        assert_eq!(places, [5, 4095, 64]);
        assert!(Control::new(&memory[1..]).is_none());
    }
}
