//! Where a connection is, as wharf says.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use handoff::command::NicCommand;
use handoff::ring::send;
use handoff::session::Area;
use handoff::session::status::{self, Place, Status, Why};
use handoff::{Cid, RestoreReason};

use super::{ABSENT, AWAY, Connection, INHERITED, KERNEL, RETURNING};
use crate::session::{Patience, Session};
use crate::{os, timeout};

/// How long a call waits for the next change of a status before it looks whether wharf is there, in nanoseconds.
const LOOK_AGAIN: u64 = 200_000_000;

/// Where a connection is that is not at the kernel.
#[derive(Clone, Copy)]
pub(crate) struct AtNic {
    pub(super) session: &'static Session,
    pub(super) area: Area<'static>,
    pub(super) cid: Cid,
    /// The session is this process's, and not its parent's.
    pub(super) is_own: bool,
}

/// Whether a connection of this status is on its way, or may be.
pub(super) fn moves(status: Status) -> bool {
    matches!(status.place, Place::Offered | Place::Moving)
}

impl AtNic {
    /// Wakes the threads that wait for it.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        self.area.wake().fetch_add(1, Ordering::AcqRel);
        os::futex_wake_all(self.area.wake());
    }

    /// Tells the worker that has it; see [`Session::command`].
    #[must_use]
    pub(super) fn command(&self, command: NicCommand) -> bool {
        if !self.is_own {
            // It is on its way to the kernel, which is told then.
            return true;
        }
        // Written before the rings were those of this epoch.
        let worker = self.area.worker().load(Ordering::Relaxed) as u32;
        self.session.command(worker, command)
    }

    /// Whether the NIC has tried to send all that ends there. It does so soon, where the kernel does in the call.
    fn has_tried(&self, end: u32) -> bool {
        (self.area.sent().load(Ordering::Acquire) >> 32) as u32 == end
    }

    /// Bytes that were not sent yet, of so many that end there.
    pub(super) fn unsent(&self, end: u32, used: u32) -> u32 {
        end.wrapping_sub(self.area.sent().load(Ordering::Acquire) as u32).min(used)
    }

    /// The calling thread is about to wait for it, at the word that [`Area::wake`] is, and does not any more when the result
    /// is dropped.
    pub(super) fn waiter(&self) -> Waiter {
        self.area.waiters().fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        Waiter(self.area)
    }
}

/// A thread that waits for a connection.
pub(super) struct Waiter(Area<'static>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.waiters().fetch_sub(1, Ordering::AcqRel);
    }
}

impl Connection {
    /// Where it is, once that is settled or has taken too long; `None` if at the kernel.
    pub(crate) fn away(&'static self) -> Option<AtNic> {
        self.settled().map(|(at, _)| at)
    }

    /// Returns the same for a call that has nothing to say in place of its result. An offer that is not answered in time is
    /// withdrawn.
    pub(crate) fn away_for_control(&'static self) -> Option<AtNic> {
        let (at, status) = self.settled_within(timeout::CONTROL)?;
        if status.place != Place::Offered {
            return Some(at);
        }
        self.withdraw(&at);
        self.settled_within(0).map(|(at, _)| at)
    }

    /// The same as [`away`](Self::away), and its status by which that is so: it is at the NIC, or has ended there; or it
    /// [moves](moves) still, as wharf is slow.
    pub(super) fn settled(&'static self) -> Option<(AtNic, Status)> {
        self.settled_within(timeout::CALL)
    }

