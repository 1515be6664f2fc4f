//! Any bytes for a snapshot: refused, or thawed and driven on like any other connection.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tcp/tests/hostile/drive.rs"]
#[allow(dead_code)] // connections of its own are another target's
mod drive;
#[path = "../../crates/tcp/tests/snapshot/given.rs"]
mod given;
#[path = "../../crates/tcp/tests/hostile/input.rs"]
mod input;

fuzz_target!(|bytes: &[u8]| input::run(bytes));
