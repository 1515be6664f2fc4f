//! What the program's calls do to a connection at the NIC.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use handoff::command::{Flags, NicControl, nic};
use handoff::ring::{Lost, receive, send};
use handoff::session::status::{Place, Status};
use libc::c_int;

use super::{AtNic, Connection, Patience, Ready, SHUT_READ, SHUT_WRITE, Waiting, epoll, pieces};
use crate::os;
use crate::session::lock;

/// How long a call waits for data before it looks whether wharf is there.
const LIVES_STILL: Duration = Duration::from_secs(1);

/// How a call receives.
#[derive(Clone, Copy)]
pub(crate) struct Receiving {
    /// The bytes stay there (`MSG_PEEK`).
    pub(crate) peeks: bool,
    /// Peeking waits for so many bytes (`MSG_WAITALL`), if more may come.
    pub(crate) least: usize,
    /// The call has some bytes already: it is the next one that gives an error.
    pub(crate) has_some: bool,
}

impl Connection {
    /// Reads at the NIC; `None` if the kernel has it (again). In the order of tcp_recvmsg: bytes, the peer's end of the
    /// stream, the error, the end that the program has set.
    pub(crate) fn recv(
        &'static self,
        into: &mut [&mut [u8]],
        how: Receiving,
        waiting: &Waiting,
    ) -> Option<isize> {
        let _one = lock(&self.receiving);
        let mut is_patient = true;
        loop {
            let at = self.away()?;
            let status = self.status(&at);
            let Ok(ring) = at.area.receive() else { return Some(os::fail(libc::EIO)) };
            let ring = receive::App::new(ring);
            let Ok(there) = ring.len() else { continue };
            let is_over = self.ends_reading(status);
            if there > 0 && is_patient && how.least > there as usize && !is_over {
                // A wait that ends otherwise ends with what is there.
                let less = || ring.len().is_ok_and(|len| len == there);
                is_patient = self.wait(&at, waiting, SHUT_READ, less).is_none();
                continue;
            }
            if there > 0 {
                match pieces::read(ring, into, how.peeks) {
                    Ok(count) => {
                        if !how.peeks && count > 0 {
                            self.has_read(&at, count);
                        }
                        return Some(count as isize);
                    }
                    Err(Lost) => continue,
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
            let wants_none = into.iter().all(|piece| piece.is_empty());
            if wants_none && waiting.patience() != Patience::None {
                // It has waited (tcp_recvmsg_locked).
                return Some(0);
            }
            if let Some(error) = waited {
                return Some(os::fail(error));
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
    fn has_read(&self, at: &AtNic, count: u32) {
        let size = at.area.receive().map_or(0, |ring| receive::App::new(ring).size());
        let len = self.untold.fetch_add(count, Ordering::AcqRel) + count;
        if len >= size / 4 {
            self.untold.store(0, Ordering::Release);
            let recvd = nic::Recvd { len, ..nic::Recvd::new(at.cid, self.epoch(at)) };
            at.session.command(recvd.into());
        }
    }

    /// Writes at the NIC; `None` if the kernel has it (again) and nothing was written.
    pub(crate) fn send(
        &'static self,
        from: &[&[u8]],
        more: bool,
        waiting: &Waiting,
    ) -> Option<Result<usize, c_int>> {
        let _one = lock(&self.sending);
        let total: usize = from.iter().map(|piece| piece.len()).sum();
        let mut written = 0;
        loop {
            let done = |written: usize| (written > 0).then_some(Ok(written));
            // What is left is for the kernel, if it has the connection by now.
            let Some(at) = self.away() else { return done(written) };
            let status = self.status(&at);
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
            let Ok(ring) = at.area.send() else { return Some(Err(libc::EIO)) };
            let ring = send::App::new(ring);
            match pieces::write(ring, from, written) {
                Err(Lost) => continue,
                Ok(count) => {
                    written += count;
                    if count > 0 {
                        let flags = Flags { more, ..Flags::default() };
                        let epoch = self.epoch(&at);
                        let send =
                            nic::Send { len: count as u32, flags, ..nic::Send::new(at.cid, epoch) };
                        at.session.command(send.into());
                    }
                }
            }
            if written == total {
                return Some(Ok(written));
            }
            if let Some(error) = self.wait(&at, waiting, SHUT_WRITE, || ring.room() == Ok(0)) {
                return done(written).or(Some(Err(error)));
            }
        }
    }

    /// Waits for the NIC as long as `nothing` has come and the program has not shut `end` down; the error that the call
    /// gives if it is not to wait longer.
    fn wait(
        &self,
        at: &AtNic,
        waiting: &Waiting,
        end: u8,
        nothing: impl Fn() -> bool,
    ) -> Option<c_int> {
        let now = os::now();
        let until = match waiting.patience() {
            Patience::None => return Some(libc::EAGAIN),
            Patience::Until(Some(until)) if until <= now => return Some(libc::EAGAIN),
            Patience::Until(until) => until,
        };
        at.area.waiters().fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let wake = at.area.wake();
        let expected = wake.load(Ordering::Acquire) as u32;
        let status = self.status(at);
        let is_shut = self.shut.load(Ordering::Acquire) & end != 0;
        let is_over = status.place != Place::Nic || end == SHUT_READ && status.peer_closed;
        let error = if is_shut || is_over || !nothing() {
            0
        } else {
            // A wharf that has died wakes none.
            match until {
                // With a time-out no call is begun again (signal(7)).
                Some(until) => {
                    let left = Duration::from_nanos(until - now);
                    os::futex_wait(wake, expected, Some(left.min(LIVES_STILL)))
                }
                None => {
                    let soon = now + LIVES_STILL.as_nanos() as u64;
                    os::futex_wait_restarting(wake, expected, soon)
                }
            }
        };
        if error == libc::ETIMEDOUT {
            at.session.looks_alive();
        }
        at.area.waiters().fetch_sub(1, Ordering::AcqRel);
        (error == libc::EINTR).then_some(libc::EINTR)
    }

    /// The program shuts an end down; `None` if the kernel has the connection.
    pub(crate) fn shutdown(&'static self, how: c_int) -> Option<c_int> {
        let at = self.away()?;
        let Some(bits) = shut_bits(how) else { return Some(os::fail(libc::EINVAL) as c_int) };
        if self.look(&at) == Place::Ended {
            return Some(os::fail(libc::ENOTCONN) as c_int);
        }
        let before = self.shut.fetch_or(bits, Ordering::AcqRel);
        let both = [(SHUT_READ, NicControl::ShutdownRead), (SHUT_WRITE, NicControl::ShutdownWrite)];
        for (_, control) in both.into_iter().filter(|(bit, _)| bits & !before & bit != 0) {
            self.control(&at, control);
        }
        // Threads that wait for it are to see it: see `wait`.
        fence(Ordering::SeqCst);
        at.area.wake().fetch_add(1, Ordering::AcqRel);
        os::futex_wake_all(at.area.wake());
        epoll::changed(self, at.session);
        Some(0)
    }

    /// The program has shut an end down at the kernel: the NIC's side knows, too, should it have the connection.
    pub(crate) fn was_shut(&self, how: c_int) {
        self.shut.fetch_or(shut_bits(how).unwrap_or(0), Ordering::AcqRel);
    }

    /// What is ready at the NIC; `None` if the kernel has it.
    pub(crate) fn ready(&'static self) -> Option<Ready> {
        loop {
            let at = self.away()?;
            let status = self.status(&at);
            let ready = self.ready_at(&at, status);
            // On its way back its rings say nothing.
            if matches!(status.place, Place::Nic | Place::Ended) && self.look(&at) == status.place {
                return Some(ready);
            }
        }
    }

    fn ready_at(&self, at: &AtNic, status: Status) -> Ready {
        let shut = self.shut.load(Ordering::Acquire);
        let unread = at.area.receive().ok().map(|ring| receive::App::new(ring).is_empty());
        let room = at.area.send().ok().map(|ring| send::App::new(ring).room());
        let is_over = status.place == Place::Ended;
        let peer_closed = status.peer_closed || is_over || shut & SHUT_READ != 0;
        let error = status.error != 0 && !self.is_told.load(Ordering::Relaxed);
        let has_room = room.is_some_and(|room| room.is_ok_and(|room| room > 0));
        Ready {
            readable: peer_closed || error || unread.is_some_and(|unread| unread == Ok(false)),
            // What would fail does not wait (tcp_poll).
            writable: is_over || shut & SHUT_WRITE != 0 || has_room,
            peer_closed,
            error,
            hung_up: is_over || peer_closed && shut & SHUT_WRITE != 0,
        }
    }

    /// Whether the connection has ended at the NIC.
    pub(crate) fn has_ended(&'static self) -> bool {
        self.away().is_some_and(|at| self.look(&at) == Place::Ended)
    }

    /// Bytes that could be read, and bytes that the NIC has not taken yet; `None` if the kernel has it.
    pub(crate) fn queued(&'static self) -> Option<(c_int, c_int)> {
        let at = self.away()?;
        let unread = receive::App::new(at.area.receive().ok()?).len().unwrap_or(0);
        let unsent = send::App::new(at.area.send().ok()?).len().unwrap_or(0);
        Some((unread as c_int, unsent as c_int))
    }

    /// The error that is pending wherever the connection is, which is told by this.
    pub(crate) fn pending_error(&'static self) -> Option<c_int> {
        let error = self.take_error().or_else(|| self.take_late());
        error.or_else(|| Some(os::take_error(self.fd()))).filter(|error| *error != 0)
    }

    /// The error that is pending, which is told by this; `None` if the kernel has it.
    pub(crate) fn take_error(&'static self) -> Option<c_int> {
        let at = self.away()?;
        let status = self.status(&at);
        let is_new = status.error != 0 && !self.is_told.swap(true, Ordering::AcqRel);
        Some(if is_new { status.error.into() } else { 0 })
    }
}

/// The ends of shutdown(2); `None` for what is none.
fn shut_bits(how: c_int) -> Option<u8> {
    match how {
        libc::SHUT_RD => Some(SHUT_READ),
        libc::SHUT_WR => Some(SHUT_WRITE),
        libc::SHUT_RDWR => Some(SHUT_READ | SHUT_WRITE),
        _ => None,
    }
}
