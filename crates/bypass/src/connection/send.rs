//! What the program's calls send on a connection at the NIC. The ring is one thread's as long as it writes there, and not
//! while it waits for room. A handler of a signal that comes in the middle of that, and sends on the same connection,
//! cannot wait for the thread that it has interrupted: it has the connection restored, by which what was being written
//! has not taken effect and is written to the kernel later.

use std::sync::atomic::Ordering;

use handoff::RestoreReason;
use handoff::command::{Flags, nic};
use handoff::ring::{Lost, Piece, Ring, send};
use handoff::session::status::Place;
use libc::c_int;

use super::place::{AtNic, moves};
use super::{Connection, Parts, Patience, SHUT_WRITE, Waiting};

/// What writes to the ring.
pub(crate) enum Source<'a, 'b> {
    /// The program's bytes.
    Parts(Parts<'a>),
    /// At most so many bytes, which the function writes where it is told, and says how many, or with which error the call
    /// fails. It may be called again, if what it wrote has not taken effect, and not for more.
    Fill(usize, &'b mut dyn FnMut([Piece<'_>; 2]) -> Result<usize, c_int>),
    /// At most so many bytes, which are written but once.
    InPlace(usize, &'b mut dyn Lay),
}

/// What writes bytes where they are sent from, once.
pub(crate) trait Lay {
    /// Writes them there: how many.
    fn lay(&mut self, pieces: [Piece<'_>; 2]) -> usize;

    /// The connection has left meanwhile: these are not sent. They lie there until this returns.
    fn keep(&mut self);
}

impl Source<'_, '_> {
    fn len(&self) -> usize {
        match self {
            Source::Parts(parts) => parts.len(),
            Source::Fill(most, _) | Source::InPlace(most, _) => *most,
        }
    }
}

/// What came of writing once.
enum Wrote {
    /// So many bytes.
    Some(usize),
    /// There was no room.
    Full,
    /// The kernel has the connection.
    Lost,
    /// The same, and what was written is the source's again.
    Kept,
    /// The program's own thread is in the middle of that.
    Busy,
    /// The source has failed.
    Failed(c_int),
}

impl Connection {
    /// Writes at the NIC; `None` if the kernel has it (again) and nothing was written, or a source that writes once has what it
    /// has written.
    pub(crate) fn send(
        &'static self,
        mut from: Source<'_, '_>,
        more: bool,
        waiting: &Waiting,
    ) -> Option<Result<usize, c_int>> {
        let total = from.len();
        let mut written = 0;
        loop {
            let done = |written: usize| (written > 0).then_some(Ok(written));
            if waiting.is_over() {
                return done(written).or(Some(Err(libc::EBADF)));
            }
            // What is left is for the kernel, if it has the connection by now.
            let Some((at, status)) = self.settled() else { return done(written) };
            if moves(status) {
                match self.wait_for_move(&at, waiting, status.place) {
                    Some(error) => {
                        waiting.interrupt();
                        return done(written).or(Some(Err(error)));
                    }
                    None => continue,
                }
            }
            let is_shut = self.shut.load(Ordering::Acquire) & SHUT_WRITE != 0;
            if is_shut || status.place == Place::Ended {
                if written > 0 {
                    return done(written);
                }
                if status.error != 0 && !self.is_told.swap(true, Ordering::AcqRel) {
                    return Some(Err(status.error.into()));
                }
                return Some(Err(libc::EPIPE));
            }
            if total == 0 {
                return Some(Ok(0));
            }
            match self.write(&at, &mut from, written) {
                Wrote::Lost if self.is_at(&at) && self.look(&at) == Place::Nic => {
                    // Its rings are closed, which the status is about to say.
                    match self.wait_for_move(&at, waiting, Place::Nic) {
                        Some(error) => return done(written).or(Some(Err(error))),
                        None => continue,
                    }
                }
                Wrote::Lost => continue,
                Wrote::Kept => return None,
                Wrote::Busy => {
                    let is_back = self.try_restore(RestoreReason::Unserved);
                    if !is_back && waiting.patience() == Patience::None {
                        return done(written).or(Some(Err(libc::EAGAIN)));
                    }
                    continue;
                }
                Wrote::Failed(error) => return done(written).or(Some(Err(error))),
                // There is room for some, and these are nowhere.
                Wrote::Some(0) if matches!(from, Source::Parts(_)) => {
                    return done(written).or(Some(Err(libc::EFAULT)));
                }
                Wrote::Some(count) => {
                    written += count;
                    waiting.moves();
                    super::count(&self.sent, count as u64);
                    if count > 0 {
                        self.has_written(&at, count, more);
                    }
                    if written == total || !matches!(from, Source::Parts(_)) {
                        return Some(Ok(written));
                    }
                }
                Wrote::Full => {}
            }
            let nothing = || self.room(&at) == Ok(0);
            if let Some(error) = self.wait(&at, waiting, SHUT_WRITE, nothing) {
                waiting.interrupt();
                return done(written).or(Some(Err(error)));
            }
        }
    }

    /// Writes what there is room for.
    fn write(&'static self, at: &AtNic, from: &mut Source<'_, '_>, written: usize) -> Wrote {
        let Some(guard) = self.sending.take() else { return Wrote::Busy };
        // What is written now is written to a ring of this connection's: see `return_number`.
        self.take_back_sent();
        let wrote = if matches!(from, Source::InPlace(..)) {
            let kept = self.keep_memory(at, guard);
            kept.map_or(Wrote::Lost, |_kept| self.write_alone(at, from, written))
        } else {
            let _guard = guard;
            if self.is_at(at) { self.write_alone(at, from, written) } else { Wrote::Lost }
        };
        if self.owed.load(Ordering::Acquire) != 0 {
            self.return_owed(at.session);
        }
        wrote
    }

    fn write_alone(&self, at: &AtNic, from: &mut Source<'_, '_>, written: usize) -> Wrote {
        let Ok(ring) = at.area.send() else { return Wrote::Failed(libc::EIO) };
        let Ok(call) = send::App::new(ring).begin() else { return Wrote::Lost };
        let room = self.room_of(at, ring, &call);
        if room == 0 {
            return Wrote::Full;
        }
        match from {
            Source::Parts(parts) => match call.send_pieces(parts.behind(written).bytes(), room) {
                Ok(count) => Wrote::Some(count as usize),
                Err(Lost) => Wrote::Lost,
            },
            Source::Fill(most, fill) => {
                let most = u32::try_from(*most).map_or(room, |most| most.min(room));
                let mut failed = None;
                let filled = call.fill(most, |pieces| match fill(pieces) {
                    Ok(count) => count as u32,
                    Err(error) => {
                        failed = Some(error);
                        0
                    }
                });
                match (filled, failed) {
                    (_, Some(error)) => Wrote::Failed(error),
                    (Ok(count), None) => Wrote::Some(count as usize),
                    (Err(Lost), None) => Wrote::Lost,
                }
            }
            Source::InPlace(most, lay) => {
                let most = u32::try_from(*most).map_or(room, |most| most.min(room));
                match call.fill(most, |pieces| lay.lay(pieces) as u32) {
                    Ok(count) => Wrote::Some(count as usize),
                    Err(Lost) => {
                        lay.keep();
                        Wrote::Kept
                    }
                }
            }
        }
    }

    /// Tells the NIC of bytes that were written.
    fn has_written(&'static self, at: &AtNic, count: usize, more: bool) {
        let flags = Flags { more, ..Flags::default() };
        let epoch = at.area.epoch();
        let send = nic::Send { len: count as u32, flags, ..nic::Send::new(at.cid, epoch) };
        if !at.command(send.into()) {
            // With what is in the ring.
            self.ask_back(at, RestoreReason::Unserved);
        }
    }

    /// Bytes that a call may write now.
    pub(super) fn room(&self, at: &AtNic) -> Result<u32, Lost> {
        let ring = at.area.send().map_err(|_| Lost)?;
        Ok(self.room_of(at, ring, &send::App::new(ring).begin()?))
    }

    fn room_of(&self, at: &AtNic, ring: Ring<'_>, call: &send::Begun<'_>) -> u32 {
        let used = call.used();
        let left = self.limits.capacity(ring.capacity()).saturating_sub(used);
        self.limits.room(left.min(call.room()), || at.unsent(call.end(), used))
    }
}
