//! The status of a connection, a word that wharf writes, and a process only when it [gives up](give_up).
//!
//! ```text
//!   bits  0 .. 8    Place
//!         8         the peer has closed its end: what is in the ring is all there is
//!        16 .. 32   error of errno(3) that the next call gives; 0 for none
//!        32 .. 40   why it is at the OS: the code of a RestoreReason, or with bit 40 of a Refusal
//!        48 .. 64   a count of the changes, so that who waits for one sees each
//! ```

use crate::ring::atomic::{AtomicU64, Ordering};
use crate::{Refusal, RestoreReason};

/// Where a connection is, as its application sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Place {
    /// There is none: the number is free.
    #[default]
    Free,
    /// Between the two, or on offer: calls wait, a bounded time, for what comes next. Only what the rings' epochs
    /// say decides whether a call takes effect.
    Moving,
    /// The NIC runs it.
    Nic,
    /// The kernel runs it (again). The number is free.
    Os,
    /// It has ended on the NIC, or was lost. What is unread is still in the ring.
    Ended,
}

/// The status, as one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Where it is.
    pub place: Place,
    /// The peer has closed its end.
    pub peer_closed: bool,
    /// Error of errno(3) that the next call gives; 0 for none.
    pub error: u16,
    /// Why it is at the OS.
    pub why: Option<Why>,
}

/// Why a connection is at the OS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It was not taken.
    Refused(Refusal),
    /// It was given back.
    Restored(RestoreReason),
}

const PEER_CLOSED: u64 = 1 << 8;
const ERROR_SHIFT: u32 = 16;
const WHY_SHIFT: u32 = 32;
const REFUSED: u64 = 1 << 40;
const COUNT_SHIFT: u32 = 48;

/// Changes the status, behind all that was written to the memory before. One part of wharf at a time has the
/// connection, so that no change comes in between.
pub fn change(word: &AtomicU64, status: Status) {
    let count = (word.load(Ordering::Relaxed) >> COUNT_SHIFT).wrapping_add(1);
    word.store(status.encode() | count << COUNT_SHIFT, Ordering::Release);
}

/// A process does not wait any longer for somebody to put its connection back, of which it has seen this word: nobody is
/// to. Returns the status then, which is another one if somebody has changed it meanwhile.
pub fn give_up(word: &AtomicU64, seen: u64, status: Status) -> Status {
    let count = (seen >> COUNT_SHIFT).wrapping_add(1);
    let new = status.encode() | count << COUNT_SHIFT;
    match word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => status,
        Err(now) => Status::decode(now),
    }
}

/// The count of changes in a status.
pub fn count(word: u64) -> u16 {
    (word >> COUNT_SHIFT) as u16
}

impl Status {
    /// Of a connection that is there.
    pub fn at(place: Place) -> Self {
        Status { place, ..Status::default() }
    }

    /// As a word.
    pub fn encode(self) -> u64 {
        let place = match self.place {
            Place::Free => 0,
            Place::Moving => 1,
            Place::Nic => 2,
            Place::Os => 3,
            Place::Ended => 4,
        };
        let why = match self.why {
            None => 0,
            Some(Why::Restored(reason)) => u64::from(reason.code()) << WHY_SHIFT,
            Some(Why::Refused(reason)) => u64::from(reason.code()) << WHY_SHIFT | REFUSED,
        };
        let closed = if self.peer_closed { PEER_CLOSED } else { 0 };
        place | closed | u64::from(self.error) << ERROR_SHIFT | why
    }

    /// From a word. What no wharf writes reads as what is nearest: the application trusts wharf, which has its
    /// connections.
    #[inline]
    pub fn decode(word: u64) -> Self {
        let code = (word >> WHY_SHIFT) as u8;
        let why = match word & REFUSED != 0 {
            true => Refusal::from_code(code).map(Why::Refused),
            false => RestoreReason::from_code(code).map(Why::Restored),
        };
        Status {
            place: match word as u8 {
                0 => Place::Free,
                1 => Place::Moving,
                2 => Place::Nic,
                3 => Place::Os,
                _ => Place::Ended,
            },
            peer_closed: word & PEER_CLOSED != 0,
            error: (word >> ERROR_SHIFT) as u16,
            why,
        }
    }
}
