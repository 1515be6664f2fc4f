//! Connections that wharf asks for by hand while no call touches them: threads that wait offer them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;

use super::{Connection, DESCRIPTORS, Find};
use crate::os;
use crate::session::Session;

/// How far the descriptors were gone through, when wharf asked for the last time.
struct Walk {
    session: u32,
    picks: u64,
    next: c_int,
}

/// After how many milliseconds a thread that waits offers more.
pub(crate) const AGAIN_MS: c_int = 1;

static WALK: Mutex<Walk> = Mutex::new(Walk { session: 0, picks: 0, next: 0 });
/// The session, and how often it had asked, when all were gone through: without more, there is nothing to do.
static DONE: AtomicU64 = AtomicU64::new(0);

fn stamp(session: &Session, picks: u64) -> u64 {
    u64::from(session.number) << 32 | picks & u64::from(u32::MAX)
}

/// Offers connections that wharf has asked for. Returns whether there are more, which it does not take yet.
pub(crate) fn offer(session: &'static Session, find: Find) -> bool {
    let picks = session.picks();
    if picks == 0 || DONE.load(Ordering::Relaxed) == stamp(session, picks) {
        return false;
    }
    // Another thread that waits does it.
    let Ok(mut walk) = WALK.try_lock() else { return false };
    if (walk.session, walk.picks) != (session.number, picks) {
        *walk = Walk { session: session.number, picks, next: 0 };
    }
    while walk.next < DESCRIPTORS as c_int {
        if session.has_waiting_offers() {
            return true;
        }
        if !session.takes_offers() {
            return false;
        }
        // The socket of a connection that is on its way to being one has no peer yet.
        let is_to_go =
            |one: &&'static Connection| one.away().is_none() && os::ports(one.fd()).1 != 0;
        if let Some(connection) = find(walk.next).filter(is_to_go) {
            connection.passed(0, 0);
        }
        walk.next += 1;
    }
    DONE.store(stamp(session, picks), Ordering::Relaxed);
    false
}
