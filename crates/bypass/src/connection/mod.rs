//! One connection: at the kernel, on its way, or at the NIC.

pub(crate) mod asked;
mod descriptors;
pub(crate) mod epoll;
mod info;
mod inherited;
mod kept;
mod limits;
mod moves;
mod parts;
mod patience;
mod place;
mod ready;
mod receive;
mod send;
mod splice;
mod transit;
pub(crate) mod uring;
mod way;
mod worth;

use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering,
};

use handoff::RestoreReason;
use handoff::command::{NicControl, nic};
use handoff::session::status::Place;
use libc::c_int;

use self::asked::{Looked, Times};
pub(crate) use self::descriptors::{forget_stale, insert, renew};
use self::epoll::Slots;
pub(crate) use self::inherited::{give_all_back, share_all};
use self::limits::Limits;
pub(crate) use self::parts::Parts;
pub(crate) use self::patience::{Patience, Waiting};
use self::place::AtNic;
pub(crate) use self::receive::{Receiving, Sink, Take};
pub(crate) use self::send::{Lay, Source};
use self::splice::Splices;
pub(crate) use self::transit::{are_any_moving, look_at_moving};
use self::worth::Worth;
use crate::lock::Lock;
use crate::os;
use crate::pool::{Pool, Pooled};
use crate::session::Session;
use crate::table::{self, Word};
use crate::{timeout, vfork};

/// No connection; at the kernel; offered, or at the NIC; on its way back to being the kernel's; at the NIC in the process
/// whose child this is, which has asked it back.
const ABSENT: u32 = 0;
const KERNEL: u32 = 1;
const AWAY: u32 = 2;
const RETURNING: u32 = 3;
const INHERITED: u32 = 4;

/// In `calls`: it is about to be offered, and no call begins.
const OFFERING: u32 = 1 << 31;
/// In `descriptors`: the last one is being closed.
const ENDING: u32 = u32::MAX;

/// In `shut`: which ends the program has shut down.
const SHUT_READ: u8 = 1;
const SHUT_WRITE: u8 = 2;

/// Calls on a connection that rests after which it is looked whether it still does: a power of two.
const REST_CALLS: u32 = 64;

static POOL: Pool<Connection> = Pool::new();
/// How often any was offered.
static OFFERS: AtomicU32 = AtomicU32::new(0);

/// See the module's documentation.
pub(crate) struct Connection {
    /// One of its descriptors, and how many it has.
    fd: AtomicI32,
    descriptors: AtomicU32,
    /// How many connections of it have ended: see [`Waiting::is_over`].
    generation: AtomicU32,
    state: AtomicU32,
    /// What `state`, `rests`, `is_settled` and `late` come to, as of [`Stays`]: one load tells most calls what to do.
    stays: AtomicU32,
    /// Calls that are in the kernel and may take or give bytes there.
    calls: AtomicU32,
    cid: AtomicU32,
    /// That it was offered by.
    session: AtomicPtr<Session>,
    /// Changes of the status when it was offered: until there are more, wharf has not looked at it.
    changes: AtomicU32,
    /// When it was offered.
    offered_at: AtomicU64,
    /// wharf may have its socket, as it has not answered an offer that was withdrawn.
    is_withdrawn: AtomicBool,
    /// A child has it, too, and it is not back yet.
    is_forked_away: AtomicBool,
    /// A thread that waits looks whether it has arrived: see [`transit`].
    is_awaited: AtomicBool,
    received: AtomicU64,
    sent: AtomicU64,
    since: AtomicU64,
    worth: Worth,
    /// When it was looked last whether wharf has asked for it.
    looked: Looked,
    /// The number of the session whose NIC its route leads through, as was found when it was to go there; 0 if that is to be
    /// asked.
    nic: AtomicU32,
    /// It was at the NIC, or was refused: until then no policy offers it again.
    rests: AtomicU64,
    /// How often it came back for a reason that passes.
    returns: AtomicU32,
    /// Calls while it rests.
    resting: AtomicU32,
    /// Its entry among those that several processes have had, as a word.
    shared: AtomicU32,
    /// What the program does with it is the kernel's to serve: it is not offered at all.
    is_settled: AtomicBool,
    /// The program has said that it is to go to the NIC.
    is_to_go: AtomicBool,
    /// It was not offered when a call was there, as wharf had many to answer.
    is_put_off: AtomicBool,
    shut: AtomicU8,
    /// The program was told of the error.
    is_told: AtomicBool,
    /// An error that the kernel has told a call which gave what it had done before; 0 for none.
    late: AtomicI32,
    /// How often it was offered.
    offers: AtomicU32,
    /// Bytes that were read since the NIC was told.
    untold: AtomicU32,
    limits: Limits,
    /// One thread at a time writes to the ring.
    sending: Lock<()>,
    /// The number that a thread which is in the middle of that gives back when it has done with it, and in which way.
    owed: AtomicU32,
    /// What the kernel's sets have of it and what the layer's have changes here, as do its descriptors; with signals kept
    /// back.
    control: Lock<()>,
    slots: Slots,
    splices: Splices,
}

