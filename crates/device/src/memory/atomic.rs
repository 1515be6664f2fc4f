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
/// How many times [`WAIT_MAX`] an operation of a slow process waits behind all others.
const WAITS_MAX: u32 = 20;
/// How often one of those that have waited for so long is then before the others.
const LATE_EVERY: Duration = Duration::from_secs(1);

/// A turn that takes longer has waited for memory.
const LONG: Duration = Duration::from_millis(1);
/// How much time a process may have had by such turns, of which a part is forgotten: one in so many of what passes. A busy
/// machine lets a turn take so long once in a while.
const SLOW: Duration = Duration::from_millis(50);
const SLOW_MAX: Duration = Duration::from_millis(400);
const FORGOTTEN: u32 = 32;

/// How long a file's lock is waited for that another has.
const LOCK_MAX: Duration = WAIT_MAX;
/// For how long it is not waited for after that: the other process may keep the lock for ever.
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
    /// Of which offset none is waited for, and until when.
    rest: Cell<Option<(u64, Instant)>>,
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
    /// Tries to lock the bytes at this offset, for an operation that has waited for the lock for so long. It does not wait: the
    /// caller does, and has no turn meanwhile.
    pub(super) fn ask<'a>(&self, file: &'a MemoryFile, at: u64, waited: Duration) -> Asked<'a> {
        match file.lock(at) {
            Ok(Some(locked)) => {
                self.rest.set(self.rest.get().filter(|(of, _)| *of != at));
                Asked::Alone(locked)
            }
            Ok(None) => self.waits(at, waited, Instant::now()),
            Err(_) => Asked::Never,
        }
    }

    fn waits<'a>(&self, at: u64, waited: Duration, now: Instant) -> Asked<'a> {
        if self.rest.get().is_some_and(|(of, until)| of == at && now < until) {
            return Asked::Never;
        }
        if waited < LOCK_MAX {
            return Asked::Busy;
        }
        self.rest.set(Some((at, now + LOCK_REST)));
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
    /// When one that is slow and late was before the others last.
    late: Option<Instant>,
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

/// Whose turn is sooner: of the same rank, who was there first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ticket {
    rank: Rank,
    number: u64,
}

/// See [`Ticket`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Rank {
    /// It is slow, and has waited for long enough.
    Late,
    Usual,
    /// Its memory is slow.
    Slow,
}

impl State {
    fn next(&self) -> Option<&Waiting> {
        self.waiting.iter().min_by_key(|waiting| waiting.ticket)
    }

    /// Wakes the next, whose turn it may be.
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
        let state = State { begun: 0, lasts: None, late: None, tickets: 0, waiting: Vec::new() };
        Turns { wait_max, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turns before to be over, or to have taken too long. The operation has begun at `since`.
    pub(super) fn begin<'a>(&'a self, slowness: &'a Slowness, since: Instant) -> Turn<'a> {
        let mut state = self.lock();
        if state.lasts.is_some() || !state.waiting.is_empty() {
            let rank = match slowness.is_too_much(Instant::now()) {
                true => Rank::Slow,
                false => Rank::Usual,
            };
            state = self.wait(state, rank, since + self.wait_max * WAITS_MAX);
        }
        let (passes, begun) = (state.lasts.is_some(), Instant::now());
        state.begun += 1;
        let number = state.begun;
        state.lasts = Some((number, begun + self.wait_max));
        Turn { turns: self, slowness, number, begun, passes }
    }

    /// Waits until it is the turn of this thread. Of those that are slow and have waited until `end`, one has a turn before the
    /// others now and then.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        rank: Rank,
        end: Instant,
    ) -> MutexGuard<'a, State> {
        state.tickets += 1;
        let mut ticket = Ticket { rank, number: state.tickets };
        state.waiting.push(Waiting { ticket, thread: std::thread::current() });
        loop {
            let now = Instant::now();
            let late = state.late.map_or(end, |at| end.max(at + LATE_EVERY));
            if ticket.rank == Rank::Slow && late <= now {
                let own = state.waiting.iter_mut().find(|waiting| waiting.ticket == ticket);
                ticket.rank = Rank::Late;
                own.into_iter().for_each(|own| own.ticket = ticket);
                state.late = Some(now);
            }
            let is_next = state.next().is_some_and(|next| next.ticket == ticket);
            let turn = state.lasts.map_or(now, |(_, until)| until);
            if is_next && turn <= now {
                break;
            }
            // One that is not the next is woken when it is.
            let until = match (is_next, ticket.rank) {
                (true, _) => turn,
                (false, Rank::Slow) => late,
                (false, _) => now + self.wait_max,
            };
            drop(state);
            std::thread::park_timeout(until.saturating_duration_since(now));
            state = self.lock();
        }
        state.waiting.retain(|waiting| waiting.ticket != ticket);
        // Another is next, and waits for this turn no longer than it may take.
        state.wake();
        state
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
                        let _turn = turns.begin(&slowness, Instant::now());
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
        let first = turns.begin(&slowness, Instant::now());
        std::thread::scope(|scope| {
            for (number, is_slow) in [(0, true), (1, false), (2, true), (3, false)] {
                let (turns, done) = (&turns, done.clone());
                scope.spawn(move || {
                    let slowness = if is_slow { slow() } else { Slowness::default() };
                    let _turn = turns.begin(&slowness, Instant::now());
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
        let stalled = turns.begin(&slowness, Instant::now());
        assert!(stalled.lasts() && !stalled.passes);
        let next = turns.begin(&slowness, Instant::now());
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
        let before = Ticket { rank: Rank::Usual, number: u64::MAX };
        turns.lock().waiting.push(Waiting { ticket: before, thread: std::thread::current() });
        let slowness = slow();
        let turn = turns.begin(&slowness, Instant::now());
        assert!(turn.lasts() && turns.are_waiting(1) && turns.lock().late.is_some());
    }

    /// An operation that is late passes no turn that is not over.
    #[test]
    fn who_has_waited_for_long_waits_for_the_turn_before() {
        let (turns, slowness, count) = (patient(), Slowness::default(), AtomicU64::new(0));
        let first = turns.begin(&slowness, Instant::now());
        std::thread::scope(|scope| {
            for usual in [false, true] {
                let (turns, count) = (&turns, &count);
                scope.spawn(move || {
                    let slowness = if usual { Slowness::default() } else { slow() };
                    // As one whose operation has begun long before.
                    let turn = turns.begin(&slowness, Instant::now() - turns.wait_max * WAITS_MAX);
                    assert!(!turn.passes);
                    assert_eq!(count.fetch_add(1, Ordering::Relaxed), u64::from(usual));
                });
                while !turns.are_waiting(1 + usize::from(usual)) {
                    std::thread::yield_now();
                }
            }
            assert_eq!(count.load(Ordering::Relaxed), 0);
            drop(first);
        });
        assert_eq!(count.into_inner(), 2);
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
        assert!(matches!(locks.waits(8, Duration::ZERO, now), Asked::Busy));
        assert!(matches!(locks.waits(8, LOCK_MAX, now), Asked::Never));
        assert!(matches!(locks.waits(8, Duration::ZERO, now), Asked::Never), "at once");
        assert!(matches!(locks.waits(16, Duration::ZERO, now), Asked::Busy), "another is");
        assert!(matches!(locks.waits(8, Duration::ZERO, now + LOCK_REST), Asked::Busy));
        assert!(matches!(locks.waits(8, LOCK_MAX, now + LOCK_REST), Asked::Never));
    }
}
