//! epoll(7): sets that have connections, some of them at the NIC.

use libc::{c_int, epoll_event, sigset_t, timespec};

use super::poll::nanos;
use super::sockets;
use crate::cancel;
use crate::connection::{self, epoll};
use crate::os;
use crate::real::{kernel, real};
use crate::session;

/// A new descriptor is that of a set, which may get others by dup(2) before it has connections.
fn made(fd: c_int) -> c_int {
    if fd >= 0 && session::is_wanted() {
        connection::forget_stale(fd);
        epoll::insert(fd);
    }
    fd
}

/// # Safety
/// As epoll_create(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: it takes an integer.
    made(unsafe { real!(epoll_create(size): fn(c_int) -> c_int) })
}

/// # Safety
/// As epoll_create1(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: it takes an integer.
    made(unsafe { real!(epoll_create1(flags): fn(c_int) -> c_int) })
}

/// # Safety
/// As epoll_ctl(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let expected = || (op == libc::EPOLL_CTL_ADD).then(|| sockets::expected(fd)).flatten();
    if let Some(connection) = connection::at(fd).or_else(expected) {
        // SAFETY: the program's promise.
        let event = unsafe { event.as_ref().copied() };
        return epoll::control(connection, fd, set, op, event);
    }
    if op == libc::EPOLL_CTL_ADD
        && let Some(inner) = epoll::at(fd)
    {
        epoll::nest(inner);
    }
    // SAFETY: the program's call.
    unsafe {
        real!(epoll_ctl(set, op, fd, event): fn(c_int, c_int, c_int, *mut epoll_event) -> c_int)
    }
}

/// The set of a descriptor, if something of the layer's is in it: without a session that wakes it, nothing is.
#[inline]
fn woken(fd: c_int) -> Option<&'static epoll::Set> {
    epoll::at(fd).filter(|set| set.is_woken())
}

/// What the kernel has found beside that the process was woken, for what wharf asks for as well: that is offered. `None` if
/// it was woken alone: a connection of the set may have gone to the NIC meanwhile. A wharf's end is told once, and may be
/// so when the kernel has all connections again.
///
/// # Safety
/// So many events are there.
unsafe fn without_wake(events: *mut epoll_event, found: c_int) -> Option<c_int> {
    if found <= 0 {
        return Some(found);
    }
    // SAFETY: the caller's promise.
    let found = unsafe { std::slice::from_raw_parts_mut(events, found as usize) };
    let theirs = epoll::without_own(found, found.len());
    if theirs < found.len() {
        session::look_alive();
    }
    if theirs == 0 {
        return None;
    }
    if theirs < found.len() {
        connection::asked::offer_in_passing();
    }
    Some(theirs as c_int)
}

