//! Atomic operations of all processes of a device, one after the other; those on a file also of all devices.
//!
//! Each reads and writes memory of a program's own, which may be slow to come, or never come: a page of a file system
//! that does not answer. Others do not wait for that: after some time they go on. Turns are in the order in which they were
//! asked for, but that processes whose memory was slow of late wait until no other waits.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use sys::memory_file::{Locked, MemoryFile};

/// How long others wait for an operation. It is longer than a busy machine keeps a thread from its CPU: if an operation
/// that is only late were passed over, memory that both programs share would lose one of the two.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// How many times as long a turn is waited for, whoever has those before.
const WAITS_MAX: u32 = 20;

/// A turn that takes longer has waited for memory.
const LONG: Duration = Duration::from_millis(1);
/// How much time a process may have had by such turns, of which a part is forgotten: one in so many of what passes. A busy
/// machine lets a turn take so long once in a while.
const SLOW: Duration = Duration::from_millis(50);
const SLOW_MAX: Duration = Duration::from_millis(400);
const FORGOTTEN: u32 = 32;

/// How long a file's lock is waited for that another has.
const LOCK_MAX: Duration = WAIT_MAX;
/// And for how long it is not waited for then: whoever has the file may keep its lock for ever.
const LOCK_REST: Duration = Duration::from_secs(1);

/// How slow a process's memory was of late: the time that its long turns took, and when that was.
#[derive(Debug, Default)]
pub(super) struct Slowness(Cell<Option<(Duration, Instant)>>);

impl Slowness {
    fn at(&self, now: Instant) -> Duration {
        self.0.get().map_or(Duration::ZERO, |(time, at)| {
            time.saturating_sub(now.saturating_duration_since(at) / FORGOTTEN)
        })
    }

    fn is_too_much(&self, now: Instant) -> bool {
        self.at(now) > SLOW
    }

    /// A turn took so long.
    fn took(&self, time: Duration, now: Instant) {
        if time > LONG {
            self.0.set(Some(((self.at(now) + time).min(SLOW_MAX), now)));
        }
    }
}

/// The locks of a file, which devices of other processes may have as well: no other does an operation on the same bytes
/// meanwhile.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Until when none is waited for.
    rest: Cell<Option<Instant>>,
}

/// What came of asking for a lock.
#[derive(Debug)]
pub(super) enum Asked<'a> {
    /// It is had until this is dropped.
    Alone(#[expect(dead_code, reason = "it is kept until the operation is over")] Locked<'a>),
    /// Another has it, and is to be waited for.
    Busy,
    /// It is not to be had, or has been waited for long enough.
    Never,
}

impl Locks {
    /// The bytes at this offset, for an operation that has waited for so long for them. This does not wait: whoever does has
    /// no turn meanwhile.
    pub(super) fn ask<'a>(&self, file: &'a MemoryFile, at: u64, waited: Duration) -> Asked<'a> {
        match file.lock(at) {
            Ok(Some(locked)) => Asked::Alone(locked),
            Ok(None) => self.waits(waited, Instant::now()),
            Err(_) => Asked::Never,
        }
    }

    fn waits<'a>(&self, waited: Duration, now: Instant) -> Asked<'a> {
        if self.rest.get().is_some_and(|until| now < until) {
            return Asked::Never;
        }
        if waited < LOCK_MAX {
            return Asked::Busy;
        }
        self.rest.set(Some(now + LOCK_REST));
        Asked::Never
    }
}

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turns {
    /// How long one is waited for.
    wait_max: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Turns that have begun.
    begun: u64,
    /// The one that lasts: its number, and when others wait for it no longer.
    lasts: Option<(u64, Instant)>,
    /// Turns that were waited for, and those that are.
    tickets: u64,
    waiting: Vec<Waiting>,
}

/// Who waits.
#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    thread: Thread,
}

