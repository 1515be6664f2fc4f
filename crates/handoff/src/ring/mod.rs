//! Rings in memory that an application shares with the NIC: bytes ([`send`], [`receive`]), commands ([`command`]),
//! and the doorbell by which one side wakes the other ([`Doorbell`]).
//!
//! The memory is given from outside as atomic words, so that all of this is safe Rust whatever the other
//! side writes. **The NIC trusts nothing in it.** It keeps its own indices, loads each of the application's once,
//! and judges what it has loaded; one that is not possible is [`Hostile`]. Nothing here loops longer than what
//! it was given to copy.
//!
//! Each ring has one word for the application and one for the NIC, which should be on different cache lines, and who
//! writes its bytes has two more, which say where they lie. The application's word of a byte ring is index and epoch
//! together:
//!
//! - A call of the application's loads it, copies, and takes effect by one compare-and-swap from there to the
//!   index behind its bytes. A call in an epoch that is not the NIC's does not begin: the kernel serves it.
//! - A restore flips the epoch by one addition, which cannot fail or be kept from happening, and learns by it which
//!   calls have taken effect. All others lose, and are repeated in the kernel ([`Lost`]).
//!
//! An application that only moves what one connection receives to another one may lend the NIC both rings ([`splice`]).
//!
//! Indices count bytes (or commands) modulo 2^32, and sizes are powers of two. One thread at a time may use each
//! side of a ring, but for reading: threads of an application that write agree by a lock of its own, and one that stopped
//! in the middle of a call keeps that lock, whatever epoch it is, so that it does not write into what another has begun.
//! Threads that read need none. Of two that copy the same bytes one takes effect, and the other reads anew; that the NIC
//! has written over what it copied meanwhile does no harm, as that is thrown away.

pub mod atomic;
pub mod command;
mod data;
mod doorbell;
mod extent;
pub mod receive;
pub mod send;
pub mod splice;

use core::fmt;

use crate::Epoch;
use atomic::{AtomicU64, Ordering};
use extent::{Classes, Extent, Extents};

pub use data::Piece;
pub use doorbell::{Doorbell, Sleepers};

/// What no application writes that keeps to the protocol. Its connections are reset, and it is told nothing more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hostile {
    /// An index that is behind what it was, or beyond what the other side has.
    Index,
    /// An epoch, which the NIC alone changes.
    Epoch,
}

impl fmt::Display for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hostile::Index => "the application wrote an index that is not possible",
            Hostile::Epoch => "the application changed the epoch",
        })
    }
}

impl core::error::Error for Hostile {}

/// A call has not taken effect, as the NIC does not have the connection, or not any more: the kernel serves it. Or another
/// thread has read what it was about to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is not at the NIC: repeat the call in the kernel")
    }
}

impl core::error::Error for Lost {}

/// Memory that is no ring, or bytes that do not fit into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSize;

impl fmt::Display for BadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a ring has a power of two of words, at most 2 GB, and holds no more than half of that",
        )
    }
}

impl core::error::Error for BadSize {}

/// The memory of a byte ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    /// Index and epoch of the application's.
    app: &'a AtomicU64,
    /// The NIC's index, and of a send ring the class that it wants to have used.
    nic: &'a AtomicU64,
    /// Where bytes lie, by who writes them: the last extent, and the one before it.
    places: &'a [AtomicU64; 2],
    data: data::Data<'a>,
}

impl<'a> Ring<'a> {
    /// A ring of the application's word and the NIC's, the two words of who writes its bytes, and twice as much data as it
    /// holds.
    ///
    /// # Errors
    /// If the data is not a power of two of words, two at least, or more than 2 GB.
    pub fn new(
        app: &'a AtomicU64,
        nic: &'a AtomicU64,
        places: &'a [AtomicU64; 2],
        data: &'a [AtomicU64],
    ) -> Result<Self, BadSize> {
        Ok(Ring { app, nic, places, data: data::Data::new(data)? })
    }

    /// Bytes that it holds at most.
    pub fn capacity(&self) -> u32 {
        self.data.capacity()
    }

