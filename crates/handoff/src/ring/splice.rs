//! What an application that only moves bytes lends the NIC: the receive ring of one connection, and the send ring of another
//! one of its connections on the same NIC. The NIC then does what the application's calls did: it reads the one and writes
//! into the other.
//!
//! One word decides, the application's of the receive ring, by two bits above its epoch:
//!
//! ```text
//!   0 ──lend──> LENT ──step──> LENT | MOVING ──> LENT, index behind what was moved ...
//!                └──take_back──> 0
//! ```
//!
//! - The application sets LENT while nobody writes into the other ring, of which it has written down before whose it is; one
//!   thread at a time does so. A call that has begun to read before that takes no effect, as the word has changed; one that
//!   begins reads nothing.
//! - It takes both rings back at any time, by clearing LENT, but while MOVING is set: then it waits, for as long as the NIC
//!   copies. Who writes into the other ring, or reads this one, does so before.
//! - The NIC sets MOVING, copies, and moves the index of this ring, and then that of the other one by as much; then it clears
//!   MOVING. It waits for nobody: if the application has taken the rings back, or an epoch has ended, it moves nothing.
//! - A NIC that has died while MOVING is set has written down which ring it was, and what the other index is more than this
//!   one: by that [`finish`] moves the other index, before either epoch ends. So bytes are in one of the two rings, never in
//!   none or in both.
//!
//! The NIC trusts none of this. What the application writes there beside the protocol changes what its own connections send.

use super::atomic::{AtomicU64, Ordering, fence};
use super::{Call, Hostile, LENT, Lost, MOVING, Ring, join, receive, send, split};
use crate::Cid;

/// What came of taking a ring back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenBack {
    /// It was not lent, or the kernel has the connection.
    NotLent,
    /// It is the application's again.
    Done,
    /// The NIC is copying: try again.
    Busy,
}

/// Words of the connection whose receive ring is lent.
#[derive(Clone, Copy, Debug)]
pub struct Notes<'a> {
    /// The application's: the number of the connection whose send ring is lent with it.
    pub lent_to: &'a AtomicU64,
    /// The NIC's: see [`finish`].
    pub moving: &'a AtomicU64,
}

impl receive::App<'_> {
    /// Lends the ring, and the send ring of that connection, if that is right with this index of the next byte to be read.
    /// Returns whether it was lent. One thread at a time may do so.
    ///
    /// # Errors
    /// If the kernel has the connection, or something was read meanwhile, or it is lent already.
    pub fn lend(
        &self,
        (to, notes): (Cid, Notes<'_>),
        is_right: impl FnOnce(u32) -> bool,
    ) -> Result<bool, Lost> {
        let app = self.0.app;
        let call = Call::begin(app)?;
        if !is_right(call.index) {
            return Ok(false);
        }
        notes.lent_to.store(to.0.into(), Ordering::Relaxed);
        let lent = call.word | LENT;
        let swapped = app.compare_exchange(call.word, lent, Ordering::AcqRel, Ordering::Relaxed);
        swapped.map(|_| true).map_err(|_| Lost)
    }

    /// Whether the NIC has been lent the ring.
    pub fn is_lent(&self) -> bool {
        is_lent(self.0.app.load(Ordering::Acquire))
    }

    /// Takes the ring back. What the NIC has published by then is seen by a look behind this, or the NIC has seen this and
    /// tells.
    pub fn take_back(&self) -> TakenBack {
        let app = self.0.app;
        let mut word = app.load(Ordering::Acquire);
        while is_lent(word) {
            if word & MOVING != 0 {
                return TakenBack::Busy;
            }
            match app.compare_exchange(word, word & !LENT, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    fence(Ordering::SeqCst);
                    return TakenBack::Done;
                }
                Err(now) => word = now,
            }
        }
        TakenBack::NotLent
    }
}

impl Notes<'_> {
    /// Whether it is this connection's send ring that is lent, behind a look at LENT.
    fn is_to(&self, cid: Cid) -> bool {
        self.lent_to.load(Ordering::Relaxed) == u64::from(cid.0)
    }
}

fn is_lent(word: u64) -> bool {
    split(word).0.is_nic() && word & LENT != 0
}

/// The ring that bytes go to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The connection's.
    pub cid: Cid,
    /// Its send ring.
    pub ring: Ring<'a>,
}

/// Why nothing is moved, and will not be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The application has taken the rings back, or the kernel has one of the connections.
    TakenBack,
    /// What the application wrote is not possible.
    Hostile,
}

