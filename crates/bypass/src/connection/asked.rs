//! Connections that wharf asks for by hand while no call touches them: threads that wait offer them.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use super::{Connection, at};
use crate::lock::Lock;
use crate::os;
use crate::session::{self, Session};
use crate::table;

/// How far the descriptors were gone through, when wharf asked for the last time.
struct Walk {
    session: u32,
    picks: u64,
    next: c_int,
}

/// After how many milliseconds a thread that waits offers more.
pub(crate) const AGAIN_MS: c_int = 1;

static WALK: Lock<Walk> = Lock::new(Walk { session: 0, picks: 0, next: 0 });
/// How often wharf had asked when all were gone through: without more, there is nothing to do. Another wharf begins to
/// count anew, and has all gone through once more, at most.
static DONE: AtomicU64 = AtomicU64::new(0);

/// In the child after fork: no thread is about it.
pub(crate) fn renew() {
    WALK.renew();
}

/// Whether there may be something to offer.
#[inline]
pub(crate) fn is_due() -> bool {
    session::picks() != DONE.load(Ordering::Relaxed)
}

/// Offers connections that wharf has asked for. Returns whether there are more, which it does not take yet.
pub(crate) fn offer(session: &'static Session) -> bool {
    if !is_due() {
        return false;
    }
    let picks = session.picks();
    if picks == 0 {
        DONE.store(0, Ordering::Relaxed);
        return false;
    }
    // Another thread that waits does it.
    let Some(mut walk) = WALK.try_take() else { return false };
    if (walk.session, walk.picks) != (session.number, picks) {
        *walk = Walk { session: session.number, picks, next: 0 };
    }
    while walk.next < table::all().end {
        if session.has_waiting_offers() {
            return true;
        }
        if !session.takes_offers() {
            return false;
        }
        // The socket of a connection that is on its way to being one has no peer yet.
        let is_to_go = |one: &&'static Connection| {
            !one.is_settled() && one.away().is_none() && os::ports(one.fd()).1 != 0
        };
        if let Some(connection) = at(walk.next).filter(is_to_go) {
            connection.passed(0, 0);
        }
        walk.next += 1;
    }
    DONE.store(picks, Ordering::Relaxed);
    false
}

/// The same for a call that has something to give, and does not wait: where there are more, a later one is woken.
pub(crate) fn offer_in_passing() {
    if is_due()
        && let Some(session) = session::get_there()
        && offer(session)
    {
        os::ring(session.wake);
    }
}
