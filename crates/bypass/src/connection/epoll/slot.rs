//! What a program has registered of a connection in epoll sets. It is read without a lock, by threads that wait.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use libc::c_int;

use super::links::Link;
use super::set::Set;
use crate::connection::Connection;
use crate::os;

/// Registrations that a connection can have at the NIC: in so many sets, or by so many descriptors. With more of them it
/// is the kernel's.
const SLOTS: usize = 4;

/// In `events`, which has a bit to spare: it was one shot, and has been told. The kernel's set does not have it, if that
/// happened at the NIC: it cannot be given one that says nothing.
pub(super) const SPENT: u32 = 1 << 27;

/// One registration. It begins with its place in a list, by which it is found there.
#[repr(C)]
pub(super) struct Slot {
    pub(super) link: Link,
    /// Null for none.
    set: AtomicPtr<Set>,
    /// The stay of the set: one that was closed has none of its registrations.
    stay: AtomicU32,
    /// Whose it is, and by which descriptor, which may be closed since.
    connection: AtomicPtr<Connection>,
    fd: AtomicI32,
    /// Changes while the two next do, and is odd meanwhile.
    version: AtomicU32,
    events: AtomicU32,
    data: AtomicU64,
    /// Its set counts it among those at the NIC.
    pub(super) is_away: AtomicBool,
}

/// What was registered.
#[derive(Clone, Copy)]
pub(super) struct Registration {
    pub(super) set: &'static Set,
    pub(super) fd: c_int,
    /// With [`SPENT`].
    pub(super) events: u32,
    pub(super) data: u64,
}

impl Registration {
    pub(super) fn is_spent(&self) -> bool {
        self.events & SPENT != 0
    }
}

impl Slot {
    const fn new() -> Self {
        Slot {
            link: Link::new(),
            set: AtomicPtr::new(std::ptr::null_mut()),
            stay: AtomicU32::new(0),
            connection: AtomicPtr::new(std::ptr::null_mut()),
            fd: AtomicI32::new(-1),
            version: AtomicU32::new(0),
            events: AtomicU32::new(0),
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

    /// The set that it is in.
    pub(super) fn set(&self) -> Option<&'static Set> {
        // SAFETY: null, or a set of the pool's, which stays where it is.
        let set = unsafe { self.set.load(Ordering::Acquire).as_ref() }?;
        (set.stay() == self.stay.load(Ordering::Acquire)).then_some(set)
    }

    /// What is registered, if there is anything.
    pub(super) fn get(&self) -> Option<Registration> {
        let set = self.set()?;
        loop {
            let before = self.version.load(Ordering::Acquire);
            let events = self.events.load(Ordering::Acquire);
            let data = self.data.load(Ordering::Acquire);
            fence(Ordering::Acquire);
            // Who changes it does so with signals kept back, and is about to be done.
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return Some(Registration {
                    set,
                    fd: self.fd.load(Ordering::Relaxed),
                    events,
                    data,
                });
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
    fn put(&self, connection: &'static Connection, new: Registration) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.connection.store(std::ptr::from_ref(connection).cast_mut(), Ordering::Release);
        self.fd.store(new.fd, Ordering::Release);
        self.events.store(new.events, Ordering::Release);
        self.data.store(new.data, Ordering::Release);
        self.stay.store(new.set.stay(), Ordering::Release);
        self.version.fetch_add(1, Ordering::AcqRel);
        self.set.store(std::ptr::from_ref(new.set).cast_mut(), Ordering::Release);
    }

    fn take_out(&self) {
        self.is_back();
        self.set.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Tells of one shot: whether this is the one who does.
    pub(super) fn spend(&self, events: u32) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.events.compare_exchange(events, events | SPENT, success, failure).is_ok()
    }

    /// The connection is at the NIC, or about to be.
    pub(super) fn goes_away(&self) {
        if let Some(set) = self.set()
            && !self.is_away.swap(true, Ordering::AcqRel)
        {
            set.count_away(1);
        }
    }

    /// It is at the kernel, or over.
    pub(super) fn is_back(&self) {
        if self.is_away.swap(false, Ordering::AcqRel)
            && let Some(set) = self.set()
        {
            set.count_away(-1);
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
    pub(crate) const fn new() -> Self {
        Slots { all: [const { Slot::new() }; SLOTS], may_be: AtomicBool::new(false) }
    }

    /// Those that there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.all.iter().filter(|slot| slot.set().is_some())
    }

    /// Returns true if no other process has any of the sets.
    pub(crate) fn sets_are_alone(&self) -> bool {
        self.all().filter_map(Slot::set).all(Set::is_alone)
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
    pub(super) fn put(&self, of: &'static Connection, new: Registration) -> Option<&Slot> {
        let is_free = |slot: &&Slot| {
            // One that stands in a list is found there by those who wait at that set.
            slot.set().is_none() && !slot.link.is_in()
        };
        let known = self.find(new.set, new.fd);
        let slot = known.or_else(|| self.all.iter().find(is_free))?;
        self.may_be.store(true, Ordering::Relaxed);
        slot.put(of, new);
        Some(slot)
    }

    pub(super) fn remove(&self, set: &'static Set, fd: c_int) {
        if let Some(slot) = self.find(set, fd) {
            slot.take_out();
        }
    }
}
