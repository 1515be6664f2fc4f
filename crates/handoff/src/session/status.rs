//! The status of a connection, a word that wharf writes, and a process only when it [gives up](give_up) or
//! [withdraws](withdraw) an offer.
//!
//! ```text
//!   bits  0 .. 8    Place
//!         8         the peer has closed its end: what is in the ring is all there is
//!        16 .. 32   error of errno(3) that the next call gives; 0 for none
//!        32 .. 40   why it is at the OS: the code of a RestoreReason, or with bit 40 of a Refusal
//!        48 .. 64   a count of the changes, so that who waits for one sees each
//! ```
//!
//! An offer is withdrawn or taken by one compare-and-swap of this word, so that one of the two sides wins:
//!
//! ```text
//!   application              the word                            wharf
//!   Offer(cid, count) ────>  Free or Os, of this count
//!                            Offered                  <────  take_up: looks whether the NIC takes it
//!                            Moving                   <────  begin_move: takes it out of the kernel
//!   withdraw ──────────────> Os, refused as withdrawn        both fail: wharf leaves the socket alone, and
//!                            Free                     <────  the number is free
//! ```

use crate::ring::atomic::{AtomicU64, Ordering};
use crate::{Refusal, RestoreReason};

/// Where a connection is, as its application sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Place {
    /// There is none: the number is free.
    #[default]
    Free,
    /// Between the two: calls wait, a bounded time, for what comes next. Only what the rings' epochs say decides
    /// whether a call takes effect.
    Moving,
    /// The NIC runs it.
    Nic,
    /// The kernel runs it (again). The number is free.
    Os,
    /// It has ended on the NIC, or was lost. What is unread is still in the ring.
    Ended,
    /// wharf has the offer, and the kernel runs the connection: the application may [withdraw] the offer.
    Offered,
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

/// Changes the status if the word is still `seen`. Returns whether it was.
fn replace(word: &AtomicU64, seen: u64, status: Status) -> bool {
    let new = status.encode() | u64::from(count(seen).wrapping_add(1)) << COUNT_SHIFT;
    word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Takes up, for wharf, the offer that was made when the [count] of changes was `offered`. Returns false if the application
/// has withdrawn it.
pub fn take_up(word: &AtomicU64, offered: u16) -> bool {
    let seen = word.load(Ordering::Acquire);
    count(seen) == offered && replace(word, seen, Status::at(Place::Offered))
}

/// Says, for wharf, that the connection is about to be taken out of the kernel. Returns false if the application has withdrawn
/// the offer; after true it cannot.
pub fn begin_move(word: &AtomicU64) -> bool {
    let seen = word.load(Ordering::Acquire);
    Status::decode(seen).place == Place::Offered && replace(word, seen, Status::at(Place::Moving))
}

/// Says, for wharf, that the kernel has the connection (again). Of an offer that the application has withdrawn nothing is left
/// to say but that its number is free.
pub fn leave_to_kernel(word: &AtomicU64, status: Status) {
    let seen = word.load(Ordering::Acquire);
    match Status::decode(seen).place {
        Place::Os => change(word, Status::at(Place::Free)),
        Place::Offered if !replace(word, seen, status) => change(word, Status::at(Place::Free)),
        Place::Offered => {}
        _ => change(word, status),
    }
}

/// Refuses, for wharf, the offer that was made when the count of changes was `offered`. The number of one that the application
/// has withdrawn is free.
pub fn refuse(word: &AtomicU64, offered: u16, status: Status) {
    let seen = word.load(Ordering::Acquire);
    if count(seen) != offered || !replace(word, seen, status) {
        change(word, Status::at(Place::Free));
    }
}

/// Withdraws, for the application, an offer of which it has seen this word, as it was offered or [`Place::Offered`]. Returns
/// false if wharf was faster. The number of the connection is free when wharf says so ([`Place::Free`]).
pub fn withdraw(word: &AtomicU64, seen: u64) -> bool {
    let why = Some(Why::Refused(Refusal::Withdrawn));
    replace(word, seen, Status { why, ..Status::at(Place::Os) })
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
            Place::Offered => 5,
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
                5 => Place::Offered,
                _ => Place::Ended,
            },
            peer_closed: word & PEER_CLOSED != 0,
            error: (word >> ERROR_SHIFT) as u16,
            why,
        }
    }
}
