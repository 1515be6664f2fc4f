//! What an application writes into the ring of commands: refused, or a command that is written as the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/handoff/tests/given/mod.rs"]
mod given;

fuzz_target!(|bytes: &[u8]| {
    for command in bytes.chunks_exact(16) {
        given::commands(command.try_into().unwrap_or_default());
    }
});
