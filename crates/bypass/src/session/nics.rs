//! The NICs of this process: where each wharf is, and the session with it. A connection goes to the one that its route
//! leads through.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use handoff::ring::Sleepers;
use handoff::session::NICS_MAX;

use super::Session;
use super::hello::{Answer, Hello};
use super::told::{Folder, told};
use crate::lock::Lock;
use crate::{os, vfork};

/// Bytes of an address at most (unix(7)).
const ADDRESS_MAX: usize = 107;

struct Address {
    bytes: [u8; ADDRESS_MAX],
    len: usize,
}

impl Address {
    fn get(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// One of them.
struct Nic {
    /// Where its wharf is. Null before that is known, and never changed after.
    address: AtomicPtr<Address>,
    /// The last session; null for none.
    session: AtomicPtr<Session>,
    /// When it is looked next whether there is a wharf, or another one; [`BEGINNING`] while a thread is about it.
    retry: AtomicU64,
    /// One that has not answered yet. The thread that is about it has it.
    hello: Lock<Option<Hello>>,
    /// There is one, which threads that wait look for.
    is_waited_for: AtomicBool,
}

const BEGINNING: u64 = u64::MAX;
/// How often it is looked for wharfs at most, in nanoseconds.
const LOOK_EVERY: u64 = 1_000_000_000;
/// The same for the answer of one.
const ANSWER_EVERY: u64 = 1_000_000;
/// Calls after which it is looked whether it is time to look for more: a power of two.
const LOOK_CALLS: u32 = 64;

static ALL: [Nic; NICS_MAX] = [const { Nic::new() }; NICS_MAX];
/// Those whose addresses are known: the first of [`ALL`].
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Held while one is added.
static ADDING: Lock<()> = Lock::new(());
/// Sessions that have become one of a NIC's: who waits at all of them looks whether there is another.
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Calls that could have found more NICs, and when more are looked for next.
static LOOKS: AtomicU32 = AtomicU32::new(0);
static NEXT_LOOK: AtomicU64 = AtomicU64::new(0);

/// Where the first two count how often they have asked for connections: most processes have no more.
static PICKS: [AtomicPtr<AtomicU64>; 2] =
    [const { AtomicPtr::new((&raw const NONE).cast_mut()) }; 2];
/// In place of the second where there are others: no count of theirs is so large.
static MANY: AtomicU64 = AtomicU64::new(1 << 63);
static NONE: AtomicU64 = AtomicU64::new(0);

impl Nic {
    const fn new() -> Self {
        Nic {
            address: AtomicPtr::new(std::ptr::null_mut()),
            session: AtomicPtr::new(std::ptr::null_mut()),
            retry: AtomicU64::new(0),
            hello: Lock::new(None),
            is_waited_for: AtomicBool::new(false),
        }
    }

    fn address(&self) -> Option<&'static Address> {
        // SAFETY: null, or kept for as long as the process lives.
        unsafe { self.address.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    fn session(&self) -> Option<&'static Session> {
        // SAFETY: null, or kept for as long as the process lives.
        unsafe { self.session.load(Ordering::Acquire).as_ref() }
    }

    /// Begins a session if there is none, or nobody is there any more who had the last.
    fn look(&self, place: usize) {
        let is_there = self.session().is_some_and(|session| !session.is_lost());
        if !is_there {
            self.begin(place);
        }
    }

    /// The last session keeps its descriptors: threads may wait for them.
    #[cold]
    fn begin(&self, place: usize) {
        let (now, due) = (os::now(), self.retry.load(Ordering::Acquire));
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        // A child with this process's memory has descriptors of its own.
        if !vfork::is_own() {
            return;
        }
        // Another thread is about it, or it is not time.
        if now < due || self.retry.compare_exchange(due, BEGINNING, success, failure).is_err() {
            return;
        }
        let errno = os::errno();
        let after = match self.answer(place) {
            Answer::None => ANSWER_EVERY,
            Answer::No => LOOK_EVERY,
            Answer::Welcome(session) => {
                self.has(session);
                // Of a wharf that is killed the next one may be there at once.
                0
            }
        };
        let next = if after == 0 { 0 } else { os::now() + after };
        self.retry.store(next, Ordering::Release);
        os::set_errno(errno);
    }

    /// Says Hello, if that was not done, and looks for the answer.
    fn answer(&self, place: usize) -> Answer {
        let Some(mut hello) = self.hello.try_take() else { return Answer::No };
        if hello.is_none() {
            *hello = self.address().and_then(|address| Hello::say(address.get()));
        }
        let answer = match &*hello {
            Some(hello) => {
                let policy = told().as_ref().and_then(|told| told.policy.clone());
                hello.answer(place, policy)
            }
            None => Answer::No,
        };
        if !matches!(answer, Answer::None) {
            *hello = None;
        }
        let is_waited_for = hello.as_ref().is_some_and(Hello::is_new);
        self.is_waited_for.store(is_waited_for, Ordering::Relaxed);
        answer
    }

    /// The session is this one from now on.
    fn has(&self, session: &'static Session) {
        // One thread at a time begins one: see `begin`.
        session.previous.store(self.session.load(Ordering::Acquire), Ordering::Release);
        let old = self.session.swap(std::ptr::from_ref(session).cast_mut(), Ordering::AcqRel);
        let (at, word) = match session.place {
            place @ (0 | 1) => (place, session.picks_word()),
            _ => (1, &MANY),
        };
        let is_of_many = || std::ptr::eq(PICKS[1].load(Ordering::Relaxed), &MANY);
        if at == 0 || !is_of_many() {
            PICKS[at].store(std::ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
        }
        GENERATION.fetch_add(1, Ordering::AcqRel);
        // Threads that wait at those that there were wait at this one, too, from now on.
        // SAFETY: as in `session`.
        let old = unsafe { old.as_ref() };
        all().chain(old).for_each(|one| os::ring(one.wake.fd()));
    }
}

/// Those that the environment names are known. When the library is loaded.
pub(super) fn name() {
    let Some(told) = told() else { return };
    told.addresses.iter().for_each(|address| add(&[address]));
}

/// One more is known, at the address of these parts, unless it was before. What is more than there is room for is not.
fn add(parts: &[&[u8]]) {
    let mut new = Address { bytes: [0; ADDRESS_MAX], len: 0 };
    for part in parts {
        let Some(to) = new.bytes.get_mut(new.len..new.len + part.len()) else { return };
        to.copy_from_slice(part);
        new.len += part.len();
    }
    let Some(_adding) = ADDING.try_take() else { return };
    let count = COUNT.load(Ordering::Acquire);
    let is_known = known().any(|nic| nic.address().is_some_and(|its| its.get() == new.get()));
    if !is_known
        && let Some(nic) = ALL.get(count)
        && let Some(address) = os::keep(new)
    {
        nic.address.store(std::ptr::from_ref(address).cast_mut(), Ordering::Release);
        COUNT.store(count + 1, Ordering::Release);
    }
}

#[inline]
fn known() -> impl Iterator<Item = &'static Nic> {
    ALL.iter().take(COUNT.load(Ordering::Acquire))
}

/// The sessions that have begun, also those whose wharf is gone.
#[inline]
pub(crate) fn all() -> impl Iterator<Item = &'static Session> + Clone {
    ALL.iter().take(COUNT.load(Ordering::Acquire)).filter_map(Nic::session)
}

/// The same, and those that NICs had before them.
pub(crate) fn all_so_far() -> impl Iterator<Item = &'static Session> {
    // SAFETY: null, or a session, which is kept for as long as the process lives.
    let previous =
        |one: &&'static Session| unsafe { one.previous.load(Ordering::Acquire).as_ref() };
    all().flat_map(move |last| std::iter::successors(Some(last), previous))
}

