//! The memory of rings whose connections are over. It stays for the next connection of the same number, a while: to take it
//! out of all page tables, which interrupts the other CPUs, and to have it there again, page by page, costs as much as many
//! packets.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::lane::handoff::link::Key;

/// How long.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Bytes at most.
const KEPT_MAX: usize = 64 << 20;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    /// Since when, and how many bytes each has.
    kept: HashMap<Key, (Instant, usize)>,
    /// In the order of time. One that is not kept since then was used anew.
    order: VecDeque<(Instant, Key)>,
    /// Bytes of all that are kept.
    bytes: usize,
}

impl Rooms {
    /// The connection of this name is over. Returns whether its room is kept: if not, it is to go back.
    pub(super) fn keep(&mut self, key: Key, bytes: usize, now: Instant) -> bool {
        let keeps = self.bytes + bytes <= KEPT_MAX;
        if keeps {
            self.kept.insert(key, (now, bytes));
            self.order.push_back((now, key));
            self.bytes += bytes;
        }
        keeps
    }

    /// Another connection has this name. Returns the bytes of its room.
    pub(super) fn take(&mut self, key: Key) -> usize {
        let bytes = self.kept.remove(&key).map_or(0, |(_, bytes)| bytes);
        self.bytes -= bytes;
        bytes
    }

    /// The next one that was kept long enough: its room is to go back.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<Key> {
        while let Some((since, key)) =
            self.order.pop_front_if(|(since, _)| now.duration_since(*since) >= KEPT_FOR)
        {
            if self.kept.get(&key).is_some_and(|(kept, _)| *kept == since) {
                self.take(key);
                return Some(key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use handoff::Cid;

    use super::*;

    const ROOM: usize = 256 << 10;

    fn key(cid: u32) -> Key {
        Key { session: 1, cid: Cid(cid) }
    }

    #[test]
    fn what_is_not_used_again_goes_back_and_nothing_else() {
        let mut rooms = Rooms::default();
        let begun = Instant::now();
        let after = |millis| begun + Duration::from_millis(millis);
        for cid in 0..3 {
            assert!(rooms.keep(key(cid), ROOM, after(u64::from(cid))));
        }
        assert_eq!((rooms.take(key(1)), rooms.take(key(1))), (ROOM, 0));
        assert_eq!(rooms.next_due(after(999)), None);
        assert_eq!(rooms.next_due(after(1001)), Some(key(0)));
        assert_eq!(rooms.next_due(after(1001)), None);
        // It was used, and is over once more: its time begins anew.
        assert!(rooms.keep(key(1), ROOM, after(1500)));
        assert_eq!(rooms.next_due(after(2000)), Some(key(2)));
        assert_eq!(rooms.next_due(after(2499)), None);
        assert_eq!(rooms.next_due(after(2500)), Some(key(1)));
        assert!(rooms.kept.is_empty() && rooms.order.is_empty() && rooms.bytes == 0);
    }

    #[test]
    fn no_more_is_kept_than_some() {
        let mut rooms = Rooms::default();
        let now = Instant::now();
        let kept = (0..1000).filter(|cid| rooms.keep(key(*cid), ROOM, now)).count();
        assert_eq!(kept * ROOM, KEPT_MAX);
        assert!(!rooms.keep(key(1000), KEPT_MAX + 1, now));
        rooms.take(key(3));
        assert!(rooms.keep(key(1000), ROOM, now));
        // One that is used anew again and again is there once in a millisecond, for a second.
        rooms = Rooms::default();
        for at in 0..10_000 {
            let now = now + Duration::from_millis(at);
            assert!(rooms.keep(key(0), ROOM, now));
            rooms.take(key(0));
            assert_eq!(rooms.next_due(now), None);
        }
        assert!(rooms.order.len() <= 1_000);
    }
}
