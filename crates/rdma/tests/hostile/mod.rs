//! Peers and applications that do anything: the device goes on, and its laws hold.

mod posts;
mod streams;

use proptest::prelude::*;
use testkit::bytes::Bytes;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_stream_in_any_state(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        streams::run(&mut Bytes(&bytes));
    }

    #[test]
    fn any_posts(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        posts::run(&mut Bytes(&bytes));
    }

    #[test]
    fn any_bytes_of_connection_set_up(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        streams::set_up(&mut Bytes(&bytes));
    }
}
