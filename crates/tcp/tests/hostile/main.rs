//! A stack against any input: segments, snapshots, times and calls.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod drive;
#[path = "../snapshot/given.rs"]
mod given;
mod input;
mod kept;
mod survival;
