//! Any bytes of a peer, in every state of a queue pair: nothing outside what is granted is placed, nothing after the
//! end, and each request completes once. The laws are those of the tests of `rdma`.
#![no_main]
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

use libfuzzer_sys::fuzz_target;
use testkit::bytes::Bytes;

#[path = "../../crates/rdma/tests/hostile/streams.rs"]
#[allow(dead_code)] // the rest comes to other targets
mod streams;
#[path = "../../crates/rdma/tests/world/mod.rs"]
mod world;

fuzz_target!(|bytes: &[u8]| streams::run(&mut Bytes(bytes)));
