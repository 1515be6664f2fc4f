//! Figures of a connection, as `TCP_INFO` has them, which wharf writes when the application asks
//! ([`NicControl::Inform`](crate::command::NicControl)).
//!
//! ```text
//!   word  0         how often they were written, twice as many, and odd meanwhile
//!         1 .. 32   struct tcp_info (linux/tcp.h of Linux 6.7)
//! ```

use crate::ring::atomic::{AtomicU64, Ordering, fence};

/// Bytes of `struct tcp_info`.
pub const INFO_LEN: usize = 248;

const WORD: usize = 8;
const INFO_WORDS: usize = INFO_LEN / WORD;
/// Words of it and its count.
pub(super) const WORDS: usize = 1 + INFO_WORDS;

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Info<'a>(pub(super) &'a [AtomicU64]);

impl Info<'_> {
    /// How often they were written. Another number says that they were written again.
    pub fn count(&self) -> u64 {
        self.0[0].load(Ordering::Acquire)
    }

    /// Writes them. wharf does, one part of it at a time.
    pub fn write(&self, info: &[u8; INFO_LEN]) {
        let count = self.0[0].load(Ordering::Relaxed);
        self.0[0].store(count | 1, Ordering::Relaxed);
        // Who sees any of what follows sees that it is being written.
        fence(Ordering::Release);
        for (word, bytes) in self.0[1..].iter().zip(info.as_chunks::<WORD>().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
        self.0[0].store((count | 1).wrapping_add(1), Ordering::Release);
    }

    /// What was written last; `None` while it is being written.
    pub fn read(&self) -> Option<[u8; INFO_LEN]> {
        let before = self.count();
        let mut info = [0; INFO_LEN];
        for (bytes, word) in info.as_chunks_mut::<WORD>().0.iter_mut().zip(&self.0[1..]) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        fence(Ordering::Acquire);
        let is_whole = before.is_multiple_of(2) && self.0[0].load(Ordering::Relaxed) == before;
        is_whole.then_some(info)
    }
}
