//! Whose acknowledgments are joined (RFC 5961 section 5.2), case by case.

use lro::Config;
use lro::Profile::{self, Endpoint, Lossless};
use testkit::packet::PacketBuilder;
use wire::Flags;

use super::conservation::check;
use super::merging::{BOTH, first, frame, only, sizes, v4};
use super::run::{Run, Step, host_sends, run, waiting};

/// A connection opens, and its host sends what lies between these numbers.
fn beside_host((from, to): (u32, u32)) -> Vec<Step> {
    let syn = v4(0).seq(u32::MAX).flags(Flags::SYN).payload(&[]);
    [&[frame(syn)][..], &host_sends(from, to)].concat()
}

/// The same before these packets.
fn run_beside_host(profile: Profile, sent: (u32, u32), packets: &[PacketBuilder]) -> Run {
    let packets = packets.iter().cloned().map(frame);
    let steps: Vec<Step> = beside_host(sent).into_iter().chain(packets).collect();
    let run = run(&Config { profile, ..waiting() }, &steps);
    check(&run, &steps);
    run
}

/// How many of them came out together.
fn sizes_beside_host(profile: Profile, sent: (u32, u32), packets: &[PacketBuilder]) -> Vec<usize> {
    run_beside_host(profile, sent, packets).groups().iter().skip(1).map(Vec::len).collect()
}

#[test]
fn acknowledgments_move_forward_in_an_aggregate_for_an_endpoint_only() {
    let packets = [v4(0).ack(5), v4(1).ack(9), v4(2).ack(9)];
    let (joined, is) = only(&run_beside_host(Endpoint, (1, 100), &packets));
    assert_eq!((joined.frames.len(), is.ack()), (3, 9));
    assert_eq!(sizes_beside_host(Lossless, (1, 100), &packets), [1, 2]);
}

/// Nothing says which of two the host would take (RFC 5961 section 5.2): it may be that of a forger, who
/// would be let in by the other, or have it dropped.
#[test]
fn acknowledgments_that_differ_do_not_merge_unless_the_host_was_heard() {
    let packets = [v4(0).ack(5), v4(1).ack(9), v4(2).ack(9)];
    assert_eq!(sizes(Endpoint, &packets), [1, 2]);
    let early = [v4(0).ack(5), v4(2).ack(9), v4(1).ack(9)];
    assert_eq!(sizes(Endpoint, &early), [1, 1, 1]);
    assert_eq!(sizes_beside_host(Endpoint, (1, 100), &early), [3]);
}

/// The same of those that it would surely not take: of what it has not sent, and of what has been
/// acknowledged long ago. Among themselves they may.
#[test]
fn acknowledgments_that_the_host_drops_merge_with_their_like_only() {
    for bad in [101, 0x4000_0000, 0x9000_0000, 0, 1u32.wrapping_sub(1 << 20)] {
        let packets = [v4(0).ack(5), v4(1).ack(bad), v4(2).ack(bad), v4(3).ack(9), v4(4).ack(20)];
        assert_eq!(sizes_beside_host(Endpoint, (1, 100), &packets), [1, 2, 2], "{bad:x}");
        let early = [v4(0).ack(5), v4(2).ack(bad), v4(1).ack(9), v4(3).ack(20)];
        assert_eq!(sizes_beside_host(Endpoint, (1, 100), &early), [1, 1, 1, 1], "{bad:x}");
    }
}

/// What went by unseen may have acknowledged all that the host had sent until then.
#[test]
fn what_the_host_has_sent_is_forgotten_with_what_went_by_unseen() {
    let packets = [v4(0).ack(5), v4(1).ack(9), v4(2).ack(100), v4(3).ack(120)];
    let unseen = [frame(v4(9)), Step::Interrupt];
    let more = host_sends(100, 200)[1].clone();
    let steps = [&beside_host((1, 100))[..], &unseen, &[more], &packets.map(frame)].concat();
    let run = run(&waiting(), &steps);
    check(&run, &steps);
    assert_eq!(run.groups()[2..], [[6], [7], [8], [9]]);
}

#[test]
fn acknowledgments_wrap() {
    let packets = [v4(0).ack(u32::MAX), v4(1).ack(3)];
    assert_eq!(only(&run_beside_host(Endpoint, (u32::MAX - 9, 9), &packets)).1.ack(), 3);
}

#[test]
fn an_older_acknowledgment_does_not_join() {
    first(v4, |p| p.ack(2)).come_as(&BOTH, &[1, 2]);
    let packets = [v4(0).ack(5), v4(1).ack(3), v4(2).ack(9)];
    assert_eq!(sizes_beside_host(Endpoint, (1, 100), &packets), [1, 1, 1]);
}
