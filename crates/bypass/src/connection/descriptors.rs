//! The descriptors of a connection: dup(2) makes more of them, and with the last one it ends.

use std::sync::atomic::Ordering;

use handoff::RestoreReason;
use handoff::command::NicControl;
use handoff::session::status::Place;
use libc::c_int;

use super::{ABSENT, Connection, ENDING, INHERITED, KERNEL, OFFERING, POOL, epoll};
use crate::os::{self, Quiet};
use crate::sharers::{self, Number};
use crate::table::{self, Word};
use crate::{own, timeout};

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;

fn word_of(connection: &'static Connection) -> Word {
    std::ptr::from_ref(connection).cast_mut().cast()
}

/// A new connection of this descriptor. What that was before was closed past the layer.
pub(crate) fn insert(fd: c_int) {
    if !table::has_room(fd) {
        return;
    }
    forget_stale(fd);
    if let Some(connection) = POOL.claim(fd) {
        connection.begin(fd);
        table::replace(fd, word_of(connection));
    }
}

/// A descriptor is another than the layer knows: it was closed where the layer did not see it.
pub(crate) fn forget_stale(fd: c_int) {
    if let Some(connection) = super::at(fd) {
        connection.prepare(fd).finish();
    }
    epoll::closed(fd);
    own::lost(fd);
}

/// In the child after fork: connections as they are at the kernel, or are to be there.
pub(crate) fn renew() {
    super::transit::renew();
    super::all().for_each(Connection::inherit);
}

/// A descriptor that is being closed, by a call that may fail.
pub(crate) struct Closing {
    connection: &'static Connection,
    fd: c_int,
    /// The end is a reset (`SO_LINGER` of no time).
    resets: bool,
}

impl Connection {
    /// A descriptor more than it has, so that it does not end while that is made. Returns whether it does not end already.
    #[inline]
    pub(crate) fn hold(&'static self) -> bool {
        let more = |count: u32| (count != 0 && count != ENDING).then(|| count + 1);
        self.descriptors.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// The new one, for which it was held.
    #[inline]
    pub(crate) fn add(&'static self, new: c_int) {
        if !table::exchange(new, std::ptr::null_mut(), word_of(self)) {
            self.add_anew(new);
        }
    }

    #[cold]
    fn add_anew(&'static self, new: c_int) {
        if table::has_room(new) {
            forget_stale(new);
            table::replace(new, word_of(self));
        } else {
            // It cannot be told what is done by that one.
            self.restore(RestoreReason::Unserved);
            self.release();
        }
    }

    /// There is no new one, for which it was held.
    #[cold]
    pub(crate) fn release(&'static self) {
        let one_less = |count: u32| (count > 1 && count != ENDING).then(|| count - 1);
        let less = self.descriptors.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less);
        if less == Err(1) {
            // The others were closed meanwhile.
            Closing { connection: self, fd: self.fd(), resets: false }.finish();
        }
    }

    /// close(2) of its only descriptor, while it is at the kernel: nothing else is to be done. Returns whether that is so.
    #[inline]
    pub(crate) fn close_plainly(&'static self, fd: c_int) -> bool {
        let is_simple = self.is_plain() && !self.is_withdrawn.load(Ordering::Relaxed);
        if !is_simple || self.shared.load(Ordering::Relaxed) != 0 {
            return false;
        }
        // A handler's call from here on is the kernel's.
        table::clear(fd);
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        if self.calls.compare_exchange(0, OFFERING, success, failure).is_err() {
            return false;
        }
        let is_there = self.state.load(Ordering::Acquire) == KERNEL
            && self.descriptors.compare_exchange(1, ENDING, success, failure).is_ok();
        if is_there {
            self.slots.clear();
        }
        self.calls.fetch_and(!OFFERING, Ordering::AcqRel);
        if is_there {
            self.descriptors.store(0, Ordering::Release);
        }
        is_there
    }

    /// A descriptor is about to be closed.
    pub(crate) fn prepare(&'static self, fd: c_int) -> Closing {
        let is_last = self.descriptors.load(Ordering::Acquire) <= 1;
        if !is_last && self.slots.has(fd) {
            // epoll(7): it stays in its sets, though no call could change that any more.
            self.restore(RestoreReason::Epoll);
        }
        let linger = if is_last && self.is_away() { os::linger(fd) } else { None };
        if let Some(seconds) = linger.filter(|seconds| *seconds > 0) {
            let most = if os::is_nonblocking(fd) { 0 } else { u64::from(seconds) * SECOND };
            if self.restore_within(RestoreReason::Unserved, most.max(timeout::CONTROL)) {
                os::linger_until_sent(fd, seconds);
            }
        }
        if is_last {
            self.leave_offer(fd);
        }
        Closing { connection: self, fd, resets: linger == Some(0) }
    }

