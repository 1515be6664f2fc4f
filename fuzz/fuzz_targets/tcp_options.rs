//! Any bytes behind a TCP header are read without a panic, and what was read says the same when it is
//! written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tcp::Options;

fuzz_target!(|bytes: &[u8]| {
    let mut read = Options::parse(bytes);
    // Timeouts beyond 15 bits of seconds are whole minutes (RFC 5482 section 3.1).
    if let Some(seconds) = &mut read.user_timeout
        && *seconds > 0x7fff
    {
        *seconds = *seconds / 60 * 60;
    }
    let encoded = read.encode();
    assert!(encoded.as_slice().len().is_multiple_of(4));
    let again = Options::parse(encoded.as_slice());
    let there = again.sack.as_slice();
    assert_eq!(there, &read.sack.as_slice()[..there.len()]);
    assert_eq!(Options { sack: read.sack, ..again }, read);
});
