//! Holes: how long the host does not see them, and what it gets when it does.

use lro::{Config, Flush, Nanos, Pass};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use wire::Flags;

use super::conservation::check;
use super::run::{Run, Step, run};

const LEN: u32 = 100;
const MS: Nanos = 1_000_000;

/// Segment `n`, sent at `at` ms by the sender's clock.
fn segment(n: u32, at: u32) -> PacketBuilder {
    let packet = PacketBuilder::tcp4().timestamps(1000 + at, 1);
    packet.seq(n * LEN).id(n as u16).payload_pattern(LEN as usize)
}

fn frame(packet: PacketBuilder) -> Step {
    Step::Frame(packet.build().into())
}

fn syn() -> Step {
    frame(a_syn(Flags::SYN, true))
}

fn a_syn(flags: Flags, permits_sack: bool) -> PacketBuilder {
    let options: &[u8] = if permits_sack { &[1, 1, 4, 2] } else { &[2, 4, 5, 180] };
    PacketBuilder::tcp4().seq(u32::MAX).flags(flags).options(options)
}

fn run_with(config: &Config, steps: &[Step]) -> Run {
    let run = run(config, steps);
    check(&run, steps);
    run
}

/// When a step's frame came out, counted from its arrival.
fn held(run: &Run, step: usize) -> Nanos {
    let event = run.events.iter().find(|event| event.out.frames().contains(&step)).unwrap();
    event.now - run.arrivals[step]
}

/// So many holes, one after the other: the segment in front of each comes as late as `late` says, if it
/// comes. How long each was waited for.
fn waits(config: &Config, late: &[Option<Nanos>], packet: fn(u32) -> PacketBuilder) -> Vec<Nanos> {
    let mut steps = vec![syn()];
    let mut behind = Vec::new();
    for (n, late) in (0..).zip(late) {
        // Each begins on its own, behind three that go singly.
        let first = n * 8;
        steps.extend((first..first + 4).map(|n| frame(packet(n))));
        steps.push(Step::FlushAll);
        behind.push(steps.len());
        steps.extend((first + 5..first + 8).map(|n| frame(packet(n))));
        if let Some(late) = late {
            // What is in order by then goes.
            steps.extend([Step::Wait(*late), frame(packet(first + 4)), Step::Idle]);
        }
        steps.push(Step::Wait(20 * MS));
    }
    let run = run_with(config, &steps);
    behind.into_iter().map(|step| held(&run, step)).collect()
}

fn timestamped(n: u32) -> PacketBuilder {
    segment(n, n / 100)
}

fn without(n: u32) -> PacketBuilder {
    segment(n, 0).options(&[])
}

fn v6(n: u32) -> PacketBuilder {
    PacketBuilder::tcp6().seq(n * LEN).payload_pattern(LEN as usize)
}

/// The host makes one duplicate ACK of each packet, and its sender waits for three.
#[test]
fn a_lost_segment_shows_at_once_and_in_three_packets() {
    let numbers = (0..5).chain(6..20);
    let steps: Vec<Step> =
        std::iter::once(syn()).chain(numbers.map(|n| frame(timestamped(n)))).collect();
    let run = run_with(&Config::default(), &steps);
    let (before, behind): (Vec<usize>, Vec<usize>) = ((1..6).collect(), (9..20).collect());
    assert_eq!(run.groups()[1..], [before, vec![6], vec![7], vec![8], behind]);
    for (place, step) in [(1, 6), (2, 6), (3, 7), (4, 8)] {
        assert_eq!(run.events[place].step, step, "as soon as it comes");
    }
    assert_eq!((run.counters.holes, run.counters.flushed[Flush::Hole as usize]), (1, 4));
}