    /// The last descriptor is about to be closed: an offer that wharf does not answer is withdrawn. wharf may have the socket
    /// then until it goes on, and so the connection ends here as close(2) would end it.
    fn leave_offer(&'static self, fd: c_int) {
        if let Some((at, status)) = self.settled_within(timeout::CONTROL)
            && status.place == Place::Offered
        {
            self.withdraw(&at);
            self.settled_within(0);
        }
        if !self.is_away() && self.is_held_by_wharf() && self.shared().is_none_or(sharers::is_alone)
        {
            os::end(fd, os::linger(fd) == Some(0));
        }
    }

    /// In the child after fork, of this connection of the parent's: what the child has, at the kernel or on its way there, with
    /// no lock that a thread of the parent's holds. It is offered when the parent has it no more, unless that had it in an
    /// epoll set, which is not known here.
    fn inherit(&self) {
        self.slots.renew();
        let has_sets = !self.slots.are_empty();
        let was_settled = self.is_settled.load(Ordering::Relaxed);
        let shared = self.shared();
        self.sending.renew();
        self.control.renew();
        self.owed.store(0, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        let is_inherited = self.is_inherited();
        self.forgets_move();
        self.reset();
        self.shared.store(Number::word(shared), Ordering::Release);
        if let Some(number) = shared {
            sharers::join(number);
        }
        let stays = shared.is_none() || has_sets || was_settled;
        self.is_settled.store(stays, Ordering::Relaxed);
        if is_inherited {
            self.state.store(INHERITED, Ordering::Release);
            // Threads that wait look whether it has arrived, also where the child has no session.
            self.awaits_move();
            return;
        }
        self.set_stay();
    }
}

impl Closing {
    /// The descriptor is closed, or is about to be. A connection whose last one it was ends as the kernel would have it.
    pub(crate) fn finish(self) {
        let Closing { connection, fd, resets } = self;
        table::exchange(fd, word_of(connection), std::ptr::null_mut());
        let less = |count: u32| match count {
            0 | ENDING => None,
            1 => Some(ENDING),
            more => Some(more - 1),
        };
        let descriptors = &connection.descriptors;
        match descriptors.fetch_update(Ordering::SeqCst, Ordering::Relaxed, less) {
            Ok(1) => connection.end(resets),
            Ok(_) => connection.goes_by_another(fd),
            Err(_) => {}
        }
    }
}

impl Connection {
    /// If this is the descriptor by which the layer goes, it is another from now on.
    fn goes_by_another(&'static self, fd: c_int) {
        let _quiet = Quiet::begin();
        let _control = self.control.take();
        if self.fd() == fd {
            let word = word_of(self);
            if let Some(other) = table::all().find(|other| table::word(*other) == word) {
                self.fd.store(other, Ordering::Release);
            }
        }
    }

    /// No descriptor is left.
    fn end(&'static self, resets: bool) {
        let end = if resets { NicControl::Abort } else { NicControl::Close };
        // Another thread may be about to offer it, which then has seen that it ends, or is seen here.
        while self.calls.load(Ordering::SeqCst) & OFFERING != 0 {
            os::yield_now();
        }
        self.worth.ends(self.carried());
        let settled = self.settled_within(timeout::CONTROL);
        if let Some((at, status)) = settled.filter(|(at, _)| at.is_own) {
            self.take_all_back();
            let is_told = match status.place {
                // The child has it still.
                _ if self.is_forked_away.load(Ordering::SeqCst) => false,
                Place::Nic => self.control(&at, end),
                place => place == Place::Ended,
            };
            if !is_told {
                // The kernel ends it, when wharf puts it back: that has the last descriptor then.
                at.session.restore(at.cid, RestoreReason::Unserved);
            }
            at.session.close(at.cid);
            self.slots.are_back();
            self.leave_number(&at);
        }
        self.awaits_no_move();
        self.slots.clear();
        self.shared().map(sharers::leave);
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.state.store(ABSENT, Ordering::Release);
        self.descriptors.store(0, Ordering::Release);
    }
}
