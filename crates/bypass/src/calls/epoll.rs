//! epoll(7): sets that have connections, some of them at the NIC.

use libc::{c_int, epoll_event, sigset_t, timespec};

use super::poll::nanos;
use crate::connection::{self, asked, epoll};
use crate::os;
use crate::real::real;
use crate::session;

/// A new descriptor is that of a set, which may get others by dup(2) before it has connections.
fn made(fd: c_int) -> c_int {
    if fd >= 0 && session::is_wanted() {
        epoll::closed(fd);
        epoll::insert(fd);
    }
    fd
}

/// # Safety
/// As epoll_create(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: it takes an integer.
    made(unsafe { real!(epoll_create(size): fn(c_int) -> c_int) })
}

/// # Safety
/// As epoll_create1(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: it takes an integer.
    made(unsafe { real!(epoll_create1(flags): fn(c_int) -> c_int) })
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
    if let Some(connection) = connection::at(fd) {
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

/// # Safety
/// `count` events may be written there.
#[inline]
unsafe fn epoll_here(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: impl FnOnce() -> c_int,
    mut kernel: impl FnMut(*mut epoll_event, c_int, Option<c_int>) -> c_int,
) -> c_int {
    // Without a session that wakes it, nothing of the layer's is in it.
    let Some(set) = epoll::at(fd).filter(|set| set.is_woken()) else {
        return kernel(events, count, None);
    };
    let room = usize::try_from(count).unwrap_or(0);
    let session = session::get_there();
    let Some(session) = session.filter(|_| !events.is_null() && room > 0) else {
        return kernel(events, count, None);
    };
    // SAFETY: the caller's promise.
    let into = unsafe { std::slice::from_raw_parts_mut(events, room) };
    let mut begun = None;
    if set.is_kernels() && !asked::is_due(session) {
        begun = Some(os::ticks());
        let found = kernel(events, count, None);
        if found <= 0 {
            return found;
        }
        let theirs = epoll::without_own(into, found as usize);
        if theirs > 0 {
            return theirs as c_int;
        }
        // The process was woken: a connection of this set may have gone to the NIC meanwhile.
    }
    let left = match (timeout(), begun) {
        (timeout @ 1.., Some(begun)) => {
            let over = (os::since(begun) / 1_000_000).min(timeout as u64);
            timeout - over as c_int
        }
        (timeout, _) => timeout,
    };
    epoll::wait(set, session, into, left, |into, timeout| {
        kernel(into.as_mut_ptr(), into.len() as c_int, Some(timeout))
    })
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
        epoll_here(
            fd,
            events,
            count,
            || timeout,
            |events, count, other| {
                let timeout = other.unwrap_or(timeout);
                real!(epoll_wait(fd, events, count, timeout):
                fn(c_int, *mut epoll_event, c_int, c_int) -> c_int)
            },
        )
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
        epoll_here(
            fd,
            events,
            count,
            || timeout,
            |events, count, other| {
                let timeout = other.unwrap_or(timeout);
                real!(epoll_pwait(fd, events, count, timeout, mask):
                fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int)
            },
        )
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
    let given = || unsafe { timeout.as_ref() }.map(nanos);
    // In whole milliseconds, rounded up, where a set has connections at the NIC.
    let ms = || given().map_or(-1, |time| time.div_ceil(1_000_000).min(c_int::MAX as u64) as c_int);
    // SAFETY: the program's call.
    unsafe {
        epoll_here(fd, events, count, ms, |events, count, other| {
            let other = other.map(|left| timespec {
                tv_sec: libc::time_t::from(left / 1000),
                tv_nsec: libc::c_long::from(left % 1000) * 1_000_000,
            });
            let at = match &other {
                None => timeout,
                Some(time) if time.tv_sec < 0 || time.tv_nsec < 0 => std::ptr::null(),
                Some(time) => std::ptr::from_ref(time),
            };
            real!(epoll_pwait2(fd, events, count, at, mask):
                fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int)
        })
    }
}
