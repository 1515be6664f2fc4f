//! Data words of the layer's own, for events that the kernel gives and no program is to see as they are.
//!
//! Any thread can take such an event: one that began to wait before the set had the registration, and one of a child that
//! has the set. So each event that the kernel returns is looked at, in every set.

use std::sync::atomic::AtomicU8;

use libc::epoll_event;

use super::slot::NUMBERS;

/// Arms of one slot that are told apart.
const ARMS: usize = 16;

/// Addresses that are the layer's own. No object of the program's lies there, so that no pointer of the program's is one of
/// them. A child of fork(2) has them at the same place. Nothing is ever written there, so that they take no memory.
static REGION: [AtomicU8; 1 + NUMBERS * ARMS] = [const { AtomicU8::new(0) }; 1 + NUMBERS * ARMS];

/// The registration of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Private {
    /// A descriptor of the layer's own, by which threads are woken.
    Wake,
    /// One shot of a connection's: a slot, and the lowest bits of the number of its arm.
    Shot { slot: usize, arm: u32 },
}

/// The address that is first.
#[inline]
fn base() -> u64 {
    (&raw const REGION) as u64
}

#[inline]
fn is_private(data: u64) -> bool {
    data.wrapping_sub(base()) < REGION.len() as u64
}

impl Private {
    /// As the data of an event.
    pub(super) fn data(self) -> u64 {
        match self {
            Private::Wake => base(),
            Private::Shot { slot, arm } => base() + 1 + (slot * ARMS + arm as usize % ARMS) as u64,
        }
    }

    /// From the data of an event; `None` if that is the program's.
    pub(super) fn of(data: u64) -> Option<Private> {
        if !is_private(data) {
            return None;
        }
        Some(match data.wrapping_sub(base()).checked_sub(1) {
            None => Private::Wake,
            Some(at) => {
                Private::Shot { slot: at as usize / ARMS, arm: (at as usize % ARMS) as u32 }
            }
        })
    }

    /// Returns true if this is the arm of a slot.
    pub(super) fn is_arm(arm: u32, number: u32) -> bool {
        arm == number % ARMS as u32
    }
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