impl From<Hostile> for Ended {
    fn from(_: Hostile) -> Self {
        Ended::Hostile
    }
}

impl receive::Nic<'_> {
    /// Whether the NIC has been lent the ring for this connection to send, behind all that it has published. If not, the
    /// application is told of that.
    pub fn is_lent(&self, to: Cid, notes: Notes<'_>) -> bool {
        // See `take_back`.
        fence(Ordering::SeqCst);
        is_lent(self.ring.app.load(Ordering::Acquire)) && notes.is_to(to)
    }

    /// Gives the ring back. Returns whether it was lent.
    pub fn give_back(&self) -> bool {
        is_lent(self.ring.app.fetch_and(!LENT, Ordering::AcqRel))
    }

    /// Bytes that were not read, as it is now.
    ///
    /// # Errors
    /// If what the application wrote is not possible.
    pub fn unread(&self) -> Result<u32, Hostile> {
        let (_, index) = split(self.ring.app.load(Ordering::Acquire));
        let unread = self.tail.wrapping_sub(index);
        if unread > self.len() { Err(Hostile::Index) } else { Ok(unread) }
    }

    /// Moves at most so many bytes to the other ring, as many as are there and as there is room for, by way of `between`: how
    /// many.
    ///
    /// # Errors
    /// If the rings are lent no more.
    pub fn splice(
        &self,
        to: &Target<'_>,
        most: u32,
        (notes, between): (Notes<'_>, &mut [u8]),
    ) -> Result<u32, Ended> {
        let app = self.ring.app;
        let word = app.load(Ordering::Acquire);
        let (epoch, index) = split(word);
        if word & MOVING != 0 {
            return Err(Ended::Hostile);
        }
        if !is_lent(word) || epoch != self.known.epoch {
            return Err(Ended::TakenBack);
        }
        let there = self.unread()?;
        let other = Call::begin(to.ring.app).map_err(|Lost| Ended::TakenBack)?;
        let target = send::Begun::of(to.ring, other);
        let count = there.min(most).min(target.room());
        if count == 0 || between.is_empty() {
            return Ok(0);
        }
        let ahead = other.index.wrapping_sub(index);
        notes.moving.store(u64::from(to.cid.0) << 32 | u64::from(ahead), Ordering::Relaxed);
        // Who sees MOVING sees what was written down.
        let moving = word | MOVING;
        let swapped = app.compare_exchange(word, moving, Ordering::AcqRel, Ordering::Relaxed);
        swapped.map_err(|_| Ended::TakenBack)?;
        if !notes.is_to(to.cid) {
            // It was taken back, and lent anew.
            app.store(word, Ordering::Release);
            return Err(Ended::TakenBack);
        }
        let (extents, count) = target.place(count);
        let mut done = 0;
        while done < count {
            let len = between.len().min((count - done) as usize);
            let part = &mut between[..len];
            self.ring.data.read(self.extents, index.wrapping_add(done), part);
            to.ring.data.write(extents, other.index.wrapping_add(done), part);
            done += len as u32;
        }
        let after = join(epoch, index.wrapping_add(count)) | LENT;
        app.store(after | MOVING, Ordering::Release);
        let written = other.take_effect(to.ring.app, count);
        app.store(after, Ordering::Release);
        // Nobody writes there whose ring is lent.
        written.map_err(|Lost| Ended::Hostile)?;
        Ok(count)
    }
}

/// Ends what a NIC that has died was about to move from this ring: what it has taken from it is in the other one, whose ring
/// `target` has, if there is one of this number and the NIC had it. To be done before the epoch of any ring ends.
pub fn finish<'a>(from: Ring<'_>, notes: Notes<'_>, target: impl FnOnce(Cid) -> Option<Ring<'a>>) {
    let word = from.app.load(Ordering::Acquire);
    if !is_lent(word) || word & MOVING == 0 {
        return;
    }
    let (note, (_, index)) = (notes.moving.load(Ordering::Relaxed), split(word));
    let Some(to) = target(Cid((note >> 32) as u32)) else { return };
    let Ok(other) = Call::begin(to.app) else { return };
    let end = index.wrapping_add(note as u32);
    let count = end.wrapping_sub(other.index);
    // It has been judged then: what is more than there is room for is not possible.
    if count <= to.capacity() {
        // If the application has written there meanwhile, it has broken the protocol.
        let _ = other.take_effect(to.app, count);
    }
}
