//! The IDs of IP fragments.

use std::collections::HashSet;

use gso::FragmentIds;

#[test]
fn none_comes_again_before_all_have_come() {
    let ids = FragmentIds::new(0x0123_4567_89ab_cdef);
    let mut whole = HashSet::new();
    // Twice through the lower half, which is what IPv4 has room for.
    for round in 0..2 {
        let mut lower = HashSet::new();
        for id in (0..1 << 16).map(|n| ids.nth(round << 16 | n)) {
            assert!(lower.insert(id as u16) && whole.insert(id));
        }
    }
}

#[test]
fn another_secret_is_another_series() {
    let series = |secret| [0, 1, 2, 3, 4, 5, 6, 7].map(|n| FragmentIds::new(secret).nth(n));
    assert_ne!(series(1), series(2));
    assert_eq!(series(3), series(3));
}

#[test]
fn what_was_used_is_left_out() {
    for ids in [FragmentIds::new(7), FragmentIds::from(u32::MAX - 1)] {
        let mut later = ids;
        later.advance(3);
        assert_eq!(later.nth(2), ids.nth(5));
    }
    assert_eq!([0, 1].map(|n| FragmentIds::from(u32::MAX).nth(n)), [u32::MAX, 0]);
}
