//! MPA: records in a byte stream (RFC 5044), and how a connection is set up (RFC 5044 section 7, RFC 6581).
//!
//! | module | what |
//! |---|---|
//! | [`frame`] | the request and the reply |
//! | [`startup`] | what the two sides make of them |
//! | [`layout`] | where FPDUs and markers lie |
//! | `deframe` | FPDUs out of slices of a stream |
//! | `framing` | FPDUs into a stream |

pub mod frame;
pub mod layout;
pub mod startup;

pub(crate) mod deframe;
pub(crate) mod framing;

pub use frame::{Rtr, RtrKinds};
pub use startup::{Config, Initiator, Negotiated, Responder, Role, StartupError};

#[cfg(test)]
mod tests;
