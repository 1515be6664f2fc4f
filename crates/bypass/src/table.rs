//! What the layer knows of each descriptor: one load for one of which it knows nothing.

use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::c_int;

/// Descriptors that are looked at. Those with higher numbers are the kernel's.
pub(crate) const DESCRIPTORS: usize = 1 << 16;

/// What a descriptor is: where that lies, and in the highest bit, which no address of a process has, which of two kinds it
/// is of; or which of the layer's own. Null for what the layer knows nothing of.
pub(crate) type Word = *mut u8;

/// A word of an epoll set has it, and one of a connection does not: what is above zero is a connection.
pub(crate) const SET: usize = 1 << (usize::BITS - 1);
/// Descriptors of the layer's own that there can be at a time.
pub(crate) const OWN_MAX: usize = 1 << 14;
/// A word of one is this or larger, as no other is: a number with a sign that is negative, and small.
pub(crate) const OWN: usize = OWN_MAX.wrapping_neg();

static TABLE: [AtomicPtr<u8>; DESCRIPTORS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS];
/// All that was ever known is below.
static END: AtomicI32 = AtomicI32::new(0);

/// What a descriptor is.
#[inline]
pub(crate) fn word(fd: c_int) -> Word {
    match TABLE.get(fd as usize) {
        Some(place) => place.load(Ordering::Acquire),
        None => std::ptr::null_mut(),
    }
}

/// The descriptor is this from now on.
#[inline]
pub(crate) fn replace(fd: c_int, word: Word) {
    let Some(place) = TABLE.get(fd as usize) else { return };
    include(fd);
    place.store(word, Ordering::Release);
}

/// The layer knows nothing of the descriptor any more.
#[inline]
pub(crate) fn clear(fd: c_int) {
    if let Some(place) = TABLE.get(fd as usize) {
        place.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// The descriptor is this from now on, if it was that. Returns whether it is.
#[inline]
pub(crate) fn exchange(fd: c_int, old: Word, new: Word) -> bool {
    let Some(place) = TABLE.get(fd as usize) else { return false };
    include(fd);
    place.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The same of a descriptor of the layer's own, which is not among [`all`].
pub(crate) fn mark(fd: c_int, word: Word) {
    if let Some(place) = TABLE.get(fd as usize) {
        place.store(word, Ordering::Release);
    }
}

/// The same as [`exchange`] of a descriptor that was marked.
pub(crate) fn exchange_own(fd: c_int, old: Word, new: Word) -> bool {
    let Some(place) = TABLE.get(fd as usize) else { return false };
    place.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

#[inline]
fn include(fd: c_int) {
    if fd >= END.load(Ordering::Relaxed) {
        END.fetch_max(fd + 1, Ordering::AcqRel);
    }
}

/// Whether the layer can know of it.
pub(crate) fn has_room(fd: c_int) -> bool {
    usize::try_from(fd).is_ok_and(|fd| fd < DESCRIPTORS)
}

/// All descriptors that may be something of the program's.
pub(crate) fn all() -> std::ops::Range<c_int> {
    0..END.load(Ordering::Acquire)
}
