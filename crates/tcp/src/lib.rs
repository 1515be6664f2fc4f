//! TCP without IO: segments, application calls and time in; segments, events and a next deadline out
//! (RFC 9293).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod config;
pub mod congestion;
pub mod options;
pub mod repair;
mod segment;
pub mod snapshot;
mod state;

pub use config::{Algorithm, Config, Ecn, Keepalive};
pub use options::{Block, Options, SackBlocks};
pub use repair::{Lost, Repair, RepairError};
pub use segment::{FourTuple, Segment, Transmit};
pub use snapshot::{Snapshot, SnapshotError};
pub use state::{Reason, State};

/// Nanoseconds of any clock that does not step back.
pub type Nanos = u64;
