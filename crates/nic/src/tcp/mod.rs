//! An endpoint on the NIC: the TCP engine of the crate `tcp` behind a TAP or on a wire, with addresses of
//! its own that no kernel has, and a service for its connections.
//!
//! ```text
//!   port ──> Interface::receive ──> Stack::receive ──> events ──> apps
//!            │ ARP, ND, ping                                      │
//!   port <── output <── Stack::poll_transmit  <───────────────────┘
//! ```
//!
//! `worker` is that loop, one thread; `node` is an IP host without IO (the crate `iface`) with the engine behind
//! it, neither of which knows the other. Payload is copied once each way: from the connection's send buffer into
//! what the port sends from, and from the frame that it came in into the connection's receive buffer.

mod apps;
mod counters;
mod cut;
mod endpoint;
mod give_back;
mod node;
mod open;
mod output;
mod pattern;
mod port;
mod tap_wire;
#[cfg(test)]
mod tests;
mod wire_port;
mod worker;

pub use apps::{Report, Service, Work};
#[cfg(test)]
pub(crate) use counters::zero as counters;
pub use endpoint::{Endpoint, Plan};
pub use iface::{Address, AddressError, Addresses, Dropped};
pub use open::Place;
pub use pattern::{PERIOD, Pattern};
pub use tcp::Reason;
pub use worker::Role;

/// What outsiders cannot know: std's hashers are seeded by the operating system.
fn secret() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let mut secret = [0; 16];
    let (one, other) = secret.split_at_mut(8);
    one.copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
    other.copy_from_slice(&RandomState::new().hash_one(1).to_ne_bytes());
    secret
}
