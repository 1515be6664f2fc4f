//! What other protocols than plain TCP put into its segments goes through as it came: Accurate ECN's
//! counter, and the options of Multipath TCP, TCP-AO and Fast Open. And packets that are not taken
//! interrupt nothing but their own flow.

use lro::Config;
use lro::Profile::{self, Endpoint, Lossless};
use proptest::prelude::*;
use testkit::packet::{PacketBuilder, pattern};
use wire::Flags;

use super::conservation::check;
use super::delivery::cut;
use super::merging::{BOTH, frame, v4};
use super::run::{Out, Step, run};

/// Option kinds: TCP-AO (RFC 5925), Multipath TCP (RFC 8684), Fast Open (RFC 7413).
const KINDS: [u8; 3] = [29, 30, 34];

/// Segment `n` with the ACE field `ace` (RFC 9768 section 3.2.2): AE, CWR and ECE.
fn counting(n: u32, ace: u8) -> PacketBuilder {
    let bit = |mask: u8, flag: Flags| if ace & mask != 0 { flag } else { Flags(0) };
    let flags = Flags::ACK.with(bit(2, Flags::CWR)).with(bit(1, Flags::ECE));
    v4(n).reserved(ace >> 2).flags(flags)
}

/// Options of one kind with so many random bytes, timestamps before them or not, padded to a word.
fn with_option(packet: PacketBuilder, kind: u8, data: &[u8], timestamps: bool) -> PacketBuilder {
    let mut options = Vec::new();
    if timestamps {
        options.extend([1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
    }
    options.extend([kind, 2 + data.len() as u8]);
    options.extend(data);
    options.resize(options.len().next_multiple_of(4), 1);
    packet.options(&options)
}

fn at(run: &super::run::Run, place: usize) -> Vec<usize> {
    run.groups().into_iter().find(|group| group.contains(&place)).unwrap()
}

proptest! {
    /// However the counter moves, no aggregate has segments of two counts, and each count arrives.
    #[test]
    fn accurate_ecn_arrives_with_each_count(counts in proptest::collection::vec(0u8..8, 1..60)) {
        let steps: Vec<_> = (0..).zip(&counts).map(|(n, ace)| frame(counting(n, *ace))).collect();
        for profile in BOTH {
            let run = run(&Config { profile, ..Config::default() }, &steps);
            check(&run, &steps);
            prop_assert!(run.groups().concat().is_sorted());
            for group in run.groups() {
                prop_assert!(group.iter().all(|n| counts[*n] == counts[group[0]]), "{group:?}");
            }
            for joined in run.joined() {
                let header = &joined.bytes[34..];
                let ace = (header[12] & 1) << 2 | header[13] >> 6;
                prop_assert_eq!(ace, counts[joined.frames[0]]);
            }
        }
    }

    /// A host gets each of these segments alone, in its place and byte by byte; where packets are
    /// restored they may be joined, as in the kernel, if the options are equal to the last byte.
    #[test]
    fn options_of_others_pass_byte_by_byte(
        segments in proptest::collection::vec(
            (0usize..4, proptest::collection::vec(0u8..2, 0..18), any::<bool>()),
            1..40,
        ),
    ) {
        let packets: Vec<PacketBuilder> = (0..)
            .zip(&segments)
            .map(|(n, (kind, data, timestamps))| match KINDS.get(*kind) {
                Some(kind) => with_option(v4(n), *kind, data, *timestamps),
                None => v4(n),
            })
            .collect();
        let steps: Vec<Step> = packets.iter().cloned().map(frame).collect();
        for profile in BOTH {
            let run = run(&Config { profile, ..Config::default() }, &steps);
            check(&run, &steps);
            prop_assert!(run.groups().concat().is_sorted());
            for place in (0..segments.len()).filter(|place| segments[*place].0 < KINDS.len()) {
                let alone = run.events.iter().any(|event| matches!(event.out, Out::Passed(n, _) if n == place));
                prop_assert!(alone || profile == Lossless);
            }
            for joined in run.joined().filter(|_| profile == Lossless) {
                for (frame, place) in cut(joined).iter().zip(&joined.frames) {
                    prop_assert_eq!(frame, &packets[*place].build());
                }
            }
        }
    }
}

/// Equal counts join, but those with CWR in them.
#[test]
fn equal_counts_of_accurate_ecn_join() {
    for ace in [0, 1, 4, 5] {
        let steps: Vec<_> = (0..5).map(|n| frame(counting(n, ace))).collect();
        for profile in BOTH {
            let run = run(&Config { profile, ..Config::default() }, &steps);
            assert_eq!(run.groups(), [[0, 1, 2, 3, 4]], "{ace} {profile:?}");
        }
    }
}

// Packets that are not taken.

fn other(n: u32) -> PacketBuilder {
    v4(n).ports(7, 8)
}

fn interrupted(profile: Profile, packet: Vec<u8>) -> super::run::Run {
    let before = [v4(0), other(0), v4(1), other(1)].map(frame);
    let after = [v4(90), other(2), v4(91), other(3)].map(frame);
    let steps = [&before[..], &[Step::InterruptFlow(packet)], &after].concat();
    let run = run(&Config { profile, ..Config::default() }, &steps);
    check(&run, &steps);
    run
}

/// A super-packet of 8,800 bytes, of which a port brings the headers only; what follows is not held
/// for a hole.
#[test]
fn a_packet_that_is_not_taken_interrupts_its_own_flow_only() {
    let whole = |packet: PacketBuilder| packet.payload(&pattern(200, 8800)).build();
    let tagged = |packet: PacketBuilder| packet.vlan(5).vlan(6);
    for profile in [Endpoint, Lossless] {
        let plain = [whole(v4(2)), whole(v4(2))[..38].to_vec(), whole(v4(2))[..1500].to_vec()];
        let tagged = [whole(tagged(v4(2))), whole(tagged(v4(2)))[..46].to_vec()];
        let options = whole(v4(2).ip_options(&[1; 8]))[..46].to_vec();
        for bytes in plain.into_iter().chain(tagged).chain([options]) {
            let run = interrupted(profile, bytes);
            assert_eq!([at(&run, 0), at(&run, 5)], [[0, 2], [5, 7]]);
            assert_eq!(at(&run, 1), [1, 3, 6, 8]);
        }
    }
}

#[test]
fn a_packet_of_no_flow_interrupts_nothing() {
    let others = [
        PacketBuilder::udp4().payload_pattern(3000).build(),
        PacketBuilder::udp6().payload_pattern(3000).build()[..100].to_vec(),
        PacketBuilder::ip4(132).payload_pattern(3000).build(),
        v4(0).ports(9, 9).build(),
    ];
    for bytes in others {
        let run = interrupted(Endpoint, bytes);
        assert_eq!(at(&run, 1), [1, 3, 6, 8]);
        assert_eq!(at(&run, 0), [0, 2]);
    }
}

/// A fragment, a header that is cut short: it may be of any flow.
#[test]
fn a_packet_that_does_not_tell_its_flow_interrupts_all() {
    let whole = v4(2).payload_pattern(8800).build();
    for bytes in [v4(2).fragment(0, true).build(), whole[..36].to_vec(), Vec::new()] {
        let run = interrupted(Endpoint, bytes);
        assert_eq!([at(&run, 0), at(&run, 1), at(&run, 6)], [[0, 2], [1, 3], [6, 8]]);
    }
}

/// However little of a packet there is.
#[test]
fn a_packet_may_be_cut_anywhere() {
    let packets = [
        v4(2),
        v4(2).vlan(5).vlan(6),
        v4(2).ip_options(&[1; 8]),
        PacketBuilder::tcp6().extension(wire::protocol::DESTINATION, 32),
        PacketBuilder::udp6().vlan(1),
    ];
    for packet in packets.map(|packet| packet.payload_pattern(50).build()) {
        for len in 0..packet.len() {
            interrupted(Endpoint, packet[..len].to_vec());
        }
    }
}

/// The same of datagrams.
#[test]
fn a_super_packet_of_datagrams_interrupts_its_own_flow_only() {
    let udp = |port: u16| PacketBuilder::udp4().ports(port, 9).payload_pattern(100);
    let steps = [
        frame(udp(1)),
        frame(udp(2)),
        Step::InterruptFlow(udp(1).payload_pattern(5000).build()[..60].to_vec()),
        frame(udp(1)),
        frame(udp(2)),
    ];
    let run = run(&Config { udp: true, ..Config::default() }, &steps);
    assert_eq!([at(&run, 0), at(&run, 3), at(&run, 1)], [vec![0], vec![3], vec![1, 4]]);
}
