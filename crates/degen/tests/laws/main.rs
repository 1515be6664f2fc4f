//! The laws of degen, in virtual time.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod bursts;
mod conservation;
mod determinism;
mod drive;
mod given;
mod jitter;
mod picks;
mod reordering;
mod statistics;
