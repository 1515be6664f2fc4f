//! The memory of NIC and guard: for each place the record of a connection.

use super::{Area, MIRROR_WORDS};
use crate::ring::atomic::AtomicU64;

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a>(&'a [Area]);

impl<'a> Memory<'a> {
    /// Words for so many records.
    pub const fn words(places: usize) -> usize {
        places * MIRROR_WORDS
    }

    /// In these words, with so many records at most.
    pub fn new(words: &'a [AtomicU64], places: usize) -> Self {
        let (records, _) = words.as_chunks();
        Memory(&records[..records.len().min(places)])
    }

    /// The record at a place, if there is such a place.
    pub fn record(&self, place: u32) -> Option<&'a Area> {
        self.0.get(place as usize)
    }

    /// How many places there are.
    pub fn places(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}
