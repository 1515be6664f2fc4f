//! Any settings, schedule and arrivals: no packet is made, lost or changed uncounted, and however
//! departures are asked for, the same ones come. The laws are those that the tests of `degen` hold it to.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/degen/tests/laws/drive.rs"]
mod drive;
#[path = "../../crates/degen/tests/laws/given.rs"]
mod given;

use drive::Polling;
use given::Given;

fuzz_target!(|bytes: &[u8]| {
    let given = Given::from_bytes(bytes);
    let once = given.run(Polling::AtDeadlines);
    for polling in [Polling::AtTheEnd, Polling::OneByOne, Polling::Often] {
        assert_eq!(given.run(polling), once, "{polling:?}");
    }
    given.break_off(given.seed as usize % (given.arrivals.len() + 1));
    given.run_behind(given.seed * 100_000);
});
