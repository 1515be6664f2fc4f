//! Descriptors of the layer's own. The program knows nothing of them: it may close all that it does not know, or give one of
//! its own the number of any. They have high numbers, which few programs use, and words in the table.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use libc::{c_int, c_uint};

use crate::os;
use crate::table::{self, OWN_MAX, Word};
use crate::vfork;

/// In a place: that is free; the descriptor was closed where the layer did not see it. Else it is the number and one more.
const FREE: i32 = 0;
const LOST: i32 = -1;

/// One or two for each thread that waits, and some for each NIC.
static ALL: [AtomicI32; OWN_MAX] = [const { AtomicI32::new(FREE) }; OWN_MAX];
/// Where the next free place is looked for.
static HINT: AtomicU32 = AtomicU32::new(0);
/// The least number that they are to have.
static LOWEST: AtomicI32 = AtomicI32::new(0);

/// All numbers of the layer's own are from the first on, and below the second.
static FIRST: AtomicI32 = AtomicI32::new(c_int::MAX);
static END: AtomicI32 = AtomicI32::new(0);

/// Numbers from here on are high enough for select(2) and for loops over all that may be open; with a limit that is about as
/// low, the last eighth is for those of the layer's.
const HIGH: c_int = 1024;

/// The library is loaded.
pub(crate) fn begin() {
    let most = os::descriptors_max().min(table::DESCRIPTORS as u64) as c_int;
    LOWEST.store(HIGH.min(most - most / 8), Ordering::Relaxed);
}

/// One of them: its place. It stays the same where its number changes.
#[derive(Clone, Copy)]
pub(crate) struct Own(u16);

/// What there was no place for.
const NONE: Own = Own(u16::MAX);

impl Own {
    /// This descriptor is one from now on, by a high number. If there is no place for it, it is closed.
    pub(crate) fn new(fd: c_int) -> Own {
        if fd < 0 {
            return NONE;
        }
        if !vfork::is_own() {
            // The parent, whose memory this is, does not have it.
            os::close(fd);
            return NONE;
        }
        let errno = os::errno();
        let high = os::duplicate_from(fd, LOWEST.load(Ordering::Relaxed));
        let fd = if high < 0 {
            fd
        } else {
            os::close(fd);
            high
        };
        os::set_errno(errno);
        let hint = HINT.load(Ordering::Relaxed) as usize;
        let is_taken = |at: &usize| {
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            ALL[*at].compare_exchange(FREE, fd + 1, success, failure).is_ok()
        };
        let Some(at) = (hint..OWN_MAX).chain(0..hint).find(is_taken) else {
            os::close(fd);
            return NONE;
        };
        HINT.store(((at + 1) % OWN_MAX) as u32, Ordering::Relaxed);
        let own = Own(at as u16);
        own.is_by(fd);
        own
    }

    /// The one of this place.
    pub(crate) fn at_place(place: u16) -> Own {
        Own(place)
    }

    /// Its place as a number.
    pub(crate) fn place_number(self) -> u16 {
        self.0
    }

    /// Its number now; a negative one if it was lost.
    #[inline]
    pub(crate) fn fd(self) -> c_int {
        self.place().map_or(LOST, |place| place.load(Ordering::Acquire)) - 1
    }

    fn place(self) -> Option<&'static AtomicI32> {
        ALL.get(usize::from(self.0))
    }

    fn set(self, to: i32) {
        if let Some(place) = self.place() {
            place.store(to, Ordering::Release);
        }
    }

    fn word(self) -> Word {
        std::ptr::without_provenance_mut(table::OWN + usize::from(self.0))
    }

    fn is_by(self, fd: c_int) {
        FIRST.fetch_min(fd, Ordering::AcqRel);
        END.fetch_max(fd + 1, Ordering::AcqRel);
        table::mark(fd, self.word());
    }

    /// It is needed no more.
    pub(crate) fn close(self) {
        self.leave(FREE);
    }

    fn leave(self, as_what: i32) {
        let fd = self.fd();
        // Not what has its number where it was lost. The table has no word of a number that is too high for it.
        let is_there = || table::exchange_own(fd, self.word(), std::ptr::null_mut());
        if fd >= 0 && (!table::has_room(fd) || is_there()) {
            os::close(fd);
        }
        self.set(as_what);
    }
}

/// Whether a descriptor of this word is one.
#[inline]
pub(crate) fn is(word: Word) -> bool {
    word.addr() >= table::OWN
}

fn at(fd: c_int) -> Option<Own> {
    let word = table::word(fd);
    is(word).then(|| Own((word.addr() - table::OWN) as u16))
}

fn all() -> Range<c_int> {
    FIRST.load(Ordering::Acquire)..END.load(Ordering::Acquire)
}

/// The program is about to give one of its own this number: what has it goes by another. A thread that is in the middle of
/// a call by the old one finds what the program does then, as it does when it closes a descriptor that another thread uses.
pub(crate) fn make_way(fd: c_int) {
    let Some(own) = at(fd) else { return };
    let new = os::duplicate_from(fd, LOWEST.load(Ordering::Relaxed).max(fd));
    if !table::exchange_own(fd, own.word(), std::ptr::null_mut()) {
        // Another thread was faster.
        if new >= 0 {
            os::close(new);
        }
        return;
    }
    if new >= 0 {
        own.is_by(new);
        own.set(new + 1);
    } else {
        own.set(LOST);
    }
}

/// The number is another descriptor's, as this one was closed where the layer did not see it: nothing is written there any
/// more.
pub(crate) fn lost(fd: c_int) {
    if let Some(own) = at(fd)
        && table::exchange_own(fd, own.word(), std::ptr::null_mut())
    {
        own.set(LOST);
    }
}

/// Calls `close` with the numbers from `first` to `last`, both included, but for those of the layer's own: with ranges of
/// them, as long as it does not fail. Returns what it did last, or 0.
pub(crate) fn around(
    first: c_uint,
    last: c_uint,
    mut close: impl FnMut(c_uint, c_uint) -> c_int,
) -> c_int {
    let mut from = first;
    for fd in all().filter(|fd| is(table::word(*fd))) {
        let fd = fd as c_uint;
        if !(from..=last).contains(&fd) {
            continue;
        }
        if from < fd && close(from, fd - 1) < 0 {
            return -1;
        }
        from = fd + 1;
    }
    if from <= last { close(from, last) } else { 0 }
}

/// In the child after fork: they are closed, as they are the parent's. What still goes by one fails.
pub(crate) fn forget() {
    all().filter_map(at).for_each(|own| own.leave(LOST));
}
