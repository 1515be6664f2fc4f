//! Errors as system calls report them.

use crate::script::symbols;

/// An errno.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(symbols::errno_name(self.0))
    }
}

impl std::error::Error for Errno {}

/// Why a call has no result now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It has to wait, and is to be tried again when something has happened.
    Block,
    /// It failed.
    Errno(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Stop::Errno(errno)
    }
}

/// Fails with an errno.
pub(super) fn fail<T>(errno: i32) -> Result<T, Stop> {
    Err(Stop::Errno(Errno(errno)))
}

/// The errno of a connection's end; 0 for an orderly one.
pub(super) fn of_reason(reason: tcp::Reason) -> i32 {
    match reason {
        tcp::Reason::Closed => 0,
        tcp::Reason::Refused => libc::ECONNREFUSED,
        tcp::Reason::Reset => libc::ECONNRESET,
        tcp::Reason::TimedOut => libc::ETIMEDOUT,
        tcp::Reason::Unreachable => libc::EHOSTUNREACH,
        tcp::Reason::Aborted | tcp::Reason::Frozen => libc::ECONNABORTED,
    }
}
