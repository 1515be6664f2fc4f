//! The scoreboard of what is in flight (RFC 6675 section 4): what SACK has, what is lost, and what was
//! retransmitted. It holds only what differs from "sent once, neither acknowledged nor lost", as ranges of
//! bytes. All that it does for a range costs the logarithm of the number of ranges.

use alloc::collections::{BTreeMap, BTreeSet};

use wire::Seq;

use super::step;
use crate::Nanos;

/// The place of the first byte: places before it exist, too.
const FIRST: u64 = 1 << 32;

/// What is known of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The peer's SACK covers it.
    Sacked,
    /// It is taken for lost and waits to be retransmitted.
    Lost,
    /// It was retransmitted.
    Retransmitted,
}

/// A range, which begins at its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) end: u64,
    /// When it was last retransmitted, and the payload of its segments then; a size of 0 if it never was.
    pub(super) at: Nanos,
    pub(super) size: u16,
    pub(super) state: State,
}

impl Mark {
    pub(super) fn sacked(end: u64) -> Mark {
        Mark { end, at: 0, size: 0, state: State::Sacked }
    }

    /// Lost, and sent once.
    pub(super) fn lost(end: u64) -> Mark {
        Mark { end, at: 0, size: 0, state: State::Lost }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// Whether it can be one range with an adjacent `other`.
    fn joins(&self, other: &Mark) -> bool {
        self.state == other.state
            && self.state != State::Retransmitted
            && self.size == 0
            && other.size == 0
    }
}

/// A range with a mark, or the gap between two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) mark: Option<Mark>,
}

/// Marks in order. Sequence numbers wrap, so places are counted in 64 bits.
#[derive(Debug)]
pub(super) struct Board {
    /// A sequence number, and its place.
    origin: Seq,
    place: u64,
    marks: BTreeMap<u64, Mark>,
    /// Where the lost ranges begin.
    lost: BTreeSet<u64>,
    /// When ranges were retransmitted, and where they begin: their times do not follow their sequence
    /// numbers, as all others do.
    retransmitted: BTreeSet<(Nanos, u64)>,
    /// RACK has decided on everything before this place that was sent once.
    pub(super) judged: u64,
}

impl Board {
    pub(super) fn new(origin: Seq) -> Board {
        Board {
            origin,
            place: FIRST,
            marks: BTreeMap::new(),
            lost: BTreeSet::new(),
            retransmitted: BTreeSet::new(),
            judged: FIRST,
        }
    }

    pub(super) fn place(&self, seq: Seq) -> u64 {
        self.place.wrapping_add_signed(i64::from(seq.distance(self.origin)))
    }

    pub(super) fn seq(&self, place: u64) -> Seq {
        Seq(self.origin.0.wrapping_add(place.wrapping_sub(self.place) as u32))
    }

    /// The place of the first byte that was not acknowledged.
    pub(super) fn front(&self) -> u64 {
        self.place
    }

    pub(super) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// The mark or gap that `place` lies in.
    pub(super) fn around(&self, place: u64) -> Around {
        step();
        let before = self.marks.range(..=place).next_back();
        if let Some((&start, &mark)) = before
            && mark.end > place
        {
            return Around { start, end: mark.end, mark: Some(mark) };
        }
        let after = self.marks.range(place..).next();
        Around {
            start: before.map_or(0, |(_, mark)| mark.end),
            end: after.map_or(u64::MAX, |(&start, _)| start),
            mark: None,
        }
    }

    fn link(&mut self, start: u64, mark: Mark) {
        step();
        match mark.state {
            State::Sacked => {}
            State::Lost => {
                self.lost.insert(start);
            }
            State::Retransmitted => {
                self.retransmitted.insert((mark.at, start));
            }
        }
        self.marks.insert(start, mark);
    }

