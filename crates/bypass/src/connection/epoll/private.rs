//! Events of the layer's own registrations in the program's sets. They end a wait in the kernel, and never reach the program.
//!
//! Any thread can take such an event: one that began to wait before the set had the registration, and one of a child that
//! has the set. So each event that the kernel returns is looked at, in every set.

use std::sync::atomic::AtomicU8;

use libc::epoll_event;

/// Addresses that are the layer's own. No object of the program's lies there, so that no pointer of the program's is one of
/// them. A child of fork(2) has them at the same place.
static REGION: [AtomicU8; 1] = [const { AtomicU8::new(0) }; 1];

#[inline]
pub(super) fn base() -> u64 {
    (&raw const REGION) as u64
}

/// Returns true if an event with this data is of a registration of the layer's own.
#[inline]
fn is_private(data: u64) -> bool {
    data.wrapping_sub(base()) < size_of_val(&REGION) as u64
}

/// Returns true if an event of the layer's own is among these.
///
/// # Safety
/// So many events may be read.
#[inline]
pub(crate) unsafe fn has_private(events: *const epoll_event, count: usize) -> bool {
    let (mut at, end) = (events, events.wrapping_add(count));
    while at != end {
        // SAFETY: the caller's promise.
        if is_private(unsafe { (*at).u64 }) {
            return true;
        }
        at = at.wrapping_add(1);
    }
    false
}

/// Takes the events of the layer's own out of the first `count`. Returns the number of those that are left.
pub(crate) fn without_private(events: &mut [epoll_event], count: usize) -> usize {
    let count = count.min(events.len());
    let found = &mut events[..count];
    let Some(first) = found.iter().position(|event| is_private(event.u64)) else { return count };
    let mut theirs = first;
    for at in first..count {
        if !is_private(found[at].u64) {
            found[theirs] = found[at];
            theirs += 1;
        }
    }
    theirs
}
