//! A connection that changes sides: offered to the NIC, and back at the kernel. Handlers of signals see none of it half
//! done.

use std::sync::atomic::Ordering;

use handoff::policy::Seen;
use handoff::session::status::{self, Place, Status, Why};
use handoff::{Refusal, RestoreReason};
use libc::c_int;

use super::asked::{Again, Times};
use super::place::AtNic;
use super::way::Way;
use super::{
    AWAY, Connection, ENDING, KERNEL, OFFERING, OFFERS, RETURNING, SHUT_READ, SHUT_WRITE, Stays,
    epoll, uring,
};
use crate::os::{self, Quiet};
use crate::session::{self, Session};
use crate::sharers::{self, Number};
use crate::{timeout, vfork};

/// How long a connection stays at the kernel at least, in nanoseconds, that came back for a reason that passes: twice as
/// long each time, so many times.
const REST: u64 = 2_000_000_000;
const REST_DOUBLES: u32 = 6;
/// The same after it was found that another process has it, too: a server's parent closes it soon.
const SHARED_REST: u64 = 10_000_000;
/// The same where its route leads through no NIC, and one has no wharf now.
const LACKING_REST: u64 = 1_000_000_000;
/// How often a process that forks yields to a thread that offers a connection: some milliseconds.
const OFFER_YIELDS: u32 = 10_000;
/// In `owed`: a connection that was closed had the number.
const LEFT: u32 = 1 << 31;

/// Whether it can be offered again.
fn passes(why: Why) -> bool {
    match why {
        Why::Refused(refusal) => refusal.passes(),
        Why::Restored(reason) => reason.passes(),
    }
}

impl Connection {
    /// Bytes have passed by the kernel: perhaps it is to go to the NIC.
    pub(crate) fn passed(&'static self, received: isize, sent: isize) {
        let add = |to: &std::sync::atomic::AtomicU64, bytes: isize| {
            let bytes = u64::try_from(bytes).unwrap_or(0);
            to.fetch_add(bytes, Ordering::Relaxed) + bytes
        };
        let (received, sent) = (add(&self.received, received), add(&self.sent, sent));
        if self.is_settled.load(Ordering::Relaxed) {
            return;
        }
        if !session::look() {
            if session::is_beginning() {
                self.put_off(Again::SOON);
            }
            return;
        }
        epoll::keep_up();
        if self.looked.is_over() && self.goes_by_hand() || self.rests() {
            return;
        }
        let is_to_go = self.is_to_go.load(Ordering::Relaxed);
        let mut seen =
            Seen { since: self.since.load(Ordering::Relaxed), received, sent, ..Seen::default() };
        let wants = |session: &Session| {
            if is_to_go {
                return true;
            }
            let policy = session.policy();
            if policy.ports.is_some() && seen.local_port == 0 {
                (seen.local_port, seen.remote_port) = os::ports(self.fd());
            }
            let needs_time = policy.next_deadline(&seen).is_some();
            let now = if needs_time { os::now() } else { seen.since };
            policy.picks(&seen, now, |carried| self.worth.is_it(self.fd(), carried))
        };
        match self.way(wants) {
            Way::To(session) if self.offer(session) => {}
            // The call that is in the kernel may find nothing there, and does not offer it then.
            Way::To(_) => self.put_off(Again::LATER),
            Way::Later(again) => self.put_off(again),
            Way::None => {}
        }
    }

    /// Offers it if a wharf has asked for it that is its way. Returns whether that is so.
    fn goes_by_hand(&'static self) -> bool {
        let now = Times::now();
        let wants = |session: &Session| {
            session.policy().allows_by_hand() && self.looked.is_asked_for(session, self.fd(), &now)
        };
        let is_asked = session::all().any(wants);
        let (is_done, goes) = match if is_asked { self.way(wants) } else { Way::None } {
            Way::To(session) if self.offer(session) => (true, true),
            // It is looked again at the next call, or before.
            way @ (Way::To(_) | Way::Later(_)) => {
                self.put_off(if let Way::Later(again) = way { again } else { Again::LATER });
                (false, true)
            }
            Way::None => (true, false),
        };
        if is_done {
            self.looked.set(&now);
        }
        goes
    }

    /// The program has it go to the NIC, from now on.
    pub(crate) fn is_to_go(&'static self) {
        self.is_to_go.store(true, Ordering::Relaxed);
        self.passed(0, 0);
    }

