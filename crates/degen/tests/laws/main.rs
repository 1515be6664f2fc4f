//! The laws of degen, in virtual time.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod bursts;
mod codel;
mod conservation;
mod determinism;
mod drive;
mod ecn;
mod given;
mod jitter;
mod keys;
mod picks;
mod rate;
mod reordering;
mod schedules;
mod statistics;
