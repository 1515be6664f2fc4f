//! Any messages for a guard, with any memory, and the death of the NIC: what can be put back is, and nothing else.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nic::given::to_a_guard(bytes));