/// Without SACK the sender counts duplicate ACKs, and each segment is to have one. What connection has
/// it the last SYN says: that of the sender, or its host's answer.
#[test]
fn without_sack_a_window_goes_singly() {
    let answers = Flags::SYN.with(Flags::ACK);
    let of_host = |permits_sack| {
        let packet = a_syn(answers, permits_sack).addresses4([10, 0, 0, 2], [10, 0, 0, 1]);
        Step::Host(packet.ports(5201, 40_000).build().into())
    };
    for (opening, singles) in [
        (vec![frame(a_syn(Flags::SYN, true))], 3),
        (vec![frame(a_syn(Flags::SYN, false))], 64),
        (vec![frame(a_syn(answers, true))], 3),
        (vec![frame(a_syn(answers, false))], 64),
        (vec![frame(a_syn(Flags::SYN, true)), of_host(true)], 3),
        (vec![frame(a_syn(Flags::SYN, true)), of_host(false)], 64),
        (vec![], 3), // picked up in the middle
    ] {
        let numbers = (0..5).chain(6..106);
        let steps: Vec<Step> =
            opening.into_iter().chain(numbers.map(|n| frame(timestamped(n)))).collect();
        let run = run_with(&Config::default(), &steps);
        let alone = run.groups().iter().filter(|group| group.len() == 1).count();
        let syns = steps.len() - 105;
        let of_wire = usize::from(syns > 0);
        assert_eq!(alone - of_wire, singles, "{singles} of {syns}");
    }
}

/// It was only late: there is no more to tell its sender.
#[test]
fn an_original_that_comes_late_ends_the_singles() {
    let numbers = [0, 2, 1, 3, 4, 5];
    let steps: Vec<Step> =
        std::iter::once(syn()).chain(numbers.map(|n| frame(timestamped(n)))).collect();
    let run = run_with(&Config::default(), &steps);
    assert_eq!(run.groups()[1..], [vec![1], vec![2], vec![3], vec![4, 5, 6]]);
}

/// A host whose hole is filled draws no more duplicates: what comes then may join again. It is filled
/// with the last of its bytes, whichever way they come.
#[test]
fn what_fills_the_hole_ends_the_singles() {
    let lost = [5, 6];
    let fills = |numbers: [u32; 2]| -> Vec<Step> {
        let opening = [frame(a_syn(Flags::SYN, false))].into_iter();
        let first = (0..5).chain(7..17).map(|n| frame(segment(n, 5)));
        let again = numbers.map(|n| frame(segment(n, 9)));
        opening.chain(first).chain(again).chain((17..40).map(|n| frame(segment(n, 9)))).collect()
    };
    let groups = |numbers| run_with(&Config::default(), &fills(numbers)).groups();
    let behind = || (6..16).map(|step| vec![step]);
    let expected: Vec<Vec<usize>> =
        behind().chain([vec![16], vec![17], (18..41).collect()]).collect();
    assert_eq!(groups(lost)[2..], expected);
    // Until then they go on: the first half is sent again only.
    let steps = fills([5, 5]);
    let alone = run_with(&Config::default(), &steps).groups().split_off(2);
    assert!(alone.iter().all(|group| group.len() == 1), "{alone:?}");
    // One that was lost behind another: the first is filled, and the host still sees a hole.
    let opening = [frame(a_syn(Flags::SYN, false))].into_iter();
    let numbers = (0..5).chain(6..10).chain(11..20).chain([5]).chain(20..30);
    let steps: Vec<Step> = opening.chain(numbers.map(|n| frame(segment(n, 5)))).collect();
    let alone = run_with(&Config::default(), &steps).groups().split_off(2);
    assert!(alone.iter().all(|group| group.len() == 1), "{alone:?}");
}

/// What may not be overtaken flushes what waits, and tells nothing of a loss: as long as a hole is
/// taken for late, three duplicate ACKs would only have it sent again.
#[test]
fn what_is_flushed_before_its_hole_is_given_up_goes_as_one() {
    let config = Config { min_hole_timeout: MS, ..Config::default() };
    let urgent = || frame(segment(60, 5).flags(Flags::ACK.with(Flags::URG)));
    let over_max = Config { max_segments: 8, ..config.clone() };
    for (flushes, config, others) in [
        (Step::FlushAll, &config, 0),
        (Step::Interrupt, &config, 0),
        (Step::Reconfigure(over_max), &config, 0),
        (urgent(), &config, 1),
        (syn(), &config, 1),
        (frame(segment(60, 5).flags(Flags::ACK.with(Flags::FIN))), &config, 1),
    ] {
        let numbers = (0..5).chain(6..20);
        let opening = [frame(a_syn(Flags::SYN, false))].into_iter();
        let mut steps: Vec<Step> = opening.chain(numbers.map(|n| frame(segment(n, 5)))).collect();
        steps.push(flushes);
        let groups = run_with(config, &steps).groups();
        let expected = [vec![0], (1..6).collect(), (6..20).collect()];
        assert_eq!(groups[..3], expected, "{groups:?}");
        assert_eq!(groups.len(), 3 + others);
    }
}

