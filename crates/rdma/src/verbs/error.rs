//! Why a verb is refused.

use core::fmt;

/// Why a verb is refused. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// An argument contradicts itself or another, or names an object that does not exist.
    Invalid,
    /// The object is in use: something refers to it.
    Busy,
    /// As many objects and bytes as the limits allow.
    Limit,
    /// The work queue is full.
    Full,
    /// Verbs have it, this device does not.
    NotSupported,
    /// The queue pair's state does not allow it.
    State,
}

impl Error {
    /// The errno(3) of Linux that `ibv_*` returns for it.
    pub fn errno(self) -> i32 {
        match self {
            Error::Invalid | Error::State => 22,
            Error::Busy => 16,
            Error::Limit | Error::Full => 12,
            Error::NotSupported => 95,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Invalid => "invalid argument",
            Error::Busy => "the object is in use",
            Error::Limit => "over the device's limits",
            Error::Full => "the work queue is full",
            Error::NotSupported => "not supported",
            Error::State => "not in this state of the queue pair",
        })
    }
}

impl core::error::Error for Error {}
