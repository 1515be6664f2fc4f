//! The tests of `sys` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod control;
mod dataplane;
mod refused;
mod repair;
mod stamps;
mod tap;