/// A hole was waited for in vain: then three go singly, too, and the rest as one.
#[test]
fn what_has_waited_goes_in_three_packets_and_the_rest() {
    let config = Config { min_hole_timeout: MS, ..Config::default() };
    let numbers = (0..5).chain(6..20);
    let mut steps: Vec<Step> =
        std::iter::once(syn()).chain(numbers.map(|n| frame(timestamped(n)))).collect();
    steps.push(Step::Wait(MS));
    let run = run_with(&config, &steps);
    assert_eq!(run.groups()[2..], [vec![6], vec![7], vec![8], (9..20).collect()]);
    assert!((6..20).all(|step| held(&run, step) == MS));
}

#[test]
fn a_hole_whose_original_comes_late_is_waited_for_the_next_time() {
    let late = 400_000;
    let waits =
        waits(&Config::default(), &[Some(late), Some(late), Some(late / 2), None], timestamped);
    assert_eq!(waits, [0, late, late / 2, late + late / 4]);
}

/// The wait grows to what the latest needs, and then shrinks by an eighth with each that is lost.
#[test]
fn a_hole_that_is_never_filled_is_waited_for_less_long() {
    let late = [Some(400_000), Some(800_000)].into_iter().chain([None; 60]).collect::<Vec<_>>();
    let waits = waits(&Config::default(), &late, timestamped);
    assert_eq!(waits[..3], [0, 500_000, 1_000_000]);
    for pair in waits[2..].windows(2) {
        assert_eq!(pair[1], pair[0] * 7 / 8);
    }
    assert!(waits[61] < 1000);
}

/// As long as `hole_timeout` and `max_timeout` allow, and not at all for what comes later still.
#[test]
fn no_hole_is_waited_for_longer_than_is_allowed() {
    let late = [Some(900_000), None];
    for (hole_timeout, max_timeout, expected) in [
        (2 * MS, 2 * MS, 1_125_000),
        (MS, 2 * MS, MS),
        (2 * MS, MS, MS),
        (900_000, 2 * MS, 900_000),
        (899_999, 2 * MS, 0),
        (0, 2 * MS, 0),
    ] {
        let config = Config { hole_timeout, max_timeout, ..Config::default() };
        assert_eq!(waits(&config, &late, timestamped), [0, expected], "{hole_timeout}");
    }
    let never = Config { hole_timeout: 0, min_hole_timeout: MS, ..Config::default() };
    assert_eq!(waits(&never, &[Some(10), Some(10), None], timestamped), [0, 0, 0]);
}

/// What came in one look at the wire, and what is a nanosecond late, is waited for a little.
#[test]
fn a_wait_is_no_shorter_than_it_takes_to_look() {
    assert_eq!(waits(&Config::default(), &[Some(0), None], timestamped), [0, 20_000]);
}

/// With the same look as what lies behind its hole comes an original, whatever the clock and the IDs do
/// not tell: the host has made no duplicate ACK yet.
#[test]
fn what_fills_a_hole_within_a_look_is_an_original() {
    let packets: [fn(u32) -> PacketBuilder; 4] =
        [v6, |n| v6(n).timestamps(5, 1), |n| segment(n, 5).id(77), |n| without(n).id(0)];
    for packet in packets {
        assert_eq!(waits(&Config::default(), &[Some(0), None], packet), [0, 20_000]);
        assert_eq!(waits(&Config::default(), &[Some(1), None], packet), [0, 0]);
    }
    let counts_up: fn(u32) -> PacketBuilder = |n| segment(n, 5).id(if n == 4 { 500 } else { 99 });
    let is_newer: fn(u32) -> PacketBuilder = |n| segment(n, 5 + u32::from(n == 4)).id(77);
    for again in [counts_up, is_newer] {
        assert_eq!(waits(&Config::default(), &[Some(0), None], again), [0, 0]);
    }
}

/// How long a hole is waited for after another was filled by `fills`, 1 ms late. What lies behind that
/// is segment 2 of `packet`.
fn after_filled_by(packet: fn(u32) -> PacketBuilder, fills: PacketBuilder) -> Nanos {
    let steps = [
        syn(),
        frame(packet(0)),
        frame(packet(2)),
        Step::Wait(MS),
        frame(fills),
        Step::Wait(20 * MS),
        frame(packet(3)),
        frame(packet(5)),
        Step::Wait(20 * MS),
    ];
    held(&run_with(&Config::default(), &steps), 7)
}

