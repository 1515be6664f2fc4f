//! An epoll set of the program's.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use handoff::session::NICS_MAX;
use libc::{c_int, epoll_event};

use super::links::Links;
use super::waiters::Waiters;
use crate::lock::Lock;
use crate::os;
use crate::pool::{Pool, Pooled};
use crate::real::real;
use crate::session::{self, Session};
use crate::sharers::{self, Number};
use crate::table::{self, Word};
use crate::vfork;

static POOL: Pool<Set> = Pool::new();

/// See the module's documentation.
pub(crate) struct Set {
    /// One of its descriptors, and how many it has.
    fd: AtomicI32,
    descriptors: AtomicU32,
    /// How often it was another set.
    stay: AtomicU32,
    /// Sessions wake it: of each NIC, the number of the one that does; 0 for none.
    is_woken: AtomicBool,
    sessions: [AtomicU32; NICS_MAX],
    /// Held while registrations of the layer's own are added or taken out.
    pub(super) registering: Lock<()>,
    /// Threads that wait there, and registrations at the NIC.
    pub(super) waiters: Waiters,
    /// Its entry among those that several processes have had, as a word.
    pub(super) shared: AtomicU32,
    /// Those that may be ready.
    pub(super) ready: Links,
    /// It is in another set, or is polled itself: its connections are the kernel's.
    is_nested: AtomicBool,
    /// The last wait was filled by the NIC's.
    pub(super) is_short: AtomicBool,
}

impl Pooled for Set {
    fn new(_place: usize) -> Self {
        Set {
            fd: AtomicI32::new(-1),
            descriptors: AtomicU32::new(0),
            stay: AtomicU32::new(1),
            is_woken: AtomicBool::new(false),
            sessions: [const { AtomicU32::new(0) }; NICS_MAX],
            registering: Lock::new(()),
            waiters: Waiters::new(),
            shared: AtomicU32::new(0),
            ready: Links::new(),
            is_nested: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
        }
    }

    fn claim(&self) -> bool {
        self.descriptors.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

fn word_of(set: &'static Set) -> Word {
    std::ptr::from_ref(set).cast_mut().cast::<u8>().map_addr(|at| at | table::SET)
}

/// The set of a descriptor, if it is known to be one.
#[inline]
pub(crate) fn at(fd: c_int) -> Option<&'static Set> {
    listed(fd).filter(|_| !vfork::hides(fd))
}

/// The same by the table alone: see [`crate::connection::listed`].
#[inline]
pub(crate) fn listed(fd: c_int) -> Option<&'static Set> {
    of(table::word(fd))
}

/// The set that a descriptor is, if it is one.
#[inline]
pub(crate) fn of(word: Word) -> Option<&'static Set> {
    // As a number with a sign it is less than all others.
    if word.addr() as isize >= table::OWN as isize {
        return None;
    }
    let set = word.map_addr(|at| at & !table::SET).cast::<Set>();
    // SAFETY: a set of the pool's, which is somewhere, and stays there.
    unsafe {
        std::hint::assert_unchecked(!set.is_null());
        Some(&*set)
    }
}

/// A new set of this descriptor, which was none that is known.
pub(crate) fn insert(fd: c_int) -> Option<&'static Set> {
    if !table::has_room(fd) {
        return None;
    }
    let set = POOL.claim(fd)?;
    set.fd.store(fd, Ordering::Relaxed);
    set.is_woken.store(false, Ordering::Relaxed);
    set.sessions.iter().for_each(|session| session.store(0, Ordering::Relaxed));
    set.shared.store(0, Ordering::Relaxed);
    set.is_nested.store(false, Ordering::Relaxed);
    set.is_short.store(false, Ordering::Relaxed);
    set.waiters.begin_stay(set.stay());
    if table::exchange(fd, std::ptr::null_mut(), word_of(set)) {
        return Some(set);
    }
    // Another thread has found it, too.
    set.descriptors.store(0, Ordering::Release);
    at(fd)
}

/// A descriptor is closed: with the last one of a set, that is no more.
pub(crate) fn closed(fd: c_int) {
    let Some(set) = at(fd) else { return };
    if table::exchange(fd, word_of(set), std::ptr::null_mut()) {
        set.release(fd);
    }
}

/// Sets whose threads are woken are so by sessions that have begun since, too: their wharfs may ask for what is in them.
pub(crate) fn keep_up() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    let generation = session::generation();
    if SEEN.load(Ordering::Relaxed) != generation
        && SEEN.swap(generation, Ordering::Relaxed) != generation
    {
        let errno = os::errno();
        let sessions = || session::all().filter(|one| one.policy().allows_by_hand());
        for set in table::all().filter_map(at).filter(|set| set.is_woken()) {
            sessions().for_each(|session| {
                set.wake_by(session);
            });
        }
        os::set_errno(errno);
    }
}

