//! Atomic operations of all processes of a device, one after the other; those on a file also of all devices.
//!
//! Each reads and writes memory of a program's own, which may be slow to come, or never come: a page of a file system
//! that does not answer. Others do not wait for that: after some time they go on.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sys::memory_file::{Locked, MemoryFile};

/// How long others wait for an operation. It is longer than a busy machine keeps a thread from its CPU: if an operation
/// that is only late were passed over, memory that both programs share would lose one of the two.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The bytes of a file, which devices of other processes may have as well: no other does an operation on them meanwhile.
/// Whoever has them is waited for as long as for a turn; `None` if that was not enough.
pub(super) fn alone(file: &MemoryFile, at: u64) -> Option<Locked<'_>> {
    const REST: Duration = Duration::from_micros(50);
    let begun = Instant::now();
    loop {
        match file.lock(at) {
            Ok(Some(locked)) => return Some(locked),
            Ok(None) if begun.elapsed() < WAIT_MAX => std::thread::sleep(REST),
            _ => return None,
        }
    }
}

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    is_over: Condvar,
}

#[derive(Debug)]
struct State {
    /// Turns that have begun.
    begun: u64,
    /// The one that lasts: its number, and when others wait for it no longer.
    lasts: Option<(u64, Instant)>,
}

/// A turn. It is over when it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Turns {
    pub(super) const fn new() -> Self {
        Turns { state: Mutex::new(State { begun: 0, lasts: None }), is_over: Condvar::new() }
    }

    /// Waits for the turn before to be over, or to have taken too long.
    pub(super) fn begin(&self) -> Turn<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = loop {
            let now = Instant::now();
            let Some((_, until)) = state.lasts else { break now };
            let Some(left) = until.checked_duration_since(now).filter(|left| !left.is_zero())
            else {
                break now;
            };
            let waited = self.is_over.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.begun += 1;
        let number = state.begun;
        state.lasts = Some((number, now + WAIT_MAX));
        Turn { turns: self, number }
    }
}

impl Turn<'_> {
    /// Whether no other turn has begun meanwhile.
    pub(super) fn lasts(&self) -> bool {
        let state = self.turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.begun == self.number
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.lasts.is_some_and(|(number, _)| number == self.number) {
            state.lasts = None;
            self.turns.is_over.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn turns_are_one_after_the_other() {
        let (turns, count) = (Turns::new(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        let _turn = turns.begin();
                        let before = count.load(Ordering::Relaxed);
                        std::thread::yield_now();
                        count.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 4_000);
    }

    #[test]
    fn a_turn_that_does_not_end_keeps_nobody_for_ever() {
        let turns = Turns::new();
        let stalled = turns.begin();
        assert!(stalled.lasts());
        let next = turns.begin();
        assert!(next.lasts() && !stalled.lasts());
        // Its end is not that of the one which lasts.
        drop(stalled);
        let state = turns.state.lock().unwrap();
        assert!(state.lasts.is_some_and(|(number, _)| number == next.number));
        drop(state);
        drop(next);
        assert!(turns.state.lock().unwrap().lasts.is_none());
    }
}