const LEARNT: Nanos = MS + MS / 4;

/// Sent again, it is newer than what lies behind the hole, however soon it comes.
#[test]
fn a_retransmission_is_no_reason_to_wait() {
    let at_5 = |n| segment(n, 5);
    for (clock, expected) in [(4, LEARNT), (5, LEARNT), (6, 0)] {
        assert_eq!(after_filled_by(at_5, segment(1, clock)), expected, "{clock} behind 5");
    }
}

/// Within a tick of the sender's clock the IDs tell, if they are counted, and otherwise nothing does: a
/// round trip may be shorter than a tick.
#[test]
fn a_retransmission_within_a_tick_is_no_reason_to_wait() {
    let at_5 = |n| segment(n, 5).id(n as u16 + 1000);
    for (id, expected) in [
        (1001, LEARNT),
        (1002 - 256, LEARNT),
        (1002 - 257, 0),
        (1002, 0), // all have the same
        (1003, 0),
        (1002 + 5000, 0),
        (0, 0),
    ] {
        assert_eq!(after_filled_by(at_5, segment(1, 5).id(id)), expected, "{id} behind 1002");
        let older = segment(1, 4).id(id);
        assert_eq!(after_filled_by(at_5, older), LEARNT, "the clock tells, whatever the ID");
    }
    for (clock, expected) in [(4, LEARNT), (5, 0), (6, 0)] {
        let fills = v6(1).timestamps(1000 + clock, 1);
        let waited = after_filled_by(|n| v6(n).timestamps(1005, 1), fills);
        assert_eq!(waited, expected, "{clock} behind 5");
    }
    for always in [|n| segment(n, 5).id(0), |n| segment(n, 5).id(77)] {
        assert_eq!(after_filled_by(always, always(1)), 0);
    }
}

/// What `lro.hole_timeout` does: late, lost, what may be either, and segments that go singly.
#[test]
fn counters_tell_what_became_of_holes() {
    let (late, again) = (Step::Wait(MS), Step::Wait(MS));
    let steps = [
        syn(),
        frame(segment(0, 5)),
        frame(segment(2, 5)), // singly, as 1 is missing
        late,
        frame(segment(1, 5)),
        frame(segment(3, 5)),
        Step::Wait(20 * MS),
        frame(segment(5, 7)),
        frame(segment(6, 7)),
        Step::Wait(20 * MS), // 5 goes singly, and 6
        frame(segment(4, 30)),
        Step::Wait(20 * MS), // so long after, it is lost
        frame(segment(7, 60)),
        frame(segment(9, 60)),
        Step::Wait(LEARNT),
        frame(segment(8, 60).id(0)), // may be either
        frame(segment(10, 60)),
        frame(segment(12, 60)),
        again,
        frame(segment(11, 70)), // fills in time
        Step::Wait(20 * MS),
    ];
    let Run { counters, .. } = run_with(&Config::default(), &steps);
    let told = (counters.holes, counters.holes_late, counters.holes_lost, counters.singles);
    assert_eq!(told, (3, 1, 1, 4));
}

/// What tells nothing is not taken for a loss either: what was learnt stays.
#[test]
fn what_may_be_either_teaches_nothing() {
    let late = [Some(400_000), Some(100_000), None];
    let packet = |n: u32| match n {
        4 => segment(n, 0).id(40),
        12 => segment(n, 1).id(0), // it comes in time
        _ => segment(n, 1).id(n as u16),
    };
    assert_eq!(waits(&Config::default(), &late, packet), [0, 100_000, 500_000]);
    let late = [Some(400_000), Some(600_000), None];
    assert_eq!(waits(&Config::default(), &late, packet), [0, 500_000, 500_000]);
}

