//! Packets reordering case by case: what waits for what, and what the host gets when segments
//! overlap, repeat or never come. What the paper itself says of it is in `paper.rs`.

use lro::{Config, Flush, Mismatch, Pass};
use testkit::packet::{PacketBuilder, pattern};
use wire::Flags;

use super::conservation::check;
use super::naive::Tcp;
use super::run::{Joined, Run, Step, host_sends, run, waiting};

/// Bytes `from` to `to` of a connection.
fn bytes(from: u32, to: u32) -> PacketBuilder {
    let len = to.wrapping_sub(from) as usize;
    PacketBuilder::tcp4().seq(from).payload(&pattern(from as usize, len))
}

/// The same place, but other bytes.
fn others(from: u32, to: u32) -> PacketBuilder {
    bytes(from, to).payload(&vec![0xaa; (to - from) as usize])
}

fn frame(packet: &PacketBuilder) -> Step {
    Step::Frame(packet.build().into())
}

fn run_with(config: &Config, packets: &[PacketBuilder]) -> Run {
    let steps: Vec<Step> = packets.iter().map(frame).collect();
    let run = run(config, &steps);
    check(&run, &steps);
    run
}

fn run_packets(packets: &[PacketBuilder]) -> Run {
    run_with(&waiting(), packets)
}

/// Frames `at` come in with something else in between.
fn run_steps(steps: &[Step]) -> Run {
    let run = run(&waiting(), steps);
    check(&run, steps);
    run
}

/// The aggregates of a run, with the packets that they are.
fn joined(run: &Run) -> Vec<(&Joined, Tcp)> {
    run.joined().map(|joined| (joined, Tcp::read(&joined.bytes).unwrap())).collect()
}

/// Where the aggregates begin and what is in them.
fn streams(run: &Run) -> Vec<(u32, Vec<u8>)> {
    joined(run).into_iter().map(|(_, is)| (is.seq(), is.payload)).collect()
}

// Overlaps.

/// A probe of a zero window brings one byte, which the host does not take. The segment that brings
/// it again when the window has opened must bring all of it.
#[test]
fn a_segment_that_repeats_what_was_handed_on_is_not_trimmed() {
    let steps = [
        frame(&bytes(0, 100)),
        frame(&bytes(100, 101)),
        Step::FlushAll,
        frame(&bytes(100, 200)),
        frame(&bytes(200, 300)),
    ];
    assert_eq!(streams(&run_steps(&steps)), [(0, pattern(0, 101)), (100, pattern(100, 200))]);
}

#[test]
fn a_segment_that_repeats_part_of_the_run_is_trimmed() {
    let run = run_packets(&[bytes(0, 100), others(50, 150), bytes(150, 200)]);
    let expected = [&pattern(0, 100)[..], &[0xaa; 50], &pattern(150, 50)].concat();
    assert_eq!(streams(&run), [(0, expected)]);
    assert_eq!(run.counters.trimmed, 1);
}

#[test]
fn a_segment_that_begins_before_the_run_begins_another() {
    let run = run_packets(&[bytes(100, 200), others(50, 250), bytes(250, 300)]);
    assert_eq!(run.groups(), [vec![0], vec![1, 2]]);
}

/// Held data that came first counts on either side.
#[test]
fn what_waits_is_not_overwritten() {
    let waits = [bytes(0, 10), bytes(100, 200), bytes(300, 400)];
    let fills = [others(150, 350), others(10, 120)];
    let run = run_packets(&[&waits[..], &fills[..]].concat());
    let expected =
        [&pattern(0, 10)[..], &[0xaa; 90], &pattern(100, 100), &[0xaa; 100], &pattern(300, 100)];
    assert_eq!(streams(&run), [(0, expected.concat())]);
    assert_eq!(run.counters.trimmed, 3);
}

/// The segment before what waits goes by itself, as the aggregate is full: without the bytes that
/// the waiting one brought first.
#[test]
fn what_waits_is_not_overwritten_by_a_segment_that_goes_alone() {
    let config = Config { max_segments: 2, ..waiting() };
    let packets = [bytes(0, 10), bytes(100, 200), bytes(10, 20), others(20, 150)];
    let run = run_with(&config, &packets);
    assert_eq!(run.groups(), [vec![0, 2], vec![3, 1]]);
    let config = Config { max_segments: 1, ..config };
    let run = run_with(&config, &packets);
    assert_eq!(run.groups(), [[0], [2], [3], [1]]);
    assert_eq!(streams(&run), [(20, vec![0xaa; 80])]);
}