/// The call in a set that something of the layer's is in. What wharf asks for is offered when it has woken the process.
///
/// # Safety
/// `count` events may be written there.
unsafe fn epoll_here(
    set: &'static epoll::Set,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mut kernel: impl FnMut(*mut epoll_event, c_int, Option<c_int>) -> c_int,
) -> c_int {
    let mut begun = 0;
    if set.is_kernels() {
        begun = os::ticks();
        let found = kernel(events, count, None);
        // SAFETY: the kernel has written so many events.
        if let Some(found) = unsafe { without_wake(events, found) } {
            return found;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { epoll_rest(set, events, count, (timeout, begun), kernel) }
}

/// What is left of this time since it began.
///
/// # Safety
/// `count` events may be written there.
#[cold]
#[inline(never)]
unsafe fn epoll_rest(
    set: &'static epoll::Set,
    events: *mut epoll_event,
    count: c_int,
    (timeout, begun): (c_int, u64),
    mut kernel: impl FnMut(*mut epoll_event, c_int, Option<c_int>) -> c_int,
) -> c_int {
    let room = usize::try_from(count).unwrap_or(0);
    if events.is_null() || room == 0 || !session::look() {
        return kernel(events, count, None);
    }
    // SAFETY: the caller's promise.
    let into = unsafe { std::slice::from_raw_parts_mut(events, room) };
    let left = match timeout {
        timeout @ 1.. => {
            let over = (os::since(begun) / 1_000_000).min(timeout as u64);
            timeout - over as c_int
        }
        timeout => timeout,
    };
    epoll::wait(set, into, left, |into, timeout| {
        kernel(into.as_mut_ptr(), into.len() as c_int, Some(timeout))
    })
}

/// # Safety
/// As epoll_wait(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_wait(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    kernel!(epoll_wait(fd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int);
    #[inline(never)]
    unsafe extern "C-unwind" fn known(
        fd: c_int,
        events: *mut epoll_event,
        count: c_int,
        timeout: c_int,
        set: &'static epoll::Set,
    ) -> c_int {
        // SAFETY: the program's call.
        unsafe {
            if !set.is_kernels() {
                return rest(fd, events, count, timeout, set);
            }
            // What few calls need afterwards is kept in memory, and not in registers that each must save.
            let begun = if timeout > 0 { os::ticks() } else { 0 };
            let given = Given { fd, count, timeout, begun };
            std::hint::black_box(&given);
            let found = kernel(fd, events, count, timeout);
            if found > 0 && epoll::has_own(events, found as usize) {
                return after_wake(&given, events, found);
            }
            found
        }
    }
    struct Given {
        fd: c_int,
        count: c_int,
        timeout: c_int,
        begun: u64,
    }
    #[cold]
    #[inline(never)]
    unsafe extern "C-unwind" fn after_wake(
        given: &Given,
        events: *mut epoll_event,
        found: c_int,
    ) -> c_int {
        let Given { fd, count, timeout, begun } = *given;
        // SAFETY: the program's call, in which the kernel has written so many events.
        unsafe {
            let again = |events, count, other: Option<c_int>| {
                kernel(fd, events, count, other.unwrap_or(timeout))
            };
            match (without_wake(events, found), woken(fd)) {
                (Some(theirs), _) => theirs,
                (None, Some(set)) => {
                    cancel::apart(|| epoll_rest(set, events, count, (timeout, begun), again))
                }
                (None, None) => again(events, count, None),
            }
        }
    }
    #[inline(never)]
    unsafe extern "C-unwind" fn rest(
        fd: c_int,
        events: *mut epoll_event,
        count: c_int,
        timeout: c_int,
        set: &'static epoll::Set,
    ) -> c_int {
        // SAFETY: the program's call.
        unsafe {
            let again = |events, count, other: Option<c_int>| {
                kernel(fd, events, count, other.unwrap_or(timeout))
            };
            cancel::apart(|| epoll_rest(set, events, count, (timeout, 0), again))
        }
    }
    // What leads to `epoll_rest` has nothing to put in order where a thread is cancelled.
    // SAFETY: the program's call.
    unsafe {
        match woken(fd) {
            None => kernel(fd, events, count, timeout),
            Some(set) => known(fd, events, count, timeout, set),
        }
    }
}

/// # Safety
/// As epoll_pwait(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let kernel = |events, count, other: Option<c_int>| {
        let timeout = other.unwrap_or(timeout);
        // SAFETY: the program's call.
        unsafe {
            real!(epoll_pwait(fd, events, count, timeout, mask):
                fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int)
        }
    };
    match woken(fd) {
        None => kernel(events, count, None),
        Some(set) => cancel::apart(move || {
            // SAFETY: the program's promise.
            unsafe { epoll_here(set, events, count, timeout, kernel) }
        }),
    }
}

/// # Safety
/// As epoll_pwait2(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's promise.
    let given = || unsafe { timeout.as_ref() }.map(nanos);
    // In whole milliseconds, rounded up, where a set has connections at the NIC.
    let ms = || given().map_or(-1, |time| time.div_ceil(1_000_000).min(c_int::MAX as u64) as c_int);
    let kernel = |events, count, other: Option<c_int>| {
        let other = other.map(|left| timespec {
            tv_sec: libc::time_t::from(left / 1000),
            tv_nsec: libc::c_long::from(left % 1000) * 1_000_000,
        });
        let at = match &other {
            None => timeout,
            Some(time) if time.tv_sec < 0 || time.tv_nsec < 0 => std::ptr::null(),
            Some(time) => std::ptr::from_ref(time),
        };
        // SAFETY: the program's call.
        unsafe {
            real!(epoll_pwait2(fd, events, count, at, mask):
                fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int)
        }
    };
    match woken(fd) {
        None => kernel(events, count, None),
        // SAFETY: the program's promise.
        Some(set) => cancel::apart(move || unsafe { epoll_here(set, events, count, ms(), kernel) }),
    }
}