    /// The same, after `most` nanoseconds at most. An offer that wharf has not answered for [`timeout::OFFER`] is withdrawn.
    pub(super) fn settled_within(&'static self, most: u64) -> Option<(AtNic, Status)> {
        let mut until = None;
        loop {
            let state = self.state.load(Ordering::Acquire);
            match state {
                ABSENT | KERNEL => return None,
                RETURNING if self.control.is_own() => {
                    // The thread that takes it back waits for this one.
                    let at = self.nic()?;
                    let status = self.status(&at);
                    return Some((at, status));
                }
                RETURNING => {
                    os::yield_now();
                    continue;
                }
                _ => {}
            }
            let at = self.nic()?;
            let status =
                if state == INHERITED { self.inherited_status(&at)? } else { self.status(&at) };
            match status.place {
                Place::Nic | Place::Ended => return Some((at, status)),
                Place::Os | Place::Free => {
                    self.come_back(&at);
                    continue;
                }
                Place::Offered if self.is_offered_for_long() => {
                    self.withdraw(&at);
                    continue;
                }
                Place::Offered | Place::Moving => {}
            }
            let now = os::now();
            let waits = match at.session.patience() {
                Patience::All => true,
                Patience::Slow => most > timeout::CALL,
                Patience::Silent => false,
            };
            let until = *until.get_or_insert(if waits { now.saturating_add(most) } else { now });
            if now >= until {
                if most > 0 {
                    at.session.lose_patience(Patience::Slow);
                }
                self.awaits_move();
                return Some((at, status));
            }
            self.wait_as_long_as(&at, until - now, || self.look(&at) == status.place);
        }
    }

    /// Whether it was offered so long ago that no call waits for the answer any more.
    fn is_offered_for_long(&self) -> bool {
        let offered = self.offered_at.load(Ordering::Relaxed);
        os::now().saturating_sub(offered) >= timeout::OFFER
    }

    /// Withdraws its offer, if wharf has not begun to take the connection out of the kernel, which then has it. Its status
    /// says which of the two was first.
    pub(super) fn withdraw(&self, at: &AtNic) {
        let word = at.area.status().load(Ordering::Acquire);
        let is_as_offered = u32::from(status::count(word)) == self.changes.load(Ordering::Acquire);
        let is_offered = is_as_offered || Status::decode(word).place == Place::Offered;
        if is_offered && self.is_at(at) && status::withdraw(at.area.status(), word) {
            at.session.lose_patience(Patience::Silent);
            at.wake();
        }
    }

    pub(super) fn nic(&self) -> Option<AtNic> {
        // SAFETY: it is null, or a session, which lives as long as the process. In a child of fork(2) it is the parent's, of
        // whose connections the child uses the memory alone.
        let session = unsafe { self.session.load(Ordering::Acquire).as_ref() }?;
        let cid = Cid(self.cid.load(Ordering::Acquire));
        let is_own = self.state.load(Ordering::Acquire) != INHERITED;
        Some(AtNic { session, area: session.area(cid)?, cid, is_own })
    }

    /// Whether it is there still.
    pub(super) fn is_at(&self, at: &AtNic) -> bool {
        self.state.load(Ordering::Acquire) == AWAY && self.cid.load(Ordering::Acquire) == at.cid.0
    }

    #[inline]
    pub(super) fn status(&self, at: &AtNic) -> Status {
        let word = at.area.status().load(Ordering::Acquire);
        let is_dead = at.session.is_dead();
        let is_as_offered = u32::from(status::count(word)) == self.changes.load(Ordering::Acquire);
        if is_dead || is_as_offered {
            return unusual_status(at, word, is_dead, is_as_offered);
        }
        Status::decode(word)
    }

    /// Its status as a child of fork(2) has it, whose parent's connection it is. `None` if it is the kernel's by now.
    fn inherited_status(&'static self, at: &AtNic) -> Option<Status> {
        let status = Status::decode(at.area.status().load(Ordering::Acquire));
        match status.place {
            Place::Offered | Place::Moving | Place::Nic => {
                // Its parent has asked it back.
                Some(Status::at(Place::Moving))
            }
            Place::Free | Place::Os | Place::Ended => {
                self.arrives();
                None
            }
        }
    }

    /// Threads that wait for it look whether they are to wait on.
    pub(crate) fn wake_waiters(&self) {
        if let Some(at) = self.is_away().then(|| self.nic()).flatten() {
            at.wake();
        }
    }