#[test]
fn what_covers_all_that_waits_comes_behind_it() {
    let run = run_packets(&[bytes(0, 10), bytes(100, 200), others(50, 250), bytes(250, 300)]);
    assert_eq!(run.groups(), [vec![0], vec![1], vec![2, 3]]);
    assert_eq!(run.counters.mismatched[Mismatch::Overlap as usize], 1);
    assert_eq!(run.counters.holes, 1);
}

/// The FIN of a segment that would be trimmed at its end is not lost.
#[test]
fn a_fin_is_not_trimmed_away() {
    let fin = others(50, 150).flags(Flags::ACK.with(Flags::FIN));
    let run = run_packets(&[bytes(0, 10), bytes(100, 200), fin]);
    assert_eq!(run.groups(), [[0], [1], [2]]);
    assert_eq!(run.counters.passed[Pass::Alone.index()], 3);
}

// Data that came before.

#[test]
fn data_that_came_before_passes_behind_the_run_and_what_continues_it_joins_again() {
    let again = [bytes(0, 100), bytes(100, 200), bytes(200, 300)];
    let run = run_packets(&[&again[..], &again[..], &[bytes(300, 400)]].concat());
    assert_eq!(run.groups(), [vec![0, 1, 2], vec![3], vec![4, 5, 6]]);
    assert_eq!(run.counters.passed[Pass::Old.index()], 1);
}

/// It does not wait for a hole; but if it is what waits, that goes first.
#[test]
fn data_that_came_before_overtakes_what_waits_unless_it_is_that() {
    let steps = [bytes(0, 100), bytes(200, 300), bytes(0, 100), bytes(100, 200)];
    let run = run_packets(&steps);
    assert_eq!(run.groups(), [vec![0], vec![2], vec![3, 1]]);
    let run = run_packets(&[bytes(0, 100), bytes(200, 300), others(220, 280), bytes(100, 200)]);
    assert_eq!(run.groups(), [[0], [1], [2], [3]]);
}

/// A byte of no meaning from before the next one asks for an acknowledgment, which it would not get
/// if it were held.
#[test]
fn a_keepalive_passes() {
    let run = run_packets(&[bytes(0, 100), bytes(99, 100).payload(&[0]), bytes(100, 200)]);
    assert_eq!(run.groups(), [[0], [1], [2]]);
    assert_eq!(run.counters.passed[Pass::Old.index()], 1);
}

/// What fills a hole of the host's makes its TS.Recent newer; what waits would come too late for it
/// (RFC 7323 section 5.3), so it goes first.
#[test]
fn what_waits_is_not_made_old_by_data_that_overtakes_it() {
    let at = |from, to, value| bytes(from, to).timestamps(value, 1);
    for (value, expected) in [(6, [[0], [1], [3], [4]]), (5, [[0], [1], [4], [3]])] {
        let steps = [
            frame(&at(0, 100, 5)),
            frame(&at(200, 300, 5)),
            Step::Wait(5_000_000), // the hole is the host's now
            frame(&at(400, 500, 5)),
            frame(&at(100, 200, value)),
        ];
        let run = run_steps(&steps);
        assert_eq!(run.groups(), expected, "{value}");
    }
}

/// What waited goes by itself, but what filled the hole in front of it was sent later: then it is
/// an aggregate of one, with the later TSval.
#[test]
fn what_waits_is_as_new_as_what_it_waited_for() {
    let config = Config { max_segments: 1, ..waiting() };
    let at = |from, to, value| bytes(from, to).timestamps(value, 1);
    let run = run_with(&config, &[at(0, 100, 5), at(200, 300, 5), at(100, 200, 6)]);
    assert_eq!(run.groups(), [[0], [2], [1]]);
    let [(alone, is)] = &joined(&run)[..] else { panic!("{:?}", run.groups()) };
    assert_eq!((is.seq(), is.timestamps()), (200, Some((6, 1))));
    assert_eq!((alone.vnet.gso_type, alone.vnet.gso_size), (wire::GsoType::None, 0));
    assert!(alone.vnet.needs_csum);
}

