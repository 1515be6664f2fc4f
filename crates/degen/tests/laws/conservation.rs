//! For any settings and packets: no packet is made, dropped or changed without being counted, and every
//! packet departs at its time.

use proptest::prelude::*;

use crate::drive::Polling;
use crate::given::Given;

/// Inputs that the fuzzer found, as bytes.
const FOUND: &[&str] = &[
    // A packet that may not be marked has a bit inverted, and then may be, and CoDel marks it.
    concat!(
        "00c5c5c5c5c5c5c5c5c5e5c5c5c5c5c57d1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a535353535353",
        "5302000000000202000000000108004500003000014000401126ba0a0000010a0000029c40145100",
        "1cfd85003c78b5f12e6aa7e31f5c98d5114e8ac6033f7c53535353535300c53a5f3a",
    ),
];

#[test]
fn inputs_that_once_failed_pass() {
    for found in FOUND {
        let digits = |at: usize| u8::from_str_radix(&found[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..found.len()).step_by(2).map(digits).collect();
        Given::from_bytes(&bytes).run(Polling::AtDeadlines);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_packet_is_accounted_for(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        Given::from_bytes(&bytes).run(Polling::AtDeadlines);
    }

    #[test]
    fn what_is_held_can_be_taken_back(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        after in any::<prop::sample::Index>(),
    ) {
        let given = Given::from_bytes(&bytes);
        given.break_off(after.index(given.arrivals.len() + 1));
    }

    #[test]
    fn packets_with_old_stamps_are_accounted_for(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        lag in 0..20_000_000_u64,
    ) {
        Given::from_bytes(&bytes).run_behind(lag);
    }
}