    pub(super) fn look(&self, at: &AtNic) -> Place {
        if at.is_own {
            return self.status(at).place;
        }
        match Status::decode(at.area.status().load(Ordering::Acquire)).place {
            Place::Offered | Place::Nic => Place::Moving,
            place => place,
        }
    }

    /// Waits for a while until the NIC has tried to send what was written, if so many bytes were not sent yet: the kernel does
    /// so in the call that writes them.
    pub(super) fn wait_until_tried(&self, at: &AtNic, most: u32) {
        let Ok(ring) = at.area.send() else { return };
        let sent = send::App::new(ring);
        let is_open = || {
            let known = sent.end().and_then(|end| Ok((end, sent.len()?)));
            known.is_ok_and(|(end, used)| at.unsent(end, used) >= most && !at.has_tried(end))
        };
        if most > 0 && is_open() {
            let is_so = || is_open() && self.look(at) == Place::Nic;
            self.wait_as_long_as(at, timeout::CALL, is_so);
        }
    }

    /// Waits for the next change of the status as long as it is this, so many nanoseconds at most.
    pub(super) fn wait_while(&self, at: &AtNic, most: u64, place: Place) {
        self.wait_as_long_as(at, most, || self.look(at) == place);
    }

    /// Waits until wharf has said something of the connection as long as this is so, for so many nanoseconds or a while.
    pub(super) fn wait_as_long_as(&self, at: &AtNic, most: u64, is_so: impl Fn() -> bool) {
        let errno = os::errno();
        let waiter = at.waiter();
        let wake = at.area.wake();
        let expected = wake.load(Ordering::Acquire) as u32;
        let most = Some(Duration::from_nanos(most.min(LOOK_AGAIN)));
        if is_so() && os::futex_wait(wake, expected, most) == libc::ETIMEDOUT && at.is_own {
            at.session.looks_alive();
        }
        drop(waiter);
        os::set_errno(errno);
    }

    /// What a call of the kernel's gives on the socket while the connection does not move: it is repeated if the connection
    /// has moved meanwhile.
    pub(crate) fn socket_at_rest<T>(&'static self, mut call: impl FnMut() -> T) -> T {
        loop {
            let Some(at) = self.away() else {
                let Some(_stays) = self.try_enter() else {
                    os::yield_now();
                    continue;
                };
                return call();
            };
            let word = at.area.status().load(Ordering::Acquire);
            let result = call();
            if word == at.area.status().load(Ordering::Acquire) && self.is_at(&at) {
                return result;
            }
        }
    }

    /// Whether the connection has ended at the NIC.
    pub(crate) fn has_ended(&'static self) -> bool {
        self.away().is_some_and(|at| self.look(&at) == Place::Ended)
    }
}

/// The status of a connection whose word this was when its wharf was gone already, or when nothing had looked at its offer.
#[cold]
fn unusual_status(at: &AtNic, word: u64, is_dead: bool, is_as_offered: bool) -> Status {
    let status = Status::decode(word);
    if is_as_offered || is_dead && status.place == Place::Offered {
        if !is_dead {
            return Status::at(Place::Offered);
        }
        // Nothing has begun to take it out of the kernel, or ever will.
        let why = Some(Why::Restored(RestoreReason::Killed));
        return status::give_up(at.area.status(), word, Status { why, ..Status::at(Place::Os) });
    }
    if is_dead && matches!(status.place, Place::Nic | Place::Moving) {
        // Before the status is looked at again: the guard ends after it has changed it.
        let is_lost = at.session.is_lost();
        if !is_lost {
            // wharf's guard is about to put it back, or the next wharf.
            return Status { place: Place::Moving, ..status };
        }
        let word = at.area.status().load(Ordering::Acquire);
        let status = Status::decode(word);
        if matches!(status.place, Place::Nic | Place::Moving) {
            // Never wrong bytes: what was at the NIC is lost, and is not put back later.
            let lost = Status { error: libc::ECONNRESET as u16, ..Status::at(Place::Ended) };
            return status::give_up(at.area.status(), word, lost);
        }
        return status;
    }
    status
}
