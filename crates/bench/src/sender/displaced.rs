//! A path that reorders: some segments of a connection come some positions late, but no later than
//! the burst that they are part of ends.

use degen::Random;

/// A displaced segment comes after so many of its connection at most.
const FARTHEST: u64 = 32;

/// The segments of one connection that are on their way round.
#[derive(Clone, Debug)]
pub(super) struct Displaced {
    /// Of 100 segments.
    percent: u32,
    random: Random,
    /// Segments that have arrived.
    arrived: u64,
    /// Where in the stream a segment begins, and how many must have arrived before it does.
    late: Vec<(u64, u64)>,
}

impl Displaced {
    pub(super) fn new(percent: u32, seed: u64) -> Self {
        Displaced { percent, random: Random::new(seed), arrived: 0, late: Vec::new() }
    }

    /// Whether this path reorders at all.
    pub(super) fn is_possible(&self) -> bool {
        self.percent > 0
    }

    /// Sends the segment that begins at `offset` the long way round, or not.
    pub(super) fn takes(&mut self, offset: u64) -> bool {
        let taken = self.percent > 0 && self.random.next_below(100) < u64::from(self.percent);
        if taken {
            let later = 1 + self.random.next_below(FARTHEST);
            self.late.push((offset, self.arrived + later));
        }
        taken
    }

    /// A segment whose time has come.
    pub(super) fn due(&mut self) -> Option<u64> {
        let at = self.late.iter().position(|(_, due)| *due <= self.arrived)?;
        Some(self.late.swap_remove(at).0)
    }

    /// The next segment, whether its time has come or not: for when no other goes before it.
    pub(super) fn next(&mut self) -> Option<u64> {
        let at = (0..self.late.len()).min_by_key(|at| self.late[*at].1)?;
        Some(self.late.swap_remove(at).0)
    }

    /// Whether there is any.
    pub(super) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// A segment of the connection arrives.
    pub(super) fn arrives(&mut self) {
        self.arrived += 1;
    }

    /// Loses what is on its way: all of it will be sent again.
    pub(super) fn clear(&mut self) {
        self.late.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which segments 0, 1, 2 ... arrive.
    fn order(percent: u32, segments: u64) -> Vec<u64> {
        let mut path = Displaced::new(percent, 7);
        let mut fresh = 0..segments;
        let mut order = Vec::new();
        loop {
            let next =
                path.due().or_else(|| fresh.find(|s| !path.takes(*s))).or_else(|| path.next());
            let Some(segment) = next else { return order };
            path.arrives();
            order.push(segment);
        }
    }

    #[test]
    fn as_many_as_asked_for_arrive_late_and_none_is_lost() {
        assert!(order(0, 1000).iter().copied().eq(0..1000));
        for percent in [1, 5, 10, 20, 30] {
            let order = order(percent, 100_000);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..100_000));
            // Late is what arrives after a segment that was sent after it.
            let mut newest = 0;
            let mut late = 0;
            for segment in order {
                late += u32::from(segment < newest);
                newest = newest.max(segment);
            }
            let wanted = percent * 1000;
            // One that waits behind others that are late is not seen to be late itself.
            assert!(late < wanted * 11 / 10 && late > wanted * 8 / 10, "{late} of {wanted}");
        }
    }
}
