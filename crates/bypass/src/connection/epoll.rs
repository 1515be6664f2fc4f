//! Connections in epoll sets (epoll(7)). Those at the kernel are the kernel's; those at the NIC are the layer's, with
//! the same meaning of level, edge and one shot. A connection changes hands when it is offered, and when it comes back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use handoff::RestoreReason;
use libc::{c_int, epoll_event};

use super::{Connection, DESCRIPTORS, Find, Ready, asked};
use crate::os;
use crate::real::real;
use crate::session::{self, Session, lock};

/// What a program registered of a connection in one set.
#[derive(Clone, Copy)]
pub(crate) struct Registration {
    set: c_int,
    events: u32,
    data: u64,
    /// It was one shot, and has been told. The kernel's set does not have it, if that happened at the NIC: it cannot be
    /// given one that says nothing.
    is_spent: bool,
}

/// A set that has, or had, connections at the NIC.
struct Set {
    fd: c_int,
    /// The number of the session that wakes it.
    session: AtomicU32,
    /// Connections that may be ready.
    ready: Mutex<VecDeque<&'static Connection>>,
    /// The last wait was filled by the NIC's.
    is_short: AtomicBool,
    /// Where it ended: the next begins behind it.
    last: AtomicI32,
}

/// The last wait had room for all.
const NOBODY: c_int = -1;

static SETS: Mutex<Vec<Arc<Set>>> = Mutex::new(Vec::new());
/// How many sets there are: without any, epoll is the kernel's.
static COUNT: AtomicU32 = AtomicU32::new(0);

const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const ERR: u32 = libc::EPOLLERR as u32;
const HUP: u32 = libc::EPOLLHUP as u32;

/// What the eventfd is registered with: no program has this address of its own.
fn own_data() -> u64 {
    (&raw const COUNT) as u64
}

fn find(fd: c_int) -> Option<Arc<Set>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    lock(&SETS).iter().find(|set| set.fd == fd).cloned()
}

/// The set of this descriptor, in which the process is woken.
fn find_or_make(fd: c_int, session: &Session) -> Option<Arc<Set>> {
    let mut sets = lock(&SETS);
    let known = sets.iter().find(|set| set.fd == fd).map(Arc::clone);
    if known.as_ref().is_some_and(|set| set.session.load(Ordering::Acquire) == session.number) {
        return known;
    }
    for own in [session.wake, session.socket] {
        let added = kernel_ctl(fd, libc::EPOLL_CTL_ADD, own, IN | EDGE, own_data());
        if added < 0 && os::errno() != libc::EEXIST {
            return None;
        }
    }
    let number = session.number;
    if let Some(set) = known {
        set.session.store(number, Ordering::Release);
        return Some(set);
    }
    let ready = Mutex::new(VecDeque::new());
    let set = Arc::new(Set {
        fd,
        session: AtomicU32::new(number),
        ready,
        is_short: AtomicBool::new(false),
        last: AtomicI32::new(NOBODY),
    });
    sets.push(Arc::clone(&set));
    COUNT.store(sets.len() as u32, Ordering::Release);
    Some(set)
}

/// A descriptor is closed: if it was a set, that is no more.
pub(crate) fn closed(fd: c_int, is_own: impl FnOnce() -> bool) {
    if find(fd).is_none() || !is_own() {
        return;
    }
    let mut sets = lock(&SETS);
    sets.retain(|set| set.fd != fd);
    COUNT.store(sets.len() as u32, Ordering::Release);
}

/// After fork, in the child: the sets are the kernel's.
pub(crate) fn forget_all() {
    // The lock may be a thread's that is not there any more; the child has one thread, and no connection away.
    if let Ok(mut sets) = SETS.try_lock() {
        sets.clear();
    }
    COUNT.store(0, Ordering::Release);
}

fn kernel_ctl(set: c_int, op: c_int, fd: c_int, events: u32, data: u64) -> c_int {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: `event` is readable.
    unsafe {
        real!(epoll_ctl(set, op, fd, &raw mut event):
            fn(c_int, c_int, c_int, *mut epoll_event) -> c_int)
    }
}

/// A connection is about to be offered: the kernel forgets its registrations. False if that cannot be.
pub(crate) fn from_kernel(connection: &'static Connection) -> bool {
    let Some(session) = session::get_there() else { return false };
    let mut registrations = lock(&connection.registrations);
    for registration in registrations.iter_mut() {
        let Some(set) = find_or_make(registration.set, session) else { return false };
        if registration.events & ONESHOT != 0 && !registration.is_spent {
            registration.is_spent = is_spent(registration.set, connection.fd());
        }
        kernel_ctl(registration.set, libc::EPOLL_CTL_DEL, connection.fd(), 0, 0);
        lock(&set.ready).push_back(connection);
    }
    if !registrations.is_empty() {
        // A thread may wait there already, of which the NIC does not know.
        os::ring(session.wake);
    }
    true
}

