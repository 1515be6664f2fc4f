//! Where a connection is, as wharf says.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use handoff::command::NicCommand;
use handoff::ring::send;
use handoff::session::Area;
use handoff::session::status::{self, Place, Status, Why};
use handoff::{Cid, RestoreReason};

use super::{ABSENT, AWAY, Connection, KERNEL, RETURNING};
use crate::os;
use crate::session::Session;

/// How long a call waits for the next change of a status before it looks whether wharf is there.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Where a connection is that is not at the kernel.
#[derive(Clone, Copy)]
pub(crate) struct AtNic {
    pub(super) session: &'static Session,
    pub(super) area: Area<'static>,
    pub(super) cid: Cid,
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
    /// Where it is, once that is settled; `None` if at the kernel.
    pub(crate) fn away(&'static self) -> Option<AtNic> {
        self.settled().map(|(at, _)| at)
    }

    /// The same, and its status by which that is so: it is at the NIC, or has ended there.
    pub(super) fn settled(&'static self) -> Option<(AtNic, Status)> {
        loop {
            match self.state.load(Ordering::Acquire) {
                ABSENT | KERNEL => return None,
                RETURNING => os::yield_now(),
                _ => {
                    let at = self.nic()?;
                    let status = self.status(&at);
                    match status.place {
                        Place::Nic | Place::Ended => return Some((at, status)),
                        Place::Os | Place::Free => self.come_back(&at),
                        Place::Moving => self.wait_while(&at, Place::Moving),
                    }
                }
            }
        }
    }

    pub(super) fn nic(&self) -> Option<AtNic> {
        // SAFETY: it is null, or a session, which lives as long as the process or until that forks; the child's
        // connections are all at the kernel.
        let session = unsafe { self.session.load(Ordering::Acquire).as_ref() }?;
        let cid = Cid(self.cid.load(Ordering::Acquire));
        Some(AtNic { session, area: session.area(cid)?, cid })
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

    /// Threads that wait for it look whether they are to wait on.
    pub(crate) fn wake_waiters(&self) {
        if let Some(at) = self.is_away().then(|| self.nic()).flatten() {
            at.wake();
        }
    }

    pub(super) fn look(&self, at: &AtNic) -> Place {
        self.status(at).place
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
            self.wait_as_long_as(at, || is_open() && self.look(at) == Place::Nic);
        }
    }

    /// Waits for the next change of the status as long as it is this, or for a while.
    pub(super) fn wait_while(&self, at: &AtNic, place: Place) {
        self.wait_as_long_as(at, || self.look(at) == place);
    }

    /// Waits until wharf has said something of the connection as long as this is so, or for a while.
    pub(super) fn wait_as_long_as(&self, at: &AtNic, is_so: impl Fn() -> bool) {
        let errno = os::errno();
        let waiter = at.waiter();
        let wake = at.area.wake();
        let expected = wake.load(Ordering::Acquire) as u32;
        if is_so() && os::futex_wait(wake, expected, Some(LOOK_AGAIN)) == libc::ETIMEDOUT {
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
    if is_as_offered {
        // As it was when it was offered: nothing has looked at it yet, or ever will. The guard then does not, either.
        let killed = Some(Why::Restored(RestoreReason::Killed));
        return match is_dead {
            true => Status { why: killed, ..Status::at(Place::Os) },
            false => Status::at(Place::Moving),
        };
    }
    let status = Status::decode(word);
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
