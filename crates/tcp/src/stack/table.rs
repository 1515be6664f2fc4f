//! From the two ends of a packet to its connection: open addressing, eight bytes an entry.

use alloc::vec;
use alloc::vec::Vec;

use wire::FlowHash;
use wire::flow::bucket;

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
    hash: FlowHash,
}

impl Table {
    pub(super) fn new(hash: FlowHash) -> Self {
        Table { entries: vec![Entry { hash: 0, slot: EMPTY }; LEAST], len: 0, hash }
    }

    /// Keyed, so that an attacker cannot choose ports that collide.
    #[inline]
    pub(super) fn hash(&self, key: &Key) -> u32 {
        self.hash.of(&key.flow())
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        bucket(hash, self.entries.len())
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    /// The slot with this hash for which `is` holds.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.mask();
        let mut at = self.home(hash);
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
        wire::cache::prefetch(&self.entries[self.home(hash)]);
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
        let mut at = self.home(entry.hash);
        while self.entries[at].slot != EMPTY {
            at = (at + 1) & mask;
        }
        self.entries[at] = entry;
    }

    /// Takes an entry out, and moves those behind it so that none is cut off.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let mask = self.mask();
        let mut at = self.home(hash);
        while self.entries[at].slot != slot {
            if self.entries[at].slot == EMPTY {
                return;
            }
            at = (at + 1) & mask;
        }
        self.len -= 1;
        let mut next = (at + 1) & mask;
        while self.entries[next].slot != EMPTY {
            let home = self.home(self.entries[next].hash);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FourTuple;
    use crate::stack::secret::Secret;
    use core::cell::Cell;
    use core::net::{Ipv6Addr, SocketAddr};

    /// 4,000 peers, of addresses and ports in order, are found in as many steps as random ones would be.
    #[test]
    fn connections_of_regular_addresses_do_not_collide() {
        const COUNT: u32 = 4000;
        for secret in 0..16 {
            let mut table = Table::new(Secret::new([secret; 16]).flow_hash());
            let hash = |table: &Table, n: u32| {
                let peer = Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(n / 2));
                let remote = SocketAddr::new(peer.into(), 1024 + (n % 2) as u16);
                let local = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 80);
                table.hash(&Key::new(&FourTuple { local, remote }))
            };
            for n in 0..COUNT {
                table.insert(hash(&table, n), n);
            }
            let mut all = 0;
            for n in 0..COUNT {
                let mut at = table.home(hash(&table, n));
                while table.entries[at].slot != n {
                    at = (at + 1) & table.mask();
                    all += 1;
                }
                let asked = Cell::new(0);
                let is = |slot| {
                    asked.set(asked.get() + 1);
                    slot == n
                };
                assert_eq!(table.find(hash(&table, n), is), Some(n));
                assert_eq!(asked.get(), 1, "another connection has its hash");
            }
            assert!(all < COUNT, "{all} steps beyond the first");
        }
    }
}
