//! The memory in which this process and its children tell each other which connections they have: see
//! [`handoff::sharers`].

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use handoff::sharers::Entry;

use crate::os;

/// Connections that several processes can have at a time. Others stay with the kernel.
const ENTRIES: usize = 1 << 14;

static MEMORY: AtomicPtr<Entry> = AtomicPtr::new(std::ptr::null_mut());
/// Where the next free entry is looked for.
static HINT: AtomicU32 = AtomicU32::new(0);

/// The number of an entry that a connection has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number(u32);

impl Number {
    /// As a word of which 0 is none.
    pub(crate) fn word(this: Option<Number>) -> u32 {
        this.map_or(0, |number| number.0 + 1)
    }

    /// From such a word.
    pub(crate) fn of(word: u32) -> Option<Number> {
        word.checked_sub(1).map(Number)
    }
}

fn entries() -> Option<&'static [Entry]> {
    let at = MEMORY.load(Ordering::Acquire);
    // SAFETY: what is there was mapped for so many, zeroed, page-aligned, and is never unmapped. All of it is atomic
    // words, whose every value is valid.
    (!at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at, ENTRIES) })
}

fn entry(number: Number) -> Option<&'static Entry> {
    entries()?.get(number.0 as usize)
}

/// Maps the memory, before the first fork that it is for.
fn begin() -> Option<&'static [Entry]> {
    if entries().is_none() {
        let len = ENTRIES * size_of::<Entry>();
        let (new, null) = (os::map_shared(len)?, std::ptr::null_mut());
        let stored = MEMORY.compare_exchange(null, new.cast(), Ordering::AcqRel, Ordering::Acquire);
        if stored.is_err() {
            // SAFETY: it was mapped above, and nobody has seen it.
            unsafe { os::unmap(new, len) };
        }
    }
    entries()
}

fn own() -> u32 {
    os::process() as u32
}

/// The process is about to fork: a child will have this connection, too. Returns its entry, a new one if it had none;
/// `None` if there is no room for one.
pub(crate) fn expect(number: Option<Number>) -> Option<Number> {
    if let Some(number) = number {
        entry(number)?.expect();
        return Some(number);
    }
    let entries = begin()?;
    let hint = HINT.load(Ordering::Relaxed) as usize;
    let is_taken = |at: &usize| entries[*at].take(own(), os::has_exited);
    let at = (hint..ENTRIES).chain(0..hint).find(is_taken)?;
    HINT.store(((at + 1) % ENTRIES) as u32, Ordering::Relaxed);
    Some(Number(at as u32))
}

/// The fork has failed.
pub(crate) fn give_up(number: Number) {
    if let Some(entry) = entry(number) {
        entry.give_up();
    }
}

/// In the child: it is there.
pub(crate) fn join(number: Number) {
    if let Some(entry) = entry(number) {
        entry.join(own(), os::has_exited);
    }
}

/// The process has the connection no more. Returns whether it had it.
pub(crate) fn leave(number: Number) -> bool {
    entry(number).is_some_and(|entry| entry.leave(own()))
}

/// The process has the connection after all, which it had left.
pub(crate) fn stay(number: Number) {
    if let Some(entry) = entry(number) {
        entry.add(own(), os::has_exited);
    }
}

/// Whether no other process has the connection, or is about to.
pub(crate) fn is_alone(number: Number) -> bool {
    is_alone_without(number, |_| false)
}

/// The same where some that had joined have left without a word.
pub(crate) fn is_alone_without(number: Number, has_left: impl Fn(u32) -> bool) -> bool {
    let own = own();
    let has_left = |process| process != own && (os::has_exited(process) || has_left(process));
    entry(number).is_some_and(|entry| entry.is_alone(own, has_left))
}
