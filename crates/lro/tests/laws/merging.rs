//! Each rule of merging by name, after the cases of Linux `tools/testing/selftests/net/lib/gro.c`; rules
//! have the numbers of docs/kernel-rules.md.

use lro::Profile::{self, Endpoint, Lossless};
use lro::{Config, Discard, Mismatch, Pass, RxChecksum};
use testkit::packet::PacketBuilder;
use wire::{Flags, protocol};

use super::conservation::check;
use super::delivery::cut;
use super::naive::Tcp;
use super::run::{Frame, Joined, Out, Run, Step, run};

const PUSH: Flags = Flags::ACK.with(Flags::PSH);
pub(crate) const BOTH: [Profile; 2] = [Endpoint, Lossless];

/// Segment `n` of 100 bytes each.
pub(crate) fn v4(n: u32) -> PacketBuilder {
    PacketBuilder::tcp4().seq(n * 100).id(n as u16).payload_pattern(100)
}

fn v6(n: u32) -> PacketBuilder {
    PacketBuilder::tcp6().seq(n * 100).payload_pattern(100)
}

fn run_frames(profile: Profile, frames: Vec<Frame>) -> Run {
    let steps: Vec<Step> = frames.into_iter().map(Step::Frame).collect();
    let run = run(&Config { profile, ..Config::default() }, &steps);
    check(&run, &steps);
    run
}

fn run_packets(profile: Profile, packets: &[PacketBuilder]) -> Run {
    run_frames(profile, packets.iter().map(|p| p.build().into()).collect())
}

/// How many packets came out together, in order.
pub(crate) fn sizes(profile: Profile, packets: &[PacketBuilder]) -> Vec<usize> {
    run_packets(profile, packets).groups().iter().map(Vec::len).collect()
}

pub(crate) fn frame(packet: PacketBuilder) -> Step {
    Step::Frame(packet.build().into())
}

/// Three segments, of which `change` makes the middle one different.
fn middle(segment: fn(u32) -> PacketBuilder, change: fn(PacketBuilder) -> PacketBuilder) -> Cases {
    Cases([segment(0), change(segment(1)), segment(2)])
}

/// Three segments, of which `change` makes the first different.
pub(crate) fn first(
    segment: fn(u32) -> PacketBuilder,
    change: fn(PacketBuilder) -> PacketBuilder,
) -> Cases {
    Cases([change(segment(0)), segment(1), segment(2)])
}

pub(crate) struct Cases([PacketBuilder; 3]);

impl Cases {
    #[track_caller]
    pub(crate) fn come_as(self, profiles: &[Profile], expected: &[usize]) {
        for profile in profiles {
            assert_eq!(sizes(*profile, &self.0), expected, "{profile:?}");
        }
    }
}

/// The only aggregate of a run.
#[track_caller]
pub(crate) fn only(run: &Run) -> (Joined, Tcp) {
    let [joined] = &run.joined().collect::<Vec<_>>()[..] else { panic!("{:?}", run.groups()) };
    ((*joined).clone(), Tcp::read(&joined.bytes).unwrap())
}

// Rule 1: sizes.

#[test]
fn segments_of_one_size_merge() {
    middle(v4, |p| p).come_as(&BOTH, &[3]);
    middle(v6, |p| p).come_as(&BOTH, &[3]);
}

#[test]
fn a_shorter_segment_joins_and_is_the_last_where_it_must_be_restored() {
    let packets = [v4(0), v4(1).payload_pattern(99), v4(2).seq(199), v4(3).seq(299)];
    assert_eq!(sizes(Lossless, &packets), [2, 2]);
    assert_eq!(sizes(Endpoint, &packets), [4]);
}

#[test]
fn a_larger_segment_does_not_join_where_it_must_be_restored() {
    let packets = [v4(0), v4(1).payload_pattern(101), v4(2).seq(201).payload_pattern(101)];
    assert_eq!(sizes(Lossless, &packets), [1, 2]);
    let (joined, _) = only(&run_packets(Endpoint, &packets));
    assert_eq!((joined.frames.len(), joined.vnet.gso_size), (3, 101));
}

#[test]
fn odd_lengths_merge() {
    for segment in [v4 as fn(u32) -> PacketBuilder, v6] {
        let odd = |n: u32| segment(n).seq(n * 33).payload_pattern(33);
        for profile in BOTH {
            assert_eq!(sizes(profile, &[odd(0), odd(1), odd(2), odd(3)]), [4]);
        }
    }
}

