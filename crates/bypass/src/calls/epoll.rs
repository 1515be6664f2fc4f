//! epoll(7): sets that have connections, some of them at the NIC.

use libc::{c_int, epoll_event, sigset_t, timespec};

use super::poll::{AT_ONCE, is_time, nanos, offer_and_look};
use super::sockets;
use crate::cancel;
use crate::connection;
use crate::connection::asked::Again;
use crate::connection::epoll::{self, Limit, Set};
use crate::os::{self, Quiet};
use crate::real::{kernel, real};
use crate::session;
use crate::vfork;

/// A new descriptor is that of a set, which may get others by dup(2) before it has connections.
fn made(fd: c_int) -> c_int {
    if fd >= 0 && session::is_wanted() {
        if vfork::is_own() {
            connection::forget_stale(fd);
            epoll::insert(fd);
        } else {
            vfork::change(fd, fd);
        }
    }
    fd
}

/// # Safety
/// As epoll_create(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: it takes an integer.
    epoll::making(|| made(unsafe { real!(epoll_create(size): fn(c_int) -> c_int) }))
}

/// # Safety
/// As epoll_create1(2) of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: it takes an integer.
    epoll::making(|| made(unsafe { real!(epoll_create1(flags): fn(c_int) -> c_int) }))
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

/// One of libc's three functions that wait.
trait Function {
    /// How the program gives the time.
    type Time: Copy;
    /// No time.
    const AT_ONCE: Self::Time;

    /// The kernel's call.
    ///
    /// # Safety
    /// As of the function.
    unsafe fn kernel(
        fd: c_int,
        events: *mut epoll_event,
        count: c_int,
        time: Self::Time,
        mask: *const sigset_t,
    ) -> c_int;

    fn given(time: Self::Time) -> Given;
}

/// The time of a call, as the program gives it.
#[derive(Clone, Copy)]
enum Given {
    Milliseconds(c_int),
    Timespec(*const timespec),
}

impl Given {
    /// Returns true if there is time to wait.
    #[inline]
    fn waits(self) -> bool {
        match self {
            Given::Milliseconds(time) => time != 0,
            // SAFETY: the program's promise.
            Given::Timespec(time) => unsafe { time.as_ref() }.is_none_or(|time| nanos(time) != 0),
        }
    }

    /// Now, in [`os::ticks`]; 0 if nothing follows from that.
    #[inline]
    fn begin(self) -> u64 {
        match self {
            Given::Milliseconds(..=0) => 0,
            _ => os::ticks(),
        }
    }

    /// Maximum time of the call.
    fn limit(self) -> Limit {
        Limit(match self {
            Given::Milliseconds(time) => u64::try_from(time).ok().map(|ms| ms * 1_000_000),
            // SAFETY: the program's promise.
            Given::Timespec(time) => unsafe { time.as_ref() }.map(nanos),
        })
    }
}

/// A call of the program's. Few need it after the kernel's: it is kept in memory, and not in registers that each must save.
struct Call {
    fd: c_int,
    count: c_int,
    events: *mut epoll_event,
    time: Given,
    mask: *const sigset_t,
    /// When it began, in [`os::ticks`]; 0 if that is now.
    begun: u64,
}

/// The one way of all three. What the kernel returns is looked at, as any wait may return an event of the layer's own: that of
/// a thread which began before the set had the registration, or of a child that has its parent's set.
///
/// # Safety
/// The program's call.
#[inline(always)]
unsafe fn wait<F: Function>(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    time: F::Time,
    mask: *const sigset_t,
) -> c_int {
    // What leads to `rest` has nothing to put in order where a thread is cancelled at any instruction.
    // SAFETY: the program's call.
    unsafe {
        match epoll::listed(fd) {
            None => in_unknown::<F>(fd, events, count, time, mask),
            Some(set) => in_set::<F>(fd, events, count, time, mask, set),
        }
    }
}

