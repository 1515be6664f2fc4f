//! How long the workers were in calls in which the host's TCP works, for measurements: it receives within their writes to
//! a TAP.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static IS_MEASURED: AtomicBool = AtomicBool::new(false);
static SPENT: AtomicU64 = AtomicU64::new(0);

/// Measures from now on, in all of this process's workers. It costs a call some tens of nanoseconds.
pub fn measure() {
    IS_MEASURED.store(true, Ordering::Relaxed);
}

/// How long they were in such calls since then, in nanoseconds.
pub fn spent() -> u64 {
    SPENT.load(Ordering::Relaxed)
}

/// Does it, and measures how long that takes.
#[inline]
pub(super) fn timed<T>(call: impl FnOnce() -> T) -> T {
    if !IS_MEASURED.load(Ordering::Relaxed) {
        return call();
    }
    let before = sys::clock::now();
    let result = call();
    SPENT.fetch_add(sys::clock::now() - before, Ordering::Relaxed);
    result
}