    /// Bytes from the beginning of its memory that it has used since it was begun, at most.
    pub fn used(&self) -> usize {
        2 * self.classes().size(self.extents().current.class) as usize
    }

    fn classes(&self) -> Classes {
        self.data.classes
    }

    /// Where its bytes lie, up to an index that was loaded before.
    fn extents(&self) -> Extents {
        let [current, previous] = self.places;
        // The one before it was stored before it.
        let current = Extent::of_word(current.load(Ordering::Acquire));
        Extents { current, previous: Extent::of_word(previous.load(Ordering::Relaxed)) }
    }

    /// Says where bytes lie, before the index behind them is published.
    fn set_extents(&self, extents: Extents) {
        let [current, previous] = self.places;
        previous.store(extents.previous.word(), Ordering::Relaxed);
        current.store(extents.current.word(), Ordering::Release);
    }
}

/// An empty ring begins anew at the beginning of its memory when it has come so far, so that what is used again and again
/// is in the cache.
const ANEW: u32 = 16 << 10;

/// In the application's word of a receive ring, above the epoch: see [`splice`].
const LENT: u64 = 1 << 63;
const MOVING: u64 = 1 << 62;

/// The application's word: its epoch and its index.
fn join(epoch: Epoch, index: u32) -> u64 {
    (u64::from(epoch.0) << 32) | u64::from(index)
}

fn split(word: u64) -> (Epoch, u32) {
    (Epoch(((word & !(LENT | MOVING)) >> 32) as u32), word as u32)
}

/// What is added to flip the epoch, whatever the index.
const FLIP: u64 = 1 << 32;

/// What the NIC knows of the application's word of a ring.
#[derive(Clone, Copy, Debug)]
struct Known {
    epoch: Epoch,
    index: u32,
}

impl Known {
    /// How far the application has come since it was looked last, which can be `most`.
    fn advance(&mut self, word: u64, most: u32) -> Result<u32, Hostile> {
        let (epoch, index) = split(word);
        if epoch != self.epoch {
            return Err(Hostile::Epoch);
        }
        let advance = index.wrapping_sub(self.index);
        if advance > most {
            return Err(Hostile::Index);
        }
        self.index = index;
        Ok(advance)
    }

    fn look(&mut self, app: &AtomicU64, most: u32) -> Result<u32, Hostile> {
        self.advance(app.load(Ordering::Acquire), most)
    }

    /// Ends the epoch. What has taken effect has done so when this returns.
    fn flip(&mut self, app: &AtomicU64, most: u32) -> Result<u32, Hostile> {
        let word = app.fetch_add(FLIP, Ordering::AcqRel);
        self.advance(word, most)
    }

    /// The same for one that does not know whether the epoch has ended already.
    fn end(&mut self, app: &AtomicU64, most: u32) -> Result<u32, Hostile> {
        let (epoch, index) = split(app.load(Ordering::Acquire));
        let ended = if epoch == self.epoch.next() {
            self.advance(join(self.epoch, index), most)
        } else {
            self.flip(app, most)
        };
        self.epoch = self.epoch.next();
        ended
    }
}

/// A call of the application's that has begun.
#[derive(Clone, Copy, Debug)]
struct Call {
    word: u64,
    index: u32,
}

impl Call {
    /// Begins, if the NIC has the connection, and has not been lent the ring.
    fn begin(app: &AtomicU64) -> Result<Call, Lost> {
        let word = app.load(Ordering::Acquire);
        let (epoch, index) = split(word);
        if epoch.is_nic() && word & LENT == 0 { Ok(Call { word, index }) } else { Err(Lost) }
    }

    /// Takes effect, unless the epoch has ended since.
    fn take_effect(self, app: &AtomicU64, count: u32) -> Result<(), Lost> {
        let (epoch, index) = split(self.word);
        let after = join(epoch, index.wrapping_add(count));
        let swapped = app.compare_exchange(self.word, after, Ordering::AcqRel, Ordering::Relaxed);
        swapped.map(|_| ()).map_err(|_| Lost)
    }
}
