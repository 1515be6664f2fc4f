//! The threads that wait in a set, as the NICs see them: a set in which any waits, and which has connections at a NIC, counts
//! as one sleeper of each session. So a thread that has entered the kernel before the first connection left is woken, too.
//!
//! One ring wakes one thread of the set, whichever the kernel picks. A thread that leaves with what it has found wakes
//! the next one if more is there.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use handoff::session::NICS_MAX;

use crate::session::{self, Session};

/// Of one set.
pub(super) struct Waiters {
    /// Threads in the kernel, or on the way there.
    waiting: AtomicU32,
    /// The set's stay, and behind it the number of its registrations at a NIC: a place of the pool is another set in
    /// another stay, for which what is counted late must not count.
    away: AtomicU64,
    /// By NIC, the number of the session that counts the set as a sleeper; 0 for none.
    counted: [AtomicU32; NICS_MAX],
    /// Any may count it.
    may_be_counted: AtomicBool,
}

/// The bits of [`Waiters::away`] that are the number.
const AWAY: u64 = u32::MAX as u64;

impl Waiters {
    pub(super) const fn new() -> Self {
        Waiters {
            waiting: AtomicU32::new(0),
            away: AtomicU64::new(0),
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
        // In the child of a handler that forks in the middle of a wait there is none.
        let less = |count: u32| count.checked_sub(1);
        let before = self.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        before == Ok(1) && self.may_be_counted.load(Ordering::SeqCst)
    }

    /// Returns true if any thread waits.
    #[inline]
    pub(super) fn are_any(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Returns true if a registration is at a NIC.
    #[inline]
    pub(super) fn have_away(&self) -> bool {
        self.away.load(Ordering::SeqCst) & AWAY != 0
    }

    /// Counts a registration at a NIC, or one less, of the set's stay `stay`. Returns true if the rest is to
    /// [`settle`](Self::settle): threads that wait already are counted from there on.
    pub(super) fn count_away(&self, stay: u32, is_more: bool) -> bool {
        let counted = |away: u64| {
            if (away >> 32) as u32 != stay {
                return None;
            }
            if is_more { Some(away + 1) } else { (away & AWAY != 0).then(|| away - 1) }
        };
        self.away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted).is_ok()
            && self.are_any()
    }

    /// Begins a stay of the set, in which no registration is at a NIC.
    pub(super) fn begin_stay(&self, stay: u32) {
        self.away.store(u64::from(stay) << 32, Ordering::SeqCst);
        if self.may_be_counted.load(Ordering::SeqCst) {
            self.settle();
        }
    }

    /// In the child after fork: the threads and the sessions are the parent's.
    pub(super) fn forget(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.away.fetch_and(!AWAY, Ordering::Relaxed);
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
