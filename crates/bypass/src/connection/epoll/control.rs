//! Registrations: epoll_ctl(2), and how they change hands with their connection.

use handoff::RestoreReason;
use libc::{c_int, epoll_event};

use super::EXCLUSIVE;
use super::private::Private;
use super::set::{self, Set, kernel_ctl};
use super::slot::{Registration, Slot};
use super::wake::is_set;
use crate::connection::{Connection, all};
use crate::os::{self, Quiet};
use crate::session::{self, Session};
use crate::{timeout, vfork};

/// A connection is about to be offered: the kernel forgets its registrations. False if that cannot be.
pub(crate) fn from_kernel(connection: &'static Connection, session: &Session) -> bool {
    for slot in connection.slots.all() {
        let Some(registration) = slot.get() else { continue };
        let Registration { set, fd, .. } = registration;
        if set.is_nested() || registration.is_opaque() || !set.wake_by(session) {
            return false;
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
        if let Some(registration) = slot.get().filter(|one| !one.is_disarmed()) {
            let Registration { set, fd, events, .. } = registration;
            let data = kernels_data(slot, &registration);
            kernel_ctl(set.fd(), libc::EPOLL_CTL_ADD, fd, events, data);
        }
    }
}

/// The data by which the kernel has a registration: one shot's event is to disarm its slot before the program gets it.
fn kernels_data(slot: &Slot, registration: &Registration) -> u64 {
    if !registration.is_once() || registration.is_opaque() {
        return registration.data;
    }
    Private::Shot { slot: slot.number(), arm: registration.arm() }.data()
}

/// Another process, or another program, is about to wait in these sets: the kernel gets the program's data for all that is
/// there.
pub(super) fn expose(which: impl Fn(&'static Set) -> bool) {
    for connection in all().filter(|connection| !connection.slots.are_empty()) {
        let _quiet = Quiet::begin();
        let _control = connection.control.take();
        for slot in connection.slots.all() {
            let Some(registration) = slot.get().filter(|one| which(one.set)) else { continue };
            let Registration { set, fd, events, data, .. } = registration;
            let is_kernels = registration.is_once()
                && !registration.is_opaque()
                && slot.make_opaque(&registration)
                && !connection.is_away();
            if is_kernels {
                kernel_ctl(set.fd(), libc::EPOLL_CTL_MOD, fd, events, data);
            }
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
    Connection::give_those_back(RestoreReason::Epoll, timeout::CONTROL, is_in);
    // An event of the layer's own there would be one of the other set's.
    set.unwake();
    expose(|its| std::ptr::eq(its, set));
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
    if vfork::hides(set_fd) {
        // A set of a child's own.
        connection.give();
        return kernel_ctl(set_fd, op, fd, wanted.0, wanted.1);
    }
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
        connection.give_back(RestoreReason::Fork, os::now().saturating_add(timeout::OFFER));
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
        let known = connection.slots.find(set, fd).and_then(|slot| slot.get());
        let kernel = |op, events, data| kernel_ctl(set.fd(), op, fd, events, data);
        let lacks_it = |result: c_int| result < 0 && known.is_some() && os::errno() == libc::ENOENT;
        let (events, data) = match (op, event) {
            (libc::EPOLL_CTL_DEL, _) => {
                // Before the kernel: what that has reported by then, nobody reports any more.
                connection.slots.remove(set, fd);
                let result = kernel(op, 0, 0);
                return Done::Result(if lacks_it(result) { 0 } else { result });
            }
            (libc::EPOLL_CTL_ADD, _) if known.is_some() => {
                return Done::Result(os::fail(libc::EEXIST) as c_int);
            }
            (
                libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD,
                Some(epoll_event { events, u64: data }),
            ) => (events, data),
            (_, None) => return Done::Result(os::fail(libc::EFAULT) as c_int),
            (_, Some(event)) => return Done::Result(kernel(op, event.events, event.u64)),
        };
        if op == libc::EPOLL_CTL_MOD && events & EXCLUSIVE != 0 {
            // The kernel refuses it.
            return Done::Result(kernel(op, events, data));
        }
        // Before the kernel, which may report it at once.
        let is_opaque = connection.is_settled() || set.is_nested() || !set.is_alone();
        let new = Registration::new(set, fd, events, data);
        let slot = connection.slots.put(connection, new, is_opaque);
        let Some((slot, new)) = slot.and_then(|slot| Some((slot, slot.get()?))) else {
            let result = kernel(op, events, data);
            if result == 0 {
                // It is the kernel's for good, which has it.
                connection.restore(RestoreReason::Epoll);
            }
            return Done::Result(result);
        };
        let data = kernels_data(slot, &new);
        let mut result = kernel(op, events, data);
        if lacks_it(result) {
            // It was disarmed at the NIC.
            result = kernel(libc::EPOLL_CTL_ADD, events, data);
        }
        if result == 0 {
            // A thread that waits there is woken when wharf asks for the connection.
            let may_ask = session::all().filter(|one| one.policy().allows_by_hand());
            may_ask.for_each(|session| {
                set.wake_by(session);
            });
        } else if let Some(old) = known {
            connection.slots.put(connection, old, old.is_opaque());
        } else {
            connection.slots.remove(set, fd);
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
                let new = Registration::new(set, fd, events, data);
                return connection.slots.put(connection, new, false).is_some();
            }
            _ => {}
        }
        true
    }
}
