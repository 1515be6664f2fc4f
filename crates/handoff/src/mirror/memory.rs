//! The memory of NIC and guard, by its parts.
//!
//! ```text
//!   for each place: the record of a connection
//!   the rest:       what is spilled by the OS side, and as much by the NIC's
//! ```

use super::{Area, MIRROR_WORDS};
use crate::ring::atomic::AtomicU64;
use crate::spill;

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    records: &'a [Area],
    spilled: [&'a [AtomicU64]; 2],
}

impl<'a> Memory<'a> {
    /// Words for so many records, and for so many chunks of each side.
    pub const fn words(places: usize, chunks: usize) -> usize {
        places * MIRROR_WORDS + 2 * spill::words(chunks)
    }

    /// In these words, with so many records at most.
    pub fn new(words: &'a [AtomicU64], places: usize) -> Self {
        let (records, rest) = words.split_at(words.len().min(places * MIRROR_WORDS));
        let (records, _) = records.as_chunks();
        let (os, nic) = rest.split_at(rest.len() / 2);
        Memory { records, spilled: [os, nic] }
    }

    /// The record at a place, if there is such a place.
    pub fn record(&self, place: u32) -> Option<&'a Area> {
        self.records.get(place as usize)
    }

    /// How many places there are.
    pub fn places(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX)
    }

    /// What the OS side spills: the queues of a connection that it takes out of the kernel, until the NIC has them.
    pub fn spilled_by_os(&self) -> &'a [AtomicU64] {
        self.spilled[0]
    }

    /// What the NIC spills.
    pub fn spilled_by_nic(&self) -> &'a [AtomicU64] {
        self.spilled[1]
    }
}
