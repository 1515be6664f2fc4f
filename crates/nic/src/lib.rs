//! The software NIC itself: ports, workers, counters, configuration and control.
//!
//! [`nic::Nic::start`] opens a wire and makes a host interface; each [`worker::Worker`] owns a
//! queue of both and runs every packet to its end. What is done to packets is the concern of the
//! crates `lro` and `gso`; how the operating system is reached, that of `sys`.
#![forbid(unsafe_code)]

mod app;
mod capabilities;
pub mod capture;
pub mod config;
pub mod control;
pub mod counters;
pub mod degen;
#[cfg(test)]
mod documented;
mod engines;
mod entropy;
mod error;
mod event_loop;
pub mod features;
mod forwarding;
#[cfg(any(test, feature = "given"))]
pub mod given;
pub mod handle;
pub mod handoff;
mod lane;
pub mod mirror;
pub mod nic;
mod open;
mod peers;
pub mod port;
mod queues;
pub mod quiet;
pub mod repair;
mod running;
pub mod selftest;
mod steer;
pub mod tcp;
mod threads;
mod wire_queue;
pub mod worker;

pub use error::Error;
pub use nic::Nic;
pub use open::{far_end_of, find_wire};
