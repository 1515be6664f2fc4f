//! An application that calls verbs with any numbers and posts anything: no memory is reached that is not
//! registered. The laws are those of the tests of `rdma`.
#![no_main]
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

use libfuzzer_sys::fuzz_target;
use testkit::bytes::Bytes;

#[path = "../../crates/rdma/tests/hostile/posts.rs"]
#[allow(dead_code)] // the rest comes to other targets
mod posts;
#[path = "../../crates/rdma/tests/world/mod.rs"]
mod world;

fuzz_target!(|bytes: &[u8]| posts::run(&mut Bytes(bytes)));
