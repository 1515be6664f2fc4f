//! A process that says anything to the agent, with any descriptors: what it may not say ends its session alone.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nic::given::to_the_agent(bytes));
