//! Bytes that another process may change at any time: they are copied, and what is judged is the copy.
#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// Bytes of a word.
const WORD: usize = size_of::<AtomicU64>();

/// Bytes that can be copied, and no more: another process that has their memory may write there meanwhile.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    start: NonNull<u8>,
    len: usize,
    /// Made of a slice, which nobody changes.
    is_slice: bool,
    memory: PhantomData<&'a [AtomicU64]>,
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.len)
    }
}

impl Default for Bytes<'_> {
    fn default() -> Self {
        Bytes::from(&[][..])
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        let start = NonNull::from(bytes).cast();
        Bytes { start, len: bytes.len(), is_slice: true, memory: PhantomData }
    }
}

impl<'a> Bytes<'a> {
    /// `len` bytes of shared memory, from byte `at` on.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn of_words(words: &'a [AtomicU64], at: usize, len: usize) -> Self {
        let all = size_of_val(words);
        assert!(at <= all && len <= all - at, "{len} bytes from {at} on of {all}");
        let start = NonNull::from(words).cast::<u8>();
        // SAFETY: `at` is within the words, or one byte behind them.
        let start = unsafe { start.add(at) };
        Bytes { start, len, is_slice: false, memory: PhantomData }
    }

    /// How many there are.
    #[inline]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The slice that this was made of, if it was made of one.
    #[inline]
    pub fn as_slice(self) -> Option<&'a [u8]> {
        // SAFETY: it was made of this slice, or of a longer one that it is a part of.
        self.is_slice.then(|| unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) })
    }

    /// Where they lie, for a system call that reads as many as there are.
    #[inline]
    pub const fn as_ptr(self) -> *const u8 {
        self.start.as_ptr()
    }

    /// At most `len` of them, from `from` on.
    #[inline]
    #[must_use]
    pub fn part(self, from: usize, len: usize) -> Self {
        let from = from.min(self.len);
        // SAFETY: `from` is within the bytes, or one behind them.
        let start = unsafe { self.start.add(from) };
        Bytes { start, len: len.min(self.len - from), ..self }
    }

    /// Copies them, as they are now.
    ///
    /// # Panics
    /// If `into` is of another length.
    #[inline]
    pub fn copy_to(self, into: &mut [u8]) {
        assert_eq!(into.len(), self.len, "as many as there are");
        if let Some(slice) = self.as_slice() {
            into.copy_from_slice(slice);
            return;
        }
        // SAFETY: so many bytes may be read, as this was made of live memory that is as long, and so many may be written,
        // to memory that nothing else refers to.
        unsafe { copy(self.start.as_ptr(), into.as_mut_ptr(), self.len) }
    }
}

/// Writes bytes to shared memory, from byte `at` on. Others see any of them before this returns, and none for sure: what
/// says that they are there is stored behind them, with release ordering.
///
/// # Panics
/// If there is no room.
#[inline]
pub fn store(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let all = words.len() * WORD;
    assert!(at <= all && bytes.len() <= all - at, "{} bytes from {at} on of {all}", bytes.len());
    let start = words.as_ptr().cast::<u8>().cast_mut();
    // SAFETY: the bytes lie within the words, which may be written to through a shared reference, as they are atomic, and
    // each value of which is valid.
    unsafe { copy(bytes.as_ptr(), start.add(at), bytes.len()) }
}

/// Copies bytes of which another process, or a thread at the other end of a ring, may write some meanwhile.
///
/// # Safety
/// `len` bytes can be read from `from` on, and written from `to` on; they do not overlap.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise. The direction flag is clear, as the ABI has it. The compiler knows nothing of what is
    // copied, so that it makes no difference to it if that changes meanwhile: the copy is then of some of each.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for at in 0..len {
        // SAFETY: the caller's promise. Volatile accesses are done once each, and the compiler assumes nothing of them.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use core::sync::atomic::Ordering;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn what_is_stored_is_copied_and_nothing_else_changes(
            at in 0usize..200,
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            from in 0usize..320,
            len in 0usize..320,
        ) {
            let words: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(u64::MAX)).collect();
            store(&words, at, &bytes);
            let mut all = vec![0; 512];
            Bytes::of_words(&words, 0, 512).copy_to(&mut all);
            let as_words = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
            prop_assert!(as_words.eq(all.iter().copied()));
            let (before, rest) = all.split_at(at);
            let (within, behind) = rest.split_at(bytes.len());
            prop_assert_eq!(within, &bytes);
            prop_assert!(before.iter().chain(behind).all(|byte| *byte == 255));
            let part = Bytes::from(&all[..]).part(from, len);
            let mut copied = vec![0; part.len()];
            part.copy_to(&mut copied);
            prop_assert_eq!(part.as_slice(), Some(&copied[..]));
            prop_assert_eq!(Bytes::of_words(&words, at, 8).part(3, len).as_slice(), None);
            let expected = all.get(from..).unwrap_or_default();
            prop_assert_eq!(&copied, &expected[..expected.len().min(len)]);
        }
    }

    #[test]
    #[should_panic(expected = "9 bytes from 56 on of 64")]
    fn nothing_is_stored_beyond_the_memory() {
        let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        store(&words, 56, &[0; 9]);
    }
}
