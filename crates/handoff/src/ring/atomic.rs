//! The atomic words that rings are made of, and how bytes are copied from and to them: those of the language, and those of
//! loom where it tries all orders in which two threads can see each other's.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(super) use wire::bytes::store;

/// Copies bytes from byte `at` of the words on.
#[cfg(not(loom))]
pub(super) fn load(words: &[AtomicU64], at: usize, into: &mut [u8]) {
    wire::Bytes::of_words(words, at, into.len()).copy_to(into);
}

/// The word of each byte from byte `at` on, and its place there.
#[cfg(loom)]
fn places(words: &[AtomicU64], at: usize) -> impl Iterator<Item = (&AtomicU64, u32)> {
    (at..).map_while(|at| Some((words.get(at / 8)?, 8 * (at % 8) as u32)))
}

/// Writes bytes from byte `at` of the words on.
#[cfg(loom)]
pub(super) fn store(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    for ((word, shift), byte) in places(words, at).zip(bytes) {
        let others = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(others | u64::from(*byte) << shift, Ordering::Relaxed);
    }
}

/// Copies bytes from byte `at` of the words on.
#[cfg(loom)]
pub(super) fn load(words: &[AtomicU64], at: usize, into: &mut [u8]) {
    for ((word, shift), byte) in places(words, at).zip(into) {
        *byte = (word.load(Ordering::Relaxed) >> shift) as u8;
    }
}
