//! The orders in which networks deliver: whatever it is, what comes out is what would have come out
//! in order, or nearly, where late segments are waited for; `paths.rs` has what that takes to learn.

use degen::Random;
use lro::{Config, Pass, RxChecksum};
use testkit::packet::{PacketBuilder, pattern};
use wire::Flags;

use super::run::{Frame, Out, Step, run, waiting};

const SEGMENTS: usize = 4032;
/// Segments that the port receives at a time, and how long they take to come at 10 Gb/s.
const BURST: usize = 64;
const BURST_NANOS: u64 = 77_000;
const MSS: usize = 1448;

/// So many in a hundred come up to 32 places later than they should.
fn displaced(percent: usize) -> Vec<usize> {
    let mut random = Random::new(1);
    let mut places: Vec<(usize, usize)> = (0..SEGMENTS)
        .map(|n| {
            let is_late = random.next_below(100) < percent as u64;
            let late = if is_late { 1 + random.next_below(32) as usize } else { 0 };
            (2 * (n + late) + usize::from(late > 0), n) // behind the one whose place it takes
        })
        .collect();
    places.sort_unstable();
    places.into_iter().map(|(_, n)| n).collect()
}

fn swapped(len: usize) -> Vec<usize> {
    (0..SEGMENTS).map(|n| n / len * len + (len - 1 - n % len)).collect()
}

/// Packets out for packets in, after the first burst, with the stream checked.
fn mean_aggregate(order: &[usize], flows: usize, profile: lro::Profile) -> f64 {
    let payload = pattern(0, MSS);
    let of = |flow: usize, n: usize| {
        let p = PacketBuilder::tcp4().ports(flow as u16, 80).id(n as u16).timestamps(1, 2);
        p.seq((n * MSS) as u32)
    };
    let frame =
        |p: PacketBuilder| Step::Frame(Frame { bytes: p.build(), checksum: RxChecksum::Verified });
    let mut steps: Vec<Step> =
        (0..flows).map(|flow| frame(of(flow, 0).seq(u32::MAX).flags(Flags::SYN))).collect();
    for (at, n) in order.iter().enumerate() {
        steps.extend((0..flows).map(|flow| frame(of(flow, *n).payload(&payload))));
        if at % BURST == BURST - 1 {
            steps.extend([Step::BurstEnds, Step::Wait(BURST_NANOS)]);
        }
    }
    let config = Config { profile, held_frames: 65_536, ..waiting() };
    let run = run(&config, &steps);
    let after = run.events.iter().filter(|event| event.step > flows * (1 + BURST));
    let (mut frames, mut packets) = (0, 0);
    for event in after {
        frames += event.out.frames().len();
        packets += 1;
        let in_order = |out: &Out| match out {
            Out::Joined(joined) => joined.slices.iter().all(|(_, len)| *len == MSS),
            Out::Passed(_, why) => *why == Pass::Alone,
            Out::Discarded(..) => false,
        };
        assert!(in_order(&event.out), "{event:?}");
    }
    frames as f64 / packets as f64
}

fn nearly_as_in_order(order: &[usize]) {
    let in_order: Vec<usize> = (0..SEGMENTS).collect();
    let mut all = order.to_vec();
    all.sort_unstable();
    assert!(all == in_order);
    for flows in [1, 3] {
        let best = mean_aggregate(&in_order, flows, lro::Profile::Endpoint);
        let is = mean_aggregate(order, flows, lro::Profile::Endpoint);
        println!("{is:.1} for {best:.1} in order, {flows} flows");
        assert!(best > 30.0 && is >= 0.9 * best, "{is} for {best} in order, {flows} flows");
    }
}

#[test]
fn pairs_that_change_places() {
    nearly_as_in_order(&swapped(2));
}

#[test]
fn sixty_four_backwards() {
    nearly_as_in_order(&swapped(64));
}

#[test]
fn one_in_a_hundred_late() {
    nearly_as_in_order(&displaced(1));
}

#[test]
fn ten_in_a_hundred_late() {
    nearly_as_in_order(&displaced(10));
}

#[test]
fn thirty_in_a_hundred_late() {
    nearly_as_in_order(&displaced(30));
}

/// What must be restored keeps the order in which it came.
#[test]
fn nothing_is_put_in_order_where_packets_are_restored() {
    assert!(mean_aggregate(&swapped(2), 1, lro::Profile::Lossless) < 1.01);
}