// Sequence numbers.

#[test]
fn sequence_numbers_wrap() {
    let at = |n: u32| v4(n).seq((u32::MAX - 149).wrapping_add(n * 100));
    for profile in BOTH {
        assert_eq!(sizes(profile, &[at(0), at(1), at(2)]), [3]);
    }
}

/// Where packets are restored, they are not put in another order either; what an endpoint gets is
/// in [`super::reorder`].
#[test]
fn a_hole_a_swap_a_duplicate_and_an_overlap_do_not_merge_where_packets_are_restored() {
    assert_eq!(sizes(Lossless, &[v4(0), v4(2), v4(3)]), [1, 2]);
    assert_eq!(sizes(Lossless, &[v4(1), v4(0), v4(2)]), [1, 1, 1]);
    assert_eq!(sizes(Lossless, &[v4(0), v4(0), v4(1)]), [1, 2]);
    assert_eq!(sizes(Lossless, &[v4(0), v4(1), v4(2).seq(150)]), [2, 1]);
}

#[test]
fn a_keepalive_and_a_window_probe_are_seen_by_the_host() {
    let keepalive = v4(2).seq(199).payload(&[0]);
    let probe = v4(2).payload(&[7]);
    for profile in BOTH {
        assert_eq!(sizes(profile, &[v4(0), v4(1), keepalive.clone(), v4(9)]), [2, 1, 1]);
        assert_eq!(sizes(profile, &[v4(0), v4(1), probe.clone(), probe.clone()]), [3, 1]);
    }
}

// Rule 2: acknowledgment, window, options.

#[test]
fn windows_are_the_last_ones_in_an_aggregate_for_an_endpoint_only() {
    let packets = [v4(0).window(10), v4(1).window(30), v4(2).window(20)];
    assert_eq!(only(&run_packets(Endpoint, &packets)).1.window(), 20);
    assert_eq!(sizes(Lossless, &packets), [1, 1, 1]);
}

#[test]
fn timestamps_are_first_value_and_last_echo() {
    let packets = [(7, 1), (7, 2), (8, 3)];
    let packets: Vec<_> =
        (0..).zip(packets).map(|(n, (value, echo))| v6(n).timestamps(value, echo)).collect();
    assert_eq!(only(&run_packets(Endpoint, &packets)).1.timestamps(), Some((7, 3)));
    assert_eq!(sizes(Lossless, &packets), [1, 1, 1]);
}

#[test]
fn timestamps_wrap_but_do_not_go_back() {
    let packets = [v4(0).timestamps(u32::MAX, 1), v4(1).timestamps(0, 1), v4(2).timestamps(0, 1)];
    assert_eq!(sizes(Endpoint, &packets), [3]);
}

/// A host that has seen 10 takes 9 for an old duplicate (PAWS, RFC 7323 section 5.3), and would take
/// what joins it for one too.
#[test]
fn nothing_joins_a_segment_whose_timestamp_went_back() {
    let packets = [v4(0).timestamps(10, 1), v4(1).timestamps(9, 1), v4(2).timestamps(10, 1)];
    assert_eq!(sizes(Endpoint, &packets), [1, 1, 1]);
    assert_eq!(sizes(Endpoint, &[&packets[..], &[v4(3).timestamps(10, 1)]].concat()), [1, 1, 2]);
}

#[test]
fn timestamps_on_some_segments_only_do_not_merge() {
    first(v4, |p| p.timestamps(1, 2)).come_as(&BOTH, &[1, 2]);
    // The same length in other options.
    let packets = [v4(0).timestamps(1, 2), v4(1).options(&[1; 12]), v4(2).options(&[1; 12])];
    assert_eq!(sizes(Endpoint, &packets), [1, 2]);
}

#[test]
fn other_options_pass_for_an_endpoint_and_merge_if_equal_where_they_are_restored() {
    let sack = |left: u8| [1, 1, 5, 10, 0, 0, 0, left, 0, 0, 0, 9];
    let packets = [v4(0).options(&sack(1)), v4(1).options(&sack(1)), v4(2).options(&sack(2))];
    assert_eq!(sizes(Lossless, &packets), [2, 1]);
    let run = run_packets(Endpoint, &packets);
    assert_eq!(run.counters.passed[Pass::TcpOptions.index()], 3);
}

