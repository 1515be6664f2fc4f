//! What a program has registered of a connection in epoll sets. It is read without a lock, by threads that wait.
//!
//! A registration of one shot is disarmed by one compare-and-swap of its slot's state, wherever the connection is: by the thread
//! that has found it ready at the NIC, and by the one to which the kernel has given its event. Who loses reports nothing.
//! Each change of the registration is another arm, so that an event of the one before does not disarm it.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use libc::c_int;

use super::links::Link;
use super::set::Set;
use super::{EDGE, ERR, HUP, ONESHOT};
use crate::connection::{Connection, POOL};
use crate::os;
use crate::table::DESCRIPTORS;

/// Registrations that a connection can have at the NIC: in so many sets, or by so many descriptors. With more of them it
/// is the kernel's.
const SLOTS: usize = 4;
/// Slots of all connections.
pub(super) const NUMBERS: usize = DESCRIPTORS * SLOTS;

/// Bits of `state` that events leave: the one shot is disarmed; the kernel has the program's data for the one shot, and what
/// becomes of it there is not known here.
const DISARMED: u64 = 1 << 32;
const OPAQUE: u64 = 1 << 33;
/// In `state`, above: a count of changes, which is odd while one is made.
const CHANGE: u64 = 1 << 34;

/// One registration. It begins with its place in a list, by which it is found there.
#[repr(C)]
pub(super) struct Slot {
    pub(super) link: Link,
    /// Its number among all.
    number: usize,
    /// Null for none.
    set: AtomicPtr<Set>,
    /// The stay of the set: one that was closed has none of its registrations.
    stay: AtomicU32,
    /// Whose it is, and by which descriptor, which may be closed since.
    connection: AtomicPtr<Connection>,
    fd: AtomicI32,
    /// Events, and the bits above.
    state: AtomicU64,
    data: AtomicU64,
    /// Its set counts it among those at the NIC.
    pub(super) is_away: AtomicBool,
}

/// What was registered.
#[derive(Clone, Copy)]
pub(super) struct Registration {
    pub(super) set: &'static Set,
    pub(super) fd: c_int,
    pub(super) events: u32,
    pub(super) data: u64,
    /// Of the slot, when this was read.
    state: u64,
}

impl Registration {
    pub(super) fn new(set: &'static Set, fd: c_int, events: u32, data: u64) -> Self {
        Registration { set, fd, events, data, state: 0 }
    }

    pub(super) fn is_once(&self) -> bool {
        self.events & ONESHOT != 0
    }

    pub(super) fn is_disarmed(&self) -> bool {
        self.state & DISARMED != 0
    }

    /// Returns true if it is one shot, and what the kernel has of it is not known.
    pub(super) fn is_opaque(&self) -> bool {
        self.state & OPAQUE != 0
    }

    /// The number of its arm.
    pub(super) fn arm(&self) -> u32 {
        (self.state / CHANGE / 2) as u32
    }

    /// Those of these events that are waited for.
    pub(super) fn wanted(&self, events: u32) -> u32 {
        events & (self.events | ERR | HUP)
    }

    /// Returns true if it is reported again as long as it is ready.
    pub(super) fn is_level(&self) -> bool {
        self.events & (EDGE | ONESHOT) == 0
    }
}

impl Slot {
    fn new(number: usize) -> Self {
        Slot {
            link: Link::new(),
            number,
            set: AtomicPtr::new(std::ptr::null_mut()),
            stay: AtomicU32::new(0),
            connection: AtomicPtr::new(std::ptr::null_mut()),
            fd: AtomicI32::new(-1),
            state: AtomicU64::new(0),
            data: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
        }
    }

    /// That which has this place in a list of a set's.
    pub(super) fn of(link: &'static Link) -> &'static Slot {
        // SAFETY: lists of sets have links of slots alone, which begin with them, and which are parts of connections of
        // the pool's.
        unsafe { &*std::ptr::from_ref(link).cast::<Slot>() }
    }

    /// The slot of a number.
    pub(super) fn at(number: usize) -> Option<&'static Slot> {
        POOL.get(number / SLOTS).map(|connection| &connection.slots.all[number % SLOTS])
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// The set that it is in.
    pub(super) fn set(&self) -> Option<&'static Set> {
        // SAFETY: null, or a set of the pool's, which stays where it is.
        let set = unsafe { self.set.load(Ordering::Acquire).as_ref() }?;
        (set.stay() == self.stay.load(Ordering::Acquire)).then_some(set)
    }

    /// What is registered, if there is anything.
    pub(super) fn get(&self) -> Option<Registration> {
        loop {
            let state = self.state.load(Ordering::Acquire);
            let set = self.set()?;
            let (fd, data) = (self.fd.load(Ordering::Acquire), self.data.load(Ordering::Acquire));
            fence(Ordering::Acquire);
            // Who changes it does so with signals kept back, and is about to be done.
            let has_changed = self.state.load(Ordering::Relaxed) / CHANGE != state / CHANGE;
            if !has_changed && (state / CHANGE).is_multiple_of(2) {
                return Some(Registration { set, fd, events: state as u32, data, state });
            }
            os::yield_now();
        }
    }