/// A call that is in the kernel.
pub(crate) struct InKernel(&'static Connection);

impl Drop for InKernel {
    #[inline]
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How long a connection stays at the kernel; the less, the less long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stays(u32);

impl Stays {
    /// A call looks where it is: it may leave at once, or is not there.
    pub(crate) const NOT: Stays = Stays(0);
    /// It does not leave before a while has passed, or before wharf asks for it.
    pub(crate) const A_WHILE: Stays = Stays(1);
    /// For good.
    pub(crate) const FOR_GOOD: Stays = Stays(2);
}

/// A call that is the kernel's, whatever comes of it.
pub(crate) enum Plain {
    /// As the connection stays there.
    Settled,
    /// As it does not leave before a while has passed.
    Resting(InKernel),
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

/// How often any was offered: a wait in the kernel during which this does not change was where all of them are.
#[inline]
pub(crate) fn offers() -> u32 {
    OFFERS.load(Ordering::Acquire)
}

/// Keeps all connections that there are from being offered.
pub(crate) fn stay_at_kernel() {
    all().for_each(|connection| connection.is_settled.store(true, Ordering::SeqCst));
}

/// All connections, each once.
pub(crate) fn all() -> impl Iterator<Item = &'static Connection> {
    table::all().filter_map(|fd| at(fd).filter(|connection| connection.fd() == fd))
}

/// The connection of a descriptor, if it has one that the layer looks at.
#[inline]
pub(crate) fn at(fd: c_int) -> Option<&'static Connection> {
    listed(fd).filter(|_| !vfork::hides(fd))
}

/// The same by the table alone: where it is at the NIC, a child with its parent's memory is to look whether the number is
/// still this one (`vfork::hides`).
#[inline]
pub(crate) fn listed(fd: c_int) -> Option<&'static Connection> {
    of(table::word(fd))
}

/// The connection that a descriptor is, if it is one.
#[inline]
pub(crate) fn of(word: Word) -> Option<&'static Connection> {
    // SAFETY: what is above zero is a connection of the pool's, which stays where it is.
    (word.addr() as isize > 0).then(|| unsafe { &*word.cast::<Connection>() })
}

impl Pooled for Connection {
    fn new(place: usize) -> Self {
        Connection {
            fd: AtomicI32::new(-1),
            descriptors: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            state: AtomicU32::new(ABSENT),
            stays: AtomicU32::new(Stays::NOT.0),
            calls: AtomicU32::new(0),
            cid: AtomicU32::new(0),
            session: AtomicPtr::new(std::ptr::null_mut()),
            changes: AtomicU32::new(0),
            offered_at: AtomicU64::new(0),
            is_withdrawn: AtomicBool::new(false),
            is_forked_away: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            since: AtomicU64::new(0),
            worth: Worth::new(),
            looked: Looked::new(),
            nic: AtomicU32::new(0),
            rests: AtomicU64::new(0),
            returns: AtomicU32::new(0),
            resting: AtomicU32::new(0),
            shared: AtomicU32::new(0),
            is_settled: AtomicBool::new(false),
            is_to_go: AtomicBool::new(false),
            is_put_off: AtomicBool::new(false),
            shut: AtomicU8::new(0),
            is_told: AtomicBool::new(false),
            late: AtomicI32::new(0),
            offers: AtomicU32::new(0),
            untold: AtomicU32::new(0),
            limits: Limits::new(),
            sending: Lock::new(()),
            owed: AtomicU32::new(0),
            control: Lock::new(()),
            slots: Slots::new(place),
            splices: Splices::new(),
        }
    }

