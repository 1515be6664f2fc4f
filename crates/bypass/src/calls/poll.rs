//! poll(2): connections at the NIC beside all other descriptors.

use std::cell::Cell;

use handoff::session::NICS_MAX;
use libc::{c_int, c_long, c_short, epoll_event, nfds_t, pollfd, sigset_t, timespec};

use super::held::{self, Held};
use crate::cancel;
use crate::connection::asked::{self, Again};
use crate::connection::epoll::{self, poll_events};
use crate::connection::{self, Connection, Patience, Stays};
use crate::os;
use crate::own::Own;
use crate::real::{kernel, real};
use crate::session;
use crate::table::{self, Word};
use crate::trap::trap;

/// Offers connections that wharfs have asked for, and looks at those that move. Returns when to do so again.
pub(super) fn offer_and_look() -> Again {
    let moving = connection::look_at_moving();
    asked::offer().or(if moving { Again::SOON } else { Again::WOKEN })
}

/// The thread's own epoll descriptor, and when it was made, as a generation of sessions. It has the eventfd of each edge by
/// edge: each time a wharf wakes the process every thread that waits sees it, and none takes it from another.
struct Waiter(Cell<Option<Own>>, Cell<u32>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Own::close);
    }
}

thread_local! {
    static WAITER: Waiter = const { Waiter(Cell::new(None), Cell::new(0)) };
}

/// The thread's, made when it is first asked for; -1 if there can be none.
fn waiter() -> c_int {
    WAITER
        .try_with(|waiter| {
            let generation = session::generation();
            if waiter.1.replace(generation) != generation {
                // There is another session.
                waiter.0.take().into_iter().for_each(Own::close);
            }
            if let Some(own) = waiter.0.get().filter(|own| own.fd() >= 0) {
                return own.fd();
            }
            // It was closed past the layer, or there was no descriptor left.
            waiter.0.take().into_iter().for_each(Own::close);
            let own = make_waiter();
            waiter.0.set(Some(own));
            own.fd()
        })
        .unwrap_or(-1)
}

/// After fork, in the child: the descriptor was the parent's session's.
pub(super) fn forget_waiter() {
    let _ = WAITER.try_with(|waiter| waiter.0.set(None));
    held::forget();
}

fn make_waiter() -> Own {
    // SAFETY: it takes an integer.
    let make = || unsafe { trap!(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) } as c_int;
    let waiter = epoll::making(|| Own::new(make()));
    for own in session::all().flat_map(|session| [session.wake, session.socket]) {
        let mut event = epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: `event` is readable.
        unsafe { trap!(libc::SYS_epoll_ctl, waiter.fd(), add, own.fd(), &raw mut event) };
    }
    waiter
}