/// In what the layer does not know.
///
/// # Safety
/// The program's call.
#[inline(never)]
unsafe extern "C-unwind" fn in_unknown<F: Function>(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    time: F::Time,
    mask: *const sigset_t,
) -> c_int {
    let given = F::given(time);
    let call = Call { fd, count, events, time: given, mask, begun: given.begin() };
    std::hint::black_box(&call);
    // SAFETY: the program's call.
    unsafe { call.after(F::kernel(fd, events, count, time, mask), true) }
}

/// In a set. The kernel is asked first for what is there.
///
/// # Safety
/// The program's call.
#[inline(never)]
unsafe extern "C-unwind" fn in_set<F: Function>(
    fd: c_int,
    events: *mut epoll_event,
    count: c_int,
    time: F::Time,
    mask: *const sigset_t,
    set: &'static Set,
) -> c_int {
    let call = Call { fd, count, events, time: F::given(time), mask, begun: 0 };
    std::hint::black_box(&call);
    // SAFETY: the program's call.
    unsafe {
        if !set.is_kernels() {
            return call.rest(0);
        }
        let found = F::kernel(fd, events, count, F::AT_ONCE, mask);
        if found == 0 && call.time.waits() {
            return call.sleep::<F>(time, set);
        }
        call.after(found, true)
    }
}

impl Call {
    /// The kernel has found so many events. If it has found none, the call may be over.
    ///
    /// # Safety
    /// The program's call; so many events are there.
    #[inline(always)]
    unsafe fn after(&self, found: c_int, is_over: bool) -> c_int {
        // SAFETY: the caller's promise.
        unsafe {
            let is_done = match found {
                ..0 => true,
                0 => is_over,
                found => !epoll::has_private(self.events, found as usize),
            };
            if is_done { found } else { self.rest(found) }
        }
    }

    /// Waits in the kernel, which has found nothing in this set. Where the layer's own registrations are in the set, one may
    /// end the wait, and no signal's handler is to run before the next one begins: see [`epoll::wait`].
    ///
    /// # Safety
    /// The program's call.
    #[inline(never)]
    unsafe fn sleep<F: Function>(&self, time: F::Time, set: &'static Set) -> c_int {
        let Call { fd, count, events, mask, .. } = *self;
        let call = Call { begun: self.time.begin(), ..*self };
        // SAFETY: the program's call.
        unsafe {
            if set.is_woken() || cancel::is_expected() {
                return call.rest(0);
            }
            let in_wait = set.begin_wait();
            // A thread that has the set woken either has seen that this one waits, or is seen here.
            let found = if set.is_woken() { 0 } else { F::kernel(fd, events, count, time, mask) };
            drop(in_wait);
            call.after(found, !set.is_woken())
        }
    }

    /// What is left of the call, for which the kernel has found so many events.
    ///
    /// # Safety
    /// The program's call; so many events are there.
    #[cold]
    #[inline(never)]
    unsafe extern "C-unwind" fn rest(&self, found: c_int) -> c_int {
        let work = || {
            let room = usize::try_from(self.count).unwrap_or(0);
            if room == 0 || self.events.is_null() {
                // The kernel says why it refuses it.
                return self.as_given();
            }
            session::look();
            let until =
                self.time.limit().0.map(|limit| {
                    os::now().saturating_add(limit.saturating_sub(os::since(self.begun)))
                });
            // SAFETY: the program's promise.
            let into = unsafe { std::slice::from_raw_parts_mut(self.events, room) };
            epoll::wait(self.fd, into, found as usize, until, self)
        };
        cancel::apart(work)
    }

    fn as_given(&self) -> c_int {
        let Call { fd, events, count, mask, .. } = *self;
        // SAFETY: the program's call.
        unsafe {
            match self.time {
                Given::Milliseconds(time) => PWait::kernel(fd, events, count, time, mask),
                Given::Timespec(time) => PWait2::kernel(fd, events, count, time, mask),
            }
        }
    }
}

