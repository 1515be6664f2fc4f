//! What the fuzz target `tcp_snapshot` does with an input: any bytes for a snapshot are refused, or
//! thawed and driven on like any other connection.

use tcp::Snapshot;
use testkit::bytes::Bytes;

use super::drive::{Drive, four};
use crate::given;

pub(crate) fn run(bytes: &[u8]) {
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
}

/// A valid one with some bytes of others.
fn changed(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let mut encoded = given::snapshot(four(bytes).into()).encode();
    for _ in 0..bytes.next() % 8 {
        let at = four(bytes) as usize % encoded.len();
        encoded[at] = bytes.next();
    }
    encoded
}
