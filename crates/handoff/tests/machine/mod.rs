//! Both sides of a connection, in random orders of events: the application's bytes, the peer's packets and the
//! control operations are what they would be of a connection that never moved.

mod model;
mod random;
mod steps;

use handoff::machine::SideCounts;
use model::{Kind, Model};

/// Runs of each kind.
const RUNS: u64 = 2_000;

/// All runs of a kind, and what they counted at the OS and at the NIC.
fn run_all(kind: Kind) -> (SideCounts, SideCounts, Vec<&'static str>) {
    let (mut os, mut nic, mut seen) = (SideCounts::default(), SideCounts::default(), Vec::new());
    for seed in 0..RUNS {
        let mut model = Model::new(kind, seed);
        model.run();
        add(&mut os, &model.os_counts);
        add(&mut nic, &model.nic_counts);
        for place in model.seen {
            if !seen.contains(&place) {
                seen.push(place);
            }
        }
    }
    (os, nic, seen)
}

fn add(sum: &mut SideCounts, more: &SideCounts) {
    sum.handoffs += more.handoffs;
    sum.lost += more.lost;
    sum.held += more.held;
    sum.forwarded += more.forwarded;
    sum.held_full += more.held_full;
    sum.abandoned += more.abandoned;
    sum.stale += more.stale;
    sum.crossed += more.crossed;
}

#[test]
fn in_one_queue_each_way_all_is_there_once_and_in_order() {
    let (os, nic, seen) = run_all(Kind::OneQueue);
    assert!(os.handoffs > RUNS && nic.held > RUNS && nic.forwarded > RUNS, "{os:?} {nic:?}");
    assert!(nic.crossed > 0 && os.lost == 0 && os.held_full + nic.held_full == 0, "{os:?} {nic:?}");
    for place in ["Os", "Offered", "HandingOff", "Nic", "Restoring"] {
        assert!(seen.contains(&place), "{place}: {seen:?}");
    }
}

#[test]
fn where_packets_pass_messages_all_is_there_once() {
    let (os, nic, _) = run_all(Kind::PacketsApart);
    assert!(os.forwarded > RUNS && os.held > 0 && nic.forwarded > RUNS, "{os:?} {nic:?}");
    assert!(os.lost == 0 && os.abandoned + nic.abandoned == 0, "{os:?} {nic:?}");
}

#[test]
fn a_nic_that_dies_loses_no_call_and_no_control() {
    let (os, _, seen) = run_all(Kind::NicDies);
    assert!(os.handoffs > RUNS / 2 && os.lost == 0, "{os:?}");
    assert!(seen.contains(&"Restoring"), "{seen:?}");
}

#[test]
fn a_nic_that_dies_without_a_mirror_loses_the_connection_and_says_so() {
    let (os, _, seen) = run_all(Kind::NicDiesWithoutMirror);
    assert!(os.lost > RUNS / 50 && seen.contains(&"Lost"), "{os:?} {seen:?}");
}

#[test]
fn a_connection_that_ends_on_the_nic_is_closed_whatever_crosses() {
    let (_, nic, seen) = run_all(Kind::Ends);
    assert!(seen.contains(&"Closed") && nic.stale > 0, "{nic:?} {seen:?}");
}
