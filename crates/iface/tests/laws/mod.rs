//! The laws of a host, for any packets and times.

mod drive;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_packets_and_times_keep_the_laws(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        drive::run(&bytes);
    }
}
