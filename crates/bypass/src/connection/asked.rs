//! Connections that are to go to the NIC while no call touches them: wharf asks for them by hand, or could not take them
//! when a call was there. Threads that wait offer them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

/// Nanoseconds after which a thread that waits offers more.
pub(crate) const AGAIN: u64 = 1_000_000;

static WALK: Lock<Walk> = Lock::new(Walk { generation: 0, picks: 0, next: 0 });
/// How often wharfs had asked when all were gone through: without more, there is nothing to do. Another wharf begins to
/// count anew, and has all gone through once more, at most.
static DONE: AtomicU64 = AtomicU64::new(0);
/// What `DONE` is when there is more to do, whatever wharfs have asked for.
const NOT_DONE: u64 = u64::MAX;
/// Some were put off since all were gone through.
static ANY_PUT_OFF: AtomicBool = AtomicBool::new(false);

/// In the child after fork: no thread is about it.
pub(crate) fn renew() {
    WALK.renew();
}

/// Whether there may be something to offer.
#[inline]
pub(crate) fn is_due() -> bool {
    session::may_have_asked_since(DONE.load(Ordering::Relaxed))
}

/// Offers connections that wharfs have asked for. Returns whether there are more, which is to be looked at again soon.
pub(crate) fn offer() -> bool {
    if !is_due() {
        return false;
    }
    if !session::are_any() && session::is_beginning() {
        // A wharf is about to answer.
        return true;
    }
    let (generation, picks) = (session::generation(), session::picks());
    if picks == DONE.load(Ordering::Relaxed) {
        return false;
    }
    // Another thread that waits does it.
    let Some(mut walk) = WALK.try_take() else { return false };
    let has_put_off = ANY_PUT_OFF.swap(false, Ordering::SeqCst);
    if has_put_off || (walk.generation, walk.picks) != (generation, picks) {
        *walk = Walk { generation, picks, next: 0 };
    }
    while walk.next < table::all().end {
        let mut there = session::all().filter(|session| !session.is_leaving()).peekable();
        if there.peek().is_none() {
            break;
        }
        if there.any(Session::has_waiting_offers) {
            return true;
        }
        if let Some(connection) = at(walk.next).filter(|connection| connection.is_awaited()) {
            connection.passed(0, 0);
        }
        walk.next += 1;
    }
    DONE.store(picks, Ordering::SeqCst);
    // Who puts one off from here on has all gone through again.
    let has_more = ANY_PUT_OFF.load(Ordering::SeqCst);
    if has_more {
        DONE.store(NOT_DONE, Ordering::SeqCst);
    }
    has_more
}

impl Connection {
    /// It is to go, and wharf takes no more now: a thread that waits offers it.
    pub(super) fn put_off(&self) {
        if !self.is_put_off.swap(true, Ordering::Relaxed) {
            ANY_PUT_OFF.store(true, Ordering::SeqCst);
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
