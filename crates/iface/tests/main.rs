//! The tests of `iface` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod adopted;
mod detect;
mod laws;
