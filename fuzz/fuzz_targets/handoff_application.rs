//! An application that writes anything into the memory that it shares with a worker, and a peer that sends anything.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| nic::given::application(bytes));
