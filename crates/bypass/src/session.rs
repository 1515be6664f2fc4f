//! wharf, as this process has it: its Unix socket, its memory, and the rings of commands.

use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use handoff::command::{NicCommand, OsCommand};
use handoff::policy::Policy;
use handoff::ring::command::{Consumer, Producer};
use handoff::ring::{Doorbell, Sleepers};
use handoff::session::status::{Place, Status};
use handoff::session::{Area, MESSAGE_LEN, Message, Shared};
use handoff::{Cid, RestoreReason};
use libc::c_int;

use crate::os;

/// See the module's documentation. It lives as long as the process, or until that forks.
pub(crate) struct Session {
    /// Of the process that began it.
    process: libc::pid_t,
    /// Which of the process's: tells it from others.
    pub(crate) number: u32,
    /// Readable when wharf is gone.
    pub(crate) socket: c_int,
    /// Readable edge by edge when wharf wakes the process.
    pub(crate) wake: c_int,
    /// Hangs up when wharf and its guard are gone, so that nobody puts connections back any more.
    alive: c_int,
    doorbells: Vec<c_int>,
    shared: Shared<'static>,
    to_nic: Mutex<Producer<'static>>,
    to_app: Mutex<Consumer<'static>>,
    /// Numbers of connections that are free; the last is taken first.
    free: Mutex<Vec<u32>>,
    /// Those of connections that the program has closed, which wharf may still have.
    closing: Mutex<Vec<u32>>,
    /// wharf has said that it is stopping: nothing is offered any more.
    is_ending: AtomicBool,
    /// Connections that were offered.
    offers: AtomicU64,
    /// wharf was found to be gone.
    is_dead: AtomicBool,
    /// Its guard, too.
    is_lost: AtomicBool,
    /// The descriptor of each number, so that an event finds it.
    owners: Vec<AtomicU32>,
    pub(crate) policy: Policy,
}

/// Connections that are on their way to the NIC at a time: each stands still until those before it have moved.
const OFFERS_MAX: u64 = 16;

/// What `wharf run` has told.
struct Told {
    address: Vec<u8>,
    policy: Policy,
}

static TOLD: OnceLock<Option<Told>> = OnceLock::new();

/// What the environment says, or said when the library was loaded: programs such as nginx clear it.
fn told() -> &'static Option<Told> {
    TOLD.get_or_init(|| {
        let address = std::env::var_os("WHARF_HANDOFF")?.into_vec();
        let policy = std::env::var("WHARF_HANDOFF_POLICY").ok();
        let policy = policy.map_or(Ok(Policy::default()), |text| text.parse()).ok()?;
        Some(Told { address, policy })
    })
}

/// When the library is loaded, before the program begins.
extern "C" fn loaded() {
    told();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// Not begun, begun, and that there is none.
static SESSION: AtomicPtr<Session> = AtomicPtr::new(std::ptr::null_mut());
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const BEGINNING: u32 = 1;
const THERE: u32 = 2;
const NONE: u32 = 3;
/// When it is looked next whether there is another wharf, and how often at most, in nanoseconds.
static RETRY: AtomicU64 = AtomicU64::new(0);
const RETRY_EVERY: u64 = 1_000_000_000;
/// Sessions so far.
static BEGUN: AtomicU32 = AtomicU32::new(0);
/// No descriptor has the number.
const UNOWNED: u32 = u32::MAX;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
            SESSION.store(session, Ordering::Release);
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
            SESSION.store(session, Ordering::Release);
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
        session.doorbells.iter().for_each(|bell| os::close(*bell));
    }
    SESSION.store(std::ptr::null_mut(), Ordering::Release);
    STATE.store(UNKNOWN, Ordering::Release);
}

