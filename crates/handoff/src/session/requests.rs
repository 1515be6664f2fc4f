//! Requests about one connection that found no room in the queue of the session's Unix socket. The application writes the
//! word; wharf takes what is there when [`Shared::unheard`](super::Shared::unheard) has changed.
//!
//! ```text
//!   bits  0    the application has closed its last descriptor of the connection
//!         1    it wants the connection back
//!         8 .. 16   for this reason: the code of a RestoreReason
//! ```

use crate::RestoreReason;
use crate::ring::atomic::{AtomicU64, Ordering};

const CLOSED: u64 = 1;
const BACK: u64 = 2;
const REASON_SHIFT: u32 = 8;

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// As [`Message::Restore`](super::Message::Restore).
    Restore(RestoreReason),
    /// As [`Message::Close`](super::Message::Close).
    Close,
}

/// The word of the requests about one connection.
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a>(pub(super) &'a AtomicU64);

impl Requests<'_> {
    /// Notes a request. Only the reason of the last one that wants the connection back is kept.
    pub fn note(&self, request: Request) {
        let change = |word: u64| match request {
            Request::Close => Some(word | CLOSED),
            Request::Restore(reason) => {
                let others = word & !(0xff << REASON_SHIFT);
                Some(others | BACK | u64::from(reason.code()) << REASON_SHIFT)
            }
        };
        // It never gives up.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
    }

    /// Takes what was noted, in the order in which it is to be done. A reason that is none reads as the first.
    pub fn take(&self) -> impl Iterator<Item = Request> + use<> {
        let word = match self.0.load(Ordering::Acquire) {
            0 => 0,
            _ => self.0.swap(0, Ordering::AcqRel),
        };
        let reason = RestoreReason::from_code((word >> REASON_SHIFT) as u8).unwrap_or_default();
        let back = (word & BACK != 0).then_some(Request::Restore(reason));
        let close = (word & CLOSED != 0).then_some(Request::Close);
        back.into_iter().chain(close)
    }

    /// Forgets what was noted about the connection that had the number before.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }
}
