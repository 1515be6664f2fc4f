//! Whether the program uses io_uring. Its calls do not go through libc, and so reach the placeholder of a connection that is at
//! the NIC, where nothing ever arrives. `/proc/self/fd` shows its descriptors, as links to `anon_inode:[io_uring]`. It is looked
//! at when a connection is offered, and now and then when one begins: there is no thread of the layer's that could do so at
//! other times. A ring that is registered without a descriptor does not show.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use handoff::RestoreReason;

use super::stay_at_kernel;
use crate::{os, session};

/// Time between two looks when connections begin, in nanoseconds.
const EVERY: u64 = 1_000_000_000;
/// Looks take one in so many parts of the program's time at most.
const SHARE: u64 = 50;

static IS_USED: AtomicBool = AtomicBool::new(false);
/// Time of the last look, and of the next one at the earliest.
static LOOKED: AtomicU64 = AtomicU64::new(0);
static RESTS: AtomicU64 = AtomicU64::new(0);

/// Returns true if it is used, and looks unless that was done just now. The first look that finds it returns all connections to the
/// kernel.
pub(crate) fn is_used() -> bool {
    let (begun, rests) = (os::now(), RESTS.load(Ordering::Relaxed));
    let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
    if begun < rests || RESTS.compare_exchange(rests, u64::MAX, success, failure).is_err() {
        // Another thread looks, or it is not time.
        return IS_USED.load(Ordering::Relaxed);
    }
    let is_used = os::has_io_uring();
    let ended = os::now();
    LOOKED.store(ended, Ordering::Relaxed);
    RESTS.store(ended + (ended - begun) * SHARE, Ordering::Relaxed);
    if !IS_USED.swap(is_used, Ordering::Relaxed) && is_used {
        stay_at_kernel();
        session::all().for_each(|session| session.restore_all(RestoreReason::IoUring));
    }
    is_used
}

/// Looks when a connection begins, if that was not done for a while.
pub(crate) fn look_now_and_then() {
    if os::now().saturating_sub(LOOKED.load(Ordering::Relaxed)) >= EVERY {
        is_used();
    }
}