/// The process was woken: that is over.
fn take_wake(waiter: c_int) {
    let mut events = [epoll_event { events: 0, u64: 0 }; 2 * NICS_MAX];
    // SAFETY: so many events may be written.
    unsafe {
        let (at, room) = (events.as_mut_ptr(), events.len());
        trap!(libc::SYS_epoll_pwait, waiter, at, room, 0, 0, 8);
    }
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

/// Waits until the kernel has something of this connection, or it moves: the error that the call gives if it is not to
/// wait longer.
pub(super) fn wait_kernel(
    connection: &'static Connection,
    fd: c_int,
    events: c_short,
    patience: Patience,
) -> Option<c_int> {
    let left = match patience {
        Patience::None => return Some(libc::EAGAIN),
        Patience::Until(None) => None,
        Patience::Until(Some(until)) => match until.checked_sub(os::now()) {
            Some(left) if left > 0 => Some(left),
            _ => return Some(libc::EAGAIN),
        },
    };
    match wait_once(connection, fd, events, left, None) {
        Woken::Fails(error) => Some(error),
        Woken::ForIt | Woken::ForOthers => None,
    }
}

/// The same with signals that are held back, as long as a call which blocks waits: only those end it that end such a call.
pub(super) fn wait_held(
    connection: &'static Connection,
    fd: c_int,
    events: c_short,
    held: &Held,
    is_over: impl Fn() -> bool,
) -> Option<c_int> {
    // They stay held back while others are woken: none comes unseen.
    loop {
        match wait_once(connection, fd, events, None, Some(held)) {
            Woken::Fails(error) => return Some(error),
            Woken::ForOthers if !is_over() => {}
            Woken::ForIt | Woken::ForOthers => return None,
        }
    }
}

/// Why a thread that waits for a connection goes on.
enum Woken {
    /// There is something, it moves, or signals have come that do not end the call.
    ForIt,
    ForOthers,
    /// The call gives this error.
    Fails(c_int),
}

/// Waits for so many nanoseconds at most.
fn wait_once(
    connection: &'static Connection,
    fd: c_int,
    events: c_short,
    left: Option<u64>,
    held: Option<&Held>,
) -> Woken {
    let signals = held.map_or(-1, Held::fd);
    let mut fds = [(fd, events), (-1, libc::POLLIN), (signals, libc::POLLIN)]
        .map(|(fd, events)| pollfd { fd, events, revents: 0 });
    let mut is_deaf = false;
    let _asleep = session::look().then(|| {
        let asleep = session::sleep();
        fds[1].fd = waiter();
        is_deaf = fds[1].fd < 0;
        asleep
    });
    let again = offer_and_look();
    if connection.is_away() {
        again.leave();
        return Woken::ForIt;
    }
    // Who cannot be woken looks again soon.
    let again = if is_deaf { Again::SOON } else { again };
    let looking = again.begin_wait();
    let found = kernel_poll(&mut fds, again.within(left), std::ptr::null());
    let errno = os::errno();
    drop(looking);
    if found > 0 && fds[1].revents != 0 {
        take_wake(fds[1].fd);
    }
    let woken = match found {
        0 if again.is_timed() => Woken::ForOthers,
        0 => Woken::Fails(libc::EAGAIN),
        // By one of libc's own, which has calls begun again.
        found if found < 0 && held.is_some() && errno == libc::EINTR => Woken::ForOthers,
        found if found < 0 => Woken::Fails(errno),
        // What is there is given before a signal ends the call.
        _ if fds[0].revents != 0 => Woken::ForIt,
        _ if fds[2].revents == 0 => Woken::ForOthers,
        _ if held.is_some_and(Held::ends_call) => Woken::Fails(libc::EINTR),
        _ => Woken::ForIt,
    };
    if !matches!(woken, Woken::ForOthers) {
        again.leave();
    }
    woken
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
fn moves(fds: &[pollfd]) -> u32 {
    fds.iter()
        .filter_map(|fd| connection::at(fd.fd))
        .fold(0, |all, connection| all.wrapping_add(connection.moves()))
}

/// How long what this descriptor is stays at the kernel. A set that is polled is none of the kernel's before all that is in
/// it is.
#[inline]
pub(super) fn stays(word: Word) -> Stays {
    match connection::of(word) {
        Some(connection) => connection.stays(),
        None if word.is_null() => Stays::FOR_GOOD,
        None => Stays::NOT,
    }
}

/// The kernel's call without time to wait, where all connections are at the kernel for a while. `None` if one is asked for,
/// or has left meanwhile, or nothing is ready and the call is to wait: the kernel would not end a wait as one leaves.
#[inline]
pub(super) fn at_once(waits: bool, kernel: impl FnOnce() -> c_int) -> Option<c_int> {
    if asked::is_due() {
        return None;
    }
    let before = connection::offers();
    let found = kernel();
    (connection::offers() == before && !(waits && found == 0)).then_some(found)
}

/// A set that is polled is the kernel's to serve, with all that is in it.
pub(super) fn nest(fd: c_int) {
    epoll::at(fd).into_iter().for_each(epoll::nest);
}

/// Most descriptors for which there is room on the stack, as a handler of a signal may call poll(2) in the middle of
/// malloc(3).
const ROOM: usize = 64;

/// Gives room for so many, each of which is this at first.
fn with_room<T: Copy, R>(len: usize, first: T, work: impl FnOnce(&mut [T]) -> R) -> R {
    if len <= ROOM { work(&mut [first; ROOM][..len]) } else { work(&mut vec![first; len]) }
}

const NOTHING: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// poll(2), wherever connections are.
pub(super) fn poll_here(fds: &mut [pollfd], timeout: Option<u64>, mask: *const sigset_t) -> c_int {
    let until = timeout.map(|timeout| os::now().saturating_add(timeout));
    let len = fds.len();
    with_room(len, None, |away| {
        with_room(len + 1, NOTHING, |theirs| poll_in((away, theirs), fds, until, mask))
    })
}

type Room<'a> = (&'a mut [Option<&'static Connection>], &'a mut [pollfd]);

fn poll_in(
    (away, theirs): Room<'_>,
    fds: &mut [pollfd],
    until: Option<u64>,
    mask: *const sigset_t,
) -> c_int {
    let mut is_full = false;
    loop {
        let again = offer_and_look();
        let moves = moves(fds);
        for (fd, away) in fds.iter_mut().zip(&mut *away) {
            *away = connection::at(fd.fd).filter(|connection| connection.away().is_some());
            fd.revents = 0;
        }
        let asleep = session::sleep();
        epoll::dispatch_all();
        let (ready, is_back) = look(fds, away);
        for ((fd, away), theirs) in fds.iter().zip(&*away).zip(&mut *theirs) {
            *theirs = pollfd { fd: if away.is_some() { -1 } else { fd.fd }, revents: 0, ..*fd };
        }
        // In place of one that is not the kernel's to look at, or as one more.
        let own = away.iter().position(Option::is_some).unwrap_or(fds.len());
        let is_one_more = own == fds.len();
        theirs[own] = pollfd { fd: waiter(), events: libc::POLLIN, revents: 0 };
        let is_deaf = is_one_more && is_full || theirs[own].fd < 0;
        let theirs = &mut theirs[..fds.len() + usize::from(is_one_more && !is_full)];
        let left = match until {
            _ if ready > 0 || is_back => Some(0),
            None => None,
            Some(until) => Some(until.saturating_sub(os::now())),
        };
        let is_early = is_deaf || connection::are_any_moving();
        let again = if is_early { again.or(Again::SOON) } else { again };
        let looking = again.begin_wait();
        let found = kernel_poll(theirs, again.within(left), mask);
        drop((asleep, looking));
        if found < 0 && is_one_more && !is_full && os::errno() == libc::EINVAL {
            // No more than RLIMIT_NOFILE may be polled.
            is_full = true;
            continue;
        }
        if found < 0 {
            let errno = os::errno();
            again.leave();
            os::set_errno(errno);
            return found;
        }
        let woken = theirs.get(own).filter(|own| own.revents != 0);
        if let Some(own) = woken {
            take_wake(own.fd);
            session::look_alive();
        }
        let mut count = ready;
        for ((fd, theirs), away) in fds.iter_mut().zip(&*theirs).zip(&*away) {
            if away.is_none() {
                fd.revents = theirs.revents;
                count += c_int::from(fd.revents != 0);
            }
        }
        let is_late = until.is_some_and(|until| os::now() >= until);
        // Of one that has moved meanwhile the kernel was asked where it is not.
        let has_moved = is_back || self::moves(fds) != moves;
        if !has_moved && count > 0 || is_late && woken.is_none() && !has_moved {
            again.leave();
            return count;
        }
    }
}

/// How long what is among these stays at the kernel.
///
/// # Safety
/// There are so many.
#[inline]
unsafe fn all_stay(fds: *const pollfd, count: nfds_t) -> Stays {
    let mut all = Stays::FOR_GOOD;
    for at in 0..count as usize {
        // SAFETY: the caller's promise.
        all = all.min(stays(table::word(unsafe { (*fds.add(at)).fd })));
    }
    all
}

/// poll(2) of what may leave the kernel, or has left it.
#[cold]
#[inline(never)]
fn poll_rest(fds: &mut [pollfd], timeout: Option<u64>, mask: *const sigset_t) -> c_int {
    fds.iter().for_each(|fd| nest(fd.fd));
    if session::look() || connection::are_any_moving() {
        poll_here(fds, timeout, mask)
    } else {
        kernel_poll(fds, timeout, mask)
    }
}

/// # Safety
/// As poll(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    kernel!(poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int);
    #[inline(never)]
    unsafe extern "C-unwind" fn resting(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        // SAFETY: the program's call.
        unsafe {
            match at_once(timeout != 0, || kernel(fds, count, 0)) {
                Some(found) => found,
                None => rest(fds, count, timeout),
            }
        }
    }
    #[cold]
    #[inline(never)]
    unsafe extern "C-unwind" fn rest(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        let nanos = u64::try_from(timeout).ok().map(|ms| ms * 1_000_000);
        // SAFETY: the program's promise.
        let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
        cancel::apart(|| poll_rest(fds, nanos, std::ptr::null()))
    }
    // What leads to `rest` has nothing to put in order where a thread is cancelled.
    // SAFETY: the program's call.
    unsafe {
        match all_stay(fds, count) {
            Stays::FOR_GOOD => kernel(fds, count, timeout),
            Stays::A_WHILE => resting(fds, count, timeout),
            _ => rest(fds, count, timeout),
        }
    }
}

/// Whether the kernel takes this for a time to wait (timespec64_valid): with another a call is the kernel's to refuse.
pub(super) fn is_time(seconds: libc::time_t, nanos: c_long) -> bool {
    seconds >= 0 && (0..1_000_000_000).contains(&nanos)
}

/// Nanoseconds of a time.
pub(super) fn nanos(time: &timespec) -> u64 {
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// No time, for calls that do not wait.
pub(super) static AT_ONCE: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

/// # Safety
/// As ppoll(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let kernel = |timeout: *const timespec| {
        // SAFETY: the program's call.
        unsafe {
            real!(ppoll(fds, count, timeout, mask):
                fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int)
        }
    };
    // SAFETY: the program's promise.
    let (all, given) = unsafe { (all_stay(fds, count), timeout.as_ref()) };
    let time = given.map(nanos);
    let found = match all {
        _ if given.is_some_and(|given| !is_time(given.tv_sec, given.tv_nsec)) => {
            Some(kernel(timeout))
        }
        Stays::FOR_GOOD => Some(kernel(timeout)),
        Stays::A_WHILE => at_once(time != Some(0), || kernel(&raw const AT_ONCE)),
        _ => None,
    };
    found.unwrap_or_else(|| {
        // SAFETY: the program's promise.
        let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
        cancel::apart(|| poll_rest(fds, time, mask))
    })
}

/// # Safety
/// As `__poll_chk` of glibc (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    _room: libc::size_t,
) -> c_int {
    // SAFETY: the program's call.
    unsafe { poll(fds, count, timeout) }
}

/// # Safety
/// As `__ppoll_chk` of glibc (`_FORTIFY_SOURCE`).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _room: libc::size_t,
) -> c_int {
    // SAFETY: the program's call.
    unsafe { ppoll(fds, count, timeout, mask) }
}
