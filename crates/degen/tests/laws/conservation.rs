//! Whatever is asked for and whatever comes: no packet is made, lost or changed without being counted,
//! and every packet has its time.

use proptest::prelude::*;

use crate::drive::Polling;
use crate::given::Given;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_packet_is_somewhere(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
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
    fn packets_are_somewhere_whose_stamps_are_old(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        lag in 0..20_000_000_u64,
    ) {
        Given::from_bytes(&bytes).run_behind(lag);
    }
}
