//! Any segments, times and calls of an application, in every state of a connection: the stack answers,
//! keeps time, and what it freezes is valid. The laws are those of the tests of `tcp`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tcp/tests/hostile/drive.rs"]
#[allow(dead_code)] // snapshots come to another target
mod drive;

use drive::Drive;
use testkit::bytes::Bytes;

fuzz_target!(|bytes: &[u8]| {
    let bytes = &mut Bytes(bytes);
    Drive::begin(bytes).run(bytes);
});