/// Whether there is any.
pub(crate) fn are_any() -> bool {
    all().next().is_some()
}

/// Whether a wharf is about to answer, so that there may be a session soon.
pub(crate) fn is_beginning() -> bool {
    known().any(|nic| nic.is_waited_for.load(Ordering::Relaxed))
}

/// Whether more than one NIC is known.
pub(crate) fn are_several() -> bool {
    COUNT.load(Ordering::Acquire) > 1
}

/// Whether there is a NIC that has no wharf now: it may be one's again.
pub(crate) fn lacks_any() -> bool {
    known().any(|nic| nic.session().is_none_or(Session::is_dead))
}

/// Begins what is to begin. Returns whether there is any session.
pub(crate) fn look() -> bool {
    let calls = LOOKS.load(Ordering::Relaxed).wrapping_add(1);
    LOOKS.store(calls, Ordering::Relaxed);
    if calls.is_multiple_of(LOOK_CALLS) {
        look_for_more();
    }
    known().enumerate().for_each(|(place, nic)| nic.look(place));
    are_any() || {
        // Those that were named may be gone.
        look_for_more();
        are_any()
    }
}

/// Looks whether there are more NICs, if that was not done lately.
#[cold]
pub(crate) fn look_for_more() {
    let Some(told) = told().as_ref().filter(|told| !told.folders.is_empty()) else { return };
    let (now, due) = (os::now(), NEXT_LOOK.load(Ordering::Relaxed));
    let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
    let next = now + LOOK_EVERY;
    if now < due || NEXT_LOOK.compare_exchange(due, next, success, failure).is_err() {
        return;
    }
    let errno = os::errno();
    for Folder { path, path0, prefix, suffix } in &told.folders {
        os::each_name(path0, |name| {
            let is_one = name.len() > prefix.len() + suffix.len()
                && name.starts_with(prefix)
                && name.ends_with(suffix);
            if is_one {
                add(&[path, name]);
            }
        });
    }
    known().enumerate().for_each(|(place, nic)| nic.look(place));
    os::set_errno(errno);
}