impl epoll::Kernel for Call {
    fn offer_and_look(&self) -> Again {
        offer_and_look()
    }

    fn wait(&self, into: &mut [epoll_event], limit: Limit, held: Option<&Quiet>) -> c_int {
        let (fd, events, count) = (self.fd, into.as_mut_ptr(), into.len() as c_int);
        let outside = held.filter(|_| self.mask.is_null()).map(Quiet::outside);
        let mask = outside.as_ref().map_or(self.mask, std::ptr::from_ref);
        // SAFETY: a part of the program's call, with live arguments. With no mask epoll_pwait is epoll_wait.
        unsafe {
            match self.time {
                Given::Milliseconds(_) => {
                    let most =
                        |nanos: u64| nanos.div_ceil(1_000_000).min(c_int::MAX as u64) as c_int;
                    PWait::kernel(fd, events, count, limit.0.map_or(-1, most), mask)
                }
                Given::Timespec(_) => {
                    let time = limit.0.map(|nanos| timespec {
                        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
                        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
                    });
                    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
                    PWait2::kernel(fd, events, count, time, mask)
                }
            }
        }
    }
}

struct Wait;
struct PWait;
struct PWait2;

impl Function for Wait {
    type Time = c_int;
    const AT_ONCE: c_int = 0;

    #[inline(always)]
    unsafe fn kernel(
        fd: c_int,
        events: *mut epoll_event,
        count: c_int,
        time: c_int,
        _mask: *const sigset_t,
    ) -> c_int {
        kernel!(epoll_wait(fd: c_int, events: *mut epoll_event, count: c_int, time: c_int) -> c_int);
        // SAFETY: the caller's promise.
        unsafe { kernel(fd, events, count, time) }
    }

    #[inline(always)]
    fn given(time: c_int) -> Given {
        Given::Milliseconds(time)
    }
}

impl Function for PWait {
    type Time = c_int;
    const AT_ONCE: c_int = 0;

    #[inline(always)]
    unsafe fn kernel(
        fd: c_int,
        events: *mut epoll_event,
        count: c_int,
        time: c_int,
        mask: *const sigset_t,
    ) -> c_int {
        kernel!(epoll_pwait(
            fd: c_int,
            events: *mut epoll_event,
            count: c_int,
            time: c_int,
            mask: *const sigset_t,
        ) -> c_int);
        // SAFETY: the caller's promise.
        unsafe { kernel(fd, events, count, time, mask) }
    }

    #[inline(always)]
    fn given(time: c_int) -> Given {
        Given::Milliseconds(time)
    }
}

impl Function for PWait2 {
    type Time = *const timespec;
    const AT_ONCE: *const timespec = &raw const AT_ONCE;

    #[inline(always)]
    unsafe fn kernel(
        fd: c_int,
        events: *mut epoll_event,
        count: c_int,
        time: *const timespec,
        mask: *const sigset_t,
    ) -> c_int {
        kernel!(epoll_pwait2(
            fd: c_int,
            events: *mut epoll_event,
            count: c_int,
            time: *const timespec,
            mask: *const sigset_t,
        ) -> c_int);
        // SAFETY: the caller's promise.
        unsafe { kernel(fd, events, count, time, mask) }
    }

    #[inline(always)]
    fn given(time: *const timespec) -> Given {
        Given::Timespec(time)
    }
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
    // SAFETY: the program's call.
    unsafe { wait::<Wait>(fd, events, count, timeout, std::ptr::null()) }
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
    // SAFETY: the program's call.
    unsafe { wait::<PWait>(fd, events, count, timeout, mask) }
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
    // SAFETY: the program's call.
    unsafe {
        if timeout.as_ref().is_some_and(|time| !is_time(time.tv_sec, time.tv_nsec)) {
            // The kernel says why it refuses it.
            return PWait2::kernel(fd, events, count, timeout, mask);
        }
        wait::<PWait2>(fd, events, count, timeout, mask)
    }
}