    fn unlink(&mut self, start: u64) -> Option<Mark> {
        step();
        let mark = self.marks.remove(&start)?;
        match mark.state {
            State::Sacked => {}
            State::Lost => {
                self.lost.remove(&start);
            }
            State::Retransmitted => {
                self.retransmitted.remove(&(mark.at, start));
            }
        }
        Some(mark)
    }

    /// Cuts the mark around `place` in two there.
    pub(super) fn cut(&mut self, place: u64) {
        let around = self.around(place);
        if let Some(mark) = around.mark
            && around.start < place
        {
            if let Some(before) = self.marks.get_mut(&around.start) {
                before.end = place;
            }
            self.link(place, mark);
        }
    }

    /// Removes all marks from `start` to `end`.
    pub(super) fn clear(&mut self, start: u64, end: u64) {
        self.cut(start);
        self.cut(end);
        while let Some((&at, _)) = self.marks.range(start..end).next() {
            self.unlink(at);
        }
    }

    /// Puts a mark where there is none, and joins it with its neighbours where they mean the same, so that a
    /// walk costs the number of holes.
    pub(super) fn put(&mut self, start: u64, mark: Mark) {
        let (mut start, mut mark) = (start, mark);
        if let Some((&before, other)) = self.marks.range(..start).next_back()
            && other.end == start
            && other.joins(&mark)
        {
            self.unlink(before);
            start = before;
        }
        if let Some(other) = self.marks.get(&mark.end).copied()
            && mark.joins(&other)
        {
            self.unlink(mark.end);
            mark.end = other.end;
        }
        self.link(start, mark);
    }

    /// Removes what lies before `una`, which is acknowledged.
    pub(super) fn acknowledge(&mut self, una: Seq) {
        let place = self.place(una);
        self.cut(place);
        while let Some((&start, _)) = self.marks.range(..place).next() {
            self.unlink(start);
        }
        self.origin = una;
        self.place = place;
    }

    /// Where the first lost range begins.
    pub(super) fn first_lost(&self) -> Option<u64> {
        step();
        self.lost.first().copied()
    }

    /// Of what was retransmitted, the range whose retransmission is the oldest.
    pub(super) fn first_retransmitted(&self) -> Option<(Nanos, u64, Mark)> {
        step();
        let &(at, start) = self.retransmitted.first()?;
        Some((at, start, *self.marks.get(&start)?))
    }

    /// The last time at which something was retransmitted before the segment that was sent at `at` and ends
    /// at `end`.
    pub(super) fn last_retransmitted(&self, at: Nanos, end: u64) -> Option<Nanos> {
        let mut earlier = self.retransmitted.range(..(at, end)).rev();
        let before = earlier.find(|(then, start)| {
            step();
            *then < at || self.marks.get(start).is_some_and(|mark| mark.end < end)
        });
        before.map(|&(then, _)| then)
    }

    /// A range that was retransmitted is lost once more.
    pub(super) fn lose_retransmitted(&mut self, start: u64) {
        if let Some(mark) = self.unlink(start) {
            self.link(start, Mark { state: State::Lost, ..mark });
        }
    }

    /// Nothing is lost after all.
    pub(super) fn clear_lost(&mut self) {
        while let Some(start) = self.first_lost() {
            match self.unlink(start) {
                Some(mark) if mark.size > 0 => {
                    self.link(start, Mark { state: State::Retransmitted, ..mark });
                }
                // RACK is to decide on it again, and on nothing before it.
                _ => self.judged = self.judged.min(start),
            }
        }
    }

    /// All that SACK covered is lost.
    pub(super) fn renege(&mut self) {
        let sacked = |(&start, mark): (&u64, &Mark)| (mark.state == State::Sacked).then_some(start);
        let starts: alloc::vec::Vec<u64> = self.marks.iter().filter_map(sacked).collect();
        for start in starts {
            if let Some(mark) = self.marks.get_mut(&start) {
                *mark = Mark::lost(mark.end);
                self.lost.insert(start);
            }
        }
    }
}
