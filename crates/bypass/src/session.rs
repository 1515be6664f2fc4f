//! wharf, as this process has it: its Unix socket, its memory, and the rings of commands.

mod numbers;

use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use handoff::command::{NicCommand, OsCommand};
use handoff::policy::Policy;
use handoff::ring::command::{Consumer, Producer};
use handoff::ring::{Doorbell, Sleepers};
use handoff::session::status::{Place, Status};
use handoff::session::{Area, MESSAGE_LEN, Message, Shared};
use handoff::{Cid, RestoreReason};
use libc::c_int;

use self::numbers::Numbers;
use crate::lock::Lock;
use crate::policy::Policies;
use crate::{names, os};

/// See the module's documentation. It lives as long as the process, or until that forks.
pub(crate) struct Session {
    /// Which of the process's: tells it from others.
    pub(crate) number: u32,
    /// Readable when wharf is gone.
    pub(crate) socket: c_int,
    /// Readable edge by edge when wharf wakes the process.
    pub(crate) wake: c_int,
    /// Hangs up when wharf and its guard are gone, and no service manager keeps its other end for the next wharf: nobody
    /// puts connections back any more.
    alive: c_int,
    shared: Shared<'static>,
    workers: Vec<Worker>,
    numbers: Numbers,
    /// wharf has said that it is stopping: nothing is offered any more.
    is_ending: AtomicBool,
    /// Connections that were offered.
    offers: AtomicU64,
    /// When wharf was found to be gone; 0 before.
    dead_since: AtomicU64,
    /// Nobody puts connections back any more.
    is_lost: AtomicBool,
    policies: Policies,
}

/// One worker of wharf's, which has some of the connections.
struct Worker {
    doorbell: c_int,
    to_nic: Lock<Producer<'static>>,
    to_app: Lock<Consumer<'static>>,
}

/// How often it is tried to tell the NIC something, whose ring is full: some times at once, as it reads soon, and later with
/// a pause in between, for a second and more, as others may have its CPU.
const COMMAND_TURNS: u32 = 11_000;
const TURNS_AT_ONCE: u32 = 1_000;
const PAUSE: u32 = 100_000;
/// Connections that are on their way to the NIC at a time: each stands still until those before it have moved.
const OFFERS_MAX: u64 = 16;

/// So long is waited for the next wharf, in nanoseconds, where a service manager keeps what that needs.
const NEXT_WHARF: u64 = 30_000_000_000;

/// What `wharf run` has told.
struct Told {
    address: Vec<u8>,
    /// `None` for wharf's own.
    policy: Option<Policy>,
}

static TOLD: OnceLock<Option<Told>> = OnceLock::new();

/// What the environment says, or said when the library was loaded: programs such as nginx clear it.
fn told() -> &'static Option<Told> {
    TOLD.get_or_init(|| {
        let address = std::env::var_os("WHARF_HANDOFF")?.into_vec();
        let policy = std::env::var("WHARF_HANDOFF_POLICY").ok();
        let policy = policy.map(|text| text.parse()).transpose().ok()?;
        Some(Told { address, policy })
    })
}

/// When the library is loaded, before the program begins.
extern "C" fn loaded() {
    PROCESS.store(os::process(), Ordering::Relaxed);
    os::begin_ticks();
    told();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// Not begun, begun, and that there is none.
static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
/// The process, since it was loaded or forked, and where it is said how often wharf has asked for connections.
static PROCESS: AtomicI32 = AtomicI32::new(0);
static PICKS: AtomicPtr<AtomicU64> = AtomicPtr::new((&raw const NO_PICKS).cast_mut());
static NO_PICKS: AtomicU64 = AtomicU64::new(0);
const UNKNOWN: u32 = 0;
const BEGINNING: u32 = 1;
const THERE: u32 = 2;
const NONE: u32 = 3;
/// When it is looked next whether there is another wharf, and how often at most, in nanoseconds.
static RETRY: AtomicU64 = AtomicU64::new(0);
const RETRY_EVERY: u64 = 1_000_000_000;
/// Sessions so far.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// The session, begun if it was not. `None` if there is no wharf, or another thread is about to begin it.
pub(crate) fn get() -> Option<&'static Session> {
    match STATE.load(Ordering::Acquire) {
        THERE => {
            // SAFETY: stored before THERE was, from a box that is never freed.
            let session = unsafe { SESSION.load(Ordering::Acquire).as_ref() }?;
            Some(if session.is_lost() { renew(session) } else { session })
        }
        UNKNOWN => begin(),
        _ => None,
    }
}

#[cold]
fn begin() -> Option<&'static Session> {
    let claimed = STATE.compare_exchange(UNKNOWN, BEGINNING, Ordering::AcqRel, Ordering::Relaxed);
    if claimed.is_err() {
        return None;
    }
    let errno = os::errno();
    let session = Session::begin().map(|session| Box::leak(Box::new(session)));
    let state = match session {
        Some(session) => {
            store(session);
            THERE
        }
        None => NONE,
    };
    STATE.store(state, Ordering::Release);
    os::set_errno(errno);
    // SAFETY: as in `get`.
    unsafe { SESSION.load(Ordering::Acquire).as_ref() }
}