#[test]
fn timestamps_in_another_place_pass_for_an_endpoint() {
    let options = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1];
    middle(v4, |p| p.options(&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1])).come_as(&BOTH, &[1, 1, 1]);
    let packets = [v4(0).options(&options), v4(1).options(&options)];
    assert_eq!(sizes(Lossless, &packets), [2]);
}

#[test]
fn options_past_their_end_are_counted_and_stay_in_order() {
    let run = run_packets(Endpoint, &[v4(0), v4(1), v4(2).options(&[5, 200, 0, 0]), v4(3)]);
    assert_eq!(run.groups(), [vec![0, 1], vec![2], vec![3]]);
    assert_eq!(run.counters.passed[Pass::Malformed(wire::Malformed::TcpOptionLength).index()], 1);
}

// Rule 3: no payload, padding.

#[test]
fn pure_acknowledgments_never_merge() {
    let ack = |n: u32| v4(1).ack(n).payload(&[]);
    for profile in BOTH {
        assert_eq!(sizes(profile, &[v4(0), ack(1), ack(1), ack(1), v4(1)]), [1, 1, 1, 1, 1]);
    }
}

#[test]
fn ethernet_padding_is_no_payload() {
    let short = |n: u32| v4(n).seq(n * 6).payload_pattern(6).padding(0);
    let packets = [short(0), short(1).padding(8), short(2).padding(2)];
    for profile in BOTH {
        let (joined, is) = only(&run_packets(profile, &packets));
        assert_eq!((joined.frames.len(), is.payload.len()), (3, 18));
    }
    let ack = v4(1).payload(&[]).padding(6);
    assert_eq!(sizes(Endpoint, &[v4(0), ack, v4(1)]), [1, 1, 1]);
}

// Rule 4: ECN.

#[test]
fn congestion_experienced_does_not_merge_with_what_was_not_marked() {
    for segment in [v4 as fn(u32) -> PacketBuilder, v6] {
        let packets = [segment(0).tos(2), segment(1).tos(3), segment(2).tos(3)];
        for profile in BOTH {
            assert_eq!(sizes(profile, &packets), [1, 2]);
        }
    }
}

#[test]
fn a_changed_ece_does_not_merge() {
    first(v4, |p| p.flags(Flags::ACK.with(Flags::ECE))).come_as(&BOTH, &[1, 2]);
    let all = [v4(0), v4(1), v4(2)].map(|p| p.flags(Flags::ACK.with(Flags::ECE)));
    Cases(all).come_as(&BOTH, &[3]);
}

#[test]
fn a_reduced_congestion_window_never_joins() {
    middle(v4, |p| p.flags(Flags::ACK.with(Flags::CWR))).come_as(&BOTH, &[1, 1, 1]);
    first(v4, |p| p.flags(Flags::ACK.with(Flags::CWR))).come_as(&BOTH, &[1, 2]);
}

// Rule 5: flags.

#[test]
fn push_completes_an_aggregate_where_it_must_be_restored() {
    let run = run_packets(Lossless, &[v4(0), v4(1).flags(PUSH), v4(2), v4(3)]);
    assert_eq!(run.groups(), [[0, 1], [2, 3]]);
    assert!(Tcp::read(&run.joined().next().unwrap().bytes).unwrap().has(super::naive::PSH));
}

/// A sender pushes the last segment of each burst; as long as more of them wait, the host gains
/// nothing by having the first.
#[test]
fn push_lets_go_at_the_end_of_the_burst_for_an_endpoint() {
    let other = |n: u32| frame(v6(n));
    let steps = [
        frame(v4(0)),
        frame(v4(1).flags(PUSH)),
        other(0),
        frame(v4(2)),
        Step::BurstEnds,
        frame(v4(3)),
        Step::BurstEnds,
        other(1),
    ];
    for (flush_on_psh, expected) in [
        (true, vec![vec![0, 1, 3], vec![2, 7], vec![5]]),
        (false, vec![vec![0, 1, 3, 5], vec![2, 7]]),
    ] {
        let run = run(&Config { flush_on_psh, ..Config::default() }, &steps);
        check(&run, &steps);
        assert_eq!(run.groups(), expected);
        assert!(Tcp::read(&run.joined().next().unwrap().bytes).unwrap().has(super::naive::PSH));
    }
}

