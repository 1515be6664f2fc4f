//! Any packets and times against an IP host: it replies to those that ask and for its own addresses only, learns
//! from hosts only, keeps its memory bounded, and each question has an end. The laws are those of the tests of
//! `iface`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/iface/tests/laws/drive.rs"]
mod drive;

fuzz_target!(|bytes: &[u8]| drive::run(bytes));
