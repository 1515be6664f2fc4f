//! The endpoint as a host, packet by packet: what it answers, and why it answers not.

use std::net::IpAddr;
use std::sync::Arc;

use iface::{Address, Addresses, Dropped, Interface};
use lro::RxChecksum;
use tcp::{Config, Stack, StackConfig};
use testkit::packet::PacketBuilder;
use testkit::verify::checksums;
use wire::arp::{self, Arp};
use wire::{Flags, Headers, Tcp, VirtioNetHdr, ndp};

use super::Arrived;
use super::node::{Node, Progress};
use crate::app::{App, Role, Service, Services, Share, Work};
use crate::port::slice;
use crate::wire_queue::{Packet, TxQueue};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OWN4: [u8; 4] = [10, 0, 0, 2];
const PEER4: [u8; 4] = [10, 0, 0, 1];
const OWN6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const PEER6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const SECOND: u64 = 1_000_000_000;

/// What a node sends, as it sends it.
#[derive(Default)]
struct Way(Vec<(VirtioNetHdr, Vec<u8>)>);

impl TxQueue for Way {
    fn has_room(&self) -> bool {
        true
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let [first, second] = packet.payload;
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let (first, second) = (slice(first, &mut one), slice(second, &mut two));
        self.0.push((packet.vnet, [packet.header, first, second].concat()));
    }
}

/// A node that listens on port 7.
struct World {
    node: Node,
    way: Way,
    now: u64,
}

impl World {
    fn new() -> Self {
        let own = |ip: IpAddr, prefix_len| Address { ip, prefix_len };
        let addresses = vec![own(OWN4.into(), 24), own(OWN6.into(), 64)];
        let addresses = Addresses::new(addresses, Vec::new()).unwrap();
        let config = StackConfig { secret: [1; 16], half_open: 100, connections: 1000 };
        let mut stack = Stack::new(config);
        stack.listen(None, 7, Arc::new(Config::default())).unwrap();
        let config = iface::Config { mac: OWN, addresses, secret: [2; 16], probes: 0 };
        World { node: Node::new(Interface::new(config), stack), way: Way::default(), now: SECOND }
    }

    /// What it answers.
    fn say(&mut self, frame: &[u8]) -> Vec<(VirtioNetHdr, Vec<u8>)> {
        let checksum = RxChecksum::Unverified;
        self.node.receive(
            Arrived { bytes: frame, rest: &[], checksum, gso_size: 0 },
            &mut (),
            self.now,
        );
        self.answers()
    }

    fn answers(&mut self) -> Vec<(VirtioNetHdr, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            self.node.on_time(self.now);
            let progress = self.node.transmit(&mut self.way, self.now, (16, usize::MAX), &mut ());
            all.append(&mut self.way.0);
            if progress == Progress::Nothing {
                return all;
            }
        }
    }

    /// It says nothing, for this reason.
    fn drops(&mut self, frame: &[u8], why: Dropped) {
        let before = self.node.interface.counters().dropped;
        let answers = self.say(frame);
        assert_eq!(answers.len(), 0, "{why:?}");
        for reason in Dropped::ALL {
            let count =
                self.node.interface.counters().dropped[reason as usize] - before[reason as usize];
            assert_eq!(count, u64::from(reason == why), "{reason:?} instead of {why:?}");
        }
    }

    /// The peer says where it is.
    fn introduce(&mut self) {
        self.say(&Arp::request((PEER, PEER4.into()), OWN4.into(), None));
        self.say(&ndp::solicitation((PEER, PEER6.into()), OWN6.into(), None));
    }
}

fn syn4() -> PacketBuilder {
    let syn = PacketBuilder::tcp4().macs(PEER, OWN).addresses4(PEER4, OWN4).ports(4000, 7);
    syn.flags(Flags::SYN).ack(0).payload(&[])
}

fn syn6() -> PacketBuilder {
    let syn = PacketBuilder::tcp6().macs(PEER, OWN).addresses6(PEER6, OWN6).ports(4000, 7);
    syn.flags(Flags::SYN).ack(0).payload(&[])
}