/// The run counts as held since the first of it came, on whichever side of the hole.
#[test]
fn what_waited_is_held_no_longer_for_having_joined() {
    let config = Config { max_timeout: 1000, min_timeout: 1000, ..waiting() };
    let steps = [
        frame(&bytes(0, 100)),
        Step::FlushAll,
        frame(&bytes(200, 300)),
        Step::Wait(600),
        frame(&bytes(100, 200)),
        Step::Wait(10_000),
    ];
    let run = run(&config, &steps);
    check(&run, &steps);
    assert_eq!(run.groups(), [vec![0], vec![4, 2]]);
    assert_eq!(run.events[1].now - run.arrivals[2], 1000);
}

// What is told besides data.

#[test]
fn what_waited_tells_nothing_older_than_what_it_waited_for() {
    let waits = bytes(100, 200).timestamps(5, 50).ack(20).window(2);
    let fills = bytes(0, 100).timestamps(6, 60).ack(30).window(3);
    let syn = bytes(0, 0).flags(Flags::SYN).seq(u32::MAX);
    let run = run_steps(
        &[&[frame(&syn)][..], &host_sends(1, 90), &[waits, fills].map(|p| frame(&p))].concat(),
    );
    let [(_, is)] = &joined(&run)[..] else { panic!("{:?}", run.groups()) };
    assert_eq!((is.ack(), is.window(), is.timestamps()), (30, 3, Some((6, 60))));
}

#[test]
fn what_waited_tells_what_it_is_the_first_to_tell() {
    let waits = bytes(100, 200).timestamps(7, 70).ack(40).window(4);
    let fills = bytes(0, 100).timestamps(6, 60).ack(30).window(3);
    let syn = bytes(0, 0).flags(Flags::SYN).seq(u32::MAX);
    let run = run_steps(
        &[&[frame(&syn)][..], &host_sends(1, 90), &[waits, fills].map(|p| frame(&p))].concat(),
    );
    let [(_, is)] = &joined(&run)[..] else { panic!("{:?}", run.groups()) };
    assert_eq!((is.ack(), is.window(), is.timestamps()), (40, 4, Some((6, 70))));
}

/// The peer has halved its window and says so once.
#[test]
fn a_reduced_congestion_window_that_waited_is_told() {
    let reduced = bytes(200, 300).flags(Flags::ACK.with(Flags::CWR));
    let run = run_packets(&[bytes(0, 100), reduced, bytes(300, 400), bytes(100, 200)]);
    assert_eq!(run.groups(), [[0], [1], [2], [3]], "it never joins what is held");
    // It was the first of what waits.
    let syn = bytes(0, 0).flags(Flags::SYN).seq(u32::MAX);
    let reduced = bytes(100, 200).flags(Flags::ACK.with(Flags::CWR));
    let run = run_packets(&[syn, reduced, bytes(200, 300), bytes(0, 100)]);
    assert_eq!(run.groups(), [[0], [3], [1], [2]]);
}

#[test]
fn marked_packets_out_of_order_keep_their_marks() {
    let run = run_packets(&[
        bytes(0, 100).tos(2),
        bytes(200, 300).tos(3),
        bytes(300, 400).tos(3),
        bytes(100, 200).tos(2),
    ]);
    let marks = |at: &Vec<usize>| at.iter().map(|at| [2, 3, 3, 2][*at]).collect::<Vec<_>>();
    assert!(run.groups().iter().map(marks).all(|marks| marks.iter().all(|m| *m == marks[0])));
}

// What does not wait.

#[test]
fn an_acknowledgment_overtakes_what_waits_but_not_what_is_in_order() {
    let ack = bytes(300, 300).ack(9);
    let packets = [bytes(0, 100), bytes(200, 300), ack, bytes(100, 200)];
    assert_eq!(run_packets(&packets).groups(), [vec![0], vec![2], vec![3, 1]]);
}

#[test]
fn what_else_is_not_held_comes_behind_what_waits() {
    let flags = [Flags::SYN, Flags::RST, Flags::URG, Flags::FIN].map(|f| Flags::ACK.with(f));
    for other in flags.map(|flags| bytes(300, 300).flags(flags)) {
        let packets = [bytes(0, 100), bytes(200, 300), other, bytes(100, 200)];
        assert_eq!(run_packets(&packets).groups(), [[0], [1], [2], [3]]);
    }
}

