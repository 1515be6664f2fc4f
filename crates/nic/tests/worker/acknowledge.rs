//! Active ACK: what is acknowledged reaches the host, also one that takes nothing for a while.

use std::sync::atomic::Ordering;

use nic::config::Config;
use nic::port::Refused;
use proptest::prelude::*;
use testkit::packet::{PacketBuilder, pattern};
use testkit::verify;
use wire::{Flags, Headers, VirtioNetHdr};

use super::rig::{Rig, read, segment, stream};

const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;

fn config(mode: &str) -> Config {
    let mut config = Config::default();
    config.set("lro.max_timeout", "20ms").unwrap();
    config.set("poll.batch", "8").unwrap();
    set_mode(&mut config, mode);
    config
}

/// `off` or `safe`, or as the paper does, which is no setting.
fn set_mode(config: &mut Config, mode: &str) {
    config.lro.paper_ack = mode == "paper";
    if mode != "paper" {
        config.set_at_run_time("lro.active_ack", mode).unwrap();
    }
}

/// A packet of the host's, of connection `port`.
fn of_host(port: u16) -> PacketBuilder {
    PacketBuilder::tcp4().addresses4([10, 0, 0, 2], [10, 0, 0, 1]).ports(80, port).seq(77)
}

/// The handshake of connection `port`, of which segment 0 is the first.
fn open(rig: &mut Rig, port: u16) {
    let syn = PacketBuilder::tcp4().ports(port, 80).seq(u32::MAX).flags(Flags::SYN);
    rig.arrive(&syn);
    rig.turn();
    let answer = of_host(port).seq(76).ack(0).flags(Flags::SYN.with(Flags::ACK));
    rig.host.send(VirtioNetHdr::default(), answer.build());
    says(rig, port, 0);
    rig.delivered();
    rig.sent();
}

/// The host acknowledges so many segments of connection `port`.
fn says(rig: &mut Rig, port: u16, segments: u32) {
    let packet = of_host(port).ack(segments * 1000).window(60_000);
    rig.host.send(VirtioNetHdr::default(), packet.build());
    rig.turn();
}

/// The acknowledgment numbers of what was sent of connection `port`.
fn acknowledged(frames: &[Vec<u8>], port: u16) -> Vec<u32> {
    let of = |frame: &&Vec<u8>| frame[36..38] == port.to_be_bytes();
    let number = |frame: &Vec<u8>| {
        assert_eq!(verify::checksums(frame), Ok(()));
        let at = Headers::parse(frame).unwrap().transport_at;
        u32::from_be_bytes(frame[at + 8..at + 12].try_into().unwrap())
    };
    frames.iter().filter(of).map(number).collect()
}

#[test]
fn held_data_is_acknowledged_once_a_turn_and_delivered() {
    let mut rig = Rig::new(&config("safe"));
    open(&mut rig, 1);
    for turn in 0..5 {
        (3 * turn..3 * turn + 3).for_each(|n| rig.arrive(&segment(1, n)));
        rig.turn();
        assert_eq!(acknowledged(&rig.sent(), 1), [3000 * (turn + 1)]);
    }
    assert_eq!(rig.delivered(), []);
    rig.settle();
    let delivered = rig.delivered();
    assert_eq!(stream(delivered.iter().map(|(_, b)| &b[..])), pattern(0, 15_000));
    assert_eq!(rig.counter("lro", "acknowledged"), 5);
    assert_eq!(rig.counter("wire", "tx_packets"), 7);
}

#[test]
fn the_papers_mode_acknowledges_every_packet() {
    let mut rig = Rig::new(&config("paper"));
    open(&mut rig, 1);
    (0..8).for_each(|n| rig.arrive(&segment(1, n)));
    rig.turn();
    assert_eq!(acknowledged(&rig.sent(), 1), [1, 2, 3, 4, 5, 6, 7, 8].map(|n| n * 1000));
}

