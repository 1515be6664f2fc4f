//! When what the engine has freed is given back to the operating system: an allocator keeps what lies
//! between pieces that are in use, for as long as the process lives.

use lro::Nanos;

/// Fewer bytes are not worth the walk through the allocator's lists, nor is a smaller part of what there
/// was: the walk is through all that is free, scattered as it is. Of 800 MB in blocks of 16 KB (glibc
/// 2.36, a shared machine), a call takes 0.6 ms where 4 MB were freed and 110 to 130 ms where half
/// was, and 25 ms where that has been given back already and nothing is left to give.
const WORTH: u64 = 4 << 20;
const PART: u64 = 8;
/// At most so often, as what is freed may be needed again soon.
const PERIOD: Nanos = 1_000_000_000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct GiveBack {
    /// Most that was held since.
    most: u64,
    due: Option<Nanos>,
}

impl GiveBack {
    /// So many bytes are held now: whether it is time to give back what was freed.
    pub(super) fn is_time(&mut self, held: u64, now: Nanos) -> bool {
        self.most = self.most.max(held);
        if self.most - held < WORTH.max(self.most / PART) {
            self.due = None;
            return false;
        }
        let due = *self.due.get_or_insert(now + PERIOD);
        let is_time = now >= due;
        if is_time {
            *self = GiveBack { most: held, due: None };
        }
        is_time
    }

    /// When it is to be asked again.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_goes_once_and_not_what_comes_and_goes() {
        let mut give_back = GiveBack::default();
        assert!(!give_back.is_time(100 << 20, 0));
        assert!(!give_back.is_time(10 << 20, 5));
        assert_eq!(give_back.due(), Some(PERIOD + 5));
        assert!(!give_back.is_time(100 << 20, 9), "it was needed again");
        assert_eq!(give_back.due(), None);
        assert!(!give_back.is_time(10 << 20, 10));
        assert!(give_back.is_time(10 << 20, PERIOD + 10));
        assert!(!give_back.is_time(10 << 20, 9 * PERIOD));
        assert_eq!(give_back.due(), None);
    }

    /// Of 800 MB, 5 MB are not worth a call each second: as it shrinks, there are no more than eight calls
    /// for each halving.
    #[test]
    fn a_large_heap_is_not_walked_for_little() {
        let mut give_back = GiveBack::default();
        let (mut now, mut held, mut calls) = (0, 800_u64 << 20, 0);
        assert!(!give_back.is_time(held, now));
        while held >= 100 << 20 {
            held -= 5 << 20;
            now += 2 * PERIOD;
            // Asked when it is due, too, as the worker does.
            let due = [now, now + PERIOD].map(|now| give_back.is_time(held, now));
            calls += due.iter().filter(|due| **due).count();
        }
        assert!((8..=24).contains(&calls), "{calls} calls");
        assert!(!give_back.is_time(0, now + 3 * PERIOD));
        assert!(give_back.is_time(0, now + 4 * PERIOD), "the rest is given back");
    }
}
