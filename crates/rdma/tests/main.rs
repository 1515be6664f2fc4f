//! The tests of `rdma` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod formats;
mod hostile;
mod model;
mod musts;
mod session;
mod verbs;
mod world;
