//! One connection: at the kernel, on its way, or at the NIC.

pub(crate) mod asked;
mod data;
pub(crate) mod epoll;
mod patience;
mod pieces;

use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
};
use std::time::Duration;

use handoff::command::{NicControl, nic};
use handoff::policy::Seen;
use handoff::session::Area;
use handoff::session::status::{self, Place, Status, Why};
use handoff::{Cid, Epoch, Refusal, RestoreReason};
use libc::c_int;

pub(crate) use self::data::Receiving;
use self::epoll::Registration;
pub(crate) use self::patience::{Patience, Waiting};
use crate::os;
use crate::session::{self, Session, lock};
use crate::sharers::{self, Number};

/// No connection; at the kernel; offered, or at the NIC; on its way back to being the kernel's.
const ABSENT: u32 = 0;
const KERNEL: u32 = 1;
const AWAY: u32 = 2;
const RETURNING: u32 = 3;

/// In `calls`: it is about to be offered, and no call begins.
const OFFERING: u32 = 1 << 31;
/// How long a call waits for the next change of a status before it looks whether wharf is there.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// In `shut`: which ends the program has shut down.
const SHUT_READ: u8 = 1;
const SHUT_WRITE: u8 = 2;
/// How long a connection stays at the kernel at least, in nanoseconds, that came back for a reason that passes: twice as
/// long each time, so many times.
const REST: u64 = 2_000_000_000;
const REST_DOUBLES: u32 = 6;
/// The same after it was found that another process has it, too: a server's parent closes it soon.
const SHARED_REST: u64 = 10_000_000;
/// How often a process that forks yields to a thread that offers a connection: some milliseconds.
const OFFER_YIELDS: u32 = 10_000;

/// Descriptors that are looked at. Those with higher numbers are the kernel's.
pub(crate) const DESCRIPTORS: usize = 1 << 16;

/// How the connection of a descriptor is found.
pub(crate) type Find = fn(c_int) -> Option<&'static Connection>;

/// See the module's documentation.
pub(crate) struct Connection {
    fd: c_int,
    state: AtomicU32,
    /// Calls that are in the kernel and may take or give bytes there.
    calls: AtomicU32,
    cid: AtomicU32,
    /// That it was offered by.
    session: AtomicPtr<Session>,
    /// Changes of the status when it was offered: until there are more, wharf has not looked at it.
    changes: AtomicU32,
    received: AtomicU64,
    sent: AtomicU64,
    since: AtomicU64,
    /// How often wharf had asked for all connections when it was last looked.
    picks: AtomicU64,
    /// It was at the NIC, or was refused: until then no policy offers it again.
    rests: AtomicU64,
    /// How often it came back for a reason that passes.
    returns: AtomicU32,
    /// Its entry among those that several processes have had, as a word.
    shared: AtomicU32,
    /// What the program does with it is the kernel's to serve: it is not offered at all.
    is_settled: AtomicBool,
    shut: AtomicU8,
    /// The program was told of the error.
    is_told: AtomicBool,
    /// An error that the kernel has told a call which gave what it had done before; 0 for none.
    late: AtomicI32,
    /// How often it was offered.
    offers: AtomicU32,
    /// Bytes that were read since the NIC was told.
    untold: AtomicU32,
    /// One thread at a time is at each ring.
    sending: Mutex<()>,
    receiving: Mutex<()>,
    pub(crate) registrations: Mutex<Vec<Registration>>,
}

