//! The laws of degen, in virtual time.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod bursts;
mod codel;
mod conservation;
mod determinism;
mod drive;
mod given;
mod jitter;
mod picks;
mod rate;
mod reordering;
mod statistics;
