//! epoll_wait(2), where the kernel's own call is not all: connections of the set are at a NIC, or an event of the layer's
//! own has come.

use std::sync::atomic::Ordering;

use libc::{c_int, epoll_event};

use super::found::{Found, sort};
use super::links::Taken;
use super::set::{self, Set};
use super::slot::Slot;
use super::{ERR, HUP, IN, OUT, RDHUP};
use crate::connection::asked::Again;
use crate::connection::{Connection, Ready, all};
use crate::os::{self, Quiet};
use crate::session::{self, Session};

/// Takes the events of all NICs, for all sets. Threads that wait at others than `own` are woken.
fn dispatch(own: Option<&'static Set>) {
    session::all().for_each(|session| take_events(session, own));
}

fn take_events(session: &Session, own: Option<&'static Set>) {
    session.events(|owner| {
        let connection = std::ptr::with_exposed_provenance::<Connection>(owner);
        // SAFETY: an owner is a connection of the pool's, which stays where it is: see `offer_alone`.
        for slot in unsafe { &*connection }.slots.all() {
            if let Some(set) = slot.set() {
                set.ready.push(&slot.link);
                if !own.is_some_and(|own| std::ptr::eq(own, set)) {
                    set.ring();
                }
            }
        }
    });
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
                registration.set.ring();
                continue;
            }
            let Some(connection) = slot.connection().filter(|_| !registration.is_disarmed()) else {
                continue;
            };
            let Some(ready) = connection.ready() else { continue };
            let events = registration.wanted(events_of(ready));
            if events == 0 {
                continue;
            }
            if registration.is_once() && !slot.disarm(&registration) {
                // Another thread has reported it, or it has changed.
                again.push(link);
                continue;
            }
            into[count] = epoll_event { events, u64: registration.data };
            count += 1;
            if registration.is_level() {
                again.push(link);
            }
        }
        self.ready.put_back(waiting);
        self.ready.put_back(again);
        if !into.is_empty() {
            self.is_short.store(count == into.len(), Ordering::Relaxed);
        }
        count
    }

    /// The calling thread leaves with what it has found. If there may be more, another one that waits is to look: for what
    /// there was no room for, and for levels, as the kernel has it (`ep_done_scan`).
    fn pass_on(&self) {
        if !self.ready.are_none() {
            self.ring();
        }
    }

    /// Fills `into` behind the first `there`, without waiting. Returns the number of events.
    ///
    /// The kernel reports a wake-up of the layer's to one thread. If that is this one, which is about to return, the events
    /// that it was for are taken here, for [`pass_on`](Self::pass_on) to see.
    fn fill(&'static self, into: &mut [epoll_event], there: usize, kernel: &impl Kernel) -> usize {
        if there > 0 {
            let count = there + self.collect(&mut into[there..]);
            return without_doubles(into, there, count);
        }
        let errno = os::errno();
        let now = |into: &mut [epoll_event]| {
            let found = kernel.wait(into, Limit::NOW, None);
            os::set_errno(errno);
            let found = sort(into, usize::try_from(found).unwrap_or(0));
            if found.has_wake {
                woken();
                dispatch(Some(self));
            }
            found.theirs
        };
        // Those of the kernel's have their share where the NIC's would take all room.
        let is_short = self.is_short.swap(false, Ordering::Relaxed);
        let share = if is_short { into.len().div_ceil(2) } else { 0 };
        let first = if share == 0 { 0 } else { now(&mut into[..share]) };
        let count = first + self.collect(&mut into[first..]);
        let is_asked = share > 0 || count == 0 || count == into.len();
        let more = if is_asked { 0 } else { now(&mut into[count..]) };
        let edge = if first > 0 { first } else { count };
        without_doubles(into, edge, count + more)
    }
}

/// Leaves out of the first `count` events those behind the first `edge` that have the data of one before it, which gets their
/// events. The kernel and a NIC have each been asked for one part: both report a connection that has moved in between, and
/// programs such as Apache rely on it that a wait reports each descriptor once (`ep_send_events`). Descriptors that have the
/// same data are one to the program. Returns the number of those that are left.
fn without_doubles(events: &mut [epoll_event], edge: usize, count: usize) -> usize {
    let mut left = edge.min(count);
    for at in edge..count {
        let event = events[at];
        let data = event.u64;
        match events[..edge].iter_mut().find(|one| one.u64 == data) {
            Some(one) => one.events |= event.events,
            None => {
                events[left] = event;
                left += 1;
            }
        }
    }
    left
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

/// Maximum time of a call, in nanoseconds; none for a call without an end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<u64>);

impl Limit {
    const NOW: Limit = Limit(Some(0));
}

/// What a call of the program's does beside looking at the set.
pub(crate) trait Kernel {
    /// Offers connections, and looks at those that move. Returns when to do so again.
    fn offer_and_look(&self) -> Again;

    /// Waits in the kernel. While signals are kept back, they come in the wait, and end it, and nowhere else.
    fn wait(&self, into: &mut [epoll_event], limit: Limit, held: Option<&Quiet>) -> c_int;
}

/// An event of the layer's own has come.
#[cold]
fn woken() {
    if !session::look_alive() {
        // All that such a wharf had is over, which is an event.
        all().flat_map(|one| one.slots.all()).for_each(|slot| {
            slot.set().into_iter().for_each(|set| set.ready.push(&slot.link));
        });
    }
}

/// Goes on with a call for which the kernel has found the first `found` events, until there is an event of the program's, or
/// this time of [`os::now`] has come, or a signal.
pub(crate) fn wait(
    fd: c_int,
    into: &mut [epoll_event],
    found: usize,
    until: Option<u64>,
    kernel: &impl Kernel,
) -> c_int {
    // A signal's handler that runs between two waits would not end the second one, as it ends the program's call.
    let mut held = None;
    let Found { theirs: mut there, has_wake } = sort(into, found);
    if has_wake {
        woken();
    } else if there > 0 {
        return there as c_int;
    }
    loop {
        // Another thread may have made it one that has connections meanwhile.
        let set = set::at(fd);
        let again = kernel.offer_and_look();
        dispatch(set);
        let count = set.map_or(there, |set| set.fill(into, there, kernel));
        if count > 0 {
            again.leave();
            set.into_iter().for_each(Set::pass_on);
            return count as c_int;
        }
        let left = again.within(until.map(|until| until.saturating_sub(os::now())));
        if left != Some(0) && held.is_none() {
            held = Some(Quiet::for_a_wait());
        }
        let in_wait = set.map(Set::begin_sleep);
        dispatch(set);
        // What is there now is told by the next round.
        let is_ready = || set.is_some_and(|set| !set.ready.are_none());
        let left = if is_ready() { Some(0) } else { left };
        let looking = again.begin_wait();
        let found = kernel.wait(into, Limit(left), held.as_ref());
        drop((in_wait, looking));
        let Ok(found) = usize::try_from(found) else {
            let errno = os::errno();
            again.leave();
            os::set_errno(errno);
            return found;
        };
        let has_wake;
        Found { theirs: there, has_wake } = sort(into, found);
        if has_wake {
            woken();
        } else if there > 0 {
            again.leave();
            set.into_iter().for_each(Set::pass_on);
            return there as c_int;
        }
        if there == 0 && until.is_some_and(|until| os::now() >= until) && !is_ready() {
            again.leave();
            return 0;
        }
    }
}
