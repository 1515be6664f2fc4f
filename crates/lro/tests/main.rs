//! The tests of `lro` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod kernel;
mod laws;
mod tun;