/// A call that is in the kernel.
pub(crate) struct InKernel(&'static Connection);

impl Drop for InKernel {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where a connection is that is not at the kernel.
#[derive(Clone, Copy)]
pub(crate) struct AtNic {
    session: &'static Session,
    area: Area<'static>,
    cid: Cid,
}

/// Whether it can be offered again.
fn passes(why: Why) -> bool {
    match why {
        Why::Refused(refusal) => refusal.passes(),
        Why::Restored(reason) => reason.passes(),
    }
}

/// What is ready, as poll(2) has it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) peer_closed: bool,
    pub(crate) error: bool,
    pub(crate) hung_up: bool,
}

impl Connection {
    pub(crate) fn new(fd: c_int) -> Self {
        Connection {
            fd,
            state: AtomicU32::new(ABSENT),
            calls: AtomicU32::new(0),
            cid: AtomicU32::new(0),
            session: AtomicPtr::new(std::ptr::null_mut()),
            changes: AtomicU32::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            since: AtomicU64::new(0),
            picks: AtomicU64::new(0),
            rests: AtomicU64::new(0),
            returns: AtomicU32::new(0),
            shared: AtomicU32::new(0),
            is_settled: AtomicBool::new(false),
            shut: AtomicU8::new(0),
            is_told: AtomicBool::new(false),
            late: AtomicI32::new(0),
            offers: AtomicU32::new(0),
            untold: AtomicU32::new(0),
            sending: Mutex::new(()),
            receiving: Mutex::new(()),
            registrations: Mutex::new(Vec::new()),
        }
    }

    /// The descriptor is that of a new connection, at the kernel.
    pub(crate) fn begin(&self) {
        self.received.store(0, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
        self.since.store(os::now(), Ordering::Relaxed);
        // What was asked for before is not asked of this one.
        let picks = session::get_there().map_or(0, Session::picks);
        self.picks.store(picks, Ordering::Relaxed);
        self.rests.store(0, Ordering::Relaxed);
        self.returns.store(0, Ordering::Relaxed);
        self.shared.store(0, Ordering::Release);
        self.is_settled.store(false, Ordering::Relaxed);
        self.shut.store(0, Ordering::Relaxed);
        self.is_told.store(false, Ordering::Relaxed);
        self.late.store(0, Ordering::Relaxed);
        self.untold.store(0, Ordering::Relaxed);
        lock(&self.registrations).clear();
        self.state.store(KERNEL, Ordering::Release);
    }

    /// In the child after fork: the connection of the parent's descriptor, at the kernel. It is offered when the parent
    /// has it no more, unless that had it in an epoll set, which is not known here.
    pub(crate) fn inherit(&self, parents: &Connection) {
        self.begin();
        let shared = Number::of(parents.shared.load(Ordering::Acquire));
        self.shared.store(Number::word(shared), Ordering::Release);
        if let Some(number) = shared {
            sharers::join(number);
        }
        // A thread of the parent's may have had the lock.
        let has_sets = parents.registrations.try_lock().map_or(true, |sets| !sets.is_empty());
        let stays = shared.is_none() || has_sets || parents.is_settled.load(Ordering::Relaxed);
        self.is_settled.store(stays, Ordering::Relaxed);
    }

    /// The process is about to fork: the connection goes back to the kernel, for as long as two processes have it.
    pub(crate) fn share(&'static self) {
        let shared = sharers::expect(Number::of(self.shared.load(Ordering::Acquire)));
        self.shared.store(Number::word(shared), Ordering::SeqCst);
        if shared.is_none() {
            self.is_settled.store(true, Ordering::Relaxed);
        }
        // A thread that offers it either has seen that, or is seen here. In a signal's handler it may be this thread.
        let is_offering = || self.calls.load(Ordering::SeqCst) & OFFERING != 0;
        (0..OFFER_YIELDS).take_while(|_| is_offering()).for_each(|_| os::yield_now());
        self.give_back(RestoreReason::Fork);
    }

    /// Its entry, if more than one process has had it.
    pub(crate) fn shared(&self) -> Option<Number> {
        Number::of(self.shared.load(Ordering::Acquire))
    }

    /// Whether this is the only process that has it. One that was not is not looked at again for a while.
    fn is_alone(&self) -> bool {
        let is_alone = self.shared().is_none_or(sharers::is_alone);
        if !is_alone {
            self.rests.fetch_max(os::now() + SHARED_REST, Ordering::Relaxed);
        }
        is_alone
    }

    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.state.load(Ordering::Acquire) != ABSENT
    }

    /// Whether it is not at the kernel, as it is now.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), AWAY | RETURNING)
    }

    /// Whether it will not be offered any more, so that calls may stay in the kernel for as long as they like.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed) && !self.is_away()
    }

    pub(crate) fn fd(&self) -> c_int {
        self.fd
    }

    /// Where it is, once that is settled; `None` if at the kernel.
    pub(crate) fn away(&'static self) -> Option<AtNic> {
        loop {
            match self.state.load(Ordering::Acquire) {
                ABSENT | KERNEL => return None,
                RETURNING => os::yield_now(),
                _ => {
                    let at = self.nic()?;
                    match self.look(&at) {
                        Place::Nic | Place::Ended => return Some(at),
                        Place::Os | Place::Free => self.come_back(&at),
                        Place::Moving => self.wait_for_change(&at),
                    }
                }
            }
        }
    }

    fn nic(&self) -> Option<AtNic> {
        // SAFETY: it is null, or a session, which lives as long as the process or until that forks; the child's
        // connections are all at the kernel.
        let session = unsafe { self.session.load(Ordering::Acquire).as_ref() }?;
        let cid = Cid(self.cid.load(Ordering::Acquire));
        Some(AtNic { session, area: session.area(cid)?, cid })
    }

    fn status(&self, at: &AtNic) -> Status {
        let word = at.area.status().load(Ordering::Acquire);
        let is_dead = at.session.is_dead();
        if u32::from(status::count(word)) == self.changes.load(Ordering::Acquire) {
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
                // wharf's guard is about to put it back.
                return Status { place: Place::Moving, ..status };
            }
            let status = Status::decode(at.area.status().load(Ordering::Acquire));
            if matches!(status.place, Place::Nic | Place::Moving) {
                // Never wrong bytes: what was at the NIC is lost.
                return Status { error: libc::ECONNRESET as u16, ..Status::at(Place::Ended) };
            }
            return status;
        }
        status
    }

    fn look(&self, at: &AtNic) -> Place {
        self.status(at).place
    }

    /// Waits for the next change of the status.
    fn wait_for_change(&self, at: &AtNic) {
        let errno = os::errno();
        at.area.waiters().fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let wake = at.area.wake();
        let expected = wake.load(Ordering::Acquire) as u32;
        if self.look(at) == Place::Moving
            && os::futex_wait(wake, expected, Some(LOOK_AGAIN)) == libc::ETIMEDOUT
        {
            at.session.looks_alive();
        }
        at.area.waiters().fetch_sub(1, Ordering::AcqRel);
        os::set_errno(errno);
    }

    /// The kernel has it again: its registrations are the kernel's, too.
    fn come_back(&'static self, at: &AtNic) {
        let swapped =
            self.state.compare_exchange(AWAY, RETURNING, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            return;
        }
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
        // A kernel that is given a connection knows nothing of the end for reading; and what the NIC was told last, it
        // may not have done.
        os::shutdown(self.fd, shut_how(self.shut.load(Ordering::Acquire)));
        epoll::to_kernel(self);
        // What was asked of all while the NIC had it, it has done.
        self.picks.store(at.session.picks(), Ordering::Relaxed);
        at.session.give_number(at.cid);
        self.state.store(KERNEL, Ordering::Release);
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
            until => os::now() < until,
        }
    }

    /// A call of the kernel's begins; `None` if the kernel does not have the connection.
    pub(crate) fn enter_kernel(&'static self) -> Option<InKernel> {
        loop {
            if self.away().is_some() {
                return None;
            }
            if self.calls.fetch_add(1, Ordering::AcqRel) & OFFERING == 0 {
                let call = InKernel(self);
                if self.state.load(Ordering::Acquire) != AWAY {
                    return Some(call);
                }
            } else {
                self.calls.fetch_sub(1, Ordering::AcqRel);
                os::yield_now();
            }
        }
    }

    /// Bytes have passed by the kernel: perhaps it is to go to the NIC.
    pub(crate) fn passed(&'static self, received: isize, sent: isize) {
        let add = |to: &AtomicU64, bytes: isize| {
            to.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed)
                + u64::try_from(bytes).unwrap_or(0)
        };
        let (received, sent) = (add(&self.received, received), add(&self.sent, sent));
        if self.is_settled.load(Ordering::Relaxed) {
            return;
        }
        let Some(session) = session::get().filter(|session| session.takes_offers()) else {
            return;
        };
        let picks = session.picks();
        if picks != self.picks.load(Ordering::Relaxed) {
            let before = self.picks.swap(picks, Ordering::Relaxed);
            if session.policy.allows_by_hand() {
                if !self.offer(session) {
                    self.picks.store(before, Ordering::Relaxed);
                }
                return;
            }
        }
        if self.rests() {
            return;
        }
        let mut seen =
            Seen { since: self.since.load(Ordering::Relaxed), received, sent, ..Seen::default() };
        if session.policy.ports.is_some() {
            (seen.local_port, seen.remote_port) = os::ports(self.fd);
        }
        let needs_time = session.policy.next_deadline(&seen).is_some();
        let now = if needs_time { os::now() } else { seen.since };
        if session.policy.picks(&seen, now) {
            let _ = self.offer(session);
        }
    }

    /// Offers it, unless another call is in the kernel, or one of an earlier stay at the NIC still writes into the send ring:
    /// the next one offers it then. Returns false in that case.
    fn offer(&'static self, session: &'static Session) -> bool {
        // wharf puts what is queued there, over which nothing is to be written.
        let Ok(_none) = self.sending.try_lock() else { return false };
        if self.calls.compare_exchange(0, OFFERING, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        let errno = os::errno();
        if self.state.load(Ordering::Acquire) == KERNEL && self.is_alone() {
            self.offer_alone(session);
        }
        os::set_errno(errno);
        self.calls.fetch_and(!OFFERING, Ordering::AcqRel);
        true
    }

    fn offer_alone(&'static self, session: &'static Session) {
        let Some(cid) = session.take_number(self.fd) else { return };
        let Some(area) = session.area(cid) else { return };
        let before = status::count(area.status().load(Ordering::Acquire));
        self.cid.store(cid.0, Ordering::Release);
        self.session.store(std::ptr::from_ref(session).cast_mut(), Ordering::Release);
        self.changes.store(before.into(), Ordering::Release);
        self.offers.fetch_add(1, Ordering::AcqRel);
        if epoll::from_kernel(self) && session.offer(cid, self.fd) {
            self.state.store(AWAY, Ordering::Release);
            return;
        }
        epoll::to_kernel(self);
        // Another wharf may take it.
        self.is_settled.store(session.looks_alive(), Ordering::Relaxed);
        session.give_number(cid);
    }

    /// How often it was offered: a wait in the kernel during which this changes says nothing about the connection.
    pub(crate) fn moves(&self) -> u32 {
        self.offers.load(Ordering::Acquire)
    }

    /// An error that the next call is to give.
    pub(crate) fn keep_late(&self, error: c_int) {
        self.late.store(error, Ordering::Release);
    }

    /// The error that was kept, which is told by this.
    pub(crate) fn take_late(&self) -> Option<c_int> {
        let kept = self.late.load(Ordering::Acquire) != 0;
        kept.then(|| self.late.swap(0, Ordering::AcqRel)).filter(|error| *error != 0)
    }

    /// Has the connection back at the kernel, for good, however long that takes.
    pub(crate) fn restore(&'static self, reason: RestoreReason) {
        self.is_settled.store(true, Ordering::Relaxed);
        self.give_back(reason);
    }

    fn give_back(&'static self, reason: RestoreReason) {
        let mut asked = false;
        while let Some(at) = self.away() {
            if self.look(&at) == Place::Ended {
                return;
            }
            if !std::mem::replace(&mut asked, true) {
                at.session.restore(at.cid, reason);
            }
            // Until it moves; then `away` waits.
            while self.look(&at) == Place::Nic && self.state.load(Ordering::Acquire) == AWAY {
                self.wait_while_at_nic(&at);
            }
        }
    }

    fn wait_while_at_nic(&self, at: &AtNic) {
        let errno = os::errno();
        at.area.waiters().fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let wake = at.area.wake();
        let expected = wake.load(Ordering::Acquire) as u32;
        if self.look(at) == Place::Nic
            && os::futex_wait(wake, expected, Some(LOOK_AGAIN)) == libc::ETIMEDOUT
        {
            at.session.looks_alive();
        }
        at.area.waiters().fetch_sub(1, Ordering::AcqRel);
        os::set_errno(errno);
    }

    /// The program closes the descriptor.
    pub(crate) fn close(&'static self) {
        if let Some(at) = self.away() {
            let control =
                if os::lingers_not(self.fd) { NicControl::Abort } else { NicControl::Close };
            if self.look(&at) == Place::Nic {
                self.control(&at, control);
            }
            at.session.close(at.cid);
        }
        epoll::forget(self);
        self.shared().map(sharers::leave);
        self.state.store(ABSENT, Ordering::Release);
    }

    /// Tells the NIC to change something.
    pub(crate) fn control(&self, at: &AtNic, cmd: NicControl) {
        let ctrl = nic::Ctrl { cmd, ..nic::Ctrl::new(at.cid, self.epoch(at)) };
        at.session.command(ctrl.into());
    }

    fn epoch(&self, at: &AtNic) -> Epoch {
        at.area.epoch()
    }
}

/// What shutdown(2) takes for these ends, if there are any.
fn shut_how(bits: u8) -> Option<c_int> {
    match bits {
        0 => None,
        SHUT_READ => Some(libc::SHUT_RD),
        SHUT_WRITE => Some(libc::SHUT_WR),
        _ => Some(libc::SHUT_RDWR),
    }
}
