//! The tests of `wire` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod arbitrary;
mod flow;
mod messages;
mod packet;
