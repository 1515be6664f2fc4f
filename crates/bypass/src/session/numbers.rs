//! The numbers of a session's connections, and whose each is.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use crate::os;

/// Nobody's.
const FREE: usize = 0;
/// Of a connection that was closed, and that wharf may still have.
const LEFT: usize = 1;
/// How many of those that were left last are looked at before others are.
const LAST: usize = 32;

/// See the module's documentation. An owner is a number that is neither of these two.
pub(super) struct Numbers {
    owners: &'static [AtomicUsize],
    /// Those that are nobody's or left.
    spare: AtomicI32,
    /// No number below is free.
    first: AtomicU32,
    /// Those that were left last, each plus one, and how many there were so far.
    last: [AtomicU32; LAST],
    left: AtomicUsize,
}

impl Numbers {
    /// So many; `None` if there is no memory for them.
    pub(super) fn new(count: u32) -> Option<Self> {
        Some(Numbers {
            owners: os::keep_each(count as usize, |_| AtomicUsize::new(FREE))?,
            spare: AtomicI32::new(count as i32),
            first: AtomicU32::new(0),
            last: [const { AtomicU32::new(0) }; LAST],
            left: AtomicUsize::new(0),
        })
    }

    /// One that is free, or was left and `is_free` by now: of those that were left last, or else the lowest. The memory of its
    /// rings was used before, and may be there still.
    pub(super) fn take(&self, owner: usize, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        if self.spare.load(Ordering::Relaxed) <= 0 {
            return None;
        }
        let first = self.first.load(Ordering::Relaxed);
        let is_taken = |number: &u32| {
            let place = &self.owners[*number as usize];
            let old = place.load(Ordering::Acquire);
            let may_take = old == FREE || old == LEFT && is_free(*number);
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            may_take && place.compare_exchange(old, owner, success, failure).is_ok()
        };
        let mut last =
            self.last.iter().filter_map(|one| one.load(Ordering::Relaxed).checked_sub(1));
        if let Some(number) = last.find(is_taken) {
            self.spare.fetch_sub(1, Ordering::Relaxed);
            return Some(number);
        }
        let number = (first..self.owners.len() as u32).chain(0..first).find(is_taken)?;
        self.spare.fetch_sub(1, Ordering::Relaxed);
        let next = number + 1;
        // Unless one was given back meanwhile. Those that were left are found from the beginning.
        let _ = self.first.compare_exchange(first, next, Ordering::Relaxed, Ordering::Relaxed);
        Some(number)
    }

    /// It is free.
    pub(super) fn give(&self, number: u32) {
        self.change(number, FREE);
        self.first.fetch_min(number, Ordering::Relaxed);
    }

    /// It is free when wharf has done with it.
    pub(super) fn leave(&self, number: u32) {
        self.change(number, LEFT);
        let at = self.left.fetch_add(1, Ordering::Relaxed) % LAST;
        self.last[at].store(number + 1, Ordering::Relaxed);
    }

    fn change(&self, number: u32, to: usize) {
        if let Some(place) = self.owners.get(number as usize) {
            place.store(to, Ordering::Release);
            self.spare.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whose it is.
    pub(super) fn owner(&self, number: u32) -> Option<usize> {
        let owner = self.owners.get(number as usize)?.load(Ordering::Acquire);
        (owner != FREE && owner != LEFT).then_some(owner)
    }
}
