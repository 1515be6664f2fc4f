//! An application that writes anything into its rings, at any time: the NIC says that it is hostile, and goes on.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/handoff/tests/given/mod.rs"]
mod given;

fuzz_target!(|bytes: &[u8]| given::hostile_rings(bytes));
