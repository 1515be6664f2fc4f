//! Any bytes for a snapshot: refused, or thawed and driven on like any other connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tcp::Snapshot;

#[path = "../../crates/tcp/tests/hostile/drive.rs"]
#[allow(dead_code)] // connections of its own are another target's
mod drive;
#[path = "../../crates/tcp/tests/snapshot/given.rs"]
mod given;

use drive::{Bytes, Drive};

fuzz_target!(|bytes: &[u8]| {
    let bytes = &mut Bytes(bytes);
    let encoded = match bytes.next() % 2 {
        0 => bytes.0.to_vec(),
        _ => changed(bytes),
    };
    if let Ok(snapshot) = Snapshot::decode(&encoded) {
        assert_eq!(snapshot.encode(), encoded);
        let mut drive = Drive::empty(bytes);
        drive.thaw(&snapshot);
        drive.run(bytes);
    }
});

/// A valid one with some bytes of others.
fn changed(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let mut encoded = given::snapshot(bytes.four().into()).encode();
    for _ in 0..bytes.next() % 8 {
        let at = bytes.four() as usize % encoded.len();
        encoded[at] = bytes.next();
    }
    encoded
}
