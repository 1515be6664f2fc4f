//! The tests of `handoff` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod commands;
mod given;
mod held;
mod machine;
mod mirror;
mod policy;
mod rings;
mod session;
mod sharers;
mod splice;