/// An ICMP message in a packet to the node.
fn icmp(v6: bool, message: &[u8]) -> Vec<u8> {
    let builder = match v6 {
        true => PacketBuilder::ip6(58).addresses6(PEER6, OWN6),
        false => PacketBuilder::ip4(1).addresses4(PEER4, OWN4),
    };
    let mut frame = builder.macs(PEER, OWN).payload(message).build();
    let at = if v6 { 54 } else { 34 };
    frame[at + 2..at + 4].fill(0);
    let mut sum = wire::checksum::sum(&frame[at..]);
    if v6 {
        let len = frame.len() - at;
        sum = sum.plus(wire::checksum::pseudo_v6(&frame[22..54], 58, len));
    }
    frame[at + 2..at + 4].copy_from_slice(&sum.complement().to_be_bytes());
    frame
}

/// The segment that a frame carries; its checksum is left to be completed.
fn segment(packet: &(VirtioNetHdr, Vec<u8>)) -> Tcp<&[u8]> {
    let (vnet, bytes) = packet;
    assert!(vnet.needs_csum);
    let mut complete = bytes.clone();
    gso::complete_checksum(&mut complete, vnet).unwrap();
    checksums(&complete).unwrap();
    Tcp::new(&bytes[Headers::parse(bytes).unwrap().transport_at..]).unwrap()
}

#[test]
fn who_asks_for_its_address_gets_it_and_is_known() {
    let mut world = World::new();
    let answers = world.say(&Arp::request((PEER, PEER4.into()), OWN4.into(), None));
    assert_eq!((answers.len(), answers[0].1.len()), (1, arp::FRAME_LEN));
    assert_eq!(answers[0].1[..12], [PEER, OWN].concat());
    let answers = world.say(&ndp::solicitation((PEER, PEER6.into()), OWN6.into(), None));
    assert_eq!(answers[0].1[..12], [PEER, OWN].concat());
    checksums(&answers[0].1).unwrap();
    for syn in [syn4(), syn6()] {
        let answers = world.say(&syn.build());
        assert_eq!(answers.len(), 1, "a SYN-ACK, and no question where the peer is");
        assert_eq!(segment(&answers[0]).flags(), Flags::SYN.with(Flags::ACK));
        assert_eq!(answers[0].1[..12], [PEER, OWN].concat());
    }
}

#[test]
fn an_answer_waits_until_it_is_known_where_to() {
    let mut world = World::new();
    let answers = world.say(&syn4().build());
    assert_eq!(answers.len(), 1);
    let question = Arp::parse(&answers[0].1[14..]).unwrap();
    assert_eq!((question.target.octets(), question.sender.octets()), (PEER4, OWN4));
    world.now += SECOND;
    assert_eq!(world.answers().len(), 1, "the question again; another SYN-ACK waits");
    let answers = world.say(&question.reply(PEER));
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0].1[..6], PEER);
    assert_eq!(segment(&answers[0]).flags(), Flags::SYN.with(Flags::ACK));

    let answers = world.say(&syn6().build());
    let question = &answers[0].1;
    checksums(question).unwrap();
    assert_eq!(question[..6], [0x33, 0x33, 0xff, 0, 0, 1]);
    let answers = world.say(&ndp::advertisement(PEER, PEER6.into(), Some((OWN6.into(), OWN))));
    assert_eq!(segment(&answers[0]).flags(), Flags::SYN.with(Flags::ACK));
}

#[test]
fn an_echo_request_is_answered_with_what_it_brought() {
    let mut world = World::new();
    world.introduce();
    for v6 in [false, true] {
        let message = [&[if v6 { 128 } else { 8 }, 0, 0, 0, 1, 2, 3, 4][..], &[7; 1001]].concat();
        let answers = world.say(&icmp(v6, &message));
        let reply = &answers[0].1;
        let at = if v6 { 54 } else { 34 };
        assert_eq!((reply[at], &reply[at + 4..]), (if v6 { 129 } else { 0 }, &message[4..]));
        assert_eq!(reply[..12], [PEER, OWN].concat());
        let mut sum = wire::checksum::sum(&reply[at..]);
        if v6 {
            let len = reply.len() - at;
            sum = sum.plus(wire::checksum::pseudo_v6(&reply[22..54], 58, len));
        }
        assert_eq!(sum.fold(), 0xffff);
    }
}

