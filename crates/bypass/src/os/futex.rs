//! Waiting for a word of memory to change (futex(2)).

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use libc::c_int;

use super::{errno, now};
use crate::trap::trap;

fn futex(word: &AtomicU64) -> *mut u32 {
    const { assert!(cfg!(target_endian = "little")) };
    word.as_ptr().cast()
}

/// Waits at the low half of this word while it is `expected`, at most so long. Returns the error number, or 0.
pub(crate) fn futex_wait(word: &AtomicU64, expected: u32, timeout: Option<Duration>) -> c_int {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let at = futex(word);
    // SAFETY: the word is live and aligned, and the timeout, if there is one, readable.
    match unsafe { trap!(libc::SYS_futex, at, libc::FUTEX_WAIT, expected, timeout) } {
        0 => 0,
        _ => errno(),
    }
}

/// One of the words that futex_waitv(2) waits at (include/uapi/linux/futex.h).
#[repr(C)]
struct FutexWaitv {
    val: u64,
    uaddr: u64,
    flags: u32,
    reserved: u32,
}

/// The same until this time of [`now`], by futex_waitv(2) of Linux 5.16: a signal ends it with `EINTR` only if its handler
/// was set without `SA_RESTART`. That of [`futex_wait`] ends with `EINTR` after each handler.
pub(crate) fn futex_wait_restarting(word: &AtomicU64, expected: u32, until: u64) -> c_int {
    const SIZE_U32: u32 = 2;
    let waiter = FutexWaitv {
        val: expected.into(),
        uaddr: futex(word) as u64,
        flags: SIZE_U32,
        reserved: 0,
    };
    let until_time = timespec(until);
    let clock = libc::CLOCK_MONOTONIC;
    // SAFETY: `waiter` and the time are readable, and the word is live and aligned.
    let result = unsafe {
        let (waiter, until) = (&raw const waiter, &raw const until_time);
        trap!(libc::SYS_futex_waitv, waiter, 1, 0, until, clock)
    };
    match result {
        0.. => 0,
        _ => match errno() {
            // An older kernel, or a filter that does not know it.
            libc::ENOSYS | libc::EPERM => {
                let left = Duration::from_nanos(until.saturating_sub(now()));
                futex_wait(word, expected, Some(left))
            }
            error => error,
        },
    }
}

fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (nanos / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
    }
}

/// Wakes all that wait at a word, in any process.
pub(crate) fn futex_wake_all(word: &AtomicU64) {
    // SAFETY: the word is live and aligned.
    unsafe { trap!(libc::SYS_futex, futex(word), libc::FUTEX_WAKE, c_int::MAX) };
}
