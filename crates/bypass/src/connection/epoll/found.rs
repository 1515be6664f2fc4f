//! Events that the kernel has found, as the program gets them.

use libc::epoll_event;

use super::private::Private;
use super::slot::Slot;

/// What the kernel has found.
pub(super) struct Found {
    /// Number of events that are the program's, which are the first.
    pub(super) theirs: usize,
    /// A descriptor of the layer's own has woken the thread.
    pub(super) has_wake: bool,
}

/// Leaves the program's events of the first `count`, with its own data.
pub(super) fn sort(events: &mut [epoll_event], count: usize) -> Found {
    let mut found = Found { theirs: 0, has_wake: false };
    for at in 0..count.min(events.len()) {
        let event = events[at];
        let theirs = match Private::of(event.u64) {
            None => Some(event),
            Some(Private::Wake) => {
                found.has_wake = true;
                None
            }
            Some(Private::Shot { slot, arm }) => {
                Slot::at(slot).and_then(|slot| shot(slot, arm, event.events))
            }
        };
        if let Some(event) = theirs {
            events[found.theirs] = event;
            found.theirs += 1;
        }
    }
    found
}

/// The event of one shot, which is disarmed by this. `None` if it was so before, as another thread has reported it at the NIC,
/// or is registered no more, or anew: the kernel has looked at it again then.
fn shot(slot: &Slot, arm: u32, events: u32) -> Option<epoll_event> {
    loop {
        let registration = slot.get()?;
        if !Private::is_arm(arm, registration.arm()) || registration.is_disarmed() {
            return None;
        }
        if slot.disarm(&registration) {
            let events = registration.wanted(events);
            return Some(epoll_event { events, u64: registration.data });
        }
    }
}