#[test]
fn fin_with_data_completes_an_aggregate() {
    for profile in BOTH {
        let run = run_packets(profile, &[v4(0), v4(1).flags(Flags::ACK.with(Flags::FIN)), v4(2)]);
        assert_eq!(run.groups(), [vec![0, 1], vec![2]]);
        assert!(only(&run).1.has(super::naive::FIN));
    }
}

#[test]
fn syn_rst_urg_and_fin_come_after_what_is_held_and_as_they_were() {
    for flag in [Flags::SYN, Flags::RST, Flags::URG, Flags::FIN] {
        for payload in [0, 100] {
            if flag == Flags::FIN && payload > 0 {
                continue; // joins, see above
            }
            let other = v4(2).flags(Flags::ACK.with(flag)).payload_pattern(payload);
            for profile in BOTH {
                let packets = [v4(0), v4(1), other.clone(), v4(3), v4(4)];
                // URG without data leaves a hole here, and a SYN always: the host takes none of it.
                let leaves_one = flag == Flags::SYN || flag == Flags::URG && payload == 0;
                let behind_a_hole = leaves_one && profile == Endpoint;
                let behind: &[usize] = if behind_a_hole { &[1, 1] } else { &[2] };
                let expected = [&[2, 1], behind].concat();
                assert_eq!(sizes(profile, &packets), expected, "{flag:?}");
            }
        }
    }
}

#[test]
fn data_without_ack_passes() {
    middle(v4, |p| p.flags(Flags::PSH)).come_as(&BOTH, &[1, 1, 1]);
}

#[test]
fn a_stale_urgent_pointer_is_restored() {
    first(v4, |p| p.urgent(9)).come_as(&[Lossless], &[1, 2]);
    first(v4, |p| p.urgent(9)).come_as(&[Endpoint], &[3]);
}

// Rule 6: IPv4 ID and DF.

#[test]
fn ids_count_up_or_stay_and_are_never_mixed() {
    let ids = |ids: [u16; 4]| (0..).zip(ids).map(|(n, id)| v4(n).id(id)).collect::<Vec<_>>();
    for (given, expected) in [
        ([5, 6, 7, 8], vec![4]),
        ([9, 9, 9, 9], vec![4]),
        ([0xfffe, 0xffff, 0, 1], vec![4]),
        ([5, 6, 6, 7], vec![2, 2]),
        ([5, 5, 6, 7], vec![2, 2]),
        ([5, 9, 13, 17], vec![1, 1, 1, 1]),
        ([8, 7, 6, 5], vec![1, 1, 1, 1]),
    ] {
        let run = run_packets(Lossless, &ids(given));
        let groups: Vec<usize> = run.groups().iter().map(Vec::len).collect();
        assert_eq!(groups, expected, "{given:?}");
        for joined in run.joined() {
            assert_eq!(cut(joined).len(), joined.frames.len());
        }
        assert_eq!(sizes(Endpoint, &ids(given)), [4], "an endpoint does not mind");
    }
}

#[test]
fn ids_follow_the_same_rule_without_dont_fragment() {
    let packets = |step: u16| {
        (0..3).map(|n| v4(n).id(7 + n as u16 * step).dont_fragment(false)).collect::<Vec<_>>()
    };
    assert_eq!(sizes(Lossless, &packets(0)), [3]);
    assert_eq!(sizes(Lossless, &packets(1)), [3]);
    assert_eq!(sizes(Lossless, &packets(2)), [1, 1, 1]);
}

#[test]
fn a_mixture_of_ids_is_not_called_fixed() {
    let packets = [v4(0).id(5), v4(1).id(6), v4(2).id(6)];
    assert!(!only(&run_packets(Endpoint, &packets)).0.fixed_id);
}

#[test]
fn a_changed_dont_fragment_does_not_merge() {
    first(v4, |p| p.dont_fragment(false)).come_as(&BOTH, &[1, 2]);
}

// Rule 7: link and network.

#[test]
fn a_changed_ttl_tos_or_label_does_not_merge() {
    first(v4, |p| p.ttl(63)).come_as(&BOTH, &[1, 2]);
    first(v6, |p| p.ttl(63)).come_as(&BOTH, &[1, 2]);
    first(v4, |p| p.tos(0x20)).come_as(&BOTH, &[1, 2]);
    first(v6, |p| p.tos(0x20)).come_as(&BOTH, &[1, 2]);
    first(v6, |p| p.flow_label(1)).come_as(&BOTH, &[1, 2]);
}

