//! What of a connection at the NIC is ready, and how much waits; shutdown(2), and the errors that calls tell.

use std::sync::atomic::Ordering;

use handoff::RestoreReason;
use handoff::command::NicControl;
use handoff::ring::{Lost, receive, send};
use handoff::session::status::{Place, Status};
use libc::c_int;

use super::place::{AtNic, moves};
use super::{Connection, Ready, SHUT_READ, SHUT_WRITE, epoll};
use crate::{os, timeout};

impl Connection {
    /// What is ready at the NIC: nothing while it moves. `None` if the kernel has it.
    pub(crate) fn ready(&'static self) -> Option<Ready> {
        self.at_rest(Ready::default(), |at, status| self.ready_at(at, status))
    }

    /// Bytes that were not sent yet; `None` if the kernel has it, or the NIC cannot be asked.
    pub(crate) fn unsent(&'static self) -> Option<c_int> {
        // With the figures the NIC says which were sent.
        self.info()?;
        self.at_rest(0, |at, status| {
            let Ok(ring) = at.area.send() else { return Ok(0) };
            let sent = send::App::new(ring);
            match sent.end().and_then(|end| Ok((end, sent.len()?))) {
                Ok((end, used)) => Ok(at.unsent(end, used) as c_int),
                // What was lost on its way back has nothing.
                Err(Lost) if status.place == Place::Ended => Ok(0),
                Err(Lost) => Err(Lost),
            }
        })
    }

    /// Bytes that could be read, and bytes that are not acknowledged; `None` if the kernel has it.
    pub(crate) fn queued(&'static self) -> Option<(c_int, c_int)> {
        self.at_rest((0, 0), |at, status| {
            let unread = at.area.receive().map_or(Ok(0), |ring| receive::App::new(ring).len());
            let unsent = at.area.send().map_or(Ok(0), |ring| send::App::new(ring).len());
            match (unread, unsent) {
                (Ok(unread), Ok(unsent)) => Ok((unread as c_int, unsent as c_int)),
                // What was lost on its way back has nothing.
                _ if status.place == Place::Ended => Ok((0, 0)),
                _ => Err(Lost),
            }
        })
    }

    /// What is read of the rings of a connection at the NIC; `None` if the kernel has it. On its way back they say nothing, and
    /// while it moves for longer than a call waits, it is this.
    fn at_rest<T>(
        &'static self,
        meanwhile: T,
        read: impl Fn(&AtNic, Status) -> Result<T, Lost>,
    ) -> Option<T> {
        let mut until = None;
        loop {
            let (at, status) = self.settled()?;
            if moves(status) {
                return Some(meanwhile);
            }
            match read(&at, status) {
                Ok(found) if self.look(&at) == status.place => return Some(found),
                Ok(_) => {}
                // It has left the NIC, as the status is about to say.
                Err(Lost) => {
                    let now = os::now();
                    let until = *until.get_or_insert(now + timeout::CALL);
                    if now >= until {
                        self.awaits_move();
                        return Some(meanwhile);
                    }
                    self.wait_while(&at, until - now, Place::Nic);
                }
            }
        }
    }

    fn ready_at(&'static self, at: &AtNic, status: Status) -> Result<Ready, Lost> {
        let shut = self.shut.load(Ordering::Acquire);
        let is_over = status.place == Place::Ended;
        let has_unread = match at.area.receive() {
            Ok(ring) if !is_over => !receive::App::new(ring).is_empty()?,
            _ => is_over,
        };
        let peer_closed = status.peer_closed || is_over || shut & SHUT_READ != 0;
        let error = status.error != 0 && !self.is_told.load(Ordering::Relaxed);
        Ok(Ready {
            readable: peer_closed || error || has_unread,
            // What would fail does not wait (tcp_poll).
            writable: is_over
                || shut & SHUT_WRITE != 0
                || self.sends_lent()
                || self.has_room(at)?,
            peer_closed,
            error,
            hung_up: is_over || peer_closed && shut & SHUT_WRITE != 0,
        })
    }