#[test]
fn what_is_not_for_it_or_not_right_is_dropped_for_a_reason() {
    let mut world = World::new();
    world.introduce();
    let other = [2, 0, 0, 0, 0, 9];
    world.drops(&syn4().macs(PEER, other).build(), Dropped::OtherHost);
    world.drops(&syn4().vlan(5).build(), Dropped::Vlan);
    world.drops(&[&OWN[..], &PEER, &[0x88, 0xb5], &[0; 46]].concat(), Dropped::NotIp);
    world.drops(&OWN[..5], Dropped::Malformed);
    world.drops(&syn4().build()[..50], Dropped::Malformed);
    world.drops(&syn4().fragment(0, true).build(), Dropped::Fragment);
    world.drops(&syn4().wrong_ip_checksum().build(), Dropped::IpChecksum);
    world.drops(&syn4().wrong_checksum().build(), Dropped::TcpChecksum);
    world.drops(&syn6().wrong_checksum().build(), Dropped::TcpChecksum);
    for v6 in [false, true] {
        let mut damaged = icmp(v6, &[if v6 { 128 } else { 8 }, 0, 0, 0, 1, 2, 3, 4]);
        *damaged.last_mut().unwrap() ^= 1;
        world.drops(&damaged, Dropped::IcmpChecksum);
        world.drops(&icmp(v6, &[200, 0, 0, 0, 0, 0, 0, 0]), Dropped::Icmp);
    }
    world.drops(&syn4().addresses4(PEER4, [10, 0, 0, 3]).build(), Dropped::OtherAddress);
    world.drops(&syn4().addresses4([224, 0, 0, 1], OWN4).build(), Dropped::BadSource);
    world.drops(&syn4().addresses4(OWN4, OWN4).build(), Dropped::BadSource);
    world.drops(&syn6().addresses6([0; 16], OWN6).build(), Dropped::BadSource);
    let udp = PacketBuilder::udp4().macs(PEER, OWN).addresses4(PEER4, OWN4);
    world.drops(&udp.payload(&[1; 20]).build(), Dropped::Protocol);
    let elsewhere = Arp::request((PEER, PEER4.into()), [10, 0, 0, 77].into(), None);
    world.drops(&elsewhere, Dropped::Arp);
    world.drops(&syn4().addresses4([192, 0, 2, 1], OWN4).build(), Dropped::NoRoute);
    assert_eq!(world.node.counters.segments_in.frames, 1, "the last one");
}

/// The network's word is handed to the connection that it is about, and to no other.
#[test]
fn an_icmp_error_reaches_the_engine() {
    let mut world = World::new();
    world.introduce();
    let answers = world.say(&syn4().build());
    let quoted = &answers[0].1[14..42];
    for (code, word) in [(1, 0_u32), (4, 1300)] {
        let message = [&[3, code, 0, 0][..], &word.to_be_bytes(), quoted].concat();
        assert_eq!(world.say(&icmp(false, &message)).len(), 0);
    }
    assert_eq!(world.node.interface.counters().icmp_errors, 2);
    assert_eq!(world.node.stack.counters().bad_icmp, 0);
    let mut of_others = quoted.to_vec();
    of_others[15] = 77;
    let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &of_others].concat();
    world.drops(&icmp(false, &message), Dropped::Icmp);
}

#[test]
fn it_tells_all_neighbours_where_it_is() {
    let mut world = World::new();
    world.node.interface.start(world.now);
    let said = world.answers();
    assert_eq!(said.len(), 2);
    let arp = Arp::parse(&said[0].1[14..]).unwrap();
    assert_eq!((arp.sender.octets(), arp.target.octets()), (OWN4, OWN4));
    assert_eq!(said[1].1[..6], [0x33, 0x33, 0, 0, 0, 1]);
}

/// Of a packet in pieces, whose checksum was not verified, each byte counts.
#[test]
fn a_packet_in_pieces_is_verified_if_need_be() {
    let mut world = World::new();
    let data = syn4().flags(Flags::ACK).ack(1).payload_pattern(1001);
    for (frame, right) in [(data.build(), true), (data.wrong_checksum().build(), false)] {
        let (bytes, rest) = frame.split_at(101);
        let (checksum, before) = (RxChecksum::Unverified, world.node.counters.segments_in.frames);
        world.node.receive(
            Arrived { bytes, rest: &[rest], checksum, gso_size: 0 },
            &mut (),
            world.now,
        );
        let taken = world.node.counters.segments_in.frames - before;
        assert_eq!(taken, u64::from(right));
    }
    assert_eq!(world.node.interface.counters().dropped[Dropped::TcpChecksum as usize], 1);
}