/// Whose turn is sooner: whose memory is not slow, and then who was there first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ticket {
    is_slow: bool,
    number: u64,
}

impl State {
    fn next(&self) -> Option<&Waiting> {
        self.waiting.iter().min_by_key(|waiting| waiting.ticket)
    }

    /// It may be the turn of whoever is next.
    fn wake(&self) {
        if let Some(next) = self.next() {
            next.thread.unpark();
        }
    }
}

/// A turn. It is over when it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    slowness: &'a Slowness,
    number: u64,
    begun: Instant,
    /// The turn before is not over: it has taken too long.
    pub(super) passes: bool,
}

impl Turns {
    pub(super) const fn new() -> Self {
        Turns::that_wait(WAIT_MAX)
    }

    const fn that_wait(wait_max: Duration) -> Self {
        let state = State { begun: 0, lasts: None, tickets: 0, waiting: Vec::new() };
        Turns { wait_max, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turns before to be over, or to have taken too long.
    pub(super) fn begin<'a>(&'a self, slowness: &'a Slowness) -> Turn<'a> {
        let (mut state, mut begun) = (self.lock(), Instant::now());
        let (mut is_beside, is_slow) = (false, slowness.is_too_much(begun));
        if state.lasts.is_some() || !state.waiting.is_empty() {
            let is_over;
            (state, is_over) = self.wait(state, begun, is_slow);
            begun = Instant::now();
            is_beside = is_slow && !is_over;
        }
        let passes = state.lasts.is_some();
        state.begun += 1;
        let number = state.begun;
        // Nobody waits for whoever is slow and had to begin before the others were done.
        if !is_beside {
            state.lasts = Some((number, begun + self.wait_max));
        }
        Turn { turns: self, slowness, number, begun, passes }
    }

    /// Waits until it is the turn of this thread, which is there since `since`, and whether it is then: not if it has waited
    /// for long enough.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        since: Instant,
        is_slow: bool,
    ) -> (MutexGuard<'a, State>, bool) {
        state.tickets += 1;
        let ticket = Ticket { is_slow, number: state.tickets };
        state.waiting.push(Waiting { ticket, thread: std::thread::current() });
        let end = since + self.wait_max * WAITS_MAX;
        let is_turn = loop {
            let (now, is_next) =
                (Instant::now(), state.next().is_some_and(|next| next.ticket == ticket));
            let turn = state.lasts.map_or(now, |(_, until)| until);
            if is_next && turn <= now || end <= now {
                break is_next && turn <= now;
            }
            // Whoever is not next yet is woken when it is.
            let until = if is_next { turn.min(end) } else { end };
            drop(state);
            std::thread::park_timeout(until.saturating_duration_since(now));
            state = self.lock();
        };
        state.waiting.retain(|waiting| waiting.ticket != ticket);
        // Another is next, and waits for this turn no longer than it may take.
        state.wake();
        (state, is_turn)
    }
}

impl Turn<'_> {
    /// Whether no other turn has begun meanwhile.
    pub(super) fn lasts(&self) -> bool {
        self.turns.lock().begun == self.number
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        self.slowness.took(now.saturating_duration_since(self.begun), now);
        let mut state = self.turns.lock();
        if state.lasts.is_some_and(|(number, _)| number == self.number) {
            state.lasts = None;
            state.wake();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Turns that a thread which a busy machine keeps from its CPU does not lose.
    pub(in super::super) const fn patient() -> Turns {
        Turns::that_wait(HOUR)
    }

    impl Turns {
        /// Whether so many wait.
        pub(in super::super) fn are_waiting(&self, many: usize) -> bool {
            self.lock().waiting.len() == many
        }
    }

    fn slow() -> Slowness {
        let slowness = Slowness::default();
        slowness.took(HOUR, Instant::now() + HOUR);
        slowness
    }

    #[test]
    fn turns_are_one_after_the_other() {
        let (turns, count) = (patient(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let slowness = Slowness::default();
                    for _ in 0..200 {
                        let _turn = turns.begin(&slowness);
                        let before = count.load(Ordering::Relaxed);
                        std::thread::yield_now();
                        count.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 800);
        assert!(turns.are_waiting(0));
    }

    #[test]
    fn turns_are_in_the_order_in_which_they_were_asked_for_and_the_slow_are_last() {
        let (turns, slowness, (done, order)) = (patient(), Slowness::default(), mpsc::channel());
        let first = turns.begin(&slowness);
        std::thread::scope(|scope| {
            for (number, is_slow) in [(0, true), (1, false), (2, true), (3, false)] {
                let (turns, done) = (&turns, done.clone());
                scope.spawn(move || {
                    let slowness = if is_slow { slow() } else { Slowness::default() };
                    let _turn = turns.begin(&slowness);
                    done.send(number).unwrap();
                });
                while !turns.are_waiting(number + 1) {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        drop(done);
        assert_eq!(order.iter().collect::<Vec<_>>(), [1, 3, 0, 2]);
    }

    #[test]
    fn a_turn_that_does_not_end_keeps_nobody_for_ever() {
        let (turns, slowness) = (Turns::new(), Slowness::default());
        let stalled = turns.begin(&slowness);
        assert!(stalled.lasts() && !stalled.passes);
        let next = turns.begin(&slowness);
        assert!(next.lasts() && next.passes && !stalled.lasts());
        // Its end is not that of the one which lasts.
        drop(stalled);
        assert!(turns.lock().lasts.is_some_and(|(number, _)| number == next.number));
        drop(next);
        assert!(turns.lock().lasts.is_none());
    }

    /// As where others begin anew again and again.
    #[test]
    fn those_that_are_always_before_keep_nobody_for_ever() {
        let turns = Turns::that_wait(Duration::from_millis(1));
        let before = Ticket { is_slow: false, number: 0 };
        turns.lock().waiting.push(Waiting { ticket: before, thread: std::thread::current() });
        let slowness = slow();
        let beside = turns.begin(&slowness);
        assert!(beside.lasts() && turns.lock().lasts.is_none(), "nobody waits for it");
        let slowness = Slowness::default();
        let next = turns.begin(&slowness);
        assert!(next.lasts() && turns.lock().lasts.is_some());
        assert!(turns.are_waiting(1));
    }

    #[test]
    fn slowness_is_of_long_turns_and_is_forgotten() {
        let (slowness, begun) = (Slowness::default(), Instant::now());
        for _ in 0..1_000 {
            slowness.took(LONG, begun);
        }
        assert!(!slowness.is_too_much(begun));
        slowness.took(SLOW, begun);
        assert!(!slowness.is_too_much(begun));
        slowness.took(2 * LONG, begun);
        assert!(slowness.is_too_much(begun));
        assert!(!slowness.is_too_much(begun + 2 * LONG * FORGOTTEN));
        for _ in 0..1_000 {
            slowness.took(WAIT_MAX, begun);
        }
        assert!(slowness.is_too_much(begun + (SLOW_MAX - SLOW) * FORGOTTEN - LONG));
        assert!(!slowness.is_too_much(begun + SLOW_MAX * FORGOTTEN));
    }

    #[test]
    fn a_file_whose_lock_was_waited_for_in_vain_is_not_waited_for_again_so_soon() {
        let (locks, now) = (Locks::default(), Instant::now());
        assert!(matches!(locks.waits(Duration::ZERO, now), Asked::Busy));
        assert!(matches!(locks.waits(LOCK_MAX, now), Asked::Never));
        assert!(matches!(locks.waits(Duration::ZERO, now), Asked::Never), "at once");
        assert!(matches!(locks.waits(Duration::ZERO, now + LOCK_REST), Asked::Busy));
        assert!(matches!(locks.waits(LOCK_MAX, now + LOCK_REST), Asked::Never));
    }
}
