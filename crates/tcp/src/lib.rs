//! TCP without IO: segments, application calls and time in; segments, events and a next deadline out
//! (RFC 9293).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ack;
mod app;
pub mod config;
pub mod congestion;
mod connection;
mod data;
mod flight;
mod freeze;
mod info;
mod input;
mod mtu;
mod open;
pub mod options;
mod output;
mod predict;
mod rack;
mod reassembly;
mod recovery;
pub mod repair;
mod ring;
mod rtt;
mod segment;
pub mod snapshot;
mod stack;
mod state;
mod timers;
mod window;

pub use app::{ReceiveError, SendError, Socket};
pub use config::{Algorithm, Config, Ecn, Keepalive};
pub use connection::{Connection, Events};
pub use info::Info;
pub use mtu::Icmp;
pub use options::{Block, Options, SackBlocks};
pub use repair::{Lost, Repair, RepairError};
pub use segment::{FourTuple, Segment, Transmit};
pub use snapshot::{Snapshot, SnapshotError};
pub use stack::{
    ConnectError, Counters, Id, ListenError, ListenerId, Stack, StackConfig, ThawError,
};
pub use state::{Reason, State};

/// Nanoseconds of any clock that does not step back.
pub type Nanos = u64;