/// What is behind an urgent byte is read as well.
#[test]
fn an_urgent_byte_bars_nobodys_way() {
    let mut world = World::new();
    world.introduce();
    let work = Work { service: Service::Echo, bytes: None, verify: false };
    let share = Share { number: 0, of: 1 };
    let what = (work, Role::Listen { port: 7 }, None);
    let mut apps = Services::new(what, share, Arc::new(Config::default()), None);
    let answers = world.say(&syn4().seq(1000).build());
    let ack = segment(&answers[0]).seq().0 + 1;
    let data = syn4().seq(1001).ack(ack).flags(Flags::ACK.with(Flags::URG).with(Flags::PSH));
    let frame = data.urgent(2).payload(b"abc").build();
    let checksum = RxChecksum::Unverified;
    let arrived = Arrived { bytes: &frame, rest: &[], checksum, gso_size: 0 };
    world.node.receive(arrived, &mut (), world.now);
    apps.serve(&mut world.node.stack, world.now);
    let said: Vec<u8> = world
        .answers()
        .iter()
        .flat_map(|(_, bytes)| bytes[Headers::parse(bytes).unwrap().payload_at..].to_vec())
        .collect();
    assert_eq!(said, b"ac");
}

/// A hole and ten segments behind it, in one batch: without SACK a duplicate acknowledgment for each, with it
/// three and one for all others, as from a kernel that gets them one by one (RFC 5681 section 4.2).
#[test]
fn a_batch_behind_a_hole_is_answered_segment_by_segment() {
    for (options, duplicates) in [(&[][..], 10), (&[1, 1, 4, 2], 4)] {
        let mut world = World::new();
        world.introduce();
        let answers = world.say(&syn4().seq(1000).options(options).build());
        let ack = segment(&answers[0]).seq().0 + 1;
        let data = |seq| syn4().seq(seq).ack(ack).flags(Flags::ACK).options(&[]);
        world.say(&data(1001).build());
        for number in 1..=10 {
            let frame = data(1001 + 500 * number).payload_pattern(500).build();
            let checksum = RxChecksum::Unverified;
            world.node.receive(
                Arrived { bytes: &frame, rest: &[], checksum, gso_size: 0 },
                &mut (),
                world.now,
            );
        }
        let answers = world.answers();
        assert_eq!(answers.len(), duplicates);
        for answer in &answers {
            let (header, first) = (segment(answer), segment(&answers[0]));
            assert_eq!((header.ack().0, header.window()), (1001, first.window()));
        }
    }
}

/// Six hundred connections are refused at once: each turn goes on with some, and says so until none is left.
#[test]
fn a_turn_serves_a_bounded_number_of_connections() {
    const CONNECTIONS: u32 = 600;
    let mut world = World::new();
    world.introduce();
    let work = Work { service: Service::Sink, bytes: None, verify: false };
    let role = Role::Connect { to: (PEER4, 80).into(), connections: CONNECTIONS };
    let share = Share { number: 0, of: 1 };
    let mut apps = Services::new((work, role, None), share, Arc::new(Config::default()), None);
    let World { node, now, .. } = &mut world;
    apps.begin(&mut node.stack, &node.interface, &mut |_| true, *now).unwrap();
    let syns = world.answers();
    assert_eq!(syns.len(), CONNECTIONS as usize);
    for syn in &syns {
        let (port, ack) = (segment(syn).source(), segment(syn).seq().0 + 1);
        let reset = syn4().ports(80, port).flags(Flags::RST.with(Flags::ACK)).ack(ack);
        world.say(&reset.build());
    }
    let mut ended = vec![0];
    while apps.serve(&mut world.node.stack, world.now) {
        ended.push(apps.counters().ended);
    }
    assert_eq!(ended.last(), Some(&u64::from(CONNECTIONS)));
    assert!(ended.windows(2).all(|pair| pair[1] - pair[0] <= 256), "{ended:?}");
}
