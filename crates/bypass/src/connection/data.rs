//! What the program's calls do to a connection at the NIC.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use handoff::command::{Flags, NicControl, nic};
use handoff::ring::{Lost, receive, send};
use handoff::session::status::Place;
use libc::c_int;

use super::{AtNic, Connection, Patience, Ready, SHUT_READ, SHUT_WRITE, pieces};
use crate::os;
use crate::session::lock;

/// How long a call waits for data before it looks whether wharf is there.
const LIVES_STILL: Duration = Duration::from_secs(1);

impl Connection {
    /// Reads at the NIC; `None` if the kernel has it (again).
    pub(crate) fn recv(
        &'static self,
        into: &mut [&mut [u8]],
        peek: bool,
        patience: Patience,
    ) -> Option<isize> {
        let _one = lock(&self.receiving);
        loop {
            let at = self.away()?;
            if self.shut.load(Ordering::Relaxed) & SHUT_READ != 0 {
                return Some(0);
            }
            if into.iter().all(|piece| piece.is_empty()) {
                return Some(0);
            }
            let status = self.status(&at);
            let Ok(ring) = at.area.receive() else { return Some(os::fail(libc::EIO)) };
            let ring = receive::App::new(ring);
            match pieces::read(ring, into, peek) {
                Ok(0) => {}
                Ok(count) => {
                    if !peek {
                        self.has_read(&at, count);
                    }
                    return Some(count as isize);
                }
                Err(Lost) => continue,
            }
            if status.error != 0 && !self.is_told.swap(true, Ordering::AcqRel) {
                return Some(os::fail(status.error.into()));
            }
            if status.peer_closed || status.place == Place::Ended {
                return Some(0);
            }
            if let Some(error) = self.wait(&at, patience, || ring.is_empty() == Ok(true)) {
                return Some(os::fail(error));
            }
        }
    }

    /// Tells the NIC of room in the ring, when there is a quarter of it: one that was full, so that the NIC waits for
    /// room, has that much before it is empty.
    fn has_read(&self, at: &AtNic, count: u32) {
        let capacity = at.area.receive().map_or(0, |ring| ring.capacity());
        let len = self.untold.fetch_add(count, Ordering::AcqRel) + count;
        if len >= capacity / 4 {
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
        patience: Patience,
    ) -> Option<Result<usize, c_int>> {
        let _one = lock(&self.sending);
        let total: usize = from.iter().map(|piece| piece.len()).sum();
        let mut written = 0;
        loop {
            let done = |written: usize| (written > 0).then_some(Ok(written));
            // What is left is for the kernel, if it has the connection by now.
            let Some(at) = self.away() else { return done(written) };
            let status = self.status(&at);
            if self.shut.load(Ordering::Relaxed) & SHUT_WRITE != 0 || status.place == Place::Ended {
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
            if let Some(error) = self.wait(&at, patience, || ring.room() == Ok(0)) {
                return done(written).or(Some(Err(error)));
            }
        }
    }

    /// Waits for the NIC as long as `nothing` has come; the error that the call gives if it is not to wait longer.
    fn wait(&self, at: &AtNic, patience: Patience, nothing: impl Fn() -> bool) -> Option<c_int> {
        let timeout = match patience {
            Patience::None => return Some(libc::EAGAIN),
            Patience::Until(None) => None,
            Patience::Until(Some(until)) => match until.checked_sub(os::now()) {
                Some(left) if left > 0 => Some(Duration::from_nanos(left)),
                _ => return Some(libc::EAGAIN),
            },
        };
        at.area.waiters().fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let wake = at.area.wake();
        let expected = wake.load(Ordering::Acquire) as u32;
        let status = self.status(at);
        let waits = status.place == Place::Nic && !status.peer_closed && nothing();
        // A wharf that has died wakes none.
        let at_most = timeout.map_or(LIVES_STILL, |timeout| timeout.min(LIVES_STILL));
        let error = if waits { os::futex_wait(wake, expected, Some(at_most)) } else { 0 };
        if error == libc::ETIMEDOUT {
            at.session.looks_alive();
        }
        at.area.waiters().fetch_sub(1, Ordering::AcqRel);
        (error == libc::EINTR).then_some(libc::EINTR)
    }

    /// The program shuts an end down; `None` if the kernel has the connection.
    pub(crate) fn shutdown(&'static self, how: c_int) -> Option<c_int> {
        let at = self.away()?;
        let bits = match how {
            libc::SHUT_RD => SHUT_READ,
            libc::SHUT_WR => SHUT_WRITE,
            libc::SHUT_RDWR => SHUT_READ | SHUT_WRITE,
            _ => return Some(os::fail(libc::EINVAL) as c_int),
        };
        if self.look(&at) == Place::Ended {
            return Some(os::fail(libc::ENOTCONN) as c_int);
        }
        let before = self.shut.fetch_or(bits, Ordering::AcqRel);
        if bits & !before & SHUT_WRITE != 0 {
            self.control(&at, NicControl::ShutdownWrite);
        }
        Some(0)
    }

    /// What is ready at the NIC; `None` if the kernel has it.
    pub(crate) fn ready(&'static self) -> Option<Ready> {
        let at = self.away()?;
        let status = self.status(&at);
        let shut = self.shut.load(Ordering::Relaxed);
        let unread = at.area.receive().ok().map(|ring| receive::App::new(ring).is_empty());
        let room = at.area.send().ok().map(|ring| send::App::new(ring).room());
        let is_over = status.place == Place::Ended;
        let peer_closed = status.peer_closed || is_over || shut & SHUT_READ != 0;
        let error = status.error != 0 && !self.is_told.load(Ordering::Relaxed);
        Some(Ready {
            readable: peer_closed || error || unread.is_some_and(|unread| unread == Ok(false)),
            writable: is_over || room.is_some_and(|room| room.is_ok_and(|room| room > 0)),
            peer_closed,
            error,
            hung_up: is_over || peer_closed && shut & SHUT_WRITE != 0,
        })
    }

    /// Bytes that could be read, and bytes that the NIC has not taken yet; `None` if the kernel has it.
    pub(crate) fn queued(&'static self) -> Option<(c_int, c_int)> {
        let at = self.away()?;
        let unread = receive::App::new(at.area.receive().ok()?).len().unwrap_or(0);
        let ring = at.area.send().ok()?;
        let capacity = ring.capacity();
        let room = send::App::new(ring).room().unwrap_or(capacity);
        Some((unread as c_int, (capacity - room) as c_int))
    }

    /// The error that is pending, which is told by this; `None` if the kernel has it.
    pub(crate) fn take_error(&'static self) -> Option<c_int> {
        let at = self.away()?;
        let status = self.status(&at);
        let is_new = status.error != 0 && !self.is_told.swap(true, Ordering::AcqRel);
        Some(if is_new { status.error.into() } else { 0 })
    }
}
