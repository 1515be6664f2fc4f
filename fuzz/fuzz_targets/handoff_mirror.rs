//! Any bytes for the mirror of a connection: no record, or one that is written as the same words.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/handoff/tests/given/mod.rs"]
mod given;

fuzz_target!(|bytes: &[u8]| given::mirror(bytes));