/// Whether the kernel has told what a set has of a descriptor as one shot: of such only private bits are left
/// (proc_pid_fdinfo(5)). False where that is not shown, so that it is told once more.
fn is_spent(set: c_int, fd: c_int) -> bool {
    const PRIVATE: u32 = EXCLUSIVE | ONESHOT | EDGE | libc::EPOLLWAKEUP as u32;
    let shown = std::fs::read_to_string(format!("/proc/self/fdinfo/{set}")).unwrap_or_default();
    let of_it = shown.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let named = words.next() == Some("tfd:") && words.next()?.parse() == Ok(fd);
        (named && words.next() == Some("events:")).then(|| words.next())?
    });
    let events = of_it.and_then(|events| u32::from_str_radix(events, 16).ok());
    events.is_some_and(|events| events & !PRIVATE == 0)
}

/// A connection is the kernel's again, with its registrations.
pub(crate) fn to_kernel(connection: &Connection) {
    for registration in lock(&connection.registrations).iter().filter(|one| !one.is_spent) {
        let Registration { set, events, data, .. } = *registration;
        kernel_ctl(set, libc::EPOLL_CTL_ADD, connection.fd(), events, data);
    }
}

/// What is ready of a connection at the NIC has changed by a call of the program's: threads that wait look at it.
pub(crate) fn changed(connection: &'static Connection, session: &Session) {
    for registration in lock(&connection.registrations).iter() {
        if let Some(set) = find(registration.set) {
            lock(&set.ready).push_back(connection);
        }
    }
    os::ring(session.wake);
}

/// A connection is closed.
pub(crate) fn forget(connection: &Connection) {
    lock(&connection.registrations).clear();
}

/// epoll_ctl(2) of a connection.
pub(crate) fn control(
    connection: &'static Connection,
    set: c_int,
    op: c_int,
    event: Option<epoll_event>,
) -> c_int {
    let wants = event.map_or(0, |event| event.events);
    if wants & EXCLUSIVE != 0 {
        connection.restore(RestoreReason::Epoll);
    }
    loop {
        let is_away = connection.away().is_some();
        let mut registrations = lock(&connection.registrations);
        if connection.is_away() != is_away {
            continue;
        }
        let known = registrations.iter().position(|registration| registration.set == set);
        if !is_away {
            let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
            // What the kernel's set does not have, though the program's has.
            let is_out = known.is_some_and(|at| registrations[at].is_spent);
            let result = match op {
                libc::EPOLL_CTL_ADD if is_out => os::fail(libc::EEXIST) as c_int,
                libc::EPOLL_CTL_DEL if is_out => 0,
                _ => {
                    let op = if is_out { libc::EPOLL_CTL_ADD } else { op };
                    kernel_ctl(set, op, connection.fd(), events, data)
                }
            };
            if result == 0 {
                record(&mut registrations, known, set, op, event);
                // A thread that waits there is woken when wharf asks for the connection.
                let session = session::get_there().filter(|one| one.policy.allows_by_hand());
                session.map(|session| find_or_make(set, session));
            }
            return result;
        }
        let error = match (op, known) {
            (libc::EPOLL_CTL_ADD, Some(_)) => libc::EEXIST,
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => libc::ENOENT,
            (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, _) => 0,
            _ => libc::EINVAL,
        };
        if error != 0 {
            return os::fail(error) as c_int;
        }
        record(&mut registrations, known, set, op, event);
        drop(registrations);
        if op != libc::EPOLL_CTL_DEL
            && let Some(session) = session::get_there()
            && let Some(set) = find_or_make(set, session)
        {
            lock(&set.ready).push_back(connection);
            // A thread may wait there already.
            os::ring(session.wake);
        }
        return 0;
    }
}

fn record(
    registrations: &mut Vec<Registration>,
    known: Option<usize>,
    set: c_int,
    op: c_int,
    event: Option<epoll_event>,
) {
    let new = event.map(|epoll_event { events, u64: data }| Registration {
        set,
        events,
        data,
        is_spent: false,
    });
    match (op, known, new) {
        (libc::EPOLL_CTL_DEL, Some(at), _) => drop(registrations.swap_remove(at)),
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, Some(at), Some(new)) => registrations[at] = new,
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None, Some(new)) => registrations.push(new),
        _ => {}
    }
}

/// Takes what the NIC has told, for all sets. Threads that wait at others than `own` are woken.
fn dispatch(session: &Session, own: c_int, find_connection: Find) {
    let mut others = false;
    session.events(|fd| {
        let Some(connection) = find_connection(fd) else { return };
        for registration in lock(&connection.registrations).iter() {
            if let Some(set) = find(registration.set) {
                lock(&set.ready).push_back(connection);
                others |= set.fd != own;
            }
        }
    });
    if others {
        os::ring(session.wake);
    }
}

/// The same for a thread that waits at no set.
pub(crate) fn dispatch_all(session: &Session, find_connection: Find) {
    dispatch(session, -1, find_connection);
}

