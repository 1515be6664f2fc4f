//! TCP without IO: segments, application calls and time in; segments, events and a next deadline out
//! (RFC 9293).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod config;
pub mod congestion;
pub mod options;
mod segment;
pub mod snapshot;
mod state;

pub use config::{Algorithm, Config, Ecn, Keepalive};
pub use options::{Block, Options, SackBlocks};
pub use segment::{FourTuple, Segment, Transmit};
pub use snapshot::{Snapshot, SnapshotError};
pub use state::{Reason, State};

/// Nanoseconds of any clock that does not step back.
pub type Nanos = u64;
