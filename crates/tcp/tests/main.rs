//! The tests of `tcp` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod congestion;
#[allow(dead_code)] // each user has its part
#[path = "snapshot/given.rs"]
mod given;
mod hostile;
mod lent;
mod model;
mod options;
mod regressions;
mod repair;
mod sim;
mod snapshot;
mod trace;
