//! The tests of `nic` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod degen;
mod degen_settings;
mod handoff;
mod mirror;
mod obstacles;
mod shared;
mod worker;
