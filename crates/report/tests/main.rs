//! The tests of `report` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod browser;
mod laws;
#[allow(dead_code)] // each user has its part
mod sample;
