//! What a degen has done, as the rest of the process sees it.

use degen::{Config, Counters, Nanos};

use crate::counters::Entry;

/// Packets that went on later than they were due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Late {
    /// Those that were later than [`AFTER`](Self::AFTER).
    pub packets: u64,
    /// How late the latest was, in nanoseconds.
    pub most: Nanos,
}

impl Late {
    /// From when on a packet counts as late, in nanoseconds.
    pub const AFTER: Nanos = 50_000;

    /// A packet went on at `now`.
    #[inline]
    pub(super) fn count(&mut self, due: Nanos, now: Nanos) {
        let by = now.saturating_sub(due);
        self.packets += u64::from(by > Self::AFTER);
        self.most = self.most.max(by);
    }
}

/// How many packets went on, and how many of them late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// All that went on.
    pub departed: u64,
    /// Those of them that were late.
    pub late: u64,
}

impl Tally {
    /// Fewer late packets than these are what any machine has.
    const LEAST: u64 = 10;

    /// Whether of the packets since `before` one in a hundred or more was late, and not just a few.
    pub fn is_late_since(&self, before: Self) -> bool {
        let late = self.late.saturating_sub(before.late);
        late >= Self::LEAST && late * 100 >= self.departed.saturating_sub(before.departed)
    }

    /// Whether the packets since `before` are enough to be judged: of fewer, one in a hundred is not
    /// 10.
    pub fn is_enough_since(&self, before: Self) -> bool {
        self.departed.saturating_sub(before.departed) >= 100 * Self::LEAST
    }
}

/// A degen as it was a short while ago; arrays are by [`Direction`](super::Direction).
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Settings in force.
    pub configs: [Config; 2],
    /// What was done.
    pub counters: [Counters; 2],
    /// Packets that are in flight.
    pub held: [u64; 2],
    /// Those that went on too late.
    pub late: [Late; 2],
    /// Packets that could not be cut into frames of the wire, or completed.
    pub refused: [u64; 2],
    /// Frames for which there was no memory.
    pub no_memory: [u64; 2],
}

impl Snapshot {
    /// What of all packets went on late, in words; `None` as long as there are none. A delay that was
    /// not kept is no measurement of what was asked for.
    pub fn lateness(&self) -> Option<String> {
        let most = self.late.iter().map(|late| late.most).max().unwrap_or_default();
        let after = Late::AFTER / 1_000;
        (self.late_packets() > 0).then(|| {
            format!(
                "{} of {} frames left more than {after} us late, the latest by {} us",
                self.late_packets(),
                self.departed(),
                most / 1_000
            )
        })
    }

    /// The packets so far, to be compared with those of another look.
    pub fn tally(&self) -> Tally {
        Tally { departed: self.departed(), late: self.late_packets() }
    }

    fn late_packets(&self) -> u64 {
        self.late.iter().map(|late| late.packets).sum()
    }

    fn departed(&self) -> u64 {
        self.counters.iter().map(|counters| counters.departed).sum()
    }

    /// Names and values as `wharf stats` shows them, in groups that begin with `prefix`.
    pub fn entries(&self, groups: [&'static str; 2]) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (direction, group) in groups.into_iter().enumerate() {
            let mut add = |name, value| entries.push(Entry { group, name, value });
            for (name, value) in self.counters[direction].entries() {
                add(name, value);
            }
            add("held", self.held[direction]);
            add("late", self.late[direction].packets);
            add("latest_ns", self.late[direction].most);
            add("refused", self.refused[direction]);
            add("no_memory", self.no_memory[direction]);
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_judged_by_what_left_since_the_last_look() {
        let is_late = |departed, late, before| Tally { departed, late }.is_late_since(before);
        let start = Tally::default();
        assert!(!is_late(50, 1, start), "one late frame among the first");
        assert!(is_late(50, 10, start));
        assert!(is_late(1_000, 10, start));
        assert!(!is_late(1_001, 10, start), "fewer than one in a hundred");
        // What was punctual for long does not make up for what is late now.
        let before = Tally { departed: 1_000_000_000, late: 3 };
        assert!(is_late(1_000_020_000, 203, before));
        assert!(!is_late(1_000_020_000, 202, before));
        assert!(!Tally { departed: 999, late: 9 }.is_enough_since(start));
        assert!(Tally { departed: 1_000, late: 9 }.is_enough_since(start));
    }
}
