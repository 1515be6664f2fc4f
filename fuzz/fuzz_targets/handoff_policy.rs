//! Any text for a policy: refused in one line, or read again as it is written.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/handoff/tests/given/mod.rs"]
mod given;

fuzz_target!(|text: &str| given::policy(text));
