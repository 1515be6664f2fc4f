//! MPA: records in a byte stream (RFC 5044), and how a connection is set up (RFC 5044 section 7, RFC 6581).
//!
//! | module | what |
//! |---|---|
//! | [`frame`] | the request and the reply |
//! | [`startup`] | what the two sides make of them |
//! | [`layout`] | where FPDUs and markers lie |

pub mod frame;
pub mod layout;
pub mod startup;

pub use frame::{Rtr, RtrKinds};
pub use startup::{Config, Initiator, Negotiated, Responder, Role, StartupError};
