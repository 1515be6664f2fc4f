//! Why a measurement could not be made.

use std::io;

/// See the module's documentation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be; it says what can.
    #[error("{0}")]
    Usage(String),
    /// An error of the operating system.
    #[error(transparent)]
    Sys(#[from] sys::Error),
    /// An error of the NIC under test.
    #[error(transparent)]
    Nic(#[from] nic::Error),
    /// The receiver got something else than what was sent.
    #[error("byte {at} from port {port} is not the one that was sent")]
    Corrupt {
        /// The sender's port.
        port: u16,
        /// Which byte of the connection's stream.
        at: u64,
    },
    /// What was done, and what went wrong.
    #[error("{what}: {cause}")]
    Io {
        /// What was done.
        what: &'static str,
        /// What went wrong.
        cause: io::Error,
    },
    /// A system under test did not do what it should.
    #[error("{system}: {why}")]
    Failed {
        /// Which.
        system: &'static str,
        /// What went wrong.
        why: String,
    },
}
