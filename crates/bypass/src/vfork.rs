//! Children that have this process's memory until they execute another program (vfork(2)), but descriptors of their own. The
//! table says what the parent has: a child that closes a number, or gives it to something else, records it here, and only the
//! child sees that.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use libc::c_int;

use crate::os;
use crate::table::{self, DESCRIPTORS};

/// The process, since it was loaded or forked.
static PROCESS: AtomicI32 = AtomicI32::new(0);

const WORDS: usize = DESCRIPTORS / 64;
/// Children that have changed descriptors, at a time. What more of them do goes unseen.
const CHILDREN: usize = 16;
/// In place of a process: none; an entry that is being cleared.
const NONE: u32 = 0;
const CLEARED: u32 = u32::MAX;

struct Child {
    process: AtomicU32,
    /// A bit for each number that is not the parent's in this child.
    changed: [AtomicU64; WORDS],
}

static ALL: [Child; CHILDREN] = [const {
    Child { process: AtomicU32::new(NONE), changed: [const { AtomicU64::new(0) }; WORDS] }
}; CHILDREN];
/// Entries that a child has, or had.
static USED: AtomicU32 = AtomicU32::new(0);

/// Numbers that a child has changed.
pub(crate) struct Changed([u64; WORDS]);

/// The library is loaded, or the process is a child of fork(2).
pub(crate) fn begin() {
    PROCESS.store(os::process(), Ordering::Relaxed);
    ALL.iter().filter(|child| child.process.load(Ordering::Relaxed) != NONE).for_each(|child| {
        child.clear();
        child.process.store(NONE, Ordering::Relaxed);
    });
    USED.store(0, Ordering::Relaxed);
}

/// Returns true if this process has descriptors and connections for itself, and is not a child that has the memory of one.
#[inline]
pub(crate) fn is_own() -> bool {
    PROCESS.load(Ordering::Relaxed) == os::process()
}

impl Child {
    fn clear(&self) {
        self.changed.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// That of the calling process.
    fn own() -> Option<&'static Child> {
        let process = os::process() as u32;
        ALL.iter().find(|child| child.process.load(Ordering::Acquire) == process)
    }

    fn take() -> Option<&'static Child> {
        let process = os::process() as u32;
        let is_taken = |child: &&Child| {
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            child.process.compare_exchange(NONE, process, success, failure).is_ok()
        };
        let child = ALL.iter().find(is_taken)?;
        USED.fetch_add(1, Ordering::AcqRel);
        Some(child)
    }

    /// The entry is free, if it is this process's.
    fn give(&self, process: u32) {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        if self.process.compare_exchange(process, CLEARED, success, failure).is_ok() {
            self.clear();
            self.process.store(NONE, Ordering::Release);
            USED.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// In such a child: these numbers, both included, are not what they are in the parent.
pub(crate) fn change(first: c_int, last: c_int) {
    let numbers = first.max(0)..last.saturating_add(1).min(table::all().end);
    let mut known = numbers.filter(|fd| !table::word(*fd).is_null()).peekable();
    if known.peek().is_none() {
        return;
    }
    if let Some(child) = Child::own().or_else(Child::take) {
        for fd in known {
            child.changed[fd as usize / 64].fetch_or(1 << (fd % 64), Ordering::Relaxed);
        }
    }
}

/// Returns true if the number is not what the table says, as this process is such a child, and has changed it.
#[inline]
pub(crate) fn hides(fd: c_int) -> bool {
    USED.load(Ordering::Relaxed) != 0 && is_changed(fd)
}

#[cold]
#[inline(never)]
fn is_changed(fd: c_int) -> bool {
    if is_own() {
        let errno = os::errno();
        for child in &ALL {
            let process = child.process.load(Ordering::Acquire);
            if process != NONE && process != CLEARED && os::has_exited(process) {
                child.give(process);
            }
        }
        os::set_errno(errno);
        return false;
    }
    let word = Child::own().and_then(|child| child.changed.get(fd as usize / 64));
    word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (fd % 64) != 0)
}

/// Such a child is about to execute another program, and has the memory no more.
pub(crate) fn leave() -> Option<Changed> {
    let child = Child::own()?;
    let changed = Changed(std::array::from_fn(|at| child.changed[at].load(Ordering::Relaxed)));
    child.give(os::process() as u32);
    Some(changed)
}

/// That has failed.
pub(crate) fn stay(changed: Option<Changed>) {
    if let Some((Changed(words), child)) = changed.zip(Child::take()) {
        for (to, word) in child.changed.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }
}
