//! Errors of the calls that begin a connection.

use core::fmt;

use crate::snapshot::SnapshotError;

/// Why no connection can be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// There is a connection with these two ends already (EADDRNOTAVAIL).
    InUse,
    /// There are as many connections as there may be (ENOBUFS).
    Full,
    /// There is no memory for one more (ENOMEM).
    Memory,
    /// One address is IPv4, the other IPv6, or one is not that of a single host.
    BadAddress,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectError::InUse => "there is a connection between these two ends already",
            ConnectError::Full => "there are as many connections as there may be",
            ConnectError::Memory => "there is no memory for one more connection",
            ConnectError::BadAddress => "these two addresses cannot be the ends of a connection",
        })
    }
}

impl core::error::Error for ConnectError {}

/// Why a snapshot cannot be thawed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThawError {
    /// There is no place for it.
    Connect(ConnectError),
    /// It is none that a connection could have given.
    Snapshot(SnapshotError),
}

impl fmt::Display for ThawError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThawError::Connect(error) => error.fmt(f),
            ThawError::Snapshot(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ThawError {}
