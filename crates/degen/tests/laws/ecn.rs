//! Congestion marks (RFC 3168): which packets get them, and that nothing else changes.

use degen::ecn::mark;
use degen::{Config, Degen, Heap, Probability};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use testkit::verify::ones_complement_sum;

const NOT_ECT: u8 = 0b00;
const CE: u8 = 0b11;

/// Frames of every kind that has an IP header, with this many VLAN tags.
fn builders(tags: usize) -> Vec<PacketBuilder> {
    let plain = [
        PacketBuilder::tcp4(),
        PacketBuilder::udp4(),
        PacketBuilder::tcp6(),
        PacketBuilder::udp6(),
        PacketBuilder::tcp4().ip_options(&[1, 1, 1, 0]),
        PacketBuilder::udp4().fragment(0, true),
        PacketBuilder::udp6().extension(0, 8),
        PacketBuilder::ip4(132),
        PacketBuilder::ip6(50),
    ];
    let tagged = |builder: PacketBuilder| {
        let payload = builder.payload_pattern(100);
        (0..tags).fold(payload, |builder, tag| builder.vlan(tag as u16 + 1))
    };
    plain.into_iter().map(tagged).collect()
}

/// Where the IP header begins.
fn ip_at(tags: usize) -> usize {
    14 + 4 * tags
}

fn is_v4(frame: &[u8], tags: usize) -> bool {
    frame[ip_at(tags)] >> 4 == 4
}

fn header_sum(frame: &[u8], tags: usize) -> u16 {
    let ip = &frame[ip_at(tags)..];
    ones_complement_sum(&ip[..usize::from(ip[0] & 15) * 4])
}

#[test]
fn only_ect_packets_are_marked() {
    for tags in 0..=2 {
        for builder in builders(tags) {
            for tos in 0..=255 {
                let before = builder.clone().tos(tos).build();
                let mut after = before.clone();
                let marked = mark(&mut after);
                assert_eq!(marked, tos & CE != NOT_ECT, "{tos:08b}");
                // As a sender would have built it with the mark.
                let expected = if marked { builder.clone().tos(tos | CE).build() } else { before };
                assert_eq!(after, expected, "{tos:08b}");
            }
        }
    }
}

#[test]
fn a_packet_behind_three_tags_is_not_marked() {
    for builder in builders(3) {
        let before = builder.tos(0b10).build();
        let mut after = before.clone();
        assert!(!mark(&mut after) && after == before);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A checksum that was right stays right, and one that was wrong stays wrong by as much.
    #[test]
    fn checksums_stay_as_right_as_they_were(
        tags in 0..=2_usize,
        which in 0..9_usize,
        tos: u8,
        id: u16,
        ttl: u8,
        checksum in any::<Option<u16>>(),
    ) {
        let builder = builders(tags).swap_remove(which).tos(tos).id(id).ttl(ttl);
        let mut frame = builder.build();
        if !is_v4(&frame, tags) {
            return Ok(());
        }
        let at = ip_at(tags) + 10;
        if let Some(checksum) = checksum {
            frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        let before = header_sum(&frame, tags);
        mark(&mut frame);
        let after = header_sum(&frame, tags);
        // Zero has two forms in one's complement (RFC 1071): both are wrong by as much.
        prop_assert_eq!(before % 0xffff, after % 0xffff);
        prop_assert_eq!(before == 0xffff, after == 0xffff);
    }

    /// Frames that are cut off, or are not what they say.
    #[test]
    fn hostile_frames_are_marked_rightly_or_left_alone(
        tags in 0..=3_usize,
        which in 0..9_usize,
        cut in any::<Option<prop::sample::Index>>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut frame = builders(tags).swap_remove(which).tos(0b01).build();
        for (at, byte) in changes {
            let at = at.index(frame.len().min(80));
            frame[at] = byte;
        }
        if let Some(cut) = cut {
            frame.truncate(cut.index(frame.len() + 1));
        }
        let before = frame.clone();
        if !mark(&mut frame) {
            prop_assert_eq!(frame, before);
            return Ok(());
        }
        // The header is there, is of an IP packet that may be marked, and nothing else has changed.
        let tags = (0..=2).find(|tags| before[ip_at(*tags) - 2..][..2] == [8, 0]
            || before[ip_at(*tags) - 2..][..2] == [0x86, 0xdd]);
        let ip = ip_at(tags.expect("no IP packet"));
        let changed: Vec<_> = (0..frame.len()).filter(|at| frame[*at] != before[*at]).collect();
        let may_change = match before[ip] >> 4 {
            4 => vec![ip + 1, ip + 10, ip + 11],
            6 => vec![ip + 1],
            _ => vec![],
        };
        prop_assert!(changed.iter().all(|at| may_change.contains(at)), "{:?}", changed);
    }

    #[test]
    fn any_bytes_are_survived(frame in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut after = frame.clone();
        prop_assert!(mark(&mut after) || after == frame);
    }
}

/// A packet that would be dropped is marked instead, if its sender allows it.
#[test]
fn marks_take_the_place_of_losses() {
    let all = Probability::ALWAYS;
    let losses = [
        Config { loss: all, ..Config::default() },
        Config { gilbert_p: all, gilbert_k: Probability::NEVER, ..Config::default() },
    ];
    for config in losses {
        for tos in [NOT_ECT, 0b01, 0b10, CE] {
            for ecn in [false, true] {
                let mut way = Degen::new(Config { ecn, ..config.clone() }, 1);
                way.arrive(PacketBuilder::tcp4().tos(tos).build(), 0, &mut Heap);
                let marked = ecn && tos != NOT_ECT;
                let out = way.depart(0, &mut Heap).map(|out| out.packet);
                let expected = marked.then(|| PacketBuilder::tcp4().tos(CE).build());
                assert_eq!(out, expected);
                let counters = way.counters();
                assert_eq!(counters.marked, u64::from(marked));
                assert_eq!(counters.lost, u64::from(!marked));
            }
        }
    }
}
