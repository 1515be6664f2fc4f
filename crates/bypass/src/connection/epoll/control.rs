//! Registrations: epoll_ctl(2), and how they change hands with their connection.

use handoff::RestoreReason;
use libc::{c_int, epoll_event};

use super::set::{self, Set, kernel_ctl};
use super::slot::{Registration, SPENT};
use super::spent::is_spent;
use super::wake::is_set;
use super::{EXCLUSIVE, ONESHOT};
use crate::connection::{Connection, all};
use crate::os::{self, Quiet};
use crate::session::{self, Session};

/// A connection is about to be offered: the kernel forgets its registrations. False if that cannot be.
pub(crate) fn from_kernel(connection: &'static Connection, session: &Session) -> bool {
    for slot in connection.slots.all() {
        let Some(registration) = slot.get() else { continue };
        let Registration { set, fd, events, .. } = registration;
        if set.is_nested() || !set.wake_by(session) {
            return false;
        }
        if events & ONESHOT != 0 && !registration.is_spent() && is_spent(set.fd(), fd) {
            slot.spend(events);
        }
        kernel_ctl(set.fd(), libc::EPOLL_CTL_DEL, fd, 0, 0);
        slot.goes_away();
    }
    true
}

/// A connection was offered: threads that wait look at it, also those that have waited since before.
pub(crate) fn offered(connection: &'static Connection) {
    look_at(connection);
}

fn look_at(connection: &'static Connection) {
    for slot in connection.slots.all() {
        if let Some(set) = slot.set() {
            set.ready.push(&slot.link);
            set.ring();
        }
    }
}

/// A connection is the kernel's again, with its registrations.
pub(crate) fn to_kernel(connection: &Connection) {
    for slot in connection.slots.all() {
        slot.is_back();
        if let Some(registration) = slot.get().filter(|one| !one.is_spent()) {
            let Registration { set, fd, events, data } = registration;
            kernel_ctl(set.fd(), libc::EPOLL_CTL_ADD, fd, events, data);
        }
    }
}

/// What is ready of a connection at the NIC has changed by a call of the program's: threads that wait look at it.
pub(crate) fn changed(connection: &'static Connection, session: &Session) {
    look_at(connection);
    // Those that wait by poll(2).
    os::ring(session.wake.fd());
}

/// A set is in another one, or is polled itself: that is the kernel's to serve.
pub(crate) fn nest(set: &'static Set) {
    if !set.nest() {
        return;
    }
    let is_in = |connection: &&'static Connection| {
        let in_it = |its: &Set| std::ptr::eq(its, set);
        connection.slots.all().any(|slot| slot.set().is_some_and(in_it))
    };
    all().filter(is_in).for_each(|connection| connection.restore(RestoreReason::Epoll));
    // An event of the layer's own there would be one of the other set's.
    set.unwake();
}

/// The same of all sets: a process that is not seen is about to have them.
pub(crate) fn nest_all() {
    set::all().for_each(nest);
}

/// epoll_ctl(2) of a connection by this descriptor.
pub(crate) fn control(
    connection: &'static Connection,
    fd: c_int,
    set_fd: c_int,
    op: c_int,
    event: Option<epoll_event>,
) -> c_int {
    let wanted = event.map_or((0, 0), |event| (event.events, event.u64));
    if wanted.0 & EXCLUSIVE != 0 {
        connection.restore(RestoreReason::Epoll);
    }
    if connection.is_settled() && connection.slots.are_empty() {
        return kernel_ctl(set_fd, op, fd, wanted.0, wanted.1);
    }
    let Some(set) = set::at(set_fd).or_else(|| probe(set_fd)) else {
        if is_set(set_fd) {
            // By a number too high to be known.
            connection.restore(RestoreReason::Epoll);
        }
        return kernel_ctl(set_fd, op, fd, wanted.0, wanted.1);
    };
    if set.is_nested() {
        connection.restore(RestoreReason::Epoll);
    } else if connection.is_away() && !set.is_alone() {
        connection.give_back(RestoreReason::Fork);
    }
    loop {
        let is_away = connection.away().is_some();
        let quiet = Quiet::begin();
        let Some(control) = connection.control.take() else { continue };
        if connection.is_away() != is_away {
            continue;
        }
        let call = Control { connection, fd, set, op, event };
        let done = if is_away { call.at_nic() } else { call.at_kernel() };
        drop(control);
        drop(quiet);
        match done {
            Done::Result(result) => return result,
            Done::NoRoom => connection.restore(RestoreReason::Epoll),
            Done::Kernels => {
                connection.restore(RestoreReason::Epoll);
                return 0;
            }
        }
    }
}

