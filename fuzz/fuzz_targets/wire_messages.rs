//! Any bytes as messages of ARP, Neighbour Discovery and ICMP, and any values as such messages and as IP
//! headers. The laws are those of the tests of `wire`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/wire/tests/messages/drive.rs"]
mod drive;

fuzz_target!(|bytes: &[u8]| drive::run(bytes));
