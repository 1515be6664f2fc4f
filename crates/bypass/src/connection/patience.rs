//! How long a call waits.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use libc::c_int;

use super::Connection;
use crate::os;

/// How a call waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until something happens, or until this time of [`os::now`].
    Until(Option<u64>),
}

/// How a call on a socket waits: found out when it first must wait, and the same from then on.
pub(crate) struct Waiting {
    connection: &'static Connection,
    /// Of the connection, when the call began.
    generation: u32,
    fd: c_int,
    flags: c_int,
    /// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
    option: c_int,
    known: Cell<Option<Patience>>,
    has_moved: Cell<bool>,
    is_interrupted: Cell<bool>,
}

impl Waiting {
    /// A call by this descriptor with these flags that receives.
    pub(crate) fn to_receive(connection: &'static Connection, fd: c_int, flags: c_int) -> Self {
        Self::new(connection, fd, flags, libc::SO_RCVTIMEO)
    }

    /// A call by this descriptor with these flags that sends.
    pub(crate) fn to_send(connection: &'static Connection, fd: c_int, flags: c_int) -> Self {
        Self::new(connection, fd, flags, libc::SO_SNDTIMEO)
    }

    fn new(connection: &'static Connection, fd: c_int, flags: c_int, option: c_int) -> Self {
        let generation = connection.generation.load(Ordering::SeqCst);
        Waiting {
            connection,
            generation,
            fd,
            flags,
            option,
            known: Cell::new(None),
            has_moved: Cell::new(false),
            is_interrupted: Cell::new(false),
        }
    }

    /// Whether the connection has been closed since the call began: its descriptor may be another's by now.
    pub(crate) fn is_over(&self) -> bool {
        self.connection.generation.load(Ordering::SeqCst) != self.generation
    }

    /// The call has moved bytes: from now on it ends with the next signal that has a handler (tcp_sendmsg_locked and
    /// tcp_recvmsg_locked give what they have), also where calls are begun again (`SA_RESTART`).
    pub(crate) fn moves(&self) {
        self.has_moved.set(true);
    }

    /// Whether it has.
    pub(crate) fn has_moved(&self) -> bool {
        self.has_moved.get()
    }

    /// A signal or the time-out has ended a wait: the call gives what it has.
    pub(super) fn interrupt(&self) {
        self.is_interrupted.set(true);
    }

    /// Whether one has.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted.get()
    }

    /// The descriptor by which the call is.
    pub(super) fn fd(&self) -> c_int {
        self.fd
    }

    pub(crate) fn patience(&self) -> Patience {
        if let Some(known) = self.known.get() {
            return known;
        }
        let found = self.find();
        self.known.set(Some(found));
        found
    }

    fn find(&self) -> Patience {
        if self.flags & libc::MSG_DONTWAIT != 0 || self.connection.is_nonblocking(self.fd) {
            return Patience::None;
        }
        let timeout = os::timeout_of(self.fd, self.option);
        Patience::Until(timeout.map(|timeout| os::now() + timeout))
    }
}
