//! The TCP engine behind BSD sockets in virtual time ([`sockets`]), packetdrill's language
//! ([`script`](mod@script)), and a runner of its scripts against the engine ([`runner`]).
//!
//! Nothing here depends on the operating system: time, wire and descriptors are all in memory, so a script
//! that lasts an hour is run in a moment and gives the same packets each time.
#![forbid(unsafe_code)]

pub mod runner;
pub mod script;
pub mod sockets;
