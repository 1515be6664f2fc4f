//! What the program's calls receive of a connection at the NIC. No lock is held: a handler of a signal, or another thread,
//! may receive meanwhile.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::time::Duration;

use handoff::command::nic;
use handoff::ring::{Lost, Piece, receive};
use handoff::session::status::{Place, Status};
use libc::c_int;

use super::place::{AtNic, moves};
use super::{Connection, Parts, Patience, SHUT_READ, Waiting};
use crate::{cancel, os, timeout};

/// How long a call waits for data before it looks whether wharf is there.
const LIVES_STILL: Duration = Duration::from_secs(1);

/// What is done with bytes.
pub(crate) enum Sink<'a, 'b> {
    /// They are the program's.
    Parts(Parts<'a>),
    /// At most so many go on.
    Take(usize, &'b mut dyn Take),
    /// The same, where what takes them reads them where they lie in [`Take::give`], not before.
    InPlace(usize, &'b mut dyn Take),
}

/// Where bytes go on to that are not copied into the program's memory.
pub(crate) trait Take {
    /// Copies what lies there, aside: it is not certain yet that these are the connection's bytes. How many, or the error
    /// with which the call fails.
    fn copy(&mut self, pieces: [Piece<'_>; 2]) -> Result<usize, c_int>;

    /// They are: how many of them have gone on, or the error with which the call fails.
    fn give(&mut self) -> Result<usize, c_int>;
}

/// What came of reading once.
enum Read {
    Some(u32),
    /// The kernel has the connection, or another thread has read.
    Lost,
    /// The same, and so many bytes were taken, which are there still.
    TakenLost(u32),
    /// What takes them has failed.
    Failed(c_int),
}

/// How a call receives.
#[derive(Clone, Copy, Default)]
pub(crate) struct Receiving {
    /// The bytes stay there (`MSG_PEEK`).
    pub(crate) peeks: bool,
    /// They are passed over (`MSG_TRUNC`).
    pub(crate) cuts: bool,
    /// Peeking waits for so many bytes (`MSG_WAITALL`), if more may come.
    pub(crate) least: usize,
    /// The call has some bytes already: it is the next one that gives an error.
    pub(crate) has_some: bool,
}

impl Connection {
    /// Reads at the NIC; `None` if the kernel has it (again). In the order of tcp_recvmsg: bytes, the peer's end of the
    /// stream, the error, the end that the program has set.
    pub(crate) fn receive(
        &'static self,
        mut into: Sink<'_, '_>,
        how: Receiving,
        waiting: &Waiting,
    ) -> Option<isize> {
        let total = match &into {
            Sink::Parts(parts) => parts.len(),
            Sink::Take(most, _) | Sink::InPlace(most, _) => *most,
        };
        let mut is_patient = true;
        loop {
            if waiting.is_over() {
                return Some(os::fail(libc::EBADF));
            }
            let (at, status) = self.settled()?;
            if moves(status) {
                match self.wait_for_move(&at, waiting, status.place) {
                    Some(error) => return Some(os::fail(error)),
                    None => continue,
                }
            }
            let Ok(ring) = at.area.receive() else { return Some(os::fail(libc::EIO)) };
            let ring = receive::App::new(ring);
            if ring.is_lent() {
                self.take_back();
            }
            let there = match ring.len() {
                Ok(there) => there,
                // It was lost on its way back.
                Err(Lost) if status.place == Place::Ended => 0,
                // It has left the NIC, as the status is about to say.
                Err(Lost) => match self.wait_for_move(&at, waiting, Place::Nic) {
                    Some(error) => return Some(os::fail(error)),
                    None => continue,
                },
            };
            let is_over = self.ends_reading(status);
            if there > 0 && is_patient && how.least > there as usize && !is_over {
                // A wait that ends otherwise ends with what is there.
                let less = || ring.len().is_ok_and(|len| len == there);
                is_patient = self.wait(&at, waiting, SHUT_READ, less).is_none();
                continue;
            }
            if there > 0 {
                let read = match &into {
                    // The number, and with it the memory, is not returned meanwhile.
                    Sink::InPlace(..) => {
                        match self.sending.take().and_then(|alone| self.keep_memory(&at, alone)) {
                            Some(_kept) => read(ring, &mut into, how),
                            // It has moved, or another thread writes.
                            None => Read::Lost,
                        }
                    }
                    _ => read(ring, &mut into, how),
                };
                match read {
                    Read::Some(0) if matches!(into, Sink::Parts(parts) if parts.begin_nowhere()) => {
                        return Some(os::fail(libc::EFAULT));
                    }
                    // Another thread has read it meanwhile.
                    Read::Some(0) if total > 0 => continue,
                    Read::Some(count) => {
                        if !how.peeks {
                            self.has_read(&at, count);
                        }
                        return Some(count as isize);
                    }
                    Read::Lost => continue,
                    Read::TakenLost(count) => {
                        self.pass_over(count, waiting.fd());
                        return Some(count as isize);
                    }
                    Read::Failed(error) => return Some(os::fail(error)),
                }
            }
            if status.peer_closed || is_over && how.has_some {
                return Some(0);
            }
            if status.error != 0 && !self.is_told.swap(true, Ordering::AcqRel) {
                return Some(os::fail(status.error.into()));
            }
            if is_over {
                return Some(0);
            }
            let nothing = || ring.is_empty() == Ok(true);
            let waited = self.wait(&at, waiting, SHUT_READ, nothing);
            if total == 0 && waiting.patience() != Patience::None {
                // It has waited (tcp_recvmsg_locked).
                return Some(0);
            }
            if let Some(error) = waited {
                return Some(os::fail(error));
            }
        }
    }

    /// Passes over bytes that were taken from a ring which the NIC has closed before it knew of that: they are the next,
    /// wherever the connection is. Another thread that reads now finds them, as it does in the middle of a call.
    fn pass_over(&'static self, count: u32, fd: c_int) {
        let mut left = count;
        while left > 0 {
            if let Some(call) = self.enter_kernel() {
                // It does not leave meanwhile.
                let over = os::pass_over(fd, left);
                drop(call);
                if over == 0 {
                    // Another thread has read them, or it is over.
                    return;
                }
                left -= over;
                continue;
            }
            let Some(at) = self.away() else { continue };
            let ring = at.area.receive().map_err(|_| Lost);
            match ring.and_then(|ring| receive::App::new(ring).skip(left)) {
                // As at the kernel.
                Ok(0) => return,
                Ok(over) => {
                    self.has_read(&at, over);
                    left -= over;
                }
                Err(Lost) if self.look(&at) == Place::Ended => return,
                // The ring is closed before the status says where the connection is; or the NIC has been lent it.
                Err(Lost) => {
                    self.take_back();
                    os::yield_now();
                }
            }
        }
    }

    /// Whether nothing more comes.
    fn ends_reading(&self, status: Status) -> bool {
        let is_shut = self.shut.load(Ordering::Acquire) & SHUT_READ != 0;
        is_shut || status.peer_closed || status.place == Place::Ended || status.error != 0
    }

    /// Tells the NIC of room in the ring, when there is a quarter of it: one that was full, so that the NIC waits for
    /// room, has that much before it is empty.
    pub(super) fn has_read(&self, at: &AtNic, count: u32) {
        super::count(&self.received, count.into());
        let size = at.area.receive().map_or(0, |ring| receive::App::new(ring).size());
        let len = self.untold.fetch_add(count, Ordering::AcqRel) + count;
        if len >= size / 4 {
            self.untold.store(0, Ordering::Release);
            let recvd = nic::Recvd { len, ..nic::Recvd::new(at.cid, at.area.epoch()) };
            if !at.command(recvd.into()) {
                // The next call tells it.
                self.untold.fetch_add(len, Ordering::AcqRel);
            }
        }
    }

    /// Waits for the NIC as long as `nothing` has come and the program has not shut `end` down; the error that the call
    /// gives if it is not to wait longer.
    pub(super) fn wait(
        &self,
        at: &AtNic,
        waiting: &Waiting,
        end: u8,
        nothing: impl Fn() -> bool,
    ) -> Option<c_int> {
        let until = match waiting.patience() {
            Patience::None => return Some(libc::EAGAIN),
            Patience::Until(until) => until,
        };
        let now = os::now();
        if until.is_some_and(|until| until <= now) {
            return Some(libc::EAGAIN);
        }
        let stays = || {
            let status = self.status(at);
            let is_shut = self.shut.load(Ordering::Acquire) & end != 0;
            let is_over = status.place != Place::Nic || end == SHUT_READ && status.peer_closed;
            !is_shut && !is_over && self.is_at(at) && nothing()
        };
        self.sleep(at, waiting, (now, until), stays)
    }

    /// Waits for a connection to move on, that is there for longer than a call waits which may say that there is nothing; the
    /// error that the call gives if it is not to wait longer. A call that blocks waits as it does for bytes.
    pub(super) fn wait_for_move(
        &'static self,
        at: &AtNic,
        waiting: &Waiting,
        place: Place,
    ) -> Option<c_int> {
        let now = os::now();
        match waiting.patience() {
            Patience::None if place == Place::Nic => {
                // Its rings are closed, which the status is about to say.
                self.wait_while(at, timeout::CALL, place);
                let is_there = self.look(at) == place && self.is_at(at);
                is_there.then_some(libc::EAGAIN)
            }
            Patience::None => Some(libc::EAGAIN),
            Patience::Until(Some(until)) if until <= now => Some(libc::EAGAIN),
            Patience::Until(until) => {
                self.sleep(at, waiting, (now, until), || self.look(at) == place)
            }
        }
    }

    /// Sleeps as long as `stays`, until wharf says something, for a second at most; `EINTR` if a signal ends the call.
    fn sleep(
        &self,
        at: &AtNic,
        waiting: &Waiting,
        (now, until): (u64, Option<u64>),
        stays: impl Fn() -> bool,
    ) -> Option<c_int> {
        let _waiter = at.waiter();
        let wake = at.area.wake();
        let expected = wake.load(Ordering::Acquire) as u32;
        // Who cancels the thread from here on changes the word.
        cancel::point();
        let error = if !stays() {
            0
        } else {
            // A wharf that has died wakes none.
            match until {
                // With a time-out no call is begun again (signal(7)).
                Some(until) => {
                    let left = Duration::from_nanos(until - now);
                    os::futex_wait(wake, expected, Some(left.min(LIVES_STILL)))
                }
                None if waiting.has_moved() => os::futex_wait(wake, expected, Some(LIVES_STILL)),
                None => {
                    let soon = now + LIVES_STILL.as_nanos() as u64;
                    os::futex_wait_restarting(wake, expected, soon)
                }
            }
        };
        if error == libc::ETIMEDOUT && at.is_own {
            at.session.looks_alive();
        }
        (error == libc::EINTR).then_some(libc::EINTR)
    }
}

fn read(ring: receive::App<'_>, into: &mut Sink<'_, '_>, how: Receiving) -> Read {
    let parts = match into {
        Sink::Parts(parts) => *parts,
        Sink::Take(most, take) | Sink::InPlace(most, take) => {
            let failed = Cell::new(None);
            let counted = |result: Result<usize, c_int>| match result {
                Ok(count) => count as u32,
                Err(error) => {
                    failed.set(Some(error));
                    0
                }
            };
            let most = u32::try_from(*most).unwrap_or(u32::MAX);
            let take = RefCell::new(take);
            let copy = |pieces| counted(take.borrow_mut().copy(pieces));
            let give = |copied| if copied > 0 { counted(take.borrow_mut().give()) } else { 0 };
            let taken = ring.take_pieces(most, copy, give);
            return match (taken, failed.get()) {
                (_, Some(error)) => Read::Failed(error),
                (Ok(count), None) => Read::Some(count),
                (Err((Lost, 0)), None) => Read::Lost,
                (Err((Lost, count)), None) => Read::TakenLost(count),
            };
        }
    };
    let most = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let read = match how {
        Receiving { cuts: true, peeks: false, .. } => ring.skip(most),
        Receiving { cuts: true, .. } => ring.len().map(|len| len.min(most)),
        // SAFETY: the call receives.
        Receiving { peeks: false, .. } => ring.recv_pieces(unsafe { parts.bytes_mut() }),
        // SAFETY: the call receives.
        Receiving { .. } => ring.peek_pieces(unsafe { parts.bytes_mut() }),
    };
    read.map_or(Read::Lost, Read::Some)
}
