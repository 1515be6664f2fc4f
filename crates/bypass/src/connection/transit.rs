//! Connections that move, or whose offer waits for an answer, for longer than a call waits: threads that wait look at them now
//! and then, and see what they have become. An offer that is not answered is withdrawn so, though no call touches the
//! connection.

use std::sync::atomic::{AtomicU32, Ordering};

use super::place::moves;
use super::{Connection, all, epoll};
use crate::lock::Lock;
use crate::os;

/// Number of such connections.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Held by the thread that looks at them.
static LOOKING: Lock<()> = Lock::new(());

/// Returns true if there are any.
#[inline]
pub(crate) fn are_any_moving() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Looks at them. Returns whether there are any still, which the caller is to look at again soon.
pub(crate) fn look_at_moving() -> bool {
    if !are_any_moving() {
        return false;
    }
    if let Some(_looking) = LOOKING.try_take() {
        all().for_each(Connection::look_whether_arrived);
    }
    are_any_moving()
}

/// Begins anew in the child after fork, which has none yet.
pub(super) fn renew() {
    LOOKING.renew();
    COUNT.store(0, Ordering::Relaxed);
}

impl Connection {
    /// Has threads that wait look whether it has arrived, also one that is about to wait.
    pub(super) fn awaits_move(&self) {
        if self.is_awaited.swap(true, Ordering::AcqRel) {
            return;
        }
        COUNT.fetch_add(1, Ordering::AcqRel);
        if let Some(at) = self.nic().filter(|at| at.is_own) {
            let errno = os::errno();
            os::ring(at.session.wake.fd());
            os::set_errno(errno);
        }
    }

    /// Ends that: it has arrived, or is over.
    pub(super) fn awaits_no_move(&self) {
        if self.is_awaited.swap(false, Ordering::AcqRel) {
            COUNT.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Ends that in the child after fork, which has counted none.
    pub(super) fn forgets_move(&self) {
        self.is_awaited.store(false, Ordering::Relaxed);
    }

    fn look_whether_arrived(&'static self) {
        if !self.is_awaited.load(Ordering::Acquire) {
            return;
        }
        let settled = self.settled_within(0);
        if settled.is_some_and(|(_, status)| moves(status)) {
            return;
        }
        self.awaits_no_move();
        if let Some((at, _)) = settled {
            // What was not ready while it moved may be now. The kernel tells of its own.
            epoll::changed(self, at.session);
        }
    }
}
