//! The threads that wait in a set, as the NICs see them: a set in which any waits, and which has connections at a NIC, counts
//! as one sleeper of each session. So a thread that has entered the kernel before the first connection left is woken, too.
//!
//! One ring wakes one thread of the set, whichever the kernel picks. A thread that leaves with what it has found wakes
//! the next one if more is there.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use handoff::session::NICS_MAX;

use crate::session::{self, Session};

/// Of one set.
pub(super) struct Waiters {
    /// Threads in the kernel, or on the way there.
    waiting: AtomicU32,
    /// Registrations at a NIC.
    away: AtomicI32,
    /// By NIC, the number of the session that counts the set as a sleeper; 0 for none.
    counted: [AtomicU32; NICS_MAX],
    /// Any may count it.
    may_be_counted: AtomicBool,
}

impl Waiters {
    pub(super) const fn new() -> Self {
        Waiters {
            waiting: AtomicU32::new(0),
            away: AtomicI32::new(0),
            counted: [const { AtomicU32::new(0) }; NICS_MAX],
            may_be_counted: AtomicBool::new(false),
        }
    }

    /// A thread is about to wait in the kernel.
    #[inline]
    pub(super) fn begin(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// A thread waits no more. Returns true if the rest is to [`settle`](Self::settle).
    #[inline]
    pub(super) fn end(&self) -> bool {
        let was_last = self.waiting.fetch_sub(1, Ordering::SeqCst) == 1;
        was_last && self.may_be_counted.load(Ordering::SeqCst)
    }

    /// Returns true if any thread waits.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Returns true if a registration is at a NIC.
    #[inline]
    pub(super) fn have_away(&self) -> bool {
        self.away.load(Ordering::SeqCst) > 0
    }

    /// So many more registrations are at a NIC. Returns true if the rest is to [`settle`](Self::settle): threads that wait
    /// already are counted from there on.
    pub(super) fn count_away(&self, more: i32) -> bool {
        self.away.fetch_add(more, Ordering::SeqCst);
        self.are_any()
    }

    /// No registration is at a NIC, as the set is no more.
    pub(super) fn none_away(&self) {
        self.away.store(0, Ordering::SeqCst);
        if self.may_be_counted.load(Ordering::SeqCst) {
            self.settle();
        }
    }

    /// In the child after fork: the threads and the sessions are the parent's.
    pub(super) fn forget(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.away.store(0, Ordering::Relaxed);
        self.counted.iter().for_each(|one| one.store(0, Ordering::Relaxed));
        self.may_be_counted.store(false, Ordering::Relaxed);
    }

    fn sleep(&self) -> bool {
        self.have_away() && self.are_any()
    }

    fn count_in(&self, session: &Session) {
        let counted = &self.counted[session.place];
        let before = counted.load(Ordering::Acquire);
        if before == session.number {
            return;
        }
        // The session never counts fewer than are recorded here.
        session.sleepers().enter();
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if counted.compare_exchange(before, session.number, success, failure).is_err() {
            session.sleepers().leave();
        }
    }

    fn count_out(&self, session: &Session) {
        let counted = &self.counted[session.place];
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if counted.compare_exchange(session.number, 0, success, failure).is_ok() {
            session.sleepers().leave();
        }
    }

    /// Has the sessions count the set, or not, as it is now. Returns true if it sleeps and may have been passed over while
    /// that changed.
    pub(super) fn settle(&self) -> bool {
        let mut has_changed = false;
        self.may_be_counted.store(true, Ordering::SeqCst);
        loop {
            let sleep = self.sleep();
            session::all().for_each(|session| match sleep {
                true => self.count_in(session),
                false => self.count_out(session),
            });
            if self.sleep() == sleep {
                return sleep && has_changed;
            }
            has_changed = true;
        }
    }
}
