//! degen between real ports: its settings, a router-in-the-middle of two interfaces
//! ([`Bridge`](bridge::Bridge)), and a wire around a wire ([`DegenWire`](wire::DegenWire)).
//!
//! What is done to packets is the concern of the crate `degen`; here they come from somewhere and go
//! somewhere. Super-packets are cut first, as degen stands on the wire, where there are none.

pub mod bridge;
mod directions;
mod file;
mod forwarder;
mod handle;
mod plain;
mod settings;
mod snapshot;
pub mod wire;

pub use handle::{Handle, handle};
pub use settings::{Direction, SettingError, Settings, entries, find};
pub use snapshot::{Late, Snapshot, Tally};