/// The session, if it has begun.
pub(crate) fn get_there() -> Option<&'static Session> {
    if STATE.load(Ordering::Acquire) == THERE { get() } else { None }
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

    fn on(socket: c_int, policy: Policy) -> Option<Session> {
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
        Some(Session {
            process: os::process(),
            number: BEGUN.fetch_add(1, Ordering::AcqRel) + 1,
            socket,
            wake: *wake,
            alive: *alive,
            doorbells: doorbells.to_vec(),
            shared,
            to_nic: Mutex::new(Producer::new(shared.to_nic(0).ok()?)),
            to_app: Mutex::new(Consumer::new(shared.to_app(0).ok()?)),
            free: Mutex::new((0..layout.connections).rev().collect()),
            closing: Mutex::new(Vec::new()),
            is_ending: AtomicBool::new(false),
            offers: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            owners: (0..layout.connections).map(|_| AtomicU32::new(UNOWNED)).collect(),
            policy,
        })
    }

    /// Whether this is the process that began it, and not a child that has its memory (vfork(2)) until it executes
    /// another program: what that closes is open in this one.
    pub(crate) fn is_own(&self) -> bool {
        os::process() == self.process
    }

    /// What a connection has of the shared memory.
    pub(crate) fn area(&self, cid: Cid) -> Option<Area<'static>> {
        self.shared.area(cid)
    }

    /// A number for a connection of this descriptor.
    pub(crate) fn take_number(&self, fd: c_int) -> Option<Cid> {
        let number = lock(&self.free).pop();
        let number = number.or_else(|| self.reclaim())?;
        self.owners[number as usize].store(fd as u32, Ordering::Release);
        Some(Cid(number))
    }

    /// A number of those that were closed, which wharf has done with by now.
    fn reclaim(&self) -> Option<u32> {
        let is_free = |number: &u32| {
            self.area(Cid(*number)).is_some_and(|area| {
                Status::decode(area.status().load(Ordering::Acquire)).place == Place::Free
            })
        };
        let mut closing = lock(&self.closing);
        let (done, left): (Vec<u32>, Vec<u32>) = closing.drain(..).partition(is_free);
        *closing = left;
        drop(closing);
        let mut free = lock(&self.free);
        free.extend(done);
        free.pop()
    }

    /// The program has closed the connection: its number is free when wharf has done with it.
    pub(crate) fn close(&self, cid: Cid) {
        if let Some(owner) = self.owners.get(cid.0 as usize) {
            owner.store(UNOWNED, Ordering::Release);
        }
        // wharf that has ended has forgotten it.
        let _ = os::send(self.socket, &Message::Close(cid).encode(), None);
        lock(&self.closing).push(cid.0);
    }

    /// Whether wharf is there, looked at anew.
    pub(crate) fn looks_alive(&self) -> bool {
        if !self.is_dead() && os::has_ended(self.socket) {
            self.is_dead.store(true, Ordering::Release);
        }
        !self.is_dead()
    }

    /// How often wharf has asked for all connections.
    pub(crate) fn picks(&self) -> u64 {
        self.shared.picks().load(Ordering::Relaxed)
    }

    /// Whether wharf was found to be gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
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

    /// Whether wharf was found to be gone, and its guard is, too: what the guard has not put back is lost.
    pub(crate) fn is_lost(&self) -> bool {
        if !self.is_dead() {
            return false;
        }
        if !self.is_lost.load(Ordering::Acquire) && os::has_hung_up(self.alive) {
            self.is_lost.store(true, Ordering::Release);
        }
        self.is_lost.load(Ordering::Acquire)
    }

    /// The number is free again.
    pub(crate) fn give_number(&self, cid: Cid) {
        if let Some(owner) = self.owners.get(cid.0 as usize) {
            owner.store(UNOWNED, Ordering::Release);
            lock(&self.free).push(cid.0);
        }
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

    /// Tells the NIC something. A ring that is full is waited for: the NIC empties it in each of its turns.
    pub(crate) fn command(&self, command: NicCommand) {
        let bytes = command.encode();
        for turn in 0_u32.. {
            if lock(&self.to_nic).push(bytes).is_ok() {
                break;
            }
            if self.is_dead() {
                return;
            }
            self.ring();
            os::yield_now();
            if turn > 100_000 {
                return;
            }
        }
        self.ring();
    }

    /// Wakes the worker, if it sleeps.
    fn ring(&self) {
        let word = self.shared.nic_doorbell(0);
        if let (Some(word), Some(bell)) = (word, self.doorbells.first())
            && Doorbell::new(word).must_ring()
        {
            os::ring(*bell);
        }
    }

    /// Calls `news` with the descriptor of each connection of which the NIC has told something.
    pub(crate) fn events(&self, mut news: impl FnMut(c_int)) {
        let Ok(mut events) = self.to_app.try_lock() else { return };
        while let Ok(Some(bytes)) = events.pop() {
            let Ok(event) = OsCommand::decode(bytes) else { continue };
            if let Some(owner) = self.owners.get(event.cid().0 as usize) {
                match owner.load(Ordering::Acquire) {
                    UNOWNED => {}
                    fd => news(fd as c_int),
                }
            }
        }
    }

    /// The calling thread is about to sleep at the eventfd, and is awake again when the result is dropped.
    pub(crate) fn sleep(&self) -> Option<Asleep> {
        let word = self.shared.app_sleepers(0)?;
        Sleepers::new(word).enter();
        Some(Asleep(Sleepers::new(word)))
    }
}

/// A thread that sleeps.
pub(crate) struct Asleep(Sleepers<'static>);

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.leave();
    }
}
