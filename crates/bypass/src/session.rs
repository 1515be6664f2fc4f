//! wharf, as this process has it: its Unix socket, its memory, and the rings of commands. There may be several: a NIC each.

mod hello;
mod nics;
mod numbers;
mod told;

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use handoff::command::{NicCommand, OsCommand};
use handoff::policy::Policy;
use handoff::ring::command::{Consumer, Producer};
use handoff::ring::{Doorbell, Sleepers};
use handoff::session::status::{Place, Status};
use handoff::session::{Area, Message, Request, Shared, Welcome};
use handoff::{Cid, RestoreReason};
use libc::c_int;

pub(crate) use self::nics::{
    all, all_so_far, are_any, are_several, generation, has_supervisor, is_beginning, is_wanted,
    lacks_any, look, look_alive, look_for_more, may_have_asked_since, picks, sleep, splices,
};
use self::numbers::Numbers;
use crate::lock::Lock;
use crate::own::{self, Own};
use crate::policy::Policies;
use crate::{names, os, timeout, vfork};

/// Which calls wait for wharf, until it has answered all offers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Patience {
    All = 0,
    /// Not those that may say "not yet".
    Slow = 1,
    /// None, and nothing is offered.
    Silent = 2,
}

/// See the module's documentation. It lives as long as the process, or until that forks.
pub(crate) struct Session {
    /// Which of the process's: tells it from others.
    pub(crate) number: u32,
    /// Its place in the list of NICs.
    pub(crate) place: usize,
    /// Index of the host's interface.
    pub(crate) interface: u32,
    /// Readable when wharf is gone.
    pub(crate) socket: Own,
    /// Readable edge by edge when wharf wakes the process.
    pub(crate) wake: Own,
    /// Hangs up when wharf and its guard are gone, and no service manager keeps its other end for the next wharf: nobody
    /// puts connections back any more.
    alive: Own,
    shared: Shared<'static>,
    /// All are there.
    workers: &'static [Option<Worker>],
    numbers: Numbers,
    /// wharf has said that it is stopping: nothing is offered any more.
    is_ending: AtomicBool,
    /// When it is looked next whether one that is stopping has gone.
    next_look: AtomicU64,
    /// Connections that were offered.
    offers: AtomicU64,
    /// How wharf has kept calls waiting that it has not answered since: a [`Patience`].
    patience: AtomicU8,
    /// When wharf was found to be gone; 0 before.
    dead_since: AtomicU64,
    /// Nobody puts connections back any more.
    is_lost: AtomicBool,
    policies: Policies,
    /// The session that this NIC had before; null for none. Its descriptors stay.
    previous: AtomicPtr<Session>,
}

/// One worker of wharf's, which has some of the connections.
struct Worker {
    /// Says whether it sleeps, and then wakes it.
    doorbell: Doorbell<'static>,
    bell: Own,
    to_nic: Lock<Producer<'static>>,
    to_app: Lock<Consumer<'static>>,
    /// Commands that were pushed when the ring stayed full for as long as a call waits, and one more; 0 before.
    full_at: AtomicU64,
}

impl Worker {
    /// Wakes it, if it sleeps.
    fn ring(&self) {
        if self.doorbell.must_ring() {
            os::ring(self.bell.fd());
        }
    }
}

/// How often it is tried at once to tell the NIC something, whose ring is full, as it reads soon; and then with a pause in
/// between, as others may have its CPU.
const TURNS_AT_ONCE: u32 = 1_000;
const PAUSE: u32 = 100_000;
/// Connections that are on their way to the NIC at a time: each stands still until those before it have moved.
const OFFERS_MAX: u64 = 16;

/// Sessions so far.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// How often it is looked at most whether a wharf that is stopping has gone, in nanoseconds.
const LOOK_EVERY: u64 = 1_000_000_000;
/// So long is waited for the next wharf, in nanoseconds, where a service manager keeps what that needs.
const NEXT_WHARF: u64 = 30_000_000_000;

