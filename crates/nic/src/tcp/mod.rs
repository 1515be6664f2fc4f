//! An endpoint on the NIC: the TCP engine of the crate `tcp` behind a TAP or on a wire, with addresses of
//! its own that no kernel has, and a service for its connections.
//!
//! ```text
//!   port ──> node ──> Stack::receive ──> events ──> apps
//!            │ arp, ndp, ping                        │
//!   port <── output <── Stack::poll_transmit  <──────┘
//! ```
//!
//! `worker` is that loop, one thread; `node` what is known of the network around it; the engine knows
//! neither. Payload is copied once each way: from the connection's send buffer into what the port sends
//! from, and from the frame that it came in into the connection's receive buffer.

mod addresses;
mod apps;
mod arp;
mod counters;
mod cut;
mod endpoint;
mod frame;
mod give_back;
mod icmp;
mod ndp;
mod neighbours;
mod node;
mod open;
mod outbox;
mod output;
mod pattern;
mod port;
mod shared;
mod split;
mod tap_wire;
#[cfg(test)]
mod tests;
mod wire_port;
mod worker;

pub use addresses::{Address, AddressError, Addresses};
pub use apps::{Report, Service, Work};
pub use counters::Dropped;
pub use endpoint::{Endpoint, Place, Plan};
pub use pattern::{PERIOD, Pattern};
#[cfg(test)]
pub(crate) use shared::counters;
pub use tcp::Reason;
pub use worker::Role;
