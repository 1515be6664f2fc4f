//! Segments, snapshots, times and calls in any order.

use proptest::prelude::*;
use tcp::Snapshot;
use testkit::bytes::Bytes;

use super::drive::Drive;
use crate::given;

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..2_000)
}

proptest! {
    #[test]
    fn any_segments_in_any_state_are_survived(bytes in any_bytes()) {
        let bytes = &mut Bytes(&bytes);
        Drive::begin(bytes).run(bytes);
    }

    #[test]
    fn any_valid_snapshot_is_survived(seed: u64, bytes in any_bytes()) {
        let bytes = &mut Bytes(&bytes);
        let mut drive = Drive::empty(bytes);
        drive.thaw(&given::snapshot(seed));
        drive.run(bytes);
    }

    #[test]
    fn a_snapshot_that_was_changed_is_refused_or_survived(
        seed: u64,
        changes in prop::collection::vec((0..400_usize, any::<u8>()), 1..6),
        bytes in any_bytes(),
    ) {
        let mut encoded = given::snapshot(seed).encode();
        for (at, value) in changes {
            let at = at % encoded.len();
            encoded[at] = value;
        }
        if let Ok(snapshot) = Snapshot::decode(&encoded) {
            let bytes = &mut Bytes(&bytes);
            let mut drive = Drive::empty(bytes);
            drive.thaw(&snapshot);
            drive.run(bytes);
        }
    }
}