impl Set {
    /// Another descriptor of the set.
    pub(crate) fn add(&'static self, fd: c_int) {
        if table::has_room(fd) {
            self.descriptors.fetch_add(1, Ordering::AcqRel);
            closed(fd);
            table::replace(fd, word_of(self));
        } else {
            // What is waited for there, nobody would tell.
            self.nest();
        }
    }

    fn release(&'static self, fd: c_int) {
        if self.descriptors.load(Ordering::Acquire) > 1 {
            if self.fd() == fd {
                let word = word_of(self);
                let other = table::all().find(|other| table::word(*other) == word);
                self.fd.store(other.unwrap_or(-1), Ordering::Release);
            }
            self.descriptors.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        // Its registrations are none from here on.
        let stay = self.stay.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.waiters.begin_stay(stay);
        let mut rest = self.ready.take();
        while let Some(link) = rest.next() {
            link.is_out();
        }
        Number::of(self.shared.swap(0, Ordering::AcqRel)).map(sharers::leave);
        self.descriptors.store(0, Ordering::Release);
    }

    pub(super) fn fd(&self) -> c_int {
        self.fd.load(Ordering::Acquire)
    }

    pub(super) fn stay(&self) -> u32 {
        self.stay.load(Ordering::Acquire)
    }

    /// Whether a session wakes those that wait at it.
    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }

    pub(crate) fn is_nested(&self) -> bool {
        self.is_nested.load(Ordering::Acquire)
    }

    /// Its connections are the kernel's from now on. Returns whether they were not before.
    pub(super) fn nest(&self) -> bool {
        !self.is_nested.swap(true, Ordering::AcqRel)
    }

    pub(super) fn is_woken_by(&self, session: &Session) -> bool {
        self.sessions[session.place].load(Ordering::Acquire) == session.number
    }

    pub(super) fn now_woken_by(&self, session: &Session) {
        self.sessions[session.place].store(session.number, Ordering::Release);
        self.is_woken.store(true, Ordering::SeqCst);
    }

    pub(super) fn now_woken_by_none(&self) {
        self.sessions.iter().for_each(|session| session.store(0, Ordering::Release));
        self.is_woken.store(false, Ordering::Release);
    }

    /// Returns true if no other process has the set, or is about to. Its connections may be at the NIC only then: each
    /// event goes to one of the processes that wait.
    pub(crate) fn is_alone(&self) -> bool {
        let word = self.shared.load(Ordering::Acquire);
        let Some(number) = Number::of(word) else { return true };
        let is_alone = sharers::is_alone(number) || is_alone_again(number);
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if is_alone && self.shared.compare_exchange(word, 0, success, failure).is_ok() {
            sharers::leave(number);
        }
        is_alone
    }

    /// Returns true if none of its connections is at a NIC.
    #[inline]
    pub(crate) fn is_kernels(&self) -> bool {
        !self.waiters.have_away()
    }
}

/// Looks at what other processes have take one part of so many of the time at most.
const SHARE: u64 = 50;

/// Returns true if the others that are known to have a set have none, as a look at their descriptors finds: a program that
/// execve(2) has begun closes what it knows nothing of, such as Erlang's `erl_child_setup`.
fn is_alone_again(number: Number) -> bool {
    static DUE: AtomicU64 = AtomicU64::new(0);
    let begun = os::now();
    if begun < DUE.load(Ordering::Relaxed) {
        return false;
    }
    let errno = os::errno();
    let is_alone = sharers::is_alone_without(number, |process| !os::may_have_set(process));
    let ended = os::now();
    DUE.store(ended + (ended - begun) * SHARE, Ordering::Relaxed);
    os::set_errno(errno);
    is_alone
}

/// All sets, each once.
pub(super) fn all() -> impl Iterator<Item = &'static Set> {
    table::all().filter_map(|fd| at(fd).filter(|set| set.fd() == fd))
}

/// epoll_ctl(2) of the kernel.
pub(super) fn kernel_ctl(set: c_int, op: c_int, fd: c_int, events: u32, data: u64) -> c_int {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: `event` is readable.
    unsafe {
        real!(epoll_ctl(set, op, fd, &raw mut event):
            fn(c_int, c_int, c_int, *mut epoll_event) -> c_int)
    }
}
