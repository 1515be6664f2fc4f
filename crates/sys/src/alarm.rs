//! A timer that interrupts calls of its thread (timer_create(2)), for those that wait and take no time-out.

use std::io;
use std::mem;
use std::ptr;
use std::sync::OnceLock;

use crate::error::check;

/// When a call is interrupted for the first time, and how often from then on, in nanoseconds.
const FIRST: libc::c_long = 50_000;
const AGAIN: libc::c_long = 100_000;

/// Timer of the thread that has made it.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: libc::timer_t,
}

/// The signal: one of real time, which nothing else here uses.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

/// That the signal comes interrupts a call.
extern "C" fn ignore(_signal: libc::c_int) {}

/// Has the signal do nothing else.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let is_installed = *INSTALLED.get_or_init(|| {
        // SAFETY: integers and a function's address, for all of which zero is valid.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler has the type that goes with no flags, and may run at any time: it does nothing.
        unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) == 0 }
    });
    if is_installed { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

impl Alarm {
    /// Makes one for the calling thread.
    ///
    /// # Errors
    /// The errors of sigaction(2) and timer_create(2).
    pub(crate) fn new() -> io::Result<Self> {
        install()?;
        // SAFETY: integers and pointers, for all of which zero is valid.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        // SAFETY: it takes no arguments.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = ptr::null_mut();
        let clock = libc::CLOCK_MONOTONIC;
        // SAFETY: the event is readable, and the kernel's number of the timer is written to a live value.
        check(unsafe { libc::timer_create(clock, &raw mut event, &raw mut timer) })?;
        Ok(Alarm { timer })
    }

    /// Does `work`, of which no call that can be interrupted waits for long.
    pub(crate) fn during(&self, work: impl FnOnce()) {
        self.set(FIRST, AGAIN);
        work();
        self.set(0, 0);
    }

    fn set(&self, first: libc::c_long, again: libc::c_long) {
        let time = |nanos| libc::timespec { tv_sec: 0, tv_nsec: nanos };
        let value = libc::itimerspec { it_value: time(first), it_interval: time(again) };
        // SAFETY: the timer is there as long as `self`, and the value is readable. It cannot fail for such values.
        unsafe { libc::timer_settime(self.timer, 0, &raw const value, ptr::null_mut()) };
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: the timer is there, and not used any more.
        unsafe { libc::timer_delete(self.timer) };
    }
}