    /// Offers it, unless another call is in the kernel. Returns false in that case.
    fn offer(&'static self, session: &'static Session) -> bool {
        if self.calls.load(Ordering::Relaxed) != 0 {
            return false;
        }
        if vfork::is_own() && epoll::are_any_unseen() {
            self.restore(RestoreReason::Epoll);
            return true;
        }
        let _quiet = Quiet::begin();
        if self.calls.compare_exchange(0, OFFERING, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        let errno = os::errno();
        // One that is being closed, or is to stay, waits until it has seen that, or is seen here.
        // A process that was made past the layer has the sessions of its parent's.
        let is_there = self.descriptors.load(Ordering::SeqCst) != ENDING
            && !self.is_settled.load(Ordering::SeqCst)
            && vfork::is_own();
        let is_at_kernel = is_there && self.state.load(Ordering::Acquire) == KERNEL;
        // A reset takes the peer away. wharf would refuse the rest, and its way back tells of edges anew.
        if is_at_kernel && self.is_alone() && os::has_peer(self.fd()) {
            self.offer_alone(session);
        }
        os::set_errno(errno);
        self.calls.fetch_and(!OFFERING, Ordering::AcqRel);
        true
    }

    fn offer_alone(&'static self, session: &'static Session) {
        let Some(_control) = self.control.take() else { return };
        let Some(cid) = session.take_number(std::ptr::from_ref(self).expose_provenance()) else {
            return;
        };
        let Some(area) = session.area(cid) else { return };
        let fd = self.fd();
        self.stays.store(Stays::NOT.0, Ordering::Release);
        let before = status::count(area.status().load(Ordering::Acquire));
        self.cid.store(cid.0, Ordering::Release);
        self.session.store(std::ptr::from_ref(session).cast_mut(), Ordering::Release);
        self.changes.store(before.into(), Ordering::Release);
        self.offered_at.store(os::now(), Ordering::Relaxed);
        area.requests().clear();
        self.offers.fetch_add(1, Ordering::AcqRel);
        OFFERS.fetch_add(1, Ordering::AcqRel);
        self.limits.read(fd);
        area.unsent_most().store(self.limits.unsent().into(), Ordering::Relaxed);
        let is_ready = epoll::from_kernel(self, session);
        if is_ready && session.offer((cid, before), fd, uring::is_used()) {
            self.state.store(AWAY, Ordering::Release);
            epoll::offered(self);
            return;
        }
        // Another wharf may take it, or this one when it reads its messages.
        let is_full = is_ready && os::errno() == libc::EAGAIN;
        if is_full {
            self.rest_for_lack();
        }
        epoll::to_kernel(self);
        self.is_settled.store(session.looks_alive() && !is_full, Ordering::Relaxed);
        self.set_stay();
        session.give_number(cid);
    }

    /// The kernel has it again: its registrations are the kernel's, too.
    pub(super) fn come_back(&'static self, at: &AtNic) {
        let _quiet = Quiet::begin();
        let swapped =
            self.state.compare_exchange(AWAY, RETURNING, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            return;
        }
        let errno = os::errno();
        let why = self.status(at).why;
        let is_stopping = matches!(
            why,
            Some(Why::Restored(RestoreReason::Stopping) | Why::Refused(Refusal::Stopping))
        );
        if is_stopping {
            at.session.ends();
        }
        // Another wharf may take it, or the process that has it alone.
        let may_go =
            matches!(why, Some(Why::Restored(RestoreReason::Killed | RestoreReason::Fork)));
        if !is_stopping && !may_go {
            self.rest(why.is_some_and(passes));
        }
        {
            // The descriptor stays what it is meanwhile.
            let _control = self.control.take();
            // A kernel that is given a connection knows nothing of the end for reading; and what the NIC was told last,
            // it may not have done.
            os::shutdown(self.fd(), shut_how(self.shut.load(Ordering::Acquire)));
            epoll::to_kernel(self);
        }
        // What was asked of all while the NIC had it, it has done.
        self.looked.set(&Times::now());
        self.nic.store(0, Ordering::Relaxed);
        // wharf has the number of an offer that was withdrawn until it has seen that.
        let is_withdrawn = why == Some(Why::Refused(Refusal::Withdrawn));
        self.is_withdrawn.store(is_withdrawn, Ordering::Relaxed);
        self.is_forked_away.store(false, Ordering::Relaxed);
        self.return_number(at, if is_withdrawn { LEFT } else { 0 });
        os::set_errno(errno);
        self.set_stay();
        self.awaits_no_move();
        self.state.store(KERNEL, Ordering::Release);
    }

    /// Whether wharf may have the socket of an offer that was withdrawn, so that it does not end with the program's last
    /// descriptor.
    pub(super) fn is_held_by_wharf(&self) -> bool {
        if !self.is_withdrawn.load(Ordering::Relaxed) {
            return false;
        }
        let withdrawn = Some(Why::Refused(Refusal::Withdrawn));
        let status = |at: AtNic| Status::decode(at.area.status().load(Ordering::Acquire));
        self.nic().is_some_and(|at| status(at).why == withdrawn)
    }

    /// The number is another connection's to have, once no thread is in the middle of writing to its ring, from which
    /// that one would send.
    pub(super) fn return_number(&self, at: &AtNic, how: u32) {
        match self.sending.take() {
            Some(_no_writer) => give(at.session, at.cid.0 | how),
            // It is in the middle of that, in the program below a handler of a signal: see `send`.
            None => self.owed.store((at.cid.0 | how) + 1, Ordering::Release),
        }
    }

    /// A number that waits to be returned, as this thread is not in the middle of writing any more.
    #[cold]
    pub(super) fn return_owed(&self, session: &Session) {
        if let Some(owed) = self.owed.swap(0, Ordering::AcqRel).checked_sub(1) {
            give(session, owed);
        }
    }

    /// The number of a connection that was closed.
    pub(super) fn leave_number(&self, at: &AtNic) {
        self.return_number(at, LEFT);
    }

    /// It stays at the kernel: for a while, and until policy picks it by what it does from now on, or for good.
    fn rest(&self, for_a_while: bool) {
        let mut until = u64::MAX;
        if for_a_while {
            let returns = self.returns.fetch_add(1, Ordering::Relaxed);
            let now = os::now();
            until = now + (REST << returns.min(REST_DOUBLES));
            self.received.store(0, Ordering::Relaxed);
            self.sent.store(0, Ordering::Relaxed);
            self.since.store(now, Ordering::Relaxed);
        }
        self.rests.store(until, Ordering::Relaxed);
    }

    /// Whether it still does.
    fn rests(&self) -> bool {
        match self.rests.load(Ordering::Relaxed) {
            0 => false,
            u64::MAX => true,
            until if os::now() < until => true,
            until => {
                // Unless it has begun to rest anew.
                let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
                if self.rests.compare_exchange(until, 0, success, failure).is_ok() {
                    self.set_stay();
                }
                false
            }
        }
    }

    /// Has the connection back at the kernel, for good: however long that takes if its descriptor blocks, and else when wharf
    /// comes to that.
    pub(crate) fn restore(&'static self, reason: RestoreReason) {
        self.try_restore(reason);
    }

    /// The same. Returns whether it is there, or over.
    pub(crate) fn try_restore(&'static self, reason: RestoreReason) -> bool {
        self.is_settled.store(true, Ordering::SeqCst);
        self.wait_for_offer();
        let blocks = self.is_away() && !self.is_nonblocking(self.fd());
        self.restore_within(reason, if blocks { u64::MAX } else { timeout::CONTROL })
    }

    /// The same, where it is waited for so many nanoseconds at most.
    pub(crate) fn restore_within(&'static self, reason: RestoreReason, most: u64) -> bool {
        self.is_settled.store(true, Ordering::SeqCst);
        // A thread that offers it either has seen that, or is seen here.
        self.wait_for_offer();
        let is_back = self.give_back(reason, os::now().saturating_add(most));
        if self.state.load(Ordering::Acquire) == KERNEL {
            self.set_stay();
        }
        is_back
    }

    /// Asks for the connection, for good, and does not wait for it.
    pub(super) fn ask_back(&'static self, at: &AtNic, reason: RestoreReason) {
        if at.is_own && !self.is_settled.swap(true, Ordering::SeqCst) {
            at.session.restore(at.cid, reason);
        }
        self.awaits_move();
    }

    /// Has the connection back at the kernel until this time, from where it may go again. Returns true if it is there, or over;
    /// if not, wharf puts it back later.
    pub(super) fn give_back(&'static self, reason: RestoreReason, until: u64) -> bool {
        let mut asked = false;
        loop {
            let left = until.saturating_sub(os::now());
            let Some((at, status)) = self.settled_within(left.min(timeout::OFFER)) else {
                return true;
            };
            if status.place == Place::Ended {
                return true;
            }
            if at.is_own && !std::mem::replace(&mut asked, true) {
                at.session.restore(at.cid, reason);
            }
            if status.place == Place::Offered {
                self.withdraw(&at);
                continue;
            }
            let left = until.saturating_sub(os::now());
            if left == 0 {
                self.awaits_move();
                return false;
            }
            self.wait_while(&at, left, status.place);
        }
    }

    /// Waits for a thread that offers it.
    pub(super) fn wait_for_offer(&self) {
        let is_offering = || self.calls.load(Ordering::SeqCst) & OFFERING != 0;
        (0..OFFER_YIELDS).take_while(|_| is_offering()).for_each(|_| os::yield_now());
    }

    /// Its entry, if more than one process has had it.
    pub(crate) fn shared(&self) -> Option<Number> {
        Number::of(self.shared.load(Ordering::Acquire))
    }

    /// Whether this is the only process that has it, and the sets that it is in. One that was not is not looked at again for a
    /// while.
    fn is_alone(&self) -> bool {
        let is_alone = self.shared().is_none_or(sharers::is_alone) && self.slots.may_leave();
        if !is_alone {
            self.rests.fetch_max(os::now() + SHARED_REST, Ordering::Relaxed);
            self.set_stay();
        }
        is_alone
    }

    /// Its NIC may be one that has no wharf now. Each call looks whether the time is over, so that it goes there soon.
    pub(super) fn rest_for_lack(&self) {
        self.rests.fetch_max(os::now() + LACKING_REST, Ordering::Relaxed);
    }
}

fn give(session: &Session, owed: u32) {
    let cid = handoff::Cid(owed & !LEFT);
    match owed & LEFT {
        0 => session.give_number(cid),
        _ => session.leave_number(cid),
    }
}

/// What shutdown(2) takes for these ends, if there are any.
pub(super) fn shut_how(bits: u8) -> Option<c_int> {
    match bits {
        0 => None,
        SHUT_READ => Some(libc::SHUT_RD),
        SHUT_WRITE => Some(libc::SHUT_WR),
        _ => Some(libc::SHUT_RDWR),
    }
}
