//! What survives the NIC: of each connection that it runs, a record in memory of the NIC's and the guard's alone.
//!
//! A record has what is not in the rings that the application shares: [`Agreed`], which does not change while the
//! NIC has the connection and is written once, and [`Moving`], which is committed before any packet leaves that
//! reveals it, and before ring space is freed. Bytes are in the rings.
//!
//! ```text
//!   words  0 .. 16   Agreed, and its sum
//!         16 .. 24   Moving, commits 2, 4, 6 ...     one cache line each, with its number and its sum
//!         24 .. 32   Moving, commits 1, 3, 5 ...
//! ```
//!
//! A commit writes over the older of two copies, so that one is whole at any instant. One that was not finished is
//! known by its sum, and the copy before it counts. The NIC dies by a signal, not by the machine's losing power:
//! what it has stored is there, in the order in which it was stored.

mod convert;
mod memory;
mod record;

use crate::ring::atomic::{AtomicU64, Ordering, fence};
use core::fmt;

use crate::Epoch;

pub use convert::MirrorError;
pub use memory::Memory;
pub use record::{AGREED_WORDS, Agreed, Closing, MOVING_WORDS, Moving, RECORD_VERSION, mirror_sum};

/// Words of a connection.
pub const MIRROR_WORDS: usize = 32;

/// Where the copies begin: that of even numbers and that of odd ones.
const COPIES: [usize; 2] = [16, 24];

/// Memory for one connection.
pub type Area = [AtomicU64; MIRROR_WORDS];

/// What was read of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What does not change.
    pub agreed: Agreed,
    /// The last commit that was finished.
    pub moving: Moving,
}

/// Why there is no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// None was written, or it was taken back.
    Nothing,
    /// It was written in part, before the first commit: the NIC has sent nothing for the connection.
    NotBegun,
    /// It contradicts itself: what cannot be written, as by a version that had other fields.
    Value,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReadError::Nothing => "no record of a connection",
            ReadError::NotBegun => "a record of a connection that was not begun",
            ReadError::Value => "a record with values that no connection has",
        })
    }
}

impl core::error::Error for ReadError {}

/// What is known of a record, to go on with later.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    epoch: Epoch,
    number: u32,
    last: Moving,
}

/// The NIC's side of the record of one connection.
#[derive(Debug)]
pub struct Writer<'a> {
    area: &'a Area,
    epoch: Epoch,
    /// Number of the last commit.
    number: u32,
    last: Option<Moving>,
}

impl<'a> Writer<'a> {
    /// Writes what does not change. Until the first commit there is no record.
    pub fn begin(area: &'a Area, agreed: &Agreed) -> Self {
        clear(area);
        store(&area[..AGREED_WORDS], &agreed.words());
        Writer { area, epoch: agreed.epoch, number: 0, last: None }
    }

    /// Goes on with a record, by whoever it was begun; `None` if there is none.
    pub fn resume(area: &'a Area) -> Option<Self> {
        let (record, number) = read_numbered(&copy(area)).ok()?;
        Some(Writer { area, epoch: record.agreed.epoch, number, last: Some(record.moving) })
    }

    /// Goes on with what was [kept](Self::keep) of a writer of this area.
    pub fn go_on(area: &'a Area, kept: Kept) -> Self {
        Writer { area, epoch: kept.epoch, number: kept.number, last: Some(kept.last) }
    }

    /// What is known, for one that does not keep the memory borrowed; `None` before the first commit.
    pub fn keep(&self) -> Option<Kept> {
        Some(Kept { epoch: self.epoch, number: self.number, last: self.last? })
    }

    /// What was committed last.
    pub fn last(&self) -> Option<&Moving> {
        self.last.as_ref()
    }

    /// Commits what has changed. When this returns, packets that reveal it may leave, and what the peer has
    /// acknowledged may be overwritten.
    ///
    /// # Panics
    /// In debug builds if a number went back: a mirror that promises less than was sent is a bug.
    pub fn commit(&mut self, moving: &Moving) {
        if let Some(last) = &self.last {
            debug_assert!(moving.follows(last), "{moving:?} follows {last:?}");
        }
        self.number = self.number.wrapping_add(1);
        let at = COPIES[(self.number % 2) as usize];
        store(&self.area[at..at + MOVING_WORDS], &moving.words(self.number, self.epoch));
        self.last = Some(*moving);
    }

    /// Takes the record back: the connection is the OS's, or has ended.
    pub fn end(self) {
        clear(self.area);
    }
}

/// The last word is the sum, without which the others mean nothing.
fn store(to: &[AtomicU64], words: &[u64]) {
    // What was stored before this comes first, the sum of an earlier commit above all.
    fence(Ordering::Release);
    if let Some((last, rest)) = to.split_last() {
        rest.iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
        last.store(words.last().copied().unwrap_or(0), Ordering::Release);
    }
}

/// No sum is zero: see [`mirror_sum`].
fn clear(area: &Area) {
    for last in [AGREED_WORDS - 1, COPIES[0] + MOVING_WORDS - 1, COPIES[1] + MOVING_WORDS - 1] {
        area[last].store(0, Ordering::Release);
    }
}

/// The guard's side: the record of a connection whose NIC has died.
///
/// # Errors
/// If there is none.
pub fn read(area: &Area) -> Result<Record, ReadError> {
    read_words(&copy(area))
}

/// A copy, before it is judged.
fn copy(area: &Area) -> [u64; MIRROR_WORDS] {
    let mut words = [0; MIRROR_WORDS];
    words.iter_mut().zip(area).for_each(|(word, from)| *word = from.load(Ordering::Acquire));
    words
}

/// The record in so many words.
///
/// # Errors
/// If there is none.
pub fn read_words(words: &[u64; MIRROR_WORDS]) -> Result<Record, ReadError> {
    read_numbered(words).map(|(record, _)| record)
}

/// The record, and the number of its last commit.
fn read_numbered(words: &[u64; MIRROR_WORDS]) -> Result<(Record, u32), ReadError> {
    let agreed = Agreed::from_words(&words[..AGREED_WORDS])?;
    let copy = |index: usize| {
        let at = COPIES[index];
        let (number, moving) = Moving::from_words(&words[at..at + MOVING_WORDS], agreed.epoch)?;
        (number as usize % 2 == index).then_some((number, moving))
    };
    let newer = match (copy(0), copy(1)) {
        (Some(a), Some(b)) if (a.0.wrapping_sub(b.0) as i32) < 0 => b,
        (Some(a), _) => a,
        (None, Some(b)) => b,
        (None, None) => return Err(ReadError::NotBegun),
    };
    let (number, moving) = newer;
    Ok((Record { agreed, moving: moving.ok_or(ReadError::Value)? }, number))
}

/// Takes a record back that nothing writes any more.
pub fn erase(area: &Area) {
    clear(area);
}