    /// Whether a third of what may wait to be acknowledged is free (sk_stream_is_writeable).
    pub(super) fn has_room(&self, at: &AtNic) -> Result<bool, Lost> {
        let Ok(ring) = at.area.send() else { return Ok(false) };
        let sent = send::App::new(ring).begin()?;
        let (free, used, end) = (sent.room(), sent.used(), sent.end());
        let left = free.min(self.limits.capacity(ring.capacity()).saturating_sub(used));
        // Twice as many as wait are fewer than may (__tcp_stream_memory_free).
        let may_write = match self.limits.unsent() {
            0 => true,
            most => {
                let half = most.div_ceil(2);
                self.wait_until_tried(at, half);
                at.unsent(end, used) < half
            }
        };
        Ok(left > 0 && left >= used / 2 && may_write)
    }

    /// The program shuts an end down; `None` if the kernel has the connection.
    pub(crate) fn shutdown(&'static self, how: c_int) -> Option<c_int> {
        let at = self.away_for_control()?;
        let Some(bits) = shut_bits(how) else { return Some(os::fail(libc::EINVAL) as c_int) };
        if self.look(&at) == Place::Ended {
            // The kernel wakes those that wait in this case, too (inet_shutdown).
            self.wake_all(&at);
            return Some(os::fail(libc::ENOTCONN) as c_int);
        }
        self.take_all_back();
        let before = self.shut.fetch_or(bits, Ordering::AcqRel);
        let both = [(SHUT_READ, NicControl::ShutdownRead), (SHUT_WRITE, NicControl::ShutdownWrite)];
        for (_, control) in both.into_iter().filter(|(bit, _)| bits & !before & bit != 0) {
            if self.look(&at) != Place::Nic || !self.control(&at, control) {
                // The kernel is told what was shut when it has the connection.
                self.ask_back(&at, RestoreReason::Unserved);
            }
        }
        self.wake_all(&at);
        Some(0)
    }

    /// A call of the program's has changed what is ready: threads that wait for it are to see that (see `wait`), and an
    /// edge is told.
    fn wake_all(&'static self, at: &AtNic) {
        at.wake();
        epoll::changed(self, at.session);
    }

    /// `SO_SNDBUF` or `TCP_NOTSENT_LOWAT` has changed: as much as waits to be acknowledged, or to be sent, may be what does not
    /// fit any more, or fits now. Or `SO_RCVLOWAT` of a connection that has ended.
    pub(crate) fn has_limits(&'static self, fd: c_int) {
        self.limits.read(fd);
        if let Some(at) = self.away() {
            at.area.unsent_most().store(self.limits.unsent().into(), Ordering::Relaxed);
            // As sock_setsockopt and tcp_set_rcvlowat do, whether there is more room or not, or more to read.
            self.wake_all(&at);
        }
    }

    /// Whether a call that sends fails, as far as the layer knows.
    pub(crate) fn sends_no_more(&'static self) -> bool {
        let is_shut = self.shut.load(Ordering::Acquire) & SHUT_WRITE != 0;
        is_shut || self.has_late() || self.has_ended()
    }

    /// The program has shut an end down at the kernel: the NIC's side knows, too, should it have the connection.
    pub(crate) fn was_shut(&self, how: c_int) {
        self.shut.fetch_or(shut_bits(how).unwrap_or(0), Ordering::AcqRel);
    }

    /// The error that is pending wherever the connection is, which is told by this.
    pub(crate) fn pending_error(&'static self, fd: c_int) -> Option<c_int> {
        let error = self.take_error().or_else(|| self.take_late());
        error.or_else(|| Some(os::take_error(fd))).filter(|error| *error != 0)
    }

    /// The error that is pending, which is told by this; `None` if the kernel has it.
    pub(crate) fn take_error(&'static self) -> Option<c_int> {
        let (_, status) = self.settled()?;
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
