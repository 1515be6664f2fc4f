//! An endpoint on the NIC: the TCP engine of the crate `tcp` behind a TAP or on a wire, with addresses of
//! its own that no kernel has, and a service for its connections. It is a [`Worker`](crate::worker::Worker) with
//! an engine lane alone.
//!
//! ```text
//!   port ──> lro ──> Interface::receive ──> Stack::receive ──> events ──> app
//!                    │ ARP, ND, ping                                      │
//!   port <────────── output <── Stack::poll_transmit  <───────────────────┘
//! ```
//!
//! Payload is copied once each way: from the connection's send buffer into what the port sends from, and from
//! the frame that it came in into the connection's receive buffer.

mod alone;
mod endpoint;
mod open;

pub use crate::app::{PERIOD, Pattern, Report, Role, Service, Work};
pub use crate::engines::Own;
pub use crate::lane::trace::{FourTuple, Trace, ends};
pub use alone::{Reached, worker_on, workers_on};
pub use endpoint::{Endpoint, Plan};
pub use iface::{Address, AddressError, Addresses, Dropped};
pub use open::Place;
pub use tcp::{Info, Reason, snapshot::RecoveryState, trace};
