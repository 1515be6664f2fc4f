//! Connections that another process is to have, too, or in place of this one: all are asked back by one message, and waited for
//! once. A wharf that does not answer keeps nobody waiting: fork(2) goes on, and in the child a connection that is at the NIC
//! still is one that [moves](super::place::moves). The child looks at its status in the memory that its parent shares with
//! wharf, and writes nothing there.

use std::sync::atomic::Ordering;

use handoff::RestoreReason;
use handoff::session::status::Place;

use super::moves::shut_how;
use super::{AWAY, Connection, INHERITED, KERNEL, all, epoll, stay_at_kernel};
use crate::os::{self, Quiet};
use crate::sharers::{self, Number};
use crate::{session, timeout, vfork};

/// How long a child that shares its parent's memory waits at a time for a connection to move, in nanoseconds.
const PAUSE: u32 = 100_000;
/// Number of such pauses after which it looks whether wharf is there.
const LOOK_PAUSES: u32 = 1000;

/// Returns all connections to the kernel before a fork, for as long as two processes have them.
pub(crate) fn share_all() {
    all().for_each(Connection::expect_child);
    have_all_back(RestoreReason::Fork, timeout::RETURN);
    // They are not this process's alone to close.
    all().for_each(|one| one.is_forked_away.store(one.is_away(), Ordering::SeqCst));
}

/// Returns all connections to the kernel, for good.
pub(crate) fn give_all_back(reason: RestoreReason) {
    stay_at_kernel();
    have_all_back(reason, timeout::OFFER);
}

/// Asks all back at once, and then waits for them, until so many nanoseconds have passed in which none came.
fn have_all_back(reason: RestoreReason, patience: u64) {
    let errno = os::errno();
    // A thread that offers one either has seen that it stays, or is seen here.
    all().for_each(Connection::wait_for_offer);
    if all().any(Connection::is_away) {
        session::all().for_each(|session| session.restore_all(reason));
        let mut until = os::now() + patience;
        for connection in all().filter(|one| one.is_away()) {
            if !connection.is_back_by(0) && connection.is_back_by(until) {
                until = os::now() + patience;
            }
        }
    }
    all().for_each(Connection::set_stay_at_kernel);
    os::set_errno(errno);
}

impl Connection {
    /// Returns these connections to the kernel, for good: all are asked for, and then waited for together for `patience`
    /// nanoseconds at most. wharf puts those back later that are not there by then.
    pub(crate) fn give_those_back(
        reason: RestoreReason,
        patience: u64,
        is_it: impl Fn(&&'static Connection) -> bool,
    ) {
        let are_asked = all().filter(is_it).filter(|one| one.ask_for_good(reason)).count() > 0;
        if are_asked {
            Self::wait_for_asked(patience);
        }
    }

    /// Waits for all connections that were [asked for](Self::ask_for_good).
    pub(crate) fn wait_for_asked(patience: u64) {
        let until = os::now() + patience;
        let is_asked = |one: &&Connection| one.is_away() && one.is_settled.load(Ordering::SeqCst);
        let asked = all().filter(is_asked);
        match vfork::is_own() {
            true => asked.for_each(|one| _ = one.is_back_by(until)),
            false => asked.for_each(|one| one.wait_in_vfork(until)),
        }
        all().for_each(Connection::set_stay_at_kernel);
    }

    /// Asks for the connection, which stays at the kernel from then on. Returns whether it is to be waited for.
    pub(crate) fn ask_for_good(&'static self, reason: RestoreReason) -> bool {
        self.is_settled.store(true, Ordering::SeqCst);
        // A thread that offers it either has seen that, or is seen here.
        self.wait_for_offer();
        let Some(at) = self.is_away().then(|| self.nic()).flatten() else {
            self.set_stay_at_kernel();
            return false;
        };
        if at.is_own && matches!(self.look(&at), Place::Offered | Place::Moving | Place::Nic) {
            // A child of vfork(2) may have closed the session's socket, past the layer.
            return at.session.restore(at.cid, reason) || os::errno() != libc::EBADF;
        }
        true
    }

    /// Another program is about to have the connection, which is the kernel's from now on.
    #[cold]
    #[inline(never)]
    pub(crate) fn give(&'static self) {
        Self::give_those_back(RestoreReason::Exec, timeout::OFFER, |one| std::ptr::eq(*one, self));
    }

    /// Waits, in a child that has its parent's memory, as after vfork(2). The child's descriptors may be others already, and so
    /// the rest of what there is to do is left to the parent's next call.
    fn wait_in_vfork(&'static self, until: u64) {
        let mut pauses = 0_u32;
        while self.state.load(Ordering::Acquire) == AWAY
            && let Some(at) = self.nic()
            && let place @ (Place::Nic | Place::Offered | Place::Moving) = self.look(&at)
            && os::now() < until
        {
            if place == Place::Offered {
                self.withdraw(&at);
            }
            pauses = pauses.wrapping_add(1);
            if pauses.is_multiple_of(LOOK_PAUSES) {
                // A wharf that has died puts nothing back.
                at.session.looks_alive();
            }
            os::pause(PAUSE);
        }
    }

    /// Notes that a child is about to have it, too.
    fn expect_child(&self) {
        let shared = sharers::expect(Number::of(self.shared.load(Ordering::Acquire)));
        self.shared.store(Number::word(shared), Ordering::SeqCst);
        if shared.is_none() {
            self.is_settled.store(true, Ordering::SeqCst);
        }
    }

    /// Waits until it is at the kernel, or over, until this time at most. Returns whether that is so.
    fn is_back_by(&'static self, until: u64) -> bool {
        loop {
            let left = until.saturating_sub(os::now());
            let Some((at, status)) = self.settled_within(left) else { return true };
            match status.place {
                Place::Ended => return true,
                Place::Offered => {
                    self.withdraw(&at);
                    if self.look(&at) == Place::Offered {
                        return false;
                    }
                }
                _ if os::now() >= until => return false,
                place => self.wait_while(&at, until.saturating_sub(os::now()), place),
            }
        }
    }

    fn set_stay_at_kernel(&self) {
        if self.state.load(Ordering::Acquire) == KERNEL {
            self.set_stay();
        }
    }

    /// Returns true, in the child after fork, if the parent, or a parent of that, has it at the NIC still: then that is where it is
    /// for the child, too.
    pub(super) fn is_inherited(&self) -> bool {
        if !matches!(self.state.load(Ordering::Acquire), AWAY | INHERITED) {
            return false;
        }
        let Some(at) = self.nic() else { return false };
        matches!(self.look(&at), Place::Offered | Place::Moving | Place::Nic)
    }

    /// Makes it the kernel's, in the child, as its status says.
    pub(super) fn arrives(&'static self) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.state.compare_exchange(INHERITED, KERNEL, success, failure).is_ok() {
            // What the child has shut down and registered meanwhile, the kernel is told now.
            let _quiet = Quiet::begin();
            let _control = self.control.take();
            os::shutdown(self.fd(), shut_how(self.shut.load(Ordering::Acquire)));
            epoll::to_kernel(self);
            self.set_stay();
            self.awaits_no_move();
        }
    }
}
