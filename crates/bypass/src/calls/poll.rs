//! poll(2), select(2) and epoll(7): connections at the NIC beside all other descriptors.

use std::cell::Cell;

use libc::{c_int, c_short, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use crate::connection::asked;
use crate::connection::epoll::{self, poll_events};
use crate::connection::{Connection, Patience};
use crate::os;
use crate::real::real;
use crate::session::{self, Session};
use crate::table;
use crate::trap::trap;

/// The thread's own epoll descriptor, and the number of its session. It has the process's eventfd edge by edge: each time wharf wakes the process
/// every thread that waits sees it, and none takes it from another.
struct Waiter(Cell<c_int>, Cell<u32>);

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.0.get() >= 0 {
            os::close(self.0.get());
        }
    }
}

thread_local! {
    static WAITER: Waiter = const { Waiter(Cell::new(-1), Cell::new(0)) };
}

/// The thread's, made when it is first asked for; -1 if there can be none.
fn waiter(session: &Session) -> c_int {
    WAITER
        .try_with(|waiter| {
            if waiter.1.replace(session.number) != session.number && waiter.0.get() >= 0 {
                // Of a wharf that has gone.
                os::close(waiter.0.replace(-1));
            }
            if waiter.0.get() < 0 {
                waiter.0.set(make_waiter(session));
            }
            waiter.0.get()
        })
        .unwrap_or(-1)
}

/// After fork, in the child: the descriptor is the parent's session's.
pub(super) fn forget_waiter() {
    let _ = WAITER.try_with(|waiter| {
        if waiter.0.get() >= 0 {
            os::close(waiter.0.replace(-1));
        }
    });
}

fn make_waiter(session: &Session) -> c_int {
    // SAFETY: it takes an integer.
    let fd = unsafe { trap!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) } as c_int;
    for own in [session.wake, session.socket] {
        let mut event = epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: `event` is readable.
        unsafe { trap!(libc::SYS_epoll_ctl, fd, add, own, &raw mut event) };
    }
    fd
}

/// The process was woken: that is over.
fn take_wake(waiter: c_int) {
    let mut event = epoll_event { events: 0, u64: 0 };
    // SAFETY: `event` is writable.
    unsafe { trap!(libc::SYS_epoll_pwait, waiter, &raw mut event, 1, 0, 0, 8) };
}