impl Set {
    /// Connections that are ready, as epoll_wait gives them.
    fn collect(&self, into: &mut [epoll_event]) -> usize {
        let mut count = 0;
        let waiting = {
            let mut all: Vec<&'static Connection> = lock(&self.ready).drain(..).collect();
            all.sort_unstable_by_key(|connection| connection.fd());
            all.dedup_by_key(|connection| connection.fd());
            let last = self.last.load(Ordering::Relaxed);
            let served = all.partition_point(|connection| connection.fd() <= last);
            all.rotate_left(served);
            all
        };
        let mut last = NOBODY;
        let mut again = Vec::new();
        for connection in waiting {
            if count == into.len() {
                again.push(connection);
                continue;
            }
            let Some(ready) = connection.ready() else { continue };
            let mut registrations = lock(&connection.registrations);
            let here = registrations.iter_mut().find(|registration| registration.set == self.fd);
            let Some(registration) = here.filter(|registration| !registration.is_spent) else {
                continue;
            };
            let events = events_of(ready) & (registration.events | ERR | HUP);
            if events == 0 {
                continue;
            }
            into[count] = epoll_event { events, u64: registration.data };
            count += 1;
            last = connection.fd();
            registration.is_spent = registration.events & ONESHOT != 0;
            if registration.events & (EDGE | ONESHOT) == 0 {
                again.push(connection);
            }
        }
        lock(&self.ready).extend(again);
        if !into.is_empty() {
            let is_full = count == into.len();
            self.is_short.store(is_full, Ordering::Relaxed);
            self.last.store(if is_full { last } else { NOBODY }, Ordering::Relaxed);
        }
        count
    }
}

fn events_of(ready: Ready) -> u32 {
    let bit = |is: bool, bits: u32| if is { bits } else { 0 };
    bit(ready.readable, IN)
        | bit(ready.writable, OUT)
        | bit(ready.peer_closed, RDHUP)
        | bit(ready.error, ERR)
        | bit(ready.hung_up, HUP)
}

/// What poll(2) says of it.
pub(crate) fn poll_events(ready: Ready) -> libc::c_short {
    // The numbers are the same (include/uapi/linux/eventpoll.h).
    events_of(ready) as libc::c_short
}

/// epoll_wait(2), if the set has connections at the NIC; `kernel` is the kernel's, of so many milliseconds at most.
pub(crate) fn wait(
    fd: c_int,
    into: &mut [epoll_event],
    timeout: c_int,
    find_connection: Find,
    mut kernel: impl FnMut(&mut [epoll_event], c_int) -> c_int,
) -> Option<c_int> {
    let set = find(fd)?;
    let session = session::get_there()?;
    let until = u64::try_from(timeout).ok().map(|timeout| os::now() + timeout * 1_000_000);
    loop {
        let more_to_offer = asked::offer(session, find_connection);
        dispatch(session, fd, find_connection);
        let errno = os::errno();
        // Those of the kernel's have their share where the NIC's would take all room.
        let share =
            if set.is_short.swap(false, Ordering::Relaxed) { into.len().div_ceil(2) } else { 0 };
        let first = if share == 0 { 0 } else { kernel(&mut into[..share], 0) };
        os::set_errno(errno);
        let first = without_own(into, usize::try_from(first).unwrap_or(0));
        let count = first + set.collect(&mut into[first..]);
        if count > 0 {
            let rest = &mut into[count..];
            let is_asked = share > 0 || rest.is_empty();
            let more = if is_asked { 0 } else { kernel(rest, 0) };
            os::set_errno(errno);
            let more = usize::try_from(more).unwrap_or(0);
            return Some((count + without_own(&mut into[count..], more)) as c_int);
        }
        let left = match until {
            _ if more_to_offer => asked::AGAIN_MS,
            None => -1,
            Some(until) => until.saturating_sub(os::now()).div_ceil(1_000_000) as c_int,
        };
        let asleep = session.sleep();
        dispatch(session, fd, find_connection);
        // What is there now is told by the next round.
        let left = if lock(&set.ready).is_empty() { left } else { 0 };
        let found = kernel(into, left);
        drop(asleep);
        let Ok(found) = usize::try_from(found) else { return Some(found) };
        let theirs = without_own(into, found);
        if theirs < found && !session.looks_alive() {
            // All that wharf had is over, and to be told of.
            lock(&set.ready).extend((0..DESCRIPTORS as c_int).filter_map(find_connection));
        }
        if theirs > 0 {
            return Some(theirs as c_int);
        }
        if until.is_some_and(|until| os::now() >= until) && lock(&set.ready).is_empty() {
            return Some(0);
        }
    }
}

/// Takes the eventfd's out of the events; how many are left.
pub(crate) fn without_own(events: &mut [epoll_event], count: usize) -> usize {
    let mut kept = 0;
    for at in 0..count.min(events.len()) {
        if events[at].u64 != own_data() {
            events[kept] = events[at];
            kept += 1;
        }
    }
    kept
}
