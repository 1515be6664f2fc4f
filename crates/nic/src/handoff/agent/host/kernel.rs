//! Ways to ask the kernel that stay open.

use std::fmt;
use std::io;

use sys::netlink::{Connection, Protocol};

/// See the module's documentation. What a kernel does not have is `None`.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) route: Connection,
    pub(super) netfilter: Option<Connection>,
    pub(super) xfrm: Option<Connection>,
    pub(super) diag: Option<Connection>,
}

impl Kernel {
    /// # Errors
    /// What socket(2) says of a socket of rtnetlink.
    pub(super) fn open() -> io::Result<Kernel> {
        let open = |protocol| Connection::open(protocol).ok();
        Ok(Kernel {
            route: Connection::open(Protocol::Route)?,
            netfilter: open(Protocol::Netfilter),
            xfrm: open(Protocol::Xfrm),
            diag: open(Protocol::Diag),
        })
    }
}

/// Something that is said in the log once.
#[derive(Debug, Default)]
pub(super) struct Once {
    is_said: bool,
}

impl Once {
    /// Says it.
    pub(super) fn warn(&mut self, what: fmt::Arguments<'_>) {
        if !std::mem::replace(&mut self.is_said, true) {
            tracing::warn!("{what}");
        }
    }
}