/// It was given up for lost, and that for which it waits is watched no more: another hole, for which
/// nothing came, is not mistaken for it. Nor is what was there twice.
#[test]
fn what_fills_no_hole_teaches_nothing() {
    let steps = [
        syn(),
        frame(segment(0, 5)),
        frame(segment(1, 5)),
        frame(segment(3, 5)), // 2 is missing
        Step::Wait(MS),
        frame(segment(1, 5)),
        frame(segment(3, 5)),
        Step::Wait(20 * MS),
        frame(segment(4, 9)),
        frame(segment(6, 9)),
        Step::Wait(20 * MS),
    ];
    assert_eq!(held(&run_with(&Config::default(), &steps), 9), 0);
}

/// Without timestamps, the IPv4 ID tells what was sent before; where nothing does, nothing waits.
#[test]
fn without_timestamps_the_order_of_sending_is_that_of_the_ids() {
    let late = [Some(400_000), Some(400_000), None];
    assert_eq!(waits(&Config::default(), &late, without), [0, 400_000, 500_000]);
    let again = |n: u32| without(n).id(if n % 8 == 4 { n as u16 + 100 } else { n as u16 });
    assert_eq!(waits(&Config::default(), &late, again), [0, 0, 0]);
    assert_eq!(waits(&Config::default(), &late, |n| without(n).id(0)), [0, 0, 0]);
    assert_eq!(waits(&Config::default(), &late, v6), [0, 0, 0]);
}

/// The host's side, which SYN or SYN-ACK.
fn of_host(flags: Flags, permits_sack: bool, ack: u32) -> Step {
    let packet = a_syn(flags, permits_sack).addresses4([10, 0, 0, 2], [10, 0, 0, 1]);
    Step::Host(packet.ports(5201, 40_000).ack(ack).build().into())
}

/// Where the next connection begins, segment 0 of it at 1 more.
const NEXT: u32 = 1 << 30;

fn next_syn(flags: Flags, permits_sack: bool) -> Step {
    frame(a_syn(flags, permits_sack).seq(NEXT))
}

/// A connection has learnt to wait for holes; then comes `anew`, and a hole before segment 2 of what comes
/// after. How long that is waited for, and how many of 80 segments behind the next one go singly.
fn waits_and_singles_after(anew: &[Step], start: u32) -> (Nanos, usize) {
    let learns = [syn(), frame(segment(0, 5)), frame(segment(2, 5)), Step::Wait(MS)];
    let mut steps: Vec<Step> = learns.into_iter().collect();
    steps.extend([frame(segment(1, 5)), Step::Wait(20 * MS)]);
    steps.extend_from_slice(anew);
    let of_next = |n: u32| frame(segment(n, 9).seq(start.wrapping_add(n * LEN)));
    steps.push(of_next(0));
    let behind = steps.len();
    steps.push(of_next(2));
    steps.push(Step::Wait(20 * MS));
    let run = run_with(&Config::default(), &steps);
    let waited = held(&run, behind);
    steps.extend([of_next(1), Step::Wait(20 * MS), of_next(3), Step::Wait(20 * MS)]);
    let count = steps.len();
    steps.extend((5..85).map(of_next));
    let run = run_with(&Config::default(), &steps);
    let alone = |group: &&Vec<usize>| group.len() == 1 && group[0] >= count;
    (waited, run.groups().iter().filter(alone).count())
}

/// A forger knows the ports of a connection. His SYN changes nothing, as the host does not answer it
/// with its own, and neither does what he sends for data where the host is heard.
#[test]
fn a_forged_syn_changes_nothing_of_a_connection_in_use() {
    let (syn, answers) = (Flags::SYN, Flags::SYN.with(Flags::ACK));
    let in_use = 3 * LEN; // the connection goes on here
    let opening = || vec![of_host(answers, true, 0)];
    for forged in [
        vec![next_syn(syn, false)],
        vec![next_syn(answers, false)],
        vec![next_syn(syn, false), next_syn(syn, false), next_syn(answers, false)],
        vec![frame(a_syn(syn, false))], // the connection's own, again
        vec![next_syn(syn, false), frame(segment(1, 9).seq(NEXT + 1))],
        // The host's own SYN-ACK comes again, or answers another.
        vec![next_syn(syn, false), of_host(answers, false, 0)],
    ] {
        let forged = opening().into_iter().chain(forged).collect::<Vec<_>>();
        let (waited, _) = waits_and_singles_after(&forged, in_use);
        assert_eq!(waited, LEARNT, "{forged:?}");
    }
    let (_, singles) = waits_and_singles_after(&[next_syn(syn, false)], in_use);
    assert!(singles <= 4, "{singles} go singly");
}

