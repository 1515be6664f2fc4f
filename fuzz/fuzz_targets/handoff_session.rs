//! Any bytes for the messages and the memory of a session: refused, or written as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/handoff/tests/given/mod.rs"]
mod given;

fuzz_target!(|bytes: &[u8]| given::session(bytes));