    fn claim(&self) -> bool {
        let free = self.descriptors.load(Ordering::Relaxed) == 0;
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        free && self.descriptors.compare_exchange(0, ENDING, success, failure).is_ok()
    }
}

/// Of a counter by which nothing is decided but what is worth it: threads that count at once may lose some.
#[inline]
fn count(counter: &AtomicU64, bytes: u64) {
    counter.store(counter.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
}

impl Connection {
    /// It is that of this descriptor, new and at the kernel.
    fn begin(&self, fd: c_int) {
        self.fd.store(fd, Ordering::Relaxed);
        self.reset();
        self.descriptors.store(1, Ordering::Release);
    }

    /// It is new, and at the kernel.
    fn reset(&self) {
        self.received.store(0, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
        self.since.store(os::now(), Ordering::Relaxed);
        self.worth.begin();
        // What was asked for before is not asked of this one.
        self.looked.set(&Times::now());
        self.nic.store(0, Ordering::Relaxed);
        self.rests.store(0, Ordering::Relaxed);
        self.returns.store(0, Ordering::Relaxed);
        self.shared.store(0, Ordering::Release);
        self.is_settled.store(false, Ordering::Relaxed);
        self.is_to_go.store(false, Ordering::Relaxed);
        self.is_put_off.store(false, Ordering::Relaxed);
        self.shut.store(0, Ordering::Relaxed);
        self.is_told.store(false, Ordering::Relaxed);
        self.late.store(0, Ordering::Relaxed);
        self.untold.store(0, Ordering::Relaxed);
        self.is_withdrawn.store(false, Ordering::Relaxed);
        self.is_forked_away.store(false, Ordering::Relaxed);
        self.awaits_no_move();
        self.limits.begin();
        self.slots.clear();
        self.splices.clear();
        self.stays.store(Stays::NOT.0, Ordering::Relaxed);
        self.state.store(KERNEL, Ordering::Release);
    }

    /// The program has opened it, and not its peer.
    pub(crate) fn is_opened(&self) {
        self.worth.is_opened();
    }

    /// Bytes that it has carried so far, sent or received, whichever are more.
    fn carried(&self) -> u64 {
        self.received.load(Ordering::Relaxed).max(self.sent.load(Ordering::Relaxed))
    }

    /// Whether it is not at the kernel, as it is now.
    #[inline]
    pub(crate) fn is_away(&self) -> bool {
        self.state.load(Ordering::Acquire) >= AWAY
    }

    /// Whether it will not be offered any more, so that calls may stay in the kernel for as long as they like.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled.load(Ordering::Relaxed) && !self.is_away()
    }

    /// One of its descriptors, which another thread may close if the lock of `control` is not held.
    pub(crate) fn fd(&self) -> c_int {
        self.fd.load(Ordering::Acquire)
    }

    /// How often it was offered: a wait in the kernel during which this changes says nothing about the connection.
    pub(crate) fn moves(&self) -> u32 {
        self.offers.load(Ordering::Acquire)
    }

    /// A call of the kernel's begins; `None` if the kernel does not have the connection.
    pub(crate) fn enter_kernel(&'static self) -> Option<InKernel> {
        loop {
            if self.away().is_some() {
                return None;
            }
            if let Some(call) = self.try_enter() {
                return Some(call);
            }
            os::yield_now();
        }
    }

    /// A call of the kernel's begins, if that has the connection and keeps it.
    #[inline]
    fn try_enter(&'static self) -> Option<InKernel> {
        let call = InKernel(self);
        let is_offered = self.calls.fetch_add(1, Ordering::AcqRel) & OFFERING != 0;
        let is_there = !is_offered && self.state.load(Ordering::Acquire) <= KERNEL;
        is_there.then_some(call)
    }

    /// How a call of the program's is the kernel's as it is, if it is: the connection is there, and no call is to end
    /// before its time so that it can leave.
    #[inline]
    pub(crate) fn plain(&'static self) -> Option<Plain> {
        match self.stays() {
            Stays::NOT => None,
            Stays::A_WHILE => self.try_enter().map(Plain::Resting),
            // Beside a thread that has moved it meanwhile, what it is now counts.
            _ => (self.state.load(Ordering::Acquire) == KERNEL).then_some(Plain::Settled),
        }
    }

    /// How long it stays at the kernel.
    #[inline]
    pub(crate) fn stays(&self) -> Stays {
        Stays(self.stays.load(Ordering::Acquire))
    }

    /// Whether calls are the kernel's as they are.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.stays() != Stays::NOT
    }

    /// It is at the kernel: how long it stays there follows from the rest.
    fn set_stay(&self) {
        let stays = if self.has_late() {
            Stays::NOT
        } else if self.is_settled.load(Ordering::SeqCst) {
            Stays::FOR_GOOD
        } else if self.rests.load(Ordering::Relaxed) != 0 {
            Stays::A_WHILE
        } else {
            Stays::NOT
        };
        self.stays.store(stays.0, Ordering::Release);
    }

    /// An error that the next call is to give.
    pub(crate) fn keep_late(&self, error: c_int) {
        self.late.store(error, Ordering::Release);
        self.stays.store(Stays::NOT.0, Ordering::Release);
    }

    /// The error that was kept, which is told by this.
    pub(crate) fn take_late(&self) -> Option<c_int> {
        if !self.has_late() {
            return None;
        }
        let error = self.late.swap(0, Ordering::AcqRel);
        if self.state.load(Ordering::Acquire) == KERNEL {
            self.set_stay();
        }
        (error != 0).then_some(error)
    }

    /// Whether there is one.
    pub(crate) fn has_late(&self) -> bool {
        self.late.load(Ordering::Acquire) != 0
    }

    /// Tells the NIC to change something; whether it hears of it.
    fn control(&self, at: &AtNic, cmd: NicControl) -> bool {
        let ctrl = nic::Ctrl { cmd, ..nic::Ctrl::new(at.cid, at.area.epoch()) };
        at.command(ctrl.into())
    }

    /// Tells the NIC of an option that the socket has now. One that does not hear of it has it from the socket when the
    /// connection has been back at the kernel.
    pub(crate) fn tell(&'static self, cmd: NicControl) {
        if let Some(at) = self.is_away().then(|| self.nic()).flatten()
            && self.look(&at) == Place::Offered
        {
            // The kernel has it, and it is taken out with what the socket has by then.
            return;
        }
        let Some((at, status)) = self.settled_within(timeout::CONTROL) else { return };
        let is_told = match status.place {
            Place::Nic => self.control(&at, cmd),
            place => matches!(place, Place::Ended | Place::Offered),
        };
        if !is_told {
            self.ask_back(&at, RestoreReason::Unserved);
        }
    }
}

impl Plain {
    /// The kernel has done it, with this result.
    #[inline]
    pub(crate) fn after<T>(self, result: T) -> T {
        if let Plain::Resting(call) = self {
            let connection = call.0;
            drop(call);
            connection.look_up();
        }
        result
    }
}

impl Connection {
    /// Now and then, and when wharf has asked for connections, it is looked whether it rests still.
    #[inline]
    fn look_up(&'static self) {
        let calls = self.resting.load(Ordering::Relaxed).wrapping_add(1);
        self.resting.store(calls, Ordering::Relaxed);
        if calls.is_multiple_of(REST_CALLS) || self.looked.may_be_over() {
            self.wake_up();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_up(&'static self) {
        let is_time = self.resting.load(Ordering::Relaxed).is_multiple_of(REST_CALLS);
        if is_time || self.looked.is_over() {
            let errno = os::errno();
            self.passed(0, 0);
            os::set_errno(errno);
        }
    }
}