/// A session with another wharf at the same place, if there is one by now. The old one keeps its descriptors: threads
/// may wait for them.
#[cold]
fn renew(old: &'static Session) -> &'static Session {
    let (now, due) = (os::now(), RETRY.load(Ordering::Acquire));
    let next = now + RETRY_EVERY;
    if now < due || RETRY.compare_exchange(due, next, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        return old;
    }
    let errno = os::errno();
    let session = Session::begin();
    os::set_errno(errno);
    match session {
        Some(session) => {
            let session = Box::leak(Box::new(session));
            store(session);
            session
        }
        None => old,
    }
}

/// In the child after fork: the session is the parent's. A new one begins when it is asked for.
pub(crate) fn forget() {
    if let Some(session) = get_there() {
        os::close(session.socket);
        os::close(session.wake);
        os::close(session.alive);
        session.workers.iter().for_each(|worker| os::close(worker.doorbell));
    }
    SESSION.store(std::ptr::null_mut(), Ordering::Release);
    PICKS.store((&raw const NO_PICKS).cast_mut(), Ordering::Relaxed);
    PROCESS.store(os::process(), Ordering::Relaxed);
    STATE.store(UNKNOWN, Ordering::Release);
}

/// Whether the program was started to have one.
pub(crate) fn is_wanted() -> bool {
    STATE.load(Ordering::Relaxed) == THERE || told().is_some()
}

/// The session, if it has begun.
#[inline]
pub(crate) fn get_there() -> Option<&'static Session> {
    if STATE.load(Ordering::Acquire) == THERE { get() } else { None }
}

/// How often wharf has asked for connections; 0 without a session.
#[inline]
pub(crate) fn picks() -> u64 {
    // SAFETY: a word of the library's, or of memory that is never unmapped.
    unsafe { &*PICKS.load(Ordering::Relaxed) }.load(Ordering::Relaxed)
}

/// Whether this is a process that has connections for itself, and not a child that has the memory of one (vfork(2)) until
/// it executes another program: what that closes is open in this one.
#[inline]
pub(crate) fn is_own() -> bool {
    PROCESS.load(Ordering::Relaxed) == os::process()
}

/// The session is this one from now on.
fn store(session: &'static Session) {
    PICKS.store(session.shared.picks().as_ptr().cast(), Ordering::Relaxed);
    SESSION.store(std::ptr::from_ref(session).cast_mut(), Ordering::Release);
}

impl Session {
    fn begin() -> Option<Session> {
        let Told { address, policy } = told().as_ref()?;
        let policy = policy.clone();
        let socket = os::connect(address)?;
        match Session::on(socket, policy) {
            Some(session) => Some(session),
            None => {
                os::close(socket);
                None
            }
        }
    }