fn kernel_poll(fds: &mut [pollfd], timeout: Option<u64>, mask: *const sigset_t) -> c_int {
    let time = timeout.map(|nanos| timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `fds` and `time` are live; the mask is the program's, or none.
    unsafe {
        real!(ppoll(fds.as_mut_ptr(), fds.len() as nfds_t, time, mask):
            fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int)
    }
}

/// After how many nanoseconds a thread that waits offers more of what wharf has asked for.
const AGAIN: u64 = asked::AGAIN_MS as u64 * 1_000_000;

/// Waits until the kernel has something of this connection, or it moves: the error that the call gives if it is not to
/// wait longer.
pub(super) fn wait_kernel(
    connection: &'static Connection,
    events: c_short,
    patience: Patience,
) -> Option<c_int> {
    let mut left = match patience {
        Patience::None => return Some(libc::EAGAIN),
        Patience::Until(None) => None,
        Patience::Until(Some(until)) => match until.checked_sub(os::now()) {
            Some(left) if left > 0 => Some(left),
            _ => return Some(libc::EAGAIN),
        },
    };
    let mut fds = [
        pollfd { fd: connection.fd(), events, revents: 0 },
        pollfd { fd: -1, events: libc::POLLIN, revents: 0 },
    ];
    let session = session::get_there();
    let _asleep = session.and_then(|session| {
        fds[1].fd = waiter(session);
        take_wake(fds[1].fd);
        session.sleep()
    });
    let has_more = session.is_some_and(|session| asked::offer(session, table::get));
    if connection.is_away() {
        return None;
    }
    if has_more {
        left = Some(left.map_or(AGAIN, |left| left.min(AGAIN)));
    }
    let found = kernel_poll(&mut fds, left, std::ptr::null());
    match found {
        0 if has_more => None,
        0 => Some(libc::EAGAIN),
        found if found < 0 => Some(os::errno()),
        _ => None,
    }
}

/// Fills in what is ready of connections at the NIC; how many are, and whether one of them has come back meanwhile.
fn look(fds: &mut [pollfd], away: &[Option<&'static Connection>]) -> (c_int, bool) {
    let (mut count, mut is_back) = (0, false);
    for (fd, connection) in fds.iter_mut().zip(away) {
        let Some(connection) = connection else { continue };
        let Some(ready) = connection.ready() else {
            is_back = true;
            continue;
        };
        let always = libc::POLLERR | libc::POLLHUP;
        fd.revents = poll_events(ready) & (fd.events | always);
        count += c_int::from(fd.revents != 0);
    }
    (count, is_back)
}

/// How often these were offered, all together.
fn moves(fds: &[pollfd]) -> u64 {
    fds.iter().filter_map(|fd| table::get(fd.fd)).map(|one| u64::from(one.moves())).sum()
}

/// Whether some of these are connections that wharf may ask for while a thread waits.
fn may_go(session: &Session, fds: &[pollfd]) -> bool {
    session.policy.allows_by_hand() && fds.iter().any(|fd| table::get(fd.fd).is_some())
}

/// poll(2), if some of these are connections at the NIC, or may be while it waits.
fn poll_here(fds: &mut [pollfd], timeout: Option<u64>, mask: *const sigset_t) -> Option<c_int> {
    let session = session::get_there()?;
    let until = timeout.map(|timeout| os::now() + timeout);
    let may_go = timeout != Some(0) && may_go(session, fds);
    let mut theirs: Vec<pollfd> = Vec::new();
    loop {
        let has_more = asked::offer(session, table::get);
        let moves = moves(fds);
        let of = |fd: &pollfd| table::get(fd.fd).filter(|connection| connection.away().is_some());
        let away: Vec<Option<&'static Connection>> = fds.iter().map(of).collect();
        if away.iter().all(Option::is_none) && theirs.is_empty() && !may_go {
            return None;
        }
        fds.iter_mut().for_each(|fd| fd.revents = 0);
        let own = waiter(session);
        take_wake(own);
        let asleep = session.sleep();
        epoll::dispatch_all(session, table::get);
        let (ready, is_back) = look(fds, &away);
        theirs.clear();
        theirs.extend(fds.iter().zip(&away).map(|(fd, away)| pollfd {
            fd: if away.is_some() { -1 } else { fd.fd },
            events: fd.events,
            revents: 0,
        }));
        theirs.push(pollfd { fd: own, events: libc::POLLIN, revents: 0 });
        let left = match until {
            _ if ready > 0 || is_back => Some(0),
            None => None,
            Some(until) => Some(until.saturating_sub(os::now())),
        };
        let left = if has_more { Some(left.map_or(AGAIN, |left| left.min(AGAIN))) } else { left };
        let found = kernel_poll(&mut theirs, left, mask);
        drop(asleep);
        if found < 0 {
            return Some(found);
        }
        let woken = theirs.pop().is_some_and(|own| own.revents != 0);
        if woken {
            session.looks_alive();
        }
        let mut count = ready;
        for (fd, theirs) in fds.iter_mut().zip(&theirs).filter(|(_, theirs)| theirs.fd >= 0) {
            fd.revents = theirs.revents;
            count += c_int::from(fd.revents != 0);
        }
        let is_late = until.is_some_and(|until| os::now() >= until);
        // Of one that has moved meanwhile the kernel was asked where it is not.
        let has_moved = is_back || self::moves(fds) != moves;
        if count > 0 || is_late && !woken && !has_moved {
            return Some(count);
        }
    }
}

/// # Safety
/// `count` descriptors that may be written.
unsafe fn poll_or(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: Option<u64>,
    mask: *const sigset_t,
    kernel: impl FnOnce() -> c_int,
) -> c_int {
    if session::get_there().is_none() || fds.is_null() || count == 0 {
        return kernel();
    }
    // SAFETY: the caller's promise.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    match poll_here(fds, timeout, mask) {
        Some(result) => result,
        None => kernel(),
    }
}

/// # Safety
/// As poll(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let nanos = u64::try_from(timeout).ok().map(|ms| ms * 1_000_000);
    // SAFETY: the program's call.
    unsafe {
        poll_or(
            fds,
            count,
            nanos,
            std::ptr::null(),
            || real!(poll(fds, count, timeout): fn(*mut pollfd, nfds_t, c_int) -> c_int),
        )
    }
}

/// # Safety
/// As ppoll(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        let nanos =
            timeout.as_ref().map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
        poll_or(fds, count, nanos, mask, || {
            real!(ppoll(fds, count, timeout, mask):
                fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int)
        })
    }
}

/// # Safety
/// As `__poll_chk` of glibc (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    _room: libc::size_t,
) -> c_int {
    // SAFETY: the program's call.
    unsafe { poll(fds, count, timeout) }
}

/// The descriptors of a set.
///
/// # Safety
/// The set has `count` descriptors, or is null.
unsafe fn members(set: *const fd_set, count: c_int) -> impl Iterator<Item = c_int> {
    let is_in = move |fd: &c_int| {
        // SAFETY: the caller's promise.
        !set.is_null() && unsafe { libc::FD_ISSET(*fd, set) }
    };
    (0..count).filter(is_in)
}