/// A full wire loses what is said once more soon, and says that it was full.
#[test]
fn a_full_wire_has_no_room_for_acknowledgments() {
    let mut rig = Rig::new(&config("safe"));
    open(&mut rig, 1);
    rig.wire.set_room(Some(0));
    rig.arrive(&segment(1, 0));
    rig.turn();
    assert_eq!((rig.sent().len(), rig.counter("wire", "tx_full")), (0, 1));
    rig.wire.set_room(None);
    rig.arrive(&segment(1, 1));
    rig.turn();
    assert_eq!(acknowledged(&rig.sent(), 1), [2000]);
}

/// What was acknowledged is not sent again; so it waits, in order, and nothing more is taken
/// in or acknowledged.
#[test]
fn a_host_that_takes_nothing_for_a_while_misses_nothing() {
    for mode in ["safe", "paper"] {
        let mut rig = Rig::new(&config(mode));
        open(&mut rig, 1);
        (0..8).for_each(|n| rig.arrive(&segment(1, n)));
        rig.turn();
        assert_eq!(acknowledged(&rig.sent(), 1).last(), Some(&8000), "{mode}");
        rig.errno.store(ENOMEM, Ordering::Relaxed);
        rig.now += 20_000_000;
        rig.turn();
        // More than there is memory for, and another connection's.
        (8..200).for_each(|n| rig.arrive(&segment(1, n)));
        (0..50).for_each(|n| rig.arrive(&segment(2, n)));
        for _ in 0..100 {
            rig.now += 1_000_000;
            rig.turn();
        }
        assert_eq!(rig.sent(), [] as [Vec<u8>; 0], "{mode}: acknowledged what cannot be delivered");
        assert_eq!((rig.delivered().len(), rig.group("host_drop")), (0, 0));
        rig.errno.store(0, Ordering::Relaxed);
        rig.settle();
        let delivered = rig.delivered();
        for (port, count) in [(1u16, 200), (2, 50)] {
            let own = delivered.iter().filter(|(_, b)| b[34..36] == port.to_be_bytes());
            assert!(stream(own.map(|(_, b)| &b[..])) == pattern(0, count * 1000), "{mode} {port}");
        }
        assert_eq!(rig.group("host_drop"), 0);
        assert!(!rig.sent().is_empty(), "acknowledged again");
    }
}

/// What the host never takes is not offered for ever.
#[test]
fn a_packet_that_the_host_refuses_for_good_is_counted_and_the_next_goes_on() {
    let mut rig = Rig::new(&config("safe"));
    open(&mut rig, 1);
    rig.errno.store(EINVAL, Ordering::Relaxed);
    rig.arrive(&segment(1, 0));
    rig.settle();
    assert_eq!(rig.counter("host_drop", Refused::HostRefused.name()), 1);
    rig.errno.store(0, Ordering::Relaxed);
    rig.arrive(&segment(2, 0));
    rig.settle();
    assert_eq!(rig.delivered().len(), 1);
}

/// What was acknowledged before is kept all the same.
#[test]
fn switched_off_while_the_host_takes_nothing_nothing_is_lost() {
    for (key, value) in [("lro.active_ack", "off"), ("lro.enable", "false")] {
        let mut config = config("safe");
        let mut rig = Rig::new(&config);
        open(&mut rig, 1);
        (0..8).for_each(|n| rig.arrive(&segment(1, n)));
        rig.turn();
        assert_eq!(acknowledged(&rig.sent(), 1), [8000]);
        rig.errno.store(ENOMEM, Ordering::Relaxed);
        config.set_at_run_time(key, value).unwrap();
        rig.handle.reconfigure(&config);
        (8..16).for_each(|n| rig.arrive(&segment(1, n)));
        for _ in 0..20 {
            rig.turn();
        }
        rig.errno.store(0, Ordering::Relaxed);
        rig.settle();
        let delivered = rig.delivered();
        assert!(stream(delivered.iter().map(|(_, b)| &b[..])) == pattern(0, 16_000));
        // From then on a host that takes nothing loses it, as it would a card's.
        rig.errno.store(ENOMEM, Ordering::Relaxed);
        rig.arrive(&segment(1, 16));
        rig.settle();
        assert_eq!((rig.sent(), rig.group("host_drop")), (vec![], 1));
    }
}