#[test]
fn another_mac_address_or_vlan_does_not_merge() {
    first(v4, |p| p.macs([2; 6], [4; 6])).come_as(&BOTH, &[1, 2]);
    first(v4, |p| p.vlan(5)).come_as(&BOTH, &[1, 2]);
    let tagged = |n: u32| v6(n).vlan(9).vlan(5);
    Cases([tagged(0), tagged(1), tagged(2)]).come_as(&BOTH, &[3]);
    Cases([tagged(0), v6(1).vlan(9).vlan(6), v6(2).vlan(8).vlan(6)]).come_as(&BOTH, &[1, 1, 1]);
}

#[test]
fn connections_do_not_mix() {
    let other_port = |n: u32| v4(n).ports(1, 2);
    let other_address = |n: u32| v4(n).addresses4([10, 0, 0, 9], [10, 0, 0, 2]);
    for profile in BOTH {
        let packets = [v4(0), other_port(1), other_address(1), v4(1), v6(2), v6(3)];
        assert_eq!(sizes(profile, &packets), [2, 1, 1, 2]);
    }
}

#[test]
fn extension_headers_merge_if_equal() {
    let with = |n: u32, kind: u8, len: usize| v6(n).extension(kind, len);
    let (options, routing) = (protocol::DESTINATION, protocol::ROUTING);
    Cases([with(0, options, 8), with(1, options, 8), with(2, options, 8)]).come_as(&BOTH, &[3]);
    Cases([with(0, options, 8), with(1, options, 16), with(2, options, 16)])
        .come_as(&BOTH, &[1, 2]);
    Cases([with(0, options, 8), with(1, routing, 8), v6(2)]).come_as(&BOTH, &[1, 1, 1]);
    // As long as the other's TCP options.
    Cases([with(0, options, 8), v6(1).options(&[1; 8]), v6(2).options(&[1; 8])])
        .come_as(&BOTH, &[1, 2]);
}

#[test]
fn ip_options_pass_after_what_is_held() {
    middle(v4, |p| p.ip_options(&[1; 4])).come_as(&BOTH, &[1, 1, 1]);
    let run = run_packets(Endpoint, &[v4(0), v4(1).ip_options(&[1; 4]), v4(2)]);
    assert_eq!(run.groups(), [[0], [1], [2]]);
    assert_eq!(run.counters.passed[Pass::IpOptions.index()], 1);
}

/// A fragment may not say whose it is, so nothing is flushed for it.
#[test]
fn fragments_pass() {
    for segment in [v4 as fn(u32) -> PacketBuilder, v6] {
        let run = run_packets(Endpoint, &[segment(0), segment(1).fragment(0, true), segment(1)]);
        assert_eq!(run.groups(), [vec![1], vec![0, 2]]);
        assert_eq!(run.counters.passed[Pass::Fragment.index()], 1);
    }
}

#[test]
fn headers_too_long_to_keep_pass() {
    let long = |n: u32| v6(n).extension(protocol::DESTINATION, 64);
    let run = run_packets(Endpoint, &[long(0), long(1)]);
    assert_eq!(run.counters.passed[Pass::LongHeader.index()], 2);
}

// Rule 8: checksums.

#[test]
fn wrong_checksums_are_discarded() {
    for profile in BOTH {
        let run = run_packets(profile, &[v4(0), v4(1).wrong_checksum(), v4(1), v4(2)]);
        assert_eq!(run.groups(), [[0, 2, 3]]);
        assert_eq!(run.counters.discarded[Discard::TcpChecksum as usize], 1);
        let run = run_packets(profile, &[v4(0), v4(1).wrong_ip_checksum()]);
        assert_eq!(run.counters.discarded[Discard::IpChecksum as usize], 1);
    }
}

/// `NEEDS_CSUM` and `DATA_VALID` speak of the transport's checksum only; a damaged IP header must
/// not be made right by rewriting it.
#[test]
fn the_ip_checksum_is_verified_even_where_the_port_vouches_for_tcp() {
    let vouched = |p: PacketBuilder| Frame { bytes: p.build(), checksum: RxChecksum::Verified };
    let run = run_frames(Endpoint, vec![vouched(v4(0)), vouched(v4(1).wrong_ip_checksum())]);
    assert_eq!(run.groups(), [[0]]);
    assert_eq!(run.counters.discarded[Discard::IpChecksum as usize], 1);
}