/// Whether the program was started to have any.
pub(crate) fn is_wanted() -> bool {
    told().is_some()
}

/// Whether the NIC may move by itself what the program moves between connections.
pub(crate) fn splices() -> bool {
    told().as_ref().is_some_and(|told| told.splices)
}

/// Whether a supervisor answers what comes past this library, and would give pairs in place of what is to come to it.
pub(crate) fn has_supervisor() -> bool {
    told().as_ref().is_some_and(|told| told.has_supervisor)
}

/// Another number says that another session has begun.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// How often all NICs together have asked for connections.
pub(crate) fn picks() -> u64 {
    all().fold(0, |sum, session| sum.wrapping_add(session.picks()))
}

/// Whether NICs may have asked for connections since [`picks`] was this: always, where more than the first two have
/// sessions.
#[inline]
pub(crate) fn may_have_asked_since(before: u64) -> bool {
    // SAFETY: words of the library's, or of memory that is never unmapped.
    let word = |at: usize| unsafe { &*PICKS[at].load(Ordering::Relaxed) }.load(Ordering::Relaxed);
    word(0).wrapping_add(word(1)) != before
}

/// Looks whether the wharfs are there still: false if one is gone.
pub(crate) fn look_alive() -> bool {
    all().filter(|session| !session.looks_alive()).count() == 0
}

/// The calling thread is about to sleep where all of them wake it, and is awake again when the result is dropped.
pub(crate) fn sleep() -> Asleep {
    let mut asleep = Asleep([const { None }; NICS_MAX]);
    for (place, session) in asleep.0.iter_mut().zip(all()) {
        let sleepers = session.sleepers();
        sleepers.enter();
        *place = Some(sleepers);
    }
    asleep
}

/// A thread that sleeps.
pub(crate) struct Asleep([Option<Sleepers<'static>>; NICS_MAX]);

impl Drop for Asleep {
    fn drop(&mut self) {
        self.0.iter().flatten().for_each(|sleepers| sleepers.leave());
    }
}

/// In the child after fork: the sessions are the parent's.
pub(super) fn forget() {
    ADDING.renew();
    for nic in &ALL {
        nic.session.store(std::ptr::null_mut(), Ordering::Release);
        nic.retry.store(0, Ordering::Release);
        nic.hello.renew();
        // Its descriptor is closed with the others of the library's.
        nic.hello.try_take().into_iter().for_each(|mut hello| *hello = None);
        nic.is_waited_for.store(false, Ordering::Relaxed);
    }
    let none = (&raw const NONE).cast_mut();
    PICKS.iter().for_each(|picks| picks.store(none, Ordering::Relaxed));
    GENERATION.fetch_add(1, Ordering::AcqRel);
}
