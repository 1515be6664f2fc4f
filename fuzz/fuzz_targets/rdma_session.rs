//! An application that writes anything into the memory that it shares with the device, and asks for anything: its session
//! ends or goes on, and no memory is reached that is not registered. The laws are those of the tests of `rdma`.
#![no_main]
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

use libfuzzer_sys::fuzz_target;
use testkit::bytes::Bytes;

#[path = "../../crates/rdma/tests/session/hostile.rs"]
mod hostile;
#[path = "../../crates/rdma/tests/session/side.rs"]
mod side;
#[path = "../../crates/rdma/tests/world/mod.rs"]
mod world;

fuzz_target!(|bytes: &[u8]| hostile::run(&mut Bytes(bytes)));