/// Ports that are used again, whichever side opens, and where the host is not heard.
#[test]
fn another_connection_begins_anew() {
    let (syn, answers) = (Flags::SYN, Flags::SYN.with(Flags::ACK));
    for sack in [true, false] {
        for anew in [
            vec![next_syn(syn, sack), of_host(answers, sack, NEXT + 1)],
            vec![next_syn(syn, true), of_host(answers, sack, NEXT + 1)],
            // Another forged one meanwhile.
            vec![
                next_syn(syn, sack),
                of_host(answers, sack, NEXT + 1),
                frame(a_syn(syn, !sack).seq(NEXT + 9_000)),
            ],
            vec![of_host(syn, true, 0), next_syn(answers, sack)],
            vec![next_syn(syn, sack)], // nothing of the host is seen
            vec![next_syn(syn, !sack), next_syn(syn, sack)],
        ] {
            let (waited, singles) = waits_and_singles_after(&anew, NEXT + 1);
            assert_eq!(waited, 0, "{anew:?}");
            assert_eq!(singles > 60, !sack, "{singles} singly: {anew:?}");
        }
    }
}

/// One hole's time is over, and not the next one's.
#[test]
fn each_hole_has_its_own_time() {
    let config = Config { min_hole_timeout: MS, ..Config::default() };
    let mut steps = vec![syn(), frame(timestamped(1)), Step::Wait(MS / 2), frame(timestamped(3))];
    steps.extend([Step::Wait(3 * MS / 4), frame(timestamped(2)), Step::Wait(MS)]);
    let run = run_with(&config, &steps);
    assert_eq!([held(&run, 1), held(&run, 3)], [MS, 3 * MS / 4]);
    assert_eq!(run.counters.passed[Pass::Old.index()], 0);
}

/// A flow of segments in order, of which some are lost and sent again `rtt` later.
fn lossy(lost: &[bool], rtt: usize, pace: Nanos) -> Vec<Step> {
    let mut sent: Vec<(usize, u32, u32)> = Vec::new();
    for (n, lost) in lost.iter().enumerate() {
        // The clock counts ms.
        let ms = |place: usize| (place as u64 * pace / MS) as u32;
        if *lost {
            sent.push((2 * (n + rtt) + 1, n as u32, ms(n + rtt)));
        } else {
            sent.push((2 * n, n as u32, ms(n)));
        }
    }
    sent.sort_unstable();
    let mut steps = vec![syn()];
    for (_, n, at) in sent {
        steps.extend([frame(segment(n, at)), Step::Wait(pace)]);
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// On a path that loses and does not reorder, the host sees each hole as soon as there is
    /// something behind it, and three packets of what comes next one by one, until it is filled.
    #[test]
    fn without_reordering_no_hole_is_waited_for(
        lost in proptest::collection::vec(prop::bool::weighted(0.05), 1..300),
        rtt in 20usize..100,
    ) {
        let steps = lossy(&lost, rtt, 100_000);
        let run = run_with(&Config::default(), &steps);
        let mut highest = 0;
        let (mut singles, mut hole) = (0, 0);
        for step in (1..steps.len()).step_by(2) {
            let n = match &steps[step] {
                Step::Frame(frame) => super::naive::Tcp::read(&frame.bytes).unwrap().seq() / LEN,
                _ => unreachable!(),
            };
            if n < highest {
                // Sent again; with its last segment the latest hole is filled.
                singles = if n + 1 == hole { 0 } else { singles };
                continue;
            }
            if n > highest {
                (singles, hole) = (3, n);
            }
            if singles > 0 {
                singles -= 1;
                prop_assert_eq!(held(&run, step), 0);
                prop_assert!(run.groups().contains(&vec![step]));
            }
            highest = n + 1;
        }
    }

    /// However a path reorders, nothing waits for a hole for longer than is allowed.
    #[test]
    fn waiting_is_bounded_by_what_is_allowed(
        late in proptest::collection::vec(prop::option::of(0u64..5 * MS), 1..40),
        hole_timeout in 0u64..3 * MS,
    ) {
        let config = Config { hole_timeout, ..Config::default() };
        for wait in waits(&config, &late, timestamped) {
            prop_assert!(wait <= hole_timeout.min(config.max_timeout));
        }
    }
}
