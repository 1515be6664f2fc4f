//! Where queues lie in the shared memory, and which of it is free.

use alloc::collections::BTreeMap;
use core::sync::atomic::AtomicU64;

use super::LINE;

/// Words of a page, the unit in which memory is given out.
pub const PAGE: usize = 512;
/// Words before the entries of a queue: the application's line, and the device's.
pub(super) const HEAD: usize = 2 * LINE;

/// Where a queue lies, and its shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Area {
    /// Its first word.
    pub at: u32,
    /// Entries: a power of two, as many as the queue is deep or more.
    pub slots: u32,
    /// Words of an entry.
    pub stride: u32,
}

impl Area {
    /// Words of a queue of this shape, whole pages; `None` if there can be none.
    pub fn words(slots: u32, stride: u32) -> Option<usize> {
        let entries = (slots as usize).checked_mul(stride as usize)?;
        entries.checked_add(HEAD)?.checked_next_multiple_of(PAGE)
    }

    /// As two words of a message.
    pub fn encode(self) -> [u64; 2] {
        [u64::from(self.at), u64::from(self.slots) | u64::from(self.stride) << 32]
    }

    /// From two words of a message.
    pub fn decode(words: [u64; 2]) -> Option<Self> {
        let at = u32::try_from(words[0]).ok()?;
        let (slots, stride) = (words[1] as u32, (words[1] >> 32) as u32);
        (slots.is_power_of_two() && stride > 0).then_some(Area { at, slots, stride })
    }

    /// The two lines, and the entries; `None` if it does not lie within the memory.
    pub(super) fn of<'a>(&self, memory: &'a [AtomicU64]) -> Option<Parts<'a>> {
        let len = (self.slots as usize).checked_mul(self.stride as usize)?.checked_add(HEAD)?;
        let words = memory.get(self.at as usize..)?.get(..len)?;
        let (head, entries) = words.split_at(HEAD);
        let (app, device) = head.split_at(LINE);
        Some(Parts { app, device, entries })
    }
}

/// The parts of a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) app: &'a [AtomicU64],
    pub(super) device: &'a [AtomicU64],
    pub(super) entries: &'a [AtomicU64],
}

/// Which of the memory is free. What is given out is zero: whoever gives some back has seen to that.
#[derive(Debug)]
pub(super) struct Arena {
    /// Free ranges: their words, by their first.
    free: BTreeMap<usize, usize>,
}

impl Arena {
    /// All words from `begin` to `end` are free.
    pub(super) fn new(begin: usize, end: usize) -> Self {
        let mut free = BTreeMap::new();
        if begin < end {
            free.insert(begin, end - begin);
        }
        Self { free }
    }

    /// So many words, whole pages: the first range that has them.
    pub(super) fn take(&mut self, words: usize) -> Option<usize> {
        let (at, len) = self.free.iter().find(|(_, len)| **len >= words)?;
        let (at, len) = (*at, *len);
        self.free.remove(&at);
        if len > words {
            self.free.insert(at + words, len - words);
        }
        Some(at)
    }

    /// These are free again.
    pub(super) fn give(&mut self, mut at: usize, mut words: usize) {
        if let Some((before, len)) = self.free.range(..at).next_back()
            && before + len == at
        {
            let (before, len) = (*before, *len);
            self.free.remove(&before);
            (at, words) = (before, len + words);
        }
        if let Some(len) = self.free.remove(&(at + words)) {
            words += len;
        }
        self.free.insert(at, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_one_again() {
        let mut arena = Arena::new(PAGE, 9 * PAGE);
        let taken: [Option<usize>; 5] = core::array::from_fn(|_| arena.take(2 * PAGE));
        let places = [1, 3, 5, 7].map(|page| page * PAGE);
        assert_eq!(
            taken,
            [Some(places[0]), Some(places[1]), Some(places[2]), Some(places[3]), None]
        );
        arena.give(places[1], 2 * PAGE);
        assert_eq!(arena.take(3 * PAGE), None);
        for place in [places[3], places[0], places[2]] {
            arena.give(place, 2 * PAGE);
        }
        assert_eq!(arena.take(8 * PAGE), Some(PAGE));
    }

    #[test]
    fn areas_are_as_they_were() {
        let area = Area { at: 512, slots: 64, stride: 8 };
        assert_eq!(Area::decode(area.encode()), Some(area));
        for wrong in [[1 << 32, 1 | 1 << 32], [0, 3 | 1 << 32], [0, 4], [0, 1 << 32]] {
            assert_eq!(Area::decode(wrong), None, "{wrong:?}");
        }
        assert_eq!(Area::words(u32::MAX, u32::MAX).map(|words| words > 1 << 60), Some(true));
        let memory: alloc::vec::Vec<AtomicU64> = (0..1024).map(|_| AtomicU64::new(0)).collect();
        assert!(area.of(&memory).is_none(), "its 528 words do not end before the 1,024th");
        assert!(Area { at: 497, ..area }.of(&memory).is_none());
        let parts = Area { at: 496, ..area }.of(&memory).map(|parts| parts.entries.len());
        assert_eq!(parts, Some(512));
    }
}