#[test]
fn partial_checksums_merge_where_the_port_vouches_for_them_or_says_they_may_be() {
    for checksum in [RxChecksum::Verified, RxChecksum::MaybePartial] {
        for segment in [v4 as fn(u32) -> PacketBuilder, v6] {
            let frame = |p: PacketBuilder| Frame { bytes: p.build(), checksum };
            let partial = |n: u32| frame(segment(n).partial_checksum());
            let run = run_frames(Lossless, vec![partial(0), frame(segment(1)), partial(2)]);
            let (joined, _) = only(&run);
            assert_eq!(cut(&joined), [segment(0).build(), segment(1).build(), segment(2).build()]);
        }
    }
}

#[test]
fn a_checksum_that_may_be_partial_may_not_be_wrong() {
    let frame = |p: PacketBuilder| Frame { bytes: p.build(), checksum: RxChecksum::MaybePartial };
    let run = run_frames(Endpoint, vec![frame(v4(0)), frame(v4(1).wrong_checksum())]);
    assert_eq!(run.groups(), [[0]]);
    assert_eq!(run.counters.discarded[Discard::TcpChecksum as usize], 1);
    let run = run_packets(Endpoint, &[v4(0).partial_checksum()]);
    assert_eq!(run.counters.discarded[Discard::TcpChecksum as usize], 1);
}

/// A Routing header with segments left, or a Home Address option, names an address that counts
/// in place of the fixed header's (RFC 8200 section 8.1, RFC 6275 section 11.3.1): the checksum
/// of a sound packet does not verify here, and must not be touched.
#[test]
fn a_checksum_over_an_address_in_an_extension_header_is_the_hosts_to_verify() {
    let via = |n: u32| v6(n).extension(protocol::ROUTING, 24).wrong_checksum();
    for checksum in [RxChecksum::Unverified, RxChecksum::Verified] {
        let frame = |p: PacketBuilder| Frame { bytes: p.build(), checksum };
        let run = run_frames(Endpoint, vec![frame(v6(0)), frame(via(1)), frame(via(2))]);
        assert_eq!(run.groups(), [[0], [1], [2]]);
        assert_eq!(run.counters.passed[Pass::ExtensionHeaders.index()], 2);
    }
}

/// 0xFFFF verifies wherever 0 does, but segmentation only ever writes 0. Routers that update
/// checksums by RFC 1141 do write it (RFC 1624 section 3).
#[test]
fn a_checksum_of_minus_zero_is_restored() {
    // The ID that makes the header's checksum 0 is the checksum that the header has without it.
    let sum = Tcp::read(&v4(0).id(0).build()).unwrap().ip_checksum().unwrap() as u16;
    let packet = |n: u32| v4(n).id(sum.wrapping_add(n as u16));
    let mut odd = packet(0).build();
    assert_eq!(odd[24..26], [0, 0]);
    odd[24..26].fill(0xff);
    let plain = |n: u32| Frame::from(packet(n).build());
    for (profile, expected) in [(Lossless, vec![1, 2]), (Endpoint, vec![3])] {
        let run = run_frames(profile, vec![odd.clone().into(), plain(1), plain(2)]);
        assert_eq!(run.groups().iter().map(Vec::len).collect::<Vec<_>>(), expected);
        let mismatches = run.counters.mismatched[Mismatch::Checksum as usize];
        assert_eq!(mismatches, u64::from(profile == Lossless));
    }
}

// Everything else.

#[test]
fn what_is_no_tcp_passes_at_once() {
    let udp = PacketBuilder::udp4().payload_pattern(100);
    let run = run_packets(Endpoint, &[v4(0), udp.clone(), udp, PacketBuilder::ip6(58), v4(1)]);
    assert_eq!(run.groups(), [vec![1], vec![2], vec![3], vec![0, 4]]);
    assert_eq!(run.counters.passed[Pass::NotTcp.index()], 3);
    let arp = [&[0xff; 12][..], &[0x08, 0x06], &[0; 28]].concat();
    let run = run_frames(Endpoint, vec![arp.into()]);
    assert!(matches!(run.events[0].out, Out::Passed(0, Pass::NotIp)));
}
