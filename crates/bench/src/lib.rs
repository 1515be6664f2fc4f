//! wharf's measurements: scenarios, peers beside which they run, and the figures they give.
//!
//! A scenario reports every [`Figure`] to a [`Report`] as soon as it is known, so that a long run
//! that is interrupted has reported what it knew. Ratios are for the reader to take from figures of
//! one run; nothing here passes or fails by a time.

mod case;
pub mod degen;
mod error;
pub mod fairness;
mod figure;
pub mod gso;
pub mod gso_throughput;
pub mod handoff;
pub mod hosts;
pub mod latency;
mod link;
pub mod load;
pub mod lro;
mod memory;
mod meter;
mod packet;
pub mod paper;
mod peers;
mod random;
pub mod rdma;
pub mod rdma_wan;
mod running;
pub mod scale;
mod sender;
mod side_by_side;
mod sink;
pub mod snmp;
pub mod tcp;
pub mod throughput;
mod veth;
mod worker;

pub use case::Case;
pub use error::Error;
pub use figure::{BYTES, Figure, Report};
pub use side_by_side::System;