    /// Whose it is.
    pub(super) fn connection(&self) -> Option<&'static Connection> {
        // SAFETY: null, or a connection of the pool's, which stays where it is.
        unsafe { self.connection.load(Ordering::Acquire).as_ref() }
    }

    /// Registers. One thread at a time does.
    fn put(&self, connection: &'static Connection, new: Registration, is_opaque: bool) {
        let changing = self.state.fetch_add(CHANGE, Ordering::AcqRel).wrapping_add(CHANGE);
        fence(Ordering::Release);
        self.connection.store(std::ptr::from_ref(connection).cast_mut(), Ordering::Release);
        self.fd.store(new.fd, Ordering::Release);
        self.data.store(new.data, Ordering::Release);
        self.stay.store(new.set.stay(), Ordering::Release);
        self.set.store(std::ptr::from_ref(new.set).cast_mut(), Ordering::Release);
        let opaque = if is_opaque { OPAQUE } else { 0 };
        let changes = (changing / CHANGE).wrapping_add(1).wrapping_mul(CHANGE);
        self.state.store(changes | opaque | u64::from(new.events), Ordering::Release);
    }

    fn take_out(&self) {
        self.is_back();
        self.set.store(std::ptr::null_mut(), Ordering::Release);
        // It cannot be disarmed any more by who has read it before.
        self.state.fetch_add(2 * CHANGE, Ordering::AcqRel);
    }

    /// Disarms one shot that is registered so. Returns true if this thread is to report it: no other does, and what was
    /// registered has not changed.
    pub(super) fn disarm(&self, registration: &Registration) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let state = registration.state;
        state & DISARMED == 0
            && self.state.compare_exchange(state, state | DISARMED, success, failure).is_ok()
    }

    /// The kernel is about to have the program's data for one shot, as another process is about to wait there. Returns false if
    /// it is disarmed.
    pub(super) fn make_opaque(&self, registration: &Registration) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let state = registration.state;
        let new = state.wrapping_add(2 * CHANGE) | OPAQUE;
        state & DISARMED == 0 && self.state.compare_exchange(state, new, success, failure).is_ok()
    }

    /// The connection is at the NIC, or about to be.
    pub(super) fn goes_away(&self) {
        if let Some(set) = self.set()
            && !self.is_away.swap(true, Ordering::AcqRel)
        {
            set.count_away(self.stay.load(Ordering::Acquire), true);
        }
    }

    /// It is at the kernel, or over.
    pub(super) fn is_back(&self) {
        if self.is_away.swap(false, Ordering::AcqRel)
            && let Some(set) = self.set()
        {
            set.count_away(self.stay.load(Ordering::Acquire), false);
        }
    }
}

/// All registrations of a connection.
pub(crate) struct Slots {
    all: [Slot; SLOTS],
    /// There may be some.
    may_be: AtomicBool,
}

impl Slots {
    /// Of the connection at this place of the pool.
    pub(crate) fn new(place: usize) -> Self {
        Slots {
            all: std::array::from_fn(|at| Slot::new(place * SLOTS + at)),
            may_be: AtomicBool::new(false),
        }
    }

    /// Those that there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.all.iter().filter(|slot| slot.set().is_some())
    }

    /// Returns true if no other process has any of the sets, and all is known of what the kernel has reported there.
    pub(crate) fn may_leave(&self) -> bool {
        let is_clear =
            |slot: &Slot| slot.get().is_none_or(|one| one.set.is_alone() && !one.is_opaque());
        self.all().all(is_clear)
    }

    pub(crate) fn are_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Whether any is by this descriptor.
    pub(crate) fn has(&self, fd: c_int) -> bool {
        self.all().any(|slot| slot.fd.load(Ordering::Relaxed) == fd)
    }

    /// There are none any more.
    #[inline]
    pub(crate) fn clear(&self) {
        if self.may_be.load(Ordering::Relaxed) {
            self.take_out();
        }
    }

    #[cold]
    fn take_out(&self) {
        self.may_be.store(false, Ordering::Relaxed);
        for slot in &self.all {
            if !slot.set.load(Ordering::Relaxed).is_null() {
                slot.take_out();
            }
        }
    }

    /// In the child after fork: a thread that was about to change one is the parent's.
    pub(crate) fn renew(&self) {
        for slot in &self.all {
            let state = slot.state.load(Ordering::Relaxed);
            if !(state / CHANGE).is_multiple_of(2) {
                slot.state.store(state.wrapping_add(CHANGE), Ordering::Relaxed);
            }
        }
    }

    /// The connection is over at the NIC.
    pub(crate) fn are_back(&self) {
        self.all.iter().for_each(Slot::is_back);
    }

    /// That of this descriptor in this set.
    pub(super) fn find(&self, set: &'static Set, fd: c_int) -> Option<&Slot> {
        let is_it = |slot: &&Slot| {
            let is_in = slot.set().is_some_and(|its| std::ptr::eq(its, set));
            is_in && slot.fd.load(Ordering::Relaxed) == fd
        };
        self.all.iter().find(is_it)
    }

    /// Adds one of this connection's, or changes the one that there is. `None` if there is no place for it.
    pub(super) fn put(
        &self,
        of: &'static Connection,
        new: Registration,
        is_opaque: bool,
    ) -> Option<&Slot> {
        let is_free = |slot: &&Slot| {
            // One that stands in a list is found there by those who wait at that set.
            slot.set().is_none() && !slot.link.is_in()
        };
        let slot = self.find(new.set, new.fd).or_else(|| {
            let free = self.all.iter().find(is_free)?;
            // A set that was closed took no registration out.
            free.is_away.store(false, Ordering::Release);
            Some(free)
        })?;
        self.may_be.store(true, Ordering::Relaxed);
        slot.put(of, new, is_opaque && new.is_once());
        Some(slot)
    }

    pub(super) fn remove(&self, set: &'static Set, fd: c_int) {
        if let Some(slot) = self.find(set, fd) {
            slot.take_out();
        }
    }
}
