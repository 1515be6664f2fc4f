//! What is written is read again, and nothing else is.

use proptest::prelude::*;
use tcp::snapshot::{Snapshot, SnapshotError};

use crate::given::snapshot;

proptest! {
    #[test]
    fn what_is_written_is_read_again(seed: u64) {
        let snapshot = snapshot(seed);
        prop_assert_eq!(snapshot.validate(), Ok(()));
        prop_assert_eq!(Snapshot::decode(&snapshot.encode()), Ok(snapshot));
    }

    #[test]
    fn a_part_of_a_snapshot_is_refused(seed: u64, part in 0.0..1.0) {
        let mut bytes = snapshot(seed).encode();
        bytes.truncate((bytes.len() as f64 * part) as usize);
        prop_assert!(Snapshot::decode(&bytes).is_err());
        // Nor is it if the length agrees.
        if let Some(len) = bytes.len().checked_sub(10) {
            bytes[6..10].copy_from_slice(&(len as u32).to_le_bytes());
            prop_assert!(Snapshot::decode(&bytes).is_err());
        }
    }

    #[test]
    fn bytes_behind_a_snapshot_are_refused(seed: u64, more in prop::collection::vec(any::<u8>(), 1..9)) {
        let mut bytes = snapshot(seed).encode();
        bytes.extend(more);
        prop_assert_eq!(Snapshot::decode(&bytes), Err(SnapshotError::Length));
        let len = bytes.len() as u32 - 10;
        bytes[6..10].copy_from_slice(&len.to_le_bytes());
        prop_assert_eq!(Snapshot::decode(&bytes), Err(SnapshotError::Length));
    }

    #[test]
    fn changed_bytes_are_refused_or_a_valid_snapshot(
        seed: u64,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = snapshot(seed).encode();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(read) = Snapshot::decode(&bytes) {
            prop_assert_eq!(read.validate(), Ok(()));
            prop_assert_eq!(read.encode(), bytes);
        }
    }

    #[test]
    fn bytes_of_all_kinds_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut with_head = b"wtcp\x02\0".to_vec();
        with_head.extend((bytes.len() as u32).to_le_bytes());
        with_head.extend(&bytes);
        for bytes in [bytes, with_head] {
            prop_assert!(Snapshot::decode(&bytes).is_err());
        }
    }
}

#[test]
fn every_cut_of_a_snapshot_is_refused() {
    let bytes = (0..20).map(|seed| snapshot(seed).encode()).min_by_key(Vec::len).unwrap();
    for len in 0..bytes.len() {
        assert!(Snapshot::decode(&bytes[..len]).is_err(), "{len} of {}", bytes.len());
    }
}