/// What goes by LRO unseen, its SYNs among it, is not spoken for when LRO is on again.
#[test]
fn connections_that_began_without_lro_are_left_alone() {
    let mut config = config("safe");
    let mut rig = Rig::new(&config);
    open(&mut rig, 1);
    for value in ["false", "true"] {
        config.set_at_run_time("lro.enable", value).unwrap();
        rig.handle.reconfigure(&config);
        rig.turn();
    }
    says(&mut rig, 1, 0);
    rig.sent();
    rig.arrive(&segment(1, 0));
    rig.turn();
    assert_eq!(rig.sent(), [] as [Vec<u8>; 0]);
}

/// What happens next to a host that acknowledges what it gets, some time.
#[derive(Clone, Debug)]
enum Event {
    Arrive(u16, u32),
    Refuse(i32),
    Turn,
    Wait(u64),
    Say(u16),
    Mode(&'static str),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Acknowledged or not, all arrives, in order; nothing is acknowledged that has not come.
    #[test]
    fn every_byte_arrives_at_a_moody_host(events in proptest::collection::vec(prop_oneof![
        6 => (1u16..4, 1u32..12).prop_map(|(port, n)| Event::Arrive(port, n)),
        2 => prop::sample::select(vec![0, ENOMEM, 5]).prop_map(Event::Refuse),
        8 => Just(Event::Turn),
        2 => (0u64..30_000_000).prop_map(Event::Wait),
        4 => (1u16..4).prop_map(Event::Say),
        1 => prop::sample::select(vec!["safe", "paper"]).prop_map(Event::Mode),
    ], 1..80)) {
        let mut config = config("safe");
        let mut rig = Rig::new(&config);
        (1..4).for_each(|port| open(&mut rig, port));
        let (mut arrived, mut got) = ([0u32; 4], vec![Vec::new(); 4]);
        let take = |rig: &Rig, got: &mut Vec<Vec<Vec<u8>>>| {
            for (_, bytes) in rig.delivered() {
                got[usize::from(u16::from_be_bytes([bytes[34], bytes[35]]))].push(bytes);
            }
        };
        for event in events {
            match event {
                Event::Arrive(port, n) => {
                    let next = &mut arrived[usize::from(port)];
                    (*next..*next + n).for_each(|n| rig.arrive(&segment(port, n)));
                    *next += n;
                }
                Event::Refuse(errno) => rig.errno.store(errno, Ordering::Relaxed),
                Event::Turn => _ = rig.turn(),
                Event::Wait(time) => rig.now += time,
                Event::Say(port) => {
                    take(&rig, &mut got);
                    let own = &got[usize::from(port)];
                    let bytes: usize = own.iter().map(|b| read(b).1.len()).sum();
                    says(&mut rig, port, bytes as u32 / 1000);
                }
                Event::Mode(mode) => {
                    set_mode(&mut config, mode);
                    rig.handle.reconfigure(&config);
                }
            }
            let sent = rig.sent();
            for port in 1..4 {
                let said = acknowledged(&sent, port).into_iter().max().unwrap_or(0);
                prop_assert!(said <= arrived[usize::from(port)] * 1000);
            }
        }
        rig.errno.store(0, Ordering::Relaxed);
        rig.settle();
        take(&rig, &mut got);
        for port in 1..4 {
            let own = stream(got[port].iter().map(|b| &b[..]));
            prop_assert!(own == pattern(0, arrived[port] as usize * 1000));
        }
        prop_assert_eq!(rig.group("host_drop"), 0);
    }
}