/// When the library is loaded, before the program begins.
extern "C" fn loaded() {
    vfork::begin();
    os::begin_ticks();
    own::begin();
    nics::name();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// In the child after fork: the sessions are the parent's. New ones begin when they are asked for.
pub(crate) fn forget() {
    nics::forget();
    own::forget();
    vfork::begin();
}

impl Session {
    /// By what wharf has answered to Hello.
    fn by(
        Welcome { layout, interface }: Welcome,
        socket: Own,
        descriptors: &[c_int],
        (place, policy): (usize, Option<Policy>),
    ) -> Option<Session> {
        let [memory, wake, alive, doorbells @ ..] = descriptors else { return None };
        if doorbells.len() != layout.workers as usize {
            return None;
        }
        let shared = Shared::new(layout, os::map(*memory, layout.bytes())?).ok()?;
        let has_rings = |number| shared.to_nic(number).is_ok() && shared.to_app(number).is_ok();
        if !(0..layout.workers).all(has_rings) {
            return None;
        }
        let numbers = Numbers::new(layout.connections)?;
        // There is each of them. From here on the descriptors are others.
        let worker = |number: usize| {
            let (to_nic, to_app) = (shared.to_nic(number as u32), shared.to_app(number as u32));
            let (to_nic, to_app) = (to_nic.ok()?, to_app.ok()?);
            Some(Worker {
                doorbell: Doorbell::new(shared.nic_doorbell(number as u32)?),
                bell: Own::new(doorbells[number]),
                to_nic: Lock::new(Producer::new(to_nic)),
                to_app: Lock::new(Consumer::new(to_app)),
                full_at: AtomicU64::new(0),
            })
        };
        let workers = os::keep_each(doorbells.len(), worker)?;
        os::close(*memory);
        Some(Session {
            number: BEGUN.fetch_add(1, Ordering::AcqRel) + 1,
            place,
            interface,
            socket,
            wake: Own::new(*wake),
            alive: Own::new(*alive),
            shared,
            workers,
            numbers,
            is_ending: AtomicBool::new(false),
            next_look: AtomicU64::new(0),
            offers: AtomicU64::new(0),
            patience: AtomicU8::new(Patience::All as u8),
            dead_since: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            policies: Policies::new(policy),
            previous: AtomicPtr::new(std::ptr::null_mut()),
        })
    }

    /// What a connection has of the shared memory.
    pub(crate) fn area(&self, cid: Cid) -> Option<Area<'static>> {
        self.shared.area(cid)
    }

    /// A number for a connection, which finds it again when wharf tells something of it.
    pub(crate) fn take_number(&self, owner: usize) -> Option<Cid> {
        // Those of connections that were closed are free when wharf has done with them.
        let is_free = |number: u32| {
            self.area(Cid(number)).is_some_and(|area| {
                Status::decode(area.status().load(Ordering::Acquire)).place == Place::Free
            })
        };
        self.numbers.take(owner, is_free).map(Cid)
    }

    /// The program has closed the connection.
    pub(crate) fn close(&self, cid: Cid) {
        self.request(cid, Request::Close);
    }

    /// Asks for something of a connection. Returns whether wharf hears of it: one that has ended has given all back. Where the
    /// queue of messages has no room, as wharf does not read, it finds the request in the memory.
    fn request(&self, cid: Cid, request: Request) -> bool {
        let message = match request {
            Request::Restore(reason) => Message::Restore(cid, reason),
            Request::Close => Message::Close(cid),
        };
        self.say(message, || {
            self.area(cid).into_iter().for_each(|area| area.requests().note(request));
        })
    }

    /// Says something, or notes it by `note`.
    fn say(&self, message: Message, note: impl FnOnce()) -> bool {
        let send = || os::send(self.socket.fd(), &message.encode(), None);
        match send() {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                note();
                self.shared.unheard().fetch_add(1, Ordering::AcqRel);
                // wharf looks there when it has read all messages. If it has just done so, this one has it look again.
                let _ = send();
                true
            }
            said => said.is_ok(),
        }
    }

    /// The number of a connection that was closed is free when wharf has done with it.
    pub(crate) fn leave_number(&self, cid: Cid) {
        self.numbers.leave(cid.0);
    }

    /// Whether wharf is there, looked at anew.
    pub(crate) fn looks_alive(&self) -> bool {
        if !self.is_dead() && os::has_ended(self.socket.fd()) {
            self.dead_since.store(os::now(), Ordering::Release);
        }
        !self.is_dead()
    }

    /// The policy now.
    #[inline]
    pub(crate) fn policy(&self) -> &Policy {
        self.policies.get(&self.shared.said())
    }

    /// How often wharf has asked for connections.
    pub(crate) fn picks(&self) -> u64 {
        self.shared.picks().load(Ordering::Acquire)
    }

    /// Whether it has asked for that of this descriptor after time `before`, up to time `now`, the lowest bits of their
    /// numbers.
    pub(crate) fn asks_for(&self, fd: c_int, before: u32, now: u32) -> bool {
        let latest = self.picks();
        let full = |bits: u32| latest.wrapping_sub((latest as u32).wrapping_sub(bits).into());
        self.shared.is_asked_for((full(before), full(now)), || names::ends(fd))
    }

    /// Whether wharf was found to be gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead_since.load(Ordering::Acquire) > 0
    }

    /// wharf has said that it is stopping.
    pub(crate) fn ends(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// Whether so many connections wait for an answer that no more are offered.
    pub(crate) fn has_waiting_offers(&self) -> bool {
        self.unanswered() >= OFFERS_MAX
    }

    fn unanswered(&self) -> u64 {
        let answered = self.shared.answered().load(Ordering::Relaxed);
        self.offers.load(Ordering::Relaxed).wrapping_sub(answered)
    }

    /// A call has waited for wharf for as long as it may, or an offer was withdrawn.
    pub(crate) fn lose_patience(&self, to: Patience) {
        self.patience.fetch_max(to as u8, Ordering::Relaxed);
    }

    /// Which calls wait for wharf now.
    #[inline]
    pub(crate) fn patience(&self) -> Patience {
        match self.patience.load(Ordering::Relaxed) {
            0 => return Patience::All,
            _ if self.unanswered() > 0 => {}
            _ => self.patience.store(Patience::All as u8, Ordering::Relaxed),
        }
        match self.patience.load(Ordering::Relaxed) {
            0 => Patience::All,
            1 => Patience::Slow,
            _ => Patience::Silent,
        }
    }

    /// Whether nothing is offered for now, as wharf does not answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.patience() == Patience::Silent
    }

    /// Whether wharf is gone, or stopping.
    pub(crate) fn is_leaving(&self) -> bool {
        if self.is_dead() {
            return true;
        }
        if !self.is_ending.load(Ordering::Relaxed) {
            return false;
        }
        let (now, due) = (os::now(), self.next_look.load(Ordering::Relaxed));
        if now >= due {
            self.next_look.store(now + LOOK_EVERY, Ordering::Relaxed);
            self.looks_alive();
        }
        true
    }

    /// Whether wharf was found to be gone, and nobody puts back any more what was not put back: its guard is gone, too, and
    /// no service manager keeps it for the next wharf, or that does not come.
    pub(crate) fn is_lost(&self) -> bool {
        let dead_since = self.dead_since.load(Ordering::Acquire);
        if dead_since == 0 {
            return false;
        }
        let is_late = || os::now().saturating_sub(dead_since) > NEXT_WHARF;
        if !self.is_lost.load(Ordering::Acquire) && (os::has_hung_up(self.alive.fd()) || is_late())
        {
            self.is_lost.store(true, Ordering::Release);
        }
        self.is_lost.load(Ordering::Acquire)
    }

    /// The number is free again.
    pub(crate) fn give_number(&self, cid: Cid) {
        self.numbers.give(cid.0);
    }

    /// Offers a connection whose status has this count of changes, of a program that uses io_uring or does not. Returns whether
    /// wharf hears of it.
    pub(crate) fn offer(&self, (cid, count): (Cid, u16), fd: c_int, has_io_uring: bool) -> bool {
        let message = Message::Offer(cid, count, has_io_uring).encode();
        let sent = os::send(self.socket.fd(), &message, Some(fd)).is_ok();
        self.offers.fetch_add(u64::from(sent), Ordering::Relaxed);
        sent
    }

    /// Wants a connection back. Returns whether wharf hears of it: one that has ended has given all back.
    pub(crate) fn restore(&self, cid: Cid, reason: RestoreReason) -> bool {
        self.request(cid, Request::Restore(reason))
    }

    /// Wants all connections back.
    pub(crate) fn restore_all(&self, reason: RestoreReason) {
        self.say(Message::RestoreAll(reason), || {
            self.shared.wants_all_back().store(reason.code().into(), Ordering::Release);
        });
    }

    /// Tells a worker, which has the command's connection; whether it hears of it. It does not if this thread is telling it
    /// something already, and a handler of a signal has come in between. A ring that is full is waited for, for a while: a
    /// worker empties it in each of its turns.
    #[must_use]
    pub(crate) fn command(&self, worker: u32, command: NicCommand) -> bool {
        let Some(Some(worker)) = self.workers.get(worker as usize) else { return false };
        let bytes = command.encode();
        let (mut turn, mut until) = (0, 0);
        loop {
            let Some(mut ring) = worker.to_nic.take() else { return false };
            let is_told = ring.push(bytes).is_ok();
            let pushed = u64::from(ring.pushed()) + 1;
            drop(ring);
            if is_told {
                worker.ring();
                return true;
            }
            if self.is_dead() {
                // It has given all back.
                return true;
            }
            worker.ring();
            turn += 1;
            if turn < TURNS_AT_ONCE {
                os::yield_now();
                continue;
            }
            let now = os::now();
            until = if until == 0 { now + timeout::CONTROL } else { until };
            if now >= until || worker.full_at.load(Ordering::Relaxed) == pushed {
                // Nothing was taken since another call has waited.
                worker.full_at.store(pushed, Ordering::Relaxed);
                return false;
            }
            os::pause(PAUSE);
        }
    }

    /// Calls `news` with the owner of each connection of which the NIC has told something. Another thread may be about it.
    pub(crate) fn events(&self, mut news: impl FnMut(usize)) {
        for worker in self.workers.iter().flatten() {
            let Some(mut events) = worker.to_app.try_take() else { continue };
            while let Ok(Some(bytes)) = events.pop() {
                let Ok(event) = OsCommand::decode(bytes) else { continue };
                if let Some(owner) = self.numbers.owner(event.cid().0) {
                    news(owner);
                }
            }
        }
    }

    /// The threads and sets that sleep at the eventfd.
    pub(crate) fn sleepers(&self) -> Sleepers<'static> {
        Sleepers::new(self.shared.app_sleepers())
    }

    /// Where wharf counts how often it asks for connections.
    fn picks_word(&self) -> &'static AtomicU64 {
        self.shared.picks()
    }
}
