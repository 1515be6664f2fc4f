//! Connections that are to go to the NIC while no call touches them: wharf asks for them by hand, or could not take them
//! when a call was there. Threads that wait offer them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use handoff::session::NICS_MAX;
use libc::c_int;

use super::{Connection, at};
use crate::lock::Lock;
use crate::os;
use crate::session::{self, Session};
use crate::table;

/// How far the descriptors were gone through, when a wharf asked for the last time.
struct Walk {
    generation: u32,
    picks: u64,
    next: c_int,
}

/// How often wharfs have asked for connections: all together, and each, beside the number of its session.
#[derive(Clone, Copy)]
pub(super) struct Times {
    all: u64,
    of: [(u32, u32); NICS_MAX],
}

impl Times {
    pub(super) fn now() -> Self {
        let mut times = Times { all: 0, of: [(0, 0); NICS_MAX] };
        for session in session::all() {
            let picks = session.picks();
            times.all = times.all.wrapping_add(picks);
            times.of[session.place] = (session.number, picks as u32);
        }
        times
    }
}

/// When a connection was looked at last.
pub(super) struct Looked {
    all: AtomicU64,
    of: [AtomicU64; NICS_MAX],
}

impl Looked {
    pub(super) const fn new() -> Self {
        Looked { all: AtomicU64::new(0), of: [const { AtomicU64::new(0) }; NICS_MAX] }
    }

    /// At this time. What was asked for before is not asked of it any more.
    pub(super) fn set(&self, times: &Times) {
        for (to, (number, picks)) in self.of.iter().zip(times.of) {
            to.store(u64::from(number) << 32 | u64::from(picks), Ordering::Relaxed);
        }
        self.all.store(times.all, Ordering::Relaxed);
    }

    /// Whether it may have been asked for since.
    #[inline]
    pub(super) fn may_be_over(&self) -> bool {
        session::may_have_asked_since(self.all.load(Ordering::Relaxed))
    }

    /// Whether any was asked for since.
    pub(super) fn is_over(&self) -> bool {
        self.may_be_over() && session::picks() != self.all.load(Ordering::Relaxed)
    }

    /// Whether this wharf has asked for the connection of this descriptor since, up to that time.
    pub(super) fn is_asked_for(&self, by: &Session, fd: c_int, times: &Times) -> bool {
        let (number, picks) = times.of[by.place];
        let before = self.of[by.place].load(Ordering::Relaxed);
        // A session counts from its beginning.
        let before = if before >> 32 == u64::from(by.number) { before as u32 } else { 0 };
        number == by.number && by.asks_for(fd, before, picks)
    }
}

/// Nanoseconds after which a thread that waits is to look again for connections to offer and for those that move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Again(Option<u64>);

/// Number of threads that wait no longer than [`Again`] says.
static LOOKING: AtomicU32 = AtomicU32::new(0);

impl Again {
    /// When an event wakes it.
    pub(crate) const WOKEN: Again = Again(None);
    /// After a millisecond.
    pub(crate) const SOON: Again = Again(Some(1_000_000));
    /// After 100 milliseconds: what stands in the way may take long, as a wharf that does not answer.
    pub(crate) const LATER: Again = Again(Some(100_000_000));

    /// The earlier one of both.
    pub(crate) fn or(self, other: Again) -> Again {
        Again(self.within(other.0))
    }

    /// Limits a wait of `left` nanoseconds; none has no limit of its own.
    pub(crate) fn within(self, left: Option<u64>) -> Option<u64> {
        [self.0, left].into_iter().flatten().min()
    }

    /// Returns true if the thread looks again by itself.
    pub(crate) fn is_timed(self) -> bool {
        self.0.is_some()
    }

    /// The calling thread waits until the result is dropped.
    pub(crate) fn begin_wait(self) -> Option<Looking> {
        self.is_timed().then(|| {
            LOOKING.fetch_add(1, Ordering::SeqCst);
            Looking
        })
    }

    /// The calling thread returns to the program. If no other thread looks again, those that wait are woken to do so.
    pub(crate) fn leave(self) {
        if self.is_timed() && LOOKING.load(Ordering::SeqCst) == 0 {
            session::all().for_each(|session| os::ring(session.wake.fd()));
        }
    }
}

