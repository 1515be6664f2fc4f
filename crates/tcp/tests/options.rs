//! Options as bytes: what is written is read again, and any bytes are read without harm.

use proptest::prelude::*;
use tcp::options::{Block, OPTIONS_MAX, Options, SackBlocks};
use wire::{Seq, TcpOption, TcpOptions, Timestamps};

fn seq() -> impl Strategy<Value = Seq> {
    any::<u32>().prop_map(Seq)
}

fn options() -> impl Strategy<Value = Options> {
    let block = (seq(), seq()).prop_map(|(start, end)| Block { start, end });
    let timestamps = (seq(), seq()).prop_map(|(value, echo)| Timestamps { value, echo });
    // What 15 bits hold as seconds, and whole minutes beyond (RFC 5482 section 3.1).
    let timeout = prop_oneof![0..=0x7fff_u32, (547..=0x7fff_u32).prop_map(|minutes| minutes * 60)];
    (
        any::<Option<u16>>(),
        prop::option::of(0..=14_u8),
        any::<bool>(),
        prop::option::of(timestamps),
        prop::collection::vec(block, 0..=4),
        prop::option::of(timeout),
    )
        .prop_map(|(mss, window_scale, sack_permitted, timestamps, blocks, user_timeout)| {
            let mut sack = SackBlocks::default();
            blocks.into_iter().for_each(|block| sack.push(block));
            Options { mss, window_scale, sack_permitted, timestamps, sack, user_timeout }
        })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(options in options()) {
        let encoded = options.encode();
        let bytes = encoded.as_slice();
        prop_assert!(bytes.len() <= OPTIONS_MAX && bytes.len().is_multiple_of(4));
        let read = Options::parse(bytes);
        // SACK blocks are left out, the last ones first, where there is no room.
        let there = read.sack.as_slice();
        prop_assert_eq!(there, &options.sack.as_slice()[..there.len()]);
        prop_assert_eq!(Options { sack: options.sack, ..read }, options);
        let more = there.len() < options.sack.as_slice().len();
        prop_assert!(!more || bytes.len() + 8 > OPTIONS_MAX - 4);
    }

    #[test]
    fn what_was_read_says_the_same_when_written(bytes in prop::collection::vec(any::<u8>(), 0..=40)) {
        let mut read = Options::parse(&bytes);
        // Timeouts beyond 15 bits of seconds are whole minutes.
        if let Some(seconds) = &mut read.user_timeout
            && *seconds > 0x7fff
        {
            *seconds = *seconds / 60 * 60;
        }
        let again = Options::parse(read.encode().as_slice());
        let there = again.sack.as_slice();
        prop_assert_eq!(there, &read.sack.as_slice()[..there.len()]);
        prop_assert_eq!(Options { sack: read.sack, ..again }, read);
    }

    #[test]
    fn the_usual_way_and_the_short_one_read_the_same(value in seq(), echo in seq()) {
        let timestamps = Some(Timestamps { value, echo });
        let short = Options { timestamps, ..Options::default() }.encode();
        let mut long = vec![8, 10];
        long.extend(&short.as_slice()[4..]);
        long.extend([1, 1]);
        prop_assert_eq!(Options::parse(&long), Options::parse(short.as_slice()));
    }

    #[test]
    fn unknown_options_change_nothing(
        options in options(),
        kind in prop_oneof![9..=27_u8, 29..=255_u8],
        data in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        let mut bytes = vec![kind, 2 + data.len() as u8];
        bytes.extend(data);
        let encoded = options.encode();
        bytes.extend(encoded.as_slice());
        prop_assert_eq!(Options::parse(&bytes), Options::parse(encoded.as_slice()));
    }

    #[test]
    fn other_readers_read_what_is_written(options in options()) {
        let encoded = options.encode();
        let read: Result<Vec<_>, _> = TcpOptions::new(encoded.as_slice()).collect();
        let read = read.unwrap();
        let has = |number| {
            read.iter().any(|option| matches!(option, TcpOption::Other { kind, .. } if *kind == number))
        };
        prop_assert_eq!(has(2), options.mss.is_some());
        prop_assert_eq!(has(3), options.window_scale.is_some());
        prop_assert_eq!(has(4), options.sack_permitted);
        prop_assert_eq!(has(28), options.user_timeout.is_some());
    }
}
