//! How long a call waits.

use std::cell::Cell;

use libc::c_int;

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
    fd: c_int,
    flags: c_int,
    /// `SO_RCVTIMEO` or `SO_SNDTIMEO`.
    option: c_int,
    known: Cell<Option<Patience>>,
}

impl Waiting {
    /// A call with these flags that receives.
    pub(crate) fn to_receive(fd: c_int, flags: c_int) -> Self {
        Waiting { fd, flags, option: libc::SO_RCVTIMEO, known: Cell::new(None) }
    }

    /// A call with these flags that sends.
    pub(crate) fn to_send(fd: c_int, flags: c_int) -> Self {
        Waiting { fd, flags, option: libc::SO_SNDTIMEO, known: Cell::new(None) }
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
        if self.flags & libc::MSG_DONTWAIT != 0 || os::is_nonblocking(self.fd) {
            return Patience::None;
        }
        let timeout = os::timeout_of(self.fd, self.option);
        Patience::Until(timeout.map(|timeout| os::now() + timeout))
    }
}
