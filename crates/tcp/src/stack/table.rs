//! From the two ends of a packet to its connection: open addressing, eight bytes an entry.

use alloc::vec;
use alloc::vec::Vec;

use crate::connection::Key;

const EMPTY: u32 = u32::MAX;
const LEAST: usize = 64;

/// An entry: part of the hash, and the slot.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    slot: u32,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    len: usize,
    secret: [u64; 2],
}

impl Table {
    pub(super) fn new(secret: [u64; 2]) -> Self {
        Table { entries: vec![Entry { hash: 0, slot: EMPTY }; LEAST], len: 0, secret }
    }

    /// Keyed, so that nobody can choose ports that meet in one place. Each step is a multiplication to
    /// 128 bits whose halves are folded.
    #[inline]
    pub(super) fn hash(&self, key: &Key) -> u32 {
        let [a, b, c, d, e] = key.words();
        let [s, t] = self.secret;
        let local = fold(a ^ s, b ^ t);
        let remote = fold(c ^ t, d ^ s);
        fold(local ^ e ^ s, remote ^ t) as u32
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    /// The slot of which `is` says that it is the one.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.mask();
        let mut at = hash as usize & mask;
        loop {
            let entry = self.entries[at];
            if entry.slot == EMPTY {
                return None;
            }
            if entry.hash == hash && is(entry.slot) {
                return Some(entry.slot);
            }
            at = (at + 1) & mask;
        }
    }

    /// Starts loading where [`find`](Self::find) begins.
    #[inline]
    pub(super) fn fetch(&self, hash: u32) {
        wire::cache::prefetch(&self.entries[hash as usize & self.mask()]);
    }

    pub(super) fn insert(&mut self, hash: u32, slot: u32) {
        if (self.len + 1) * 2 > self.entries.len() {
            let empty = vec![Entry { hash: 0, slot: EMPTY }; self.entries.len() * 2];
            let old = core::mem::replace(&mut self.entries, empty);
            for entry in old.into_iter().filter(|entry| entry.slot != EMPTY) {
                self.place(entry);
            }
        }
        self.place(Entry { hash, slot });
        self.len += 1;
    }

    fn place(&mut self, entry: Entry) {
        let mask = self.mask();
        let mut at = entry.hash as usize & mask;
        while self.entries[at].slot != EMPTY {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
    }

    /// Takes an entry out, and moves those behind it so that none is cut off.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let mask = self.mask();
        let mut at = hash as usize & mask;
        while self.entries[at].slot != slot {
            if self.entries[at].slot == EMPTY {
                return;
            }
            at = (at + 1) & mask;
        }
        self.len -= 1;
        let mut next = (at + 1) & mask;
        while self.entries[next].slot != EMPTY {
            let home = self.entries[next].hash as usize & mask;
            // May the entry stand at `at`? Only if that is not before its home.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(at) & mask) {
                self.entries[at] = self.entries[next];
                at = next;
            }
            next = (next + 1) & mask;
        }
        self.entries[at].slot = EMPTY;
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}