/// The SYN of the next connection finds the FIN of this one waiting.
#[test]
fn a_syn_behind_a_fin_that_waited_opens() {
    let fin = bytes(200, 300).flags(Flags::ACK.with(Flags::FIN));
    let syn = bytes(0, 0).flags(Flags::SYN).seq(999);
    let next = [syn, bytes(1100, 1200), bytes(1000, 1100)];
    let run = run_packets(&[&[bytes(0, 100), fin], &next[..]].concat());
    assert_eq!(run.groups(), [vec![0], vec![1], vec![2], vec![4, 3]]);
}

/// The same, but it is data of a connection that was not opened: it is not late from the start.
#[test]
fn data_behind_a_fin_that_waited_has_its_time() {
    let steps = [
        frame(&bytes(0, 100)),
        frame(&bytes(200, 300).flags(Flags::ACK.with(Flags::FIN))),
        Step::Wait(15_000),
        frame(&bytes(1 << 30, (1 << 30) + 100)),
        Step::Wait(15_000),
        frame(&bytes((1 << 30) + 100, (1 << 30) + 200)),
    ];
    let run = run_steps(&steps);
    assert_eq!(run.groups().last(), Some(&vec![3, 5]));
}

// Far.

#[test]
fn sixteen_megabytes_are_waited_for_and_more_are_not() {
    for (ahead, waits) in [(1u32 << 24, true), ((1 << 24) + 1, false)] {
        let early = bytes(100, 200).seq(100 + ahead);
        let packets = [bytes(0, 100), early, bytes(100, 200)];
        let run = run_packets(&packets);
        let expected = if waits {
            [vec![0, 2], vec![1]].to_vec()
        } else {
            [[0], [1], [2]].map(Vec::from).to_vec()
        };
        assert_eq!(run.groups(), expected, "{ahead}");
        assert_eq!(run.counters.mismatched[Mismatch::Far as usize], if waits { 0 } else { 2 });
    }
}

/// The same behind another that waits, where places are found by a shortcut.
#[test]
fn sixteen_megabytes_are_the_limit_behind_others_too() {
    for (ahead, waiting) in [(1u32 << 24, 2), ((1 << 24) + 1, 1)] {
        let early = |ahead: u32| bytes(100, 200).seq(100 + ahead);
        let run = run_packets(&[bytes(0, 100), early((1 << 24) - 100), early(ahead)]);
        assert_eq!(run.counters.reordered, waiting, "{ahead}");
    }
}

/// Numbers wrap in the middle of a hole.
#[test]
fn holes_across_the_wrap_are_filled() {
    let at = |n: u32| bytes(0, 100).seq((u32::MAX - 149).wrapping_add(100 * n));
    for order in [[0, 2, 1, 3], [0, 3, 2, 1], [0, 2, 3, 1]] {
        let run = run_packets(&order.map(at));
        assert_eq!(run.groups().len(), 1, "{order:?}");
        assert_eq!(run.counters.flushed[Flush::Idle as usize], 1);
    }
}

/// A sender of every other byte makes no search long (CVE-2018-5390): the 65th hole is one too
/// many, and what waits goes on. What fills holes, or touches what waits, does not count.
#[test]
fn a_flow_has_so_many_holes_and_no_more() {
    let syn = bytes(0, 0).flags(Flags::SYN).seq(u32::MAX);
    for upward in [true, false] {
        let blocks = (1..=65u32).map(|n| bytes(2 * n, 2 * n + 1));
        let mut blocks: Vec<_> = blocks.collect();
        if !upward {
            blocks.reverse();
        }
        let run = run_packets(&[std::slice::from_ref(&syn), &blocks[..64]].concat());
        assert_eq!(
            (run.counters.holes, run.counters.mismatched[Mismatch::Holes as usize]),
            (64, 0)
        );
        assert!(run.events[1..].iter().all(|event| event.step == 65), "some went before the end");
        let run = run_packets(&[std::slice::from_ref(&syn), &blocks[..]].concat());
        assert_eq!(run.counters.mismatched[Mismatch::Holes as usize], 1);
        assert!(run.events[1..65].iter().all(|event| event.step == 65));
    }
}
