//! How long a call waits.

use std::cell::Cell;

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
    fd: c_int,
    flags: c_int,
    /// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
    option: c_int,
    known: Cell<Option<Patience>>,
}

impl Waiting {
    /// A call by this descriptor with these flags that receives.
    pub(crate) fn to_receive(connection: &'static Connection, fd: c_int, flags: c_int) -> Self {
        Waiting { connection, fd, flags, option: libc::SO_RCVTIMEO, known: Cell::new(None) }
    }

    /// A call by this descriptor with these flags that sends.
    pub(crate) fn to_send(connection: &'static Connection, fd: c_int, flags: c_int) -> Self {
        Waiting { connection, fd, flags, option: libc::SO_SNDTIMEO, known: Cell::new(None) }
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