/// A thread that waits, and looks again after some time.
pub(crate) struct Looking;

impl Drop for Looking {
    fn drop(&mut self) {
        // In the child of a handler that forks in the middle of a wait there is none.
        let less = |count: u32| count.checked_sub(1);
        let _ = LOOKING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

static WALK: Lock<Walk> = Lock::new(Walk { generation: 0, picks: 0, next: 0 });
/// How often wharfs had asked when all were gone through: without more, there is nothing to do. Another wharf begins to
/// count anew, and has all gone through once more, at most.
static DONE: AtomicU64 = AtomicU64::new(0);
/// What `DONE` is when there is more to do, whatever wharfs have asked for.
const NOT_DONE: u64 = u64::MAX;
/// Nanoseconds after which those are offered that were put off since all were gone through.
static PUT_OFF: AtomicU64 = AtomicU64::new(NONE);
/// Value of `PUT_OFF` when there is none.
const NONE: u64 = u64::MAX;

/// In the child after fork: no thread is about it.
pub(crate) fn renew() {
    WALK.renew();
    LOOKING.store(0, Ordering::SeqCst);
}

/// Whether there may be something to offer.
#[inline]
pub(crate) fn is_due() -> bool {
    session::may_have_asked_since(DONE.load(Ordering::Relaxed))
}

/// Offers connections that wharfs have asked for. Returns when there is more to offer.
pub(crate) fn offer() -> Again {
    if !is_due() {
        return Again::WOKEN;
    }
    if !session::are_any() && session::is_beginning() {
        // A wharf is about to answer.
        return Again::SOON;
    }
    let (generation, picks) = (session::generation(), session::picks());
    if picks == DONE.load(Ordering::Relaxed) {
        return Again::WOKEN;
    }
    // Another thread does it, which may return to the program before all is done.
    let Some(mut walk) = WALK.try_take() else { return Again::SOON };
    let were_put_off = PUT_OFF.swap(NONE, Ordering::SeqCst) != NONE;
    if were_put_off || (walk.generation, walk.picks) != (generation, picks) {
        *walk = Walk { generation, picks, next: 0 };
    }
    let there = || session::all().filter(|session| !session.is_leaving());
    while walk.next < table::all().end {
        if there().next().is_none() {
            // The next wharf is offered what was put off.
            PUT_OFF.fetch_min(Again::LATER.0.unwrap_or(NONE), Ordering::SeqCst);
            return Again::WOKEN;
        }
        if there().all(Session::is_silent) {
            return Again::LATER;
        }
        if there().any(|session| !session.is_silent() && session.has_waiting_offers()) {
            return Again::SOON;
        }
        if let Some(connection) = at(walk.next).filter(|connection| connection.is_awaited()) {
            connection.passed(0, 0);
        }
        walk.next += 1;
    }
    DONE.store(picks, Ordering::SeqCst);
    // Who puts one off from here on has all gone through again.
    match PUT_OFF.load(Ordering::SeqCst) {
        NONE => Again::WOKEN,
        after => {
            DONE.store(NOT_DONE, Ordering::SeqCst);
            Again(Some(after))
        }
    }
}

impl Connection {
    /// It is to go, and cannot now: a thread that waits offers it.
    pub(super) fn put_off(&self, again: Again) {
        if !self.is_put_off.swap(true, Ordering::Relaxed) {
            PUT_OFF.fetch_min(again.0.unwrap_or(NONE), Ordering::SeqCst);
            DONE.store(NOT_DONE, Ordering::SeqCst);
        }
    }

    /// Whether it was put off, or may have been asked for, and is at the kernel still.
    fn is_awaited(&'static self) -> bool {
        let was_put_off = self.is_put_off.swap(false, Ordering::Relaxed);
        // The socket of a connection that is on its way to being one has no peer yet.
        (was_put_off || self.looked.is_over())
            && !self.is_settled()
            && self.settled_within(0).is_none()
            && os::has_peer(self.fd())
    }
}
