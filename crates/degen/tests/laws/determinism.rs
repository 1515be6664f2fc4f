//! The same packets at the same times give the same packets at the same times.

use degen::{Config, Discipline, Probability};
use proptest::prelude::*;

use crate::drive::Polling;
use crate::given::Given;

const MS: u64 = 1_000_000;

/// The other ways to poll.
const OTHERS: [Polling; 3] = [Polling::AtTheEnd, Polling::OneByOne, Polling::Often];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn departures_do_not_depend_on_when_they_are_polled(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let given = Given::from_bytes(&bytes);
        let once = given.run(Polling::AtDeadlines);
        for polling in OTHERS {
            prop_assert_eq!(&given.run(polling), &once, "{:?}", polling);
        }
    }

    /// On a real wire, packets are read a while after the kernel has stamped them, and departures were polled
    /// since. As long as that is no longer than any packet is in flight, nothing changes, but for what is
    /// decided by the time of the call, as the documentation of `arrive` has it.
    #[test]
    fn old_stamps_change_nothing(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        lag in 0..20 * MS,
    ) {
        let mut given = Given::from_bytes(&bytes);
        given.schedule = Default::default();
        let config = &mut given.config;
        config.delay += 20 * MS;
        config.jitter = config.jitter.min(config.delay - 20 * MS);
        config.jitter_distribution = degen::Distribution::Uniform;
        config.queue = Discipline::TailDrop;
        (config.queue_packets, config.queue_bytes) = (1_000, 0);
        prop_assert_eq!(given.run_behind(lag), given.run(Polling::AtTheEnd));
    }

    /// Otherwise a packet leaves as soon as it may: when it would have, or with what departed last.
    #[test]
    fn older_stamps_delay_departures_only(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        lag in 0..20 * MS,
    ) {
        let mut given = Given::from_bytes(&bytes);
        given.schedule = Default::default();
        let config = &mut given.config;
        (config.rate, config.reorder) = (0, Probability::NEVER);
        let times = |outcome: crate::drive::Outcome| {
            let of = |out: crate::drive::Out| (out.packet.number, out.packet.copy, out.due);
            let mut times: Vec<_> = outcome.departures.into_iter().map(of).collect();
            times.sort_unstable();
            times
        };
        let (behind, prompt) = (times(given.run_behind(lag)), times(given.run(Polling::AtTheEnd)));
        prop_assert_eq!(behind.len(), prompt.len());
        for (behind, prompt) in behind.into_iter().zip(prompt) {
            prop_assert_eq!((behind.0, behind.1), (prompt.0, prompt.1));
            let asked = given.arrivals[behind.0].at + lag;
            prop_assert!(behind.2 == prompt.2 || prompt.2 < behind.2 && behind.2 <= asked);
        }
    }
}

#[test]
fn another_seed_is_another_run() {
    let mut given = Given::from_bytes(&[]);
    let half = Probability::from_parts(500_000_000).unwrap();
    let arrival = |at| crate::given::Arrival { at, bytes: vec![0; 60] };
    given.arrivals = (0..100).map(|n| arrival(n * MS)).collect();
    let elements = [
        Config { loss: half, ..Config::default() },
        Config { gilbert_p: half, gilbert_r: half, ..Config::default() },
        Config { duplicate: half, ..Config::default() },
        Config { corrupt: half, ..Config::default() },
        Config { reorder: half, ..Config::default() },
        Config { delay: MS, jitter: MS / 2, ..Config::default() },
    ];
    for config in elements {
        given.config = config;
        let runs: Vec<_> = (0..10)
            .map(|seed| {
                given.seed = seed;
                given.run(Polling::AtTheEnd).departures
            })
            .collect();
        for (at, run) in runs.iter().enumerate() {
            assert!(!runs[..at].contains(run), "{:?}", given.config);
        }
    }
}
