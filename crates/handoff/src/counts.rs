//! Counters by name.

use core::marker::PhantomData;

use crate::Named;

/// A counter for each of the `N` values of `T`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts<T, const N: usize> {
    counts: [u64; N],
    of: PhantomData<T>,
}

impl<T, const N: usize> Default for Counts<T, N> {
    fn default() -> Self {
        Self { counts: [0; N], of: PhantomData }
    }
}

impl<T: Named, const N: usize> Counts<T, N> {
    /// Counts one.
    #[inline]
    pub fn add(&mut self, value: T) {
        if let Some(count) = self.counts.get_mut(value.index()) {
            *count += 1;
        }
    }

    /// How many were counted.
    pub fn get(&self, value: T) -> u64 {
        self.counts.get(value.index()).copied().unwrap_or(0)
    }

    /// How many were counted in all.
    pub fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Name and value of each counter, in the order in which they are shown.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
        T::ALL.iter().map(|value| (value.name(), self.get(*value)))
    }
}