/// select(2), if some are connections at the NIC, by poll(2).
///
/// # Safety
/// As select(2).
unsafe fn select_here(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<u64>,
    mask: *const sigset_t,
) -> Option<c_int> {
    session::get_there()?;
    let count = count.clamp(0, libc::FD_SETSIZE as c_int);
    const EVENTS: [c_short; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    /// What of poll's answer puts a descriptor in each set (fs/select.c).
    const FOUND: [c_short; 3] = [
        libc::POLLIN | libc::POLLHUP | libc::POLLERR,
        libc::POLLOUT | libc::POLLERR,
        libc::POLLPRI,
    ];
    let mut fds: Vec<pollfd> = Vec::new();
    for (set, events) in sets.iter().zip(EVENTS) {
        // SAFETY: the caller's promise.
        for fd in unsafe { members(*set, count) } {
            match fds.iter_mut().find(|known| known.fd == fd) {
                Some(known) => known.events |= events,
                None => fds.push(pollfd { fd, events, revents: 0 }),
            }
        }
    }
    let found = poll_here(&mut fds, timeout, mask)?;
    if found < 0 {
        return Some(found);
    }
    if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
        return Some(os::fail(libc::EBADF) as c_int);
    }
    let mut all = 0;
    for ((set, events), answers) in sets.into_iter().zip(EVENTS).zip(FOUND) {
        if set.is_null() {
            continue;
        }
        for fd in fds.iter().filter(|fd| fd.events & events != 0) {
            if fd.revents & answers != 0 {
                all += 1;
            } else {
                // SAFETY: the caller's promise.
                unsafe { libc::FD_CLR(fd.fd, set) };
            }
        }
    }
    Some(all)
}

/// # Safety
/// As select(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        let nanos = timeout
            .as_ref()
            .map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000);
        match select_here(count, [read, write, except], nanos, std::ptr::null()) {
            Some(result) => result,
            None => real!(select(count, read, write, except, timeout):
                fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int),
        }
    }
}

/// # Safety
/// As pselect(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        let nanos =
            timeout.as_ref().map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
        match select_here(count, [read, write, except], nanos, mask) {
            Some(result) => result,
            None => real!(pselect(count, read, write, except, timeout, mask):
                fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec,
                    *const sigset_t) -> c_int),
        }
    }
}

/// # Safety
/// As epoll_ctl(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    match table::get(fd) {
        Some(connection) => {
            // SAFETY: the program's promise.
            let event = unsafe { event.as_ref().copied() };
            epoll::control(connection, set, op, event)
        }
        // SAFETY: the program's call.
        None => unsafe {
            real!(epoll_ctl(set, op, fd, event): fn(c_int, c_int, c_int, *mut epoll_event) -> c_int)
        },
    }
}

/// # Safety
/// `count` events may be written there.
unsafe fn epoll_here(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mut kernel: impl FnMut(*mut epoll_event, c_int, c_int) -> c_int,
) -> c_int {
    let room = usize::try_from(count).unwrap_or(0);
    if events.is_null() || room == 0 {
        return kernel(events, count, timeout);
    }
    // SAFETY: the caller's promise.
    let into = unsafe { std::slice::from_raw_parts_mut(events, room) };
    let until = u64::try_from(timeout).ok().map(|timeout| os::now() + timeout * 1_000_000);
    let mut left = timeout;
    loop {
        let found = epoll::wait(fd, into, left, table::get, |into, timeout| {
            kernel(into.as_mut_ptr(), into.len() as c_int, timeout)
        });
        if let Some(found) = found {
            return found;
        }
        let found = kernel(into.as_mut_ptr(), count, left);
        if found <= 0 {
            return found;
        }
        // A connection of this set may have gone to the NIC meanwhile, and the process was woken.
        let theirs = epoll::without_own(into, found as usize);
        if theirs > 0 {
            return theirs as c_int;
        }
        if let Some(until) = until {
            left = until.saturating_sub(os::now()).div_ceil(1_000_000) as c_int;
        }
    }
}

/// # Safety
/// As epoll_wait(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        epoll_here(fd, events, count, timeout, |events, count, timeout| {
            real!(epoll_wait(fd, events, count, timeout):
                fn(c_int, *mut epoll_event, c_int, c_int) -> c_int)
        })
    }
}

/// # Safety
/// As epoll_pwait(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's call.
    unsafe {
        epoll_here(fd, events, count, timeout, |events, count, timeout| {
            real!(epoll_pwait(fd, events, count, timeout, mask):
                fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int)
        })
    }
}

/// # Safety
/// As epoll_pwait2(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's promise.
    let nanos = unsafe { timeout.as_ref() }
        .map(|time| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    // In whole milliseconds, rounded up, where a set has connections at the NIC.
    let ms = nanos.map_or(-1, |nanos| nanos.div_ceil(1_000_000).min(c_int::MAX as u64) as c_int);
    let mut is_first = true;
    // SAFETY: the program's call.
    unsafe {
        epoll_here(fd, events, count, ms, |events, count, left| {
            let time = timespec {
                tv_sec: libc::time_t::from(left / 1000),
                tv_nsec: libc::c_long::from(left % 1000) * 1_000_000,
            };
            let exact = std::mem::take(&mut is_first) && left == ms;
            let at = match left {
                _ if exact => timeout,
                left if left < 0 => std::ptr::null(),
                _ => &raw const time,
            };
            real!(epoll_pwait2(fd, events, count, at, mask):
                fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int)
        })
    }
}
