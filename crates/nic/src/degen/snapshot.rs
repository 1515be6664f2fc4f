//! What a degen has done, as the rest of the process sees it.

use degen::{Config, Counters, Nanos};

use crate::counters::Entry;

/// Packets that were to leave at a time of their own, and those of them that left later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Late {
    /// All that were to leave at a time: where a delay, jitter or rate is set.
    pub timed: u64,
    /// Those that were later than [`AFTER`](Self::AFTER).
    pub packets: u64,
    /// How late the latest was, in nanoseconds.
    pub most: Nanos,
}

impl Late {
    /// From when on a packet counts as late, in nanoseconds.
    pub const AFTER: Nanos = 50_000;

    /// Counts a packet that left at `now`.
    #[inline]
    pub(super) fn count(&mut self, due: Nanos, now: Nanos) {
        let by = now.saturating_sub(due);
        self.timed += 1;
        self.packets += u64::from(by > Self::AFTER);
        self.most = self.most.max(by);
    }
}

/// Number of packets that were to leave at a time, and of those that left late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// All that were to leave at a time.
    pub timed: u64,
    /// Those of them that were late.
    pub late: u64,
}

impl Tally {
    /// Packets of a window: of fewer, one in a hundred is a handful, as any machine has it.
    const WINDOW: u64 = 1_000;

    /// Judges the packets since `previous`: returns true if one in a hundred or more was late. `None` while they are fewer than
    /// a window's.
    pub fn is_late_since(&self, previous: Self) -> Option<bool> {
        let timed = self.timed.saturating_sub(previous.timed);
        let late = self.late.saturating_sub(previous.late);
        (timed >= Self::WINDOW).then_some(late * 100 >= timed)
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
                self.timed(),
                most / 1_000
            )
        })
    }

    /// The packets so far, to be compared with those of another look.
    pub fn tally(&self) -> Tally {
        Tally { timed: self.timed(), late: self.late_packets() }
    }

    fn late_packets(&self) -> u64 {
        self.late.iter().map(|late| late.packets).sum()
    }

    fn timed(&self) -> u64 {
        self.late.iter().map(|late| late.timed).sum()
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
    fn lateness_is_judged_over_a_window() {
        let is_late = |timed, late, previous| Tally { timed, late }.is_late_since(previous);
        let start = Tally::default();
        assert_eq!(is_late(364, 10, start), None, "a few late frames among the first");
        assert_eq!(is_late(999, 999, start), None);
        assert_eq!(is_late(1_000, 10, start), Some(true));
        assert_eq!(is_late(1_001, 10, start), Some(false), "fewer than one in a hundred");
        // Packets that were punctual for long do not make up for those that are late now.
        let previous = Tally { timed: 1_000_000_000, late: 3 };
        assert_eq!(is_late(1_000_020_000, 203, previous), Some(true));
        assert_eq!(is_late(1_000_020_000, 202, previous), Some(false));
    }

    #[test]
    fn what_is_late_is_told_of_packets_with_a_time() {
        let mut snapshot = Snapshot::default();
        snapshot.counters[1].departed = 1_000_000;
        assert_eq!(snapshot.lateness(), None);
        snapshot.late[0].count(0, 40_000);
        assert_eq!(snapshot.lateness(), None);
        snapshot.late[0].count(0, 60_000);
        let words = "1 of 2 frames left more than 50 us late, the latest by 60 us";
        assert_eq!(snapshot.lateness().as_deref(), Some(words));
    }
}