/// The set of a descriptor that the layer has not seen become one. It may be another process's, too, and in another set: it
/// is the kernel's to serve.
fn probe(fd: c_int) -> Option<&'static Set> {
    let set = if is_set(fd) { set::insert(fd) } else { None }?;
    set.nest();
    Some(set)
}

/// One call of epoll_ctl(2).
struct Control {
    connection: &'static Connection,
    fd: c_int,
    set: &'static Set,
    op: c_int,
    event: Option<epoll_event>,
}

enum Done {
    Result(c_int),
    /// The layer has no place for the registration.
    NoRoom,
    /// It is registered, and the connection is to be the kernel's.
    Kernels,
}

impl Control {
    fn at_kernel(&self) -> Done {
        let Control { connection, fd, set, op, event } = *self;
        let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
        let known = connection.slots.find(set, fd).and_then(|slot| slot.get());
        // What the kernel's set does not have, though the program's has.
        let is_out = known.is_some_and(|registration| registration.is_spent());
        let result = match op {
            libc::EPOLL_CTL_ADD if is_out => os::fail(libc::EEXIST) as c_int,
            libc::EPOLL_CTL_DEL if is_out => 0,
            _ => {
                let op = if is_out { libc::EPOLL_CTL_ADD } else { op };
                kernel_ctl(set.fd(), op, fd, events, data)
            }
        };
        if result == 0 {
            if !self.record() {
                // It is the kernel's for good, which has it.
                connection.restore(RestoreReason::Epoll);
            }
            // A thread that waits there is woken when wharf asks for the connection.
            let may_ask = session::all().filter(|one| one.policy().allows_by_hand());
            may_ask.for_each(|session| {
                set.wake_by(session);
            });
        }
        Done::Result(result)
    }

    fn at_nic(&self) -> Done {
        let Control { connection, fd, set, op, event } = *self;
        let is_known = connection.slots.find(set, fd).is_some();
        let error = match (op, is_known) {
            _ if op != libc::EPOLL_CTL_DEL && event.is_none() => libc::EFAULT,
            (libc::EPOLL_CTL_ADD, true) => libc::EEXIST,
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => libc::ENOENT,
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, _) => 0,
            _ => libc::EINVAL,
        };
        if error != 0 {
            return Done::Result(os::fail(error) as c_int);
        }
        if !self.record() {
            return Done::NoRoom;
        }
        if op == libc::EPOLL_CTL_DEL {
            return Done::Result(0);
        }
        if let Some(session) = connection.away().map(|at| at.session)
            && let Some(slot) = connection.slots.find(set, fd)
        {
            if !set.wake_by(session) {
                // It is the kernel's to serve, which is given what is registered.
                return Done::Kernels;
            }
            slot.goes_away();
            set.ready.push(&slot.link);
            set.ring();
        }
        Done::Result(0)
    }

    /// Keeps what was registered. False if there is no place for it.
    fn record(&self) -> bool {
        let Control { connection, fd, set, op, event } = *self;
        match (op, event) {
            (libc::EPOLL_CTL_DEL, _) => connection.slots.remove(set, fd),
            (
                libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD,
                Some(epoll_event { events, u64: data }),
            ) => {
                let new = Registration { set, fd, events: events & !SPENT, data };
                return connection.slots.put(connection, new).is_some();
            }
            _ => {}
        }
        true
    }
}
