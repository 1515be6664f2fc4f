//! Any bytes as MPA requests and replies: refused, or agreed on within what both want. The laws are those of the tests
//! of `rdma`.
#![no_main]
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

use libfuzzer_sys::fuzz_target;
use testkit::bytes::Bytes;

#[path = "../../crates/rdma/tests/hostile/streams.rs"]
#[allow(dead_code)] // the rest comes to other targets
mod streams;
#[path = "../../crates/rdma/tests/world/mod.rs"]
mod world;

fuzz_target!(|bytes: &[u8]| streams::set_up(&mut Bytes(bytes)));
