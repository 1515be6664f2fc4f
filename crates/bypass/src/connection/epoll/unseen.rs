//! Sets that the program has made past libc, by system calls of its own, as Rust's `rustix` makes them for smol. Threads that
//! wait there see nothing of a connection at the NIC, so that the connections of such a process are the kernel's.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use handoff::RestoreReason;
use libc::c_int;

use super::wake::is_set;
use crate::connection::Connection;
use crate::{os, table, timeout};

/// Looks take one part of so many of the time at most.
const SHARE: u64 = 50;

static ARE_ANY: AtomicBool = AtomicBool::new(false);
/// The next look is at this time, of CLOCK_MONOTONIC in nanoseconds, or later.
static DUE: AtomicU64 = AtomicU64::new(0);
/// Descriptors of sets that threads have begun to make by libc, and those of them that the table has by now.
static BEGUN: AtomicU32 = AtomicU32::new(0);
static DONE: AtomicU32 = AtomicU32::new(0);

/// Makes a descriptor of a set, and has the table know it. No look finds it in between.
pub(crate) fn making<T>(make: impl FnOnce() -> T) -> T {
    BEGUN.fetch_add(1, Ordering::SeqCst);
    let made = make();
    DONE.fetch_add(1, Ordering::SeqCst);
    made
}

/// In the child after fork: its parent's other threads make nothing here.
pub(super) fn none_making() {
    DONE.store(BEGUN.load(Ordering::SeqCst), Ordering::SeqCst);
}

/// Returns true if a descriptor is a set of which the table does not know. False while any is being made.
fn is_unseen(fd: c_int) -> bool {
    let begun = BEGUN.load(Ordering::SeqCst);
    let is_one = DONE.load(Ordering::SeqCst) == begun && table::word(fd).is_null() && is_set(fd);
    is_one && BEGUN.load(Ordering::SeqCst) == begun
}

/// Returns true if the process had such a set at the last look. A look that finds one returns all connections to the
/// kernel. Where /proc is not to be read, none is found.
pub(crate) fn are_any_unseen() -> bool {
    let begun = os::now();
    if begun < DUE.load(Ordering::Relaxed) {
        return ARE_ANY.load(Ordering::Relaxed);
    }
    let errno = os::errno();
    let mut is_found = false;
    os::each_name(b"/proc/self/fd\0", |name| {
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        is_found |= number.is_some_and(is_unseen);
    });
    let ended = os::now();
    DUE.store(ended + (ended - begun) * SHARE, Ordering::Relaxed);
    if !ARE_ANY.swap(is_found, Ordering::Relaxed) && is_found {
        Connection::give_those_back(RestoreReason::Epoll, timeout::CONTROL, |_| true);
    }
    os::set_errno(errno);
    is_found
}
