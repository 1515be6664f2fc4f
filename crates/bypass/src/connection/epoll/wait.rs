//! epoll_wait(2) of a set that has connections at the NIC.

use std::sync::atomic::Ordering;

use libc::{c_int, epoll_event};

use super::links::Taken;
use super::set::Set;
use super::slot::Slot;
use super::{EDGE, ERR, HUP, IN, ONESHOT, OUT, RDHUP, own_data};
use crate::connection::{Connection, Ready, all, asked};
use crate::os;
use crate::session::{self, Session};

/// Takes what the NICs have told, for all sets. Threads that wait at others than `own` are woken.
fn dispatch(own: Option<&'static Set>) {
    session::all().for_each(|session| take_events(session, own));
}

fn take_events(session: &Session, own: Option<&'static Set>) {
    let mut others = false;
    session.events(|owner| {
        let connection = std::ptr::with_exposed_provenance::<Connection>(owner);
        // SAFETY: an owner is a connection of the pool's, which stays where it is: see `offer_alone`.
        for slot in unsafe { &*connection }.slots.all() {
            if let Some(set) = slot.set() {
                set.ready.push(&slot.link);
                others |= !own.is_some_and(|own| std::ptr::eq(own, set));
            }
        }
    });
    if others {
        os::ring(session.wake.fd());
    }
}

/// The same for a thread that waits at no set.
pub(crate) fn dispatch_all() {
    dispatch(None);
}

impl Set {
    /// Connections that are ready, as epoll_wait gives them: in turn, as those that are told of are the last then.
    fn collect(&'static self, into: &mut [epoll_event]) -> usize {
        let (mut count, mut again) = (0, Taken::new());
        let mut waiting = self.ready.take();
        while count < into.len()
            && let Some(link) = waiting.next()
        {
            // What happens from here on adds it anew.
            link.is_out();
            let slot = Slot::of(link);
            let Some(registration) = slot.get() else { continue };
            if !std::ptr::eq(registration.set, self) {
                // It is in another set by now.
                registration.set.ready.push(&slot.link);
                continue;
            }
            let Some(connection) = slot.connection().filter(|_| !registration.is_spent()) else {
                continue;
            };
            let Some(ready) = connection.ready() else { continue };
            let events = events_of(ready) & (registration.events | ERR | HUP);
            if events == 0 {
                continue;
            }
            let once = registration.events & ONESHOT != 0;
            if once && !slot.spend(registration.events) {
                // Another thread has told of it, or it has changed.
                again.push(link);
                continue;
            }
            into[count] = epoll_event { events, u64: registration.data };
            count += 1;
            if registration.events & (EDGE | ONESHOT) == 0 {
                again.push(link);
            }
        }
        let is_more = !waiting.is_empty();
        self.ready.put_back(waiting);
        self.ready.put_back(again);
        if is_more {
            // A thread that has found nothing meanwhile has those that there was no room for.
            session::wake_sleepers();
        }
        if !into.is_empty() {
            self.is_short.store(count == into.len(), Ordering::Relaxed);
        }
        count
    }
}

fn events_of(ready: Ready) -> u32 {
    let bit = |is: bool, bits: u32| if is { bits } else { 0 };
    bit(ready.readable, IN)
        | bit(ready.writable, OUT)
        | bit(ready.peer_closed, RDHUP)
        | bit(ready.error, ERR)
        | bit(ready.hung_up, HUP)
}

/// What poll(2) says of it.
pub(crate) fn poll_events(ready: Ready) -> libc::c_short {
    // The numbers are the same (include/uapi/linux/eventpoll.h).
    events_of(ready) as libc::c_short
}

/// epoll_wait(2); `kernel` is the kernel's, of so many milliseconds at most.
pub(crate) fn wait(
    set: &'static Set,
    into: &mut [epoll_event],
    timeout: c_int,
    mut kernel: impl FnMut(&mut [epoll_event], c_int) -> c_int,
) -> c_int {
    let until = u64::try_from(timeout).ok().map(|timeout| os::now() + timeout * 1_000_000);
    loop {
        let more_to_offer = asked::offer();
        dispatch(Some(set));
        let errno = os::errno();
        // Those of the kernel's have their share where the NIC's would take all room.
        let share =
            if set.is_short.swap(false, Ordering::Relaxed) { into.len().div_ceil(2) } else { 0 };
        let first = if share == 0 { 0 } else { kernel(&mut into[..share], 0) };
        os::set_errno(errno);
        let first = without_own(into, usize::try_from(first).unwrap_or(0));
        let count = first + set.collect(&mut into[first..]);
        if count > 0 {
            let rest = &mut into[count..];
            let is_asked = share > 0 || rest.is_empty();
            let more = if is_asked { 0 } else { kernel(rest, 0) };
            os::set_errno(errno);
            let more = usize::try_from(more).unwrap_or(0);
            if more_to_offer {
                // The next call goes on with that.
                session::all().for_each(|session| os::ring(session.wake.fd()));
            }
            return (count + without_own(&mut into[count..], more)) as c_int;
        }
        let left = match until {
            _ if more_to_offer => asked::AGAIN_MS,
            None => -1,
            Some(until) => until.saturating_sub(os::now()).div_ceil(1_000_000) as c_int,
        };
        let asleep = session::sleep();
        dispatch(Some(set));
        // What is there now is told by the next round.
        let left = if set.ready.are_none() { left } else { 0 };
        let found = kernel(into, left);
        drop(asleep);
        let Ok(found) = usize::try_from(found) else { return found };
        let theirs = without_own(into, found);
        if theirs < found && !session::look_alive() {
            // All that such a wharf had is over, and to be told of.
            all().flat_map(|one| one.slots.all()).for_each(|slot| {
                slot.set().into_iter().for_each(|set| set.ready.push(&slot.link));
            });
        }
        if theirs > 0 {
            return theirs as c_int;
        }
        if until.is_some_and(|until| os::now() >= until) && set.ready.are_none() {
            return 0;
        }
    }
}

/// Whether the eventfd's is among these events.
///
/// # Safety
/// They may be read.
#[inline]
pub(crate) unsafe fn has_own(events: *const epoll_event, count: usize) -> bool {
    let own = own_data();
    let (mut at, mut left) = (events, count);
    while left != 0 {
        // SAFETY: the caller's promise.
        if unsafe { (*at).u64 } == own {
            return true;
        }
        at = at.wrapping_add(1);
        left -= 1;
    }
    false
}

/// Takes the eventfd's out of the events; how many are left.
#[inline]
pub(crate) fn without_own(events: &mut [epoll_event], count: usize) -> usize {
    let (own, count) = (own_data(), count.min(events.len()));
    let found = &mut events[..count];
    let Some(first) = found.iter().position(|event| event.u64 == own) else { return count };
    let mut kept = first;
    for at in first..count {
        if found[at].u64 != own {
            found[kept] = found[at];
            kept += 1;
        }
    }
    kept
}
