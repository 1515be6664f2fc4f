//! Delays do not cascade (`rdma-over-ip` section 3): packets of a burst are all delayed alike.

use degen::{Config, Degen, Heap, Nanos};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// The times of all departures by `now`.
fn out_by(way: &mut Degen<Vec<u8>>, now: Nanos) -> Vec<Nanos> {
    std::iter::from_fn(|| way.depart(now, &mut Heap)).map(|out| out.due).collect()
}

#[test]
fn a_burst_leaves_at_once() {
    let config = Config { delay: 5 * MS, ..Config::default() };
    for packets in [1, 2, 1_000, 100_000] {
        let mut way = Degen::new(config.clone(), 1);
        (0..packets).for_each(|_| way.arrive(vec![0; 1], MS, &mut Heap));
        assert_eq!(way.held(), packets);
        assert!(out_by(&mut way, 6 * MS - 1).is_empty());
        assert_eq!(out_by(&mut way, 6 * MS), vec![6 * MS; packets]);
    }
}

proptest! {
    /// Bursts that overlap, polled late and all at once, as by a thread that was not running for a while:
    /// each packet is due at its own stamp plus the delay.
    #[test]
    fn bursts_do_not_delay_each_other(
        delay in 0..20 * MS,
        bursts in prop::collection::vec((0..3 * MS, 1_usize..50, 0..2 * MS), 1..50),
    ) {
        let mut way = Degen::new(Config { delay, ..Config::default() }, 1);
        let (mut stamp, mut now) = (0, 0);
        let (mut expected, mut out) = (Vec::new(), Vec::new());
        for (gap, packets, late) in bursts {
            stamp += gap;
            now = now.max(stamp + late);
            // What it would have been up to now, had nothing been late, cannot be out before it came.
            out.extend(out_by(&mut way, now));
            let since = out.last().copied().unwrap_or_default();
            (0..packets).for_each(|_| way.arrive(vec![0; 60], stamp, &mut Heap));
            expected.extend(std::iter::repeat_n((stamp + delay).max(since), packets));
        }
        out.extend(out_by(&mut way, now + delay));
        prop_assert_eq!(out, expected);
    }
}