    fn on(socket: c_int, policy: Option<Policy>) -> Option<Session> {
        os::send(socket, &Message::Hello.encode(), None).ok()?;
        let mut bytes = [0; MESSAGE_LEN];
        let (len, descriptors) = os::receive(socket, &mut bytes).ok()?;
        let Ok(Message::Welcome(welcome)) = Message::decode(&bytes[..len]) else {
            descriptors.into_iter().for_each(os::close);
            return None;
        };
        let layout = welcome.layout;
        let [memory, wake, alive, doorbells @ ..] = &descriptors[..] else { return None };
        let words = os::map(*memory, layout.bytes())?;
        os::close(*memory);
        let shared = Shared::new(layout, words).ok()?;
        let worker = |(number, doorbell): (u32, &c_int)| {
            Some(Worker {
                doorbell: *doorbell,
                to_nic: Lock::new(Producer::new(shared.to_nic(number).ok()?)),
                to_app: Lock::new(Consumer::new(shared.to_app(number).ok()?)),
            })
        };
        let workers: Option<Vec<Worker>> = (0..).zip(doorbells).map(worker).collect();
        let workers = workers.filter(|all| all.len() == layout.workers as usize)?;
        Some(Session {
            number: BEGUN.fetch_add(1, Ordering::AcqRel) + 1,
            socket,
            wake: *wake,
            alive: *alive,
            shared,
            workers,
            numbers: Numbers::new(layout.connections),
            is_ending: AtomicBool::new(false),
            offers: AtomicU64::new(0),
            dead_since: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            policies: Policies::new(policy),
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
        // wharf that has ended has forgotten it.
        let _ = os::send(self.socket, &Message::Close(cid).encode(), None);
    }

    /// The number of a connection that was closed is free when wharf has done with it.
    pub(crate) fn leave_number(&self, cid: Cid) {
        self.numbers.leave(cid.0);
    }

    /// Whether wharf is there, looked at anew.
    pub(crate) fn looks_alive(&self) -> bool {
        if !self.is_dead() && os::has_ended(self.socket) {
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

    /// Whether it has asked for that of this descriptor after time `before`, up to time `now`.
    pub(crate) fn asks_for(&self, fd: c_int, before: u64, now: u64) -> bool {
        self.shared.is_asked_for((before, now), || names::ends(fd))
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
        let answered = self.shared.answered().load(Ordering::Relaxed);
        self.offers.load(Ordering::Relaxed).wrapping_sub(answered) >= OFFERS_MAX
    }

    /// Whether a connection may be offered now: wharf is neither gone nor stopping, and has answered earlier offers.
    pub(crate) fn takes_offers(&self) -> bool {
        if self.is_dead() || self.has_waiting_offers() {
            return false;
        }
        if !self.is_ending.load(Ordering::Relaxed) {
            return true;
        }
        let (now, due) = (os::now(), RETRY.load(Ordering::Acquire));
        if now >= due {
            RETRY.store(now + RETRY_EVERY, Ordering::Release);
            self.looks_alive();
        }
        false
    }

    /// Whether wharf was found to be gone, and nobody puts back any more what was not put back: its guard is gone, too, and
    /// no service manager keeps it for the next wharf, or that does not come.
    pub(crate) fn is_lost(&self) -> bool {
        let dead_since = self.dead_since.load(Ordering::Acquire);
        if dead_since == 0 {
            return false;
        }
        let is_late = || os::now().saturating_sub(dead_since) > NEXT_WHARF;
        if !self.is_lost.load(Ordering::Acquire) && (os::has_hung_up(self.alive) || is_late()) {
            self.is_lost.store(true, Ordering::Release);
        }
        self.is_lost.load(Ordering::Acquire)
    }

    /// The number is free again.
    pub(crate) fn give_number(&self, cid: Cid) {
        self.numbers.give(cid.0);
    }

    /// Offers a connection. Returns whether wharf hears of it.
    pub(crate) fn offer(&self, cid: Cid, fd: c_int) -> bool {
        let sent = os::send(self.socket, &Message::Offer(cid).encode(), Some(fd)).is_ok();
        self.offers.fetch_add(u64::from(sent), Ordering::Relaxed);
        sent
    }

    /// Wants a connection back.
    pub(crate) fn restore(&self, cid: Cid, reason: RestoreReason) {
        // wharf that has ended has given all back.
        let _ = os::send(self.socket, &Message::Restore(cid, reason).encode(), None);
    }

    /// Tells the worker that has the command's connection; whether it hears of it. It does not if this thread is telling it
    /// something already, and a handler of a signal has come in between. A ring that is full is waited for: a worker empties
    /// it in each of its turns.
    #[must_use]
    pub(crate) fn command(&self, command: NicCommand) -> bool {
        // Written before the connection's rings were those of this epoch.
        let area = self.area(command.cid());
        let number = area.map_or(0, |area| area.worker().load(Ordering::Relaxed)) as u32;
        let Some(worker) = self.workers.get(number as usize) else { return false };
        let bytes = command.encode();
        for turn in 0..COMMAND_TURNS {
            let Some(mut ring) = worker.to_nic.take() else { return false };
            let is_told = ring.push(bytes).is_ok();
            drop(ring);
            if is_told {
                self.ring(number, worker);
                return true;
            }
            if self.is_dead() {
                // It has given all back.
                return true;
            }
            self.ring(number, worker);
            match turn {
                ..TURNS_AT_ONCE => os::yield_now(),
                _ => os::pause(PAUSE),
            }
        }
        false
    }

    /// Wakes a worker, if it sleeps.
    fn ring(&self, number: u32, worker: &Worker) {
        let word = self.shared.nic_doorbell(number);
        if word.is_some_and(|word| Doorbell::new(word).must_ring()) {
            os::ring(worker.doorbell);
        }
    }

    /// Calls `news` with the owner of each connection of which the NIC has told something. Another thread may be about it.
    pub(crate) fn events(&self, mut news: impl FnMut(usize)) {
        for worker in &self.workers {
            let Some(mut events) = worker.to_app.try_take() else { continue };
            while let Ok(Some(bytes)) = events.pop() {
                let Ok(event) = OsCommand::decode(bytes) else { continue };
                if let Some(owner) = self.numbers.owner(event.cid().0) {
                    news(owner);
                }
            }
        }
    }

    /// The calling thread is about to sleep at the eventfd, and is awake again when the result is dropped.
    pub(crate) fn sleep(&self) -> Asleep {
        let sleepers = Sleepers::new(self.shared.app_sleepers());
        sleepers.enter();
        Asleep(sleepers)
    }
}

/// A thread that sleeps.
pub(crate) struct Asleep(Sleepers<'static>);

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.leave();
    }
}
