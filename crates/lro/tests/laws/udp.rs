//! UDP: what Linux joins for forwarding (`udp_gro_receive_segment`), cut again to the datagrams that
//! came, never later than the burst's end and never out of order.

use lro::{Config, Discard, Flush, Pass, Profile, RxChecksum};
use proptest::prelude::*;
use testkit::packet::{PacketBuilder, SOURCE_MAC, pattern};
use testkit::verify;
use wire::{FlowHash, GsoType, protocol};

use super::delivery::cut;
use super::run::{Frame, Joined, Out, Run, Step, run};

/// What is there besides the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Plain,
    NoChecksum,
    WrongChecksum,
    WrongIpChecksum,
    /// Frames of the same machine: what the port says of the checksum.
    Partial(RxChecksum),
    Padded(usize),
    /// The UDP header tells of less than the IP header.
    Less,
    /// .. of more.
    More,
    IpOptions,
    Fragment,
    /// IPv6 destination options.
    Extension,
    /// .. so long that the headers are not kept.
    LongExtension,
}

/// One datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Datagram {
    /// Flows are told apart by their number; odd ones are IPv6.
    flow: u16,
    len: usize,
    kind: Kind,
    header: Header,
    id: u16,
}

/// What the datagrams of an aggregate have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    ttl: u8,
    tos: u8,
    /// IPv4 only.
    dont_fragment: bool,
    /// IPv6 only.
    label: u32,
    vlan: Option<u16>,
    mac: u8,
}

const USUAL: Header = Header { ttl: 64, tos: 0, dont_fragment: true, label: 7, vlan: None, mac: 1 };

impl Datagram {
    fn v6(&self) -> bool {
        self.flow % 2 == 1
    }

    fn step(&self) -> Step {
        let Header { ttl, tos, dont_fragment, label, vlan, mac } = self.header;
        let packet = if self.v6() { PacketBuilder::udp6() } else { PacketBuilder::udp4() };
        let packet = packet.ports(self.flow, 9).ttl(ttl).tos(tos).id(self.id).flow_label(label);
        let packet = packet.dont_fragment(dont_fragment);
        let packet = packet.macs([2, 0, 0, 0, 0, mac], SOURCE_MAC);
        let packet = vlan.into_iter().fold(packet, PacketBuilder::vlan);
        let packet = packet.payload(&pattern(usize::from(self.id) * 1000, self.len));
        let mut checksum = RxChecksum::Unverified;
        let packet = match self.kind {
            Kind::Plain | Kind::Less | Kind::More => packet,
            Kind::NoChecksum => packet.zero_checksum(),
            Kind::WrongChecksum => packet.wrong_checksum(),
            Kind::WrongIpChecksum => packet.wrong_ip_checksum(),
            Kind::Partial(known) => {
                checksum = known;
                packet.partial_checksum()
            }
            Kind::Padded(len) => packet.padding(len),
            Kind::IpOptions => packet.ip_options(&[1; 4]),
            Kind::Fragment => packet.fragment(0, true),
            Kind::Extension => packet.extension(protocol::DESTINATION, 8),
            Kind::LongExtension => packet.extension(protocol::DESTINATION, 80),
        };
        let mut bytes = packet.build();
        if matches!(self.kind, Kind::Less | Kind::More) {
            let at = packet.transport_at() + 4;
            let len = (8 + self.len) as u16;
            let len = if self.kind == Kind::Less { len - 1 } else { len + 1 };
            bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
        }
        Step::Frame(Frame { bytes, checksum })
    }

    /// Bytes of the IP packet's headers.
    fn headers(&self) -> usize {
        8 + usize::from(self.is_extended()) * 8 + if self.v6() { 40 } else { 20 }
    }

    /// What becomes of it, if it is not one to be joined.
    fn refused(&self) -> Option<Result<Pass, Discard>> {
        use wire::Malformed;
        let v6 = self.v6();
        Some(match self.kind {
            Kind::Fragment => Ok(Pass::Fragment),
            Kind::More => Ok(Pass::Malformed(Malformed::UdpLength)),
            Kind::Less if self.len == 0 => Ok(Pass::Malformed(Malformed::UdpLength)),
            Kind::Less | Kind::NoChecksum => Ok(Pass::UdpAlone),
            _ if self.len == 0 => Ok(Pass::UdpAlone),
            Kind::IpOptions if !v6 => Ok(Pass::IpOptions),
            Kind::WrongIpChecksum if !v6 => Err(Discard::IpChecksum),
            Kind::WrongChecksum => Err(Discard::UdpChecksum),
            Kind::Partial(RxChecksum::Unverified) => Err(Discard::UdpChecksum),
            Kind::LongExtension if v6 => Ok(Pass::LongHeader),
            _ => return None,
        })
    }

    /// IPv4 has no extension headers: [`Kind::Extension`] is a plain datagram there.
    fn is_extended(&self) -> bool {
        self.kind == Kind::Extension && self.v6()
    }
}

/// What one flow holds, and since when.
#[derive(Default)]
struct HeldFlow {
    run: Vec<(usize, Datagram)>,
    since: u64,
}

impl HeldFlow {
    fn may_join(&self, new: &Datagram, config: &Config) -> bool {
        let (first, last) = (&self.run[0].1, &self.run[self.run.len() - 1].1);
        let mut header = new.header;
        if new.v6() {
            header.dont_fragment = first.header.dont_fragment;
        } else {
            header.label = first.header.label;
        }
        let up = new.id == last.id.wrapping_add(1);
        let same = new.id == last.id;
        let steps = self.run.windows(2).map(|two| two[0].1.id != two[1].1.id).next();
        let id = new.v6() || steps.map_or(up || same, |moves| if moves { up } else { same });
        header == first.header
            && new.is_extended() == first.is_extended()
            && new.len <= first.len
            && id
            && self.len() + new.len <= config.max_aggregate as usize
            && self.run.len() < config.max_segments as usize
    }

    /// Bytes of the IP packet.
    fn len(&self) -> usize {
        self.run[0].1.headers() + self.run.iter().map(|(_, d)| d.len).sum::<usize>()
    }

    fn is_complete(&self, config: &Config) -> bool {
        let (first, last) = (&self.run[0].1, &self.run[self.run.len() - 1].1);
        last.len < first.len || self.run.len() >= 64.min(config.max_segments as usize)
    }
}

#[derive(Clone, Debug)]
enum Move {
    Datagram(Datagram),
    Other(Step),
}

/// What comes out: which frames, and during which step.
fn expected(config: &Config, moves: &[Move]) -> Vec<(Vec<usize>, usize)> {
    let mut flows: Vec<HeldFlow> = (0..FLOWS).map(|_| HeldFlow::default()).collect();
    let mut out = Vec::new();
    let mut now = 0;
    let release = |held: &mut HeldFlow, step: usize, out: &mut Vec<_>| {
        let run: Vec<usize> = std::mem::take(&mut held.run).into_iter().map(|(at, _)| at).collect();
        if !run.is_empty() {
            out.push((run, step));
        }
    };
    for (step, one) in moves.iter().enumerate() {
        match one {
            Move::Datagram(new) => match new.refused() {
                _ if !config.udp => out.push((vec![step], step)),
                Some(Err(_)) => {}
                Some(Ok(why)) => {
                    // A fragment may be of any flow.
                    for (flow, held) in flows.iter_mut().enumerate() {
                        if why == Pass::Fragment
                            || flow == usize::from(new.flow) && !matches!(why, Pass::Malformed(_))
                        {
                            release(held, step, &mut out);
                        }
                    }
                    out.push((vec![step], step));
                }
                None => {
                    let held = &mut flows[usize::from(new.flow)];
                    if !held.run.is_empty() && !held.may_join(new, config) {
                        release(held, step, &mut out);
                    }
                    if held.run.is_empty() {
                        held.since = now;
                    }
                    held.run.push((step, new.clone()));
                    if held.is_complete(config) {
                        release(held, step, &mut out);
                    }
                }
            },
            Move::Other(Step::Wait(time)) => {
                now += time;
                for held in &mut flows {
                    if now >= held.since + config.max_timeout {
                        release(held, step, &mut out);
                    }
                }
            }
            Move::Other(_) => flows.iter_mut().for_each(|held| release(held, step, &mut out)),
        }
    }
    flows.iter_mut().for_each(|held| release(held, moves.len(), &mut out));
    out.sort();
    out
}

const FLOWS: u16 = 4;

fn kinds() -> impl Strategy<Value = Kind> {
    let known = prop::sample::select(vec![
        RxChecksum::Unverified,
        RxChecksum::MaybePartial,
        RxChecksum::Verified,
    ]);
    prop_oneof![
        60 => Just(Kind::Plain),
        1 => Just(Kind::NoChecksum),
        1 => Just(Kind::WrongChecksum),
        1 => Just(Kind::WrongIpChecksum),
        4 => known.prop_map(Kind::Partial),
        2 => (1usize..30).prop_map(Kind::Padded),
        1 => Just(Kind::Less),
        1 => Just(Kind::More),
        1 => Just(Kind::IpOptions),
        1 => Just(Kind::Fragment),
        4 => Just(Kind::Extension),
        1 => Just(Kind::LongExtension),
    ]
}

fn headers() -> impl Strategy<Value = Header> {
    prop_oneof![
        40 => Just(USUAL),
        1 => any::<u8>().prop_map(|ttl| Header { ttl, ..USUAL }),
        1 => any::<u8>().prop_map(|tos| Header { tos, ..USUAL }),
        1 => Just(Header { dont_fragment: false, ..USUAL }),
        1 => (0u32..0x10_0000).prop_map(|label| Header { label, ..USUAL }),
        1 => (0u16..3).prop_map(|vlan| Header { vlan: Some(vlan), ..USUAL }),
        1 => any::<u8>().prop_map(|mac| Header { mac, ..USUAL }),
    ]
}

/// Datagrams of some flows; the IDs of a flow count up, stay or jump.
fn moves() -> impl Strategy<Value = Vec<Move>> {
    let len = prop_oneof![20 => Just(200usize), 2 => Just(199usize), 2 => 1usize..1400,
        1 => Just(0usize), 1 => 9000usize..20_000];
    let datagram = (
        0..FLOWS,
        len,
        kinds(),
        headers(),
        prop_oneof![20 => Just(1u16), 4 => Just(0u16), 1 => any::<u16>()],
    );
    let other = prop_oneof![
        1 => Just(Step::BurstEnds),
        1 => Just(Step::Idle),
        1 => Just(Step::FlushAll),
        1 => Just(Step::Interrupt),
        3 => (0u64..300).prop_map(Step::Wait),
    ];
    let one = prop_oneof![
        12 => (datagram, 1usize..70).prop_map(|(datagram, count)| Ok((datagram, count))),
        2 => other.prop_map(|step| Err(Box::new(step))),
    ];
    proptest::collection::vec(one, 1..40).prop_map(|all| {
        let mut ids = [0xfff0u16; FLOWS as usize];
        let mut moves = Vec::new();
        for one in all {
            match one {
                Ok(((flow, len, kind, header, step), count)) => {
                    let count = if kind == Kind::Plain { count } else { 1 };
                    for _ in 0..count {
                        let id = &mut ids[usize::from(flow)];
                        *id = id.wrapping_add(step);
                        moves.push(Move::Datagram(Datagram { flow, len, kind, header, id: *id }));
                    }
                }
                Err(step) => moves.push(Move::Other(*step)),
            }
        }
        moves
    })
}

fn configs() -> impl Strategy<Value = Config> {
    (
        prop_oneof![Just(Profile::Endpoint), Just(Profile::Lossless)],
        prop_oneof![3 => Just(65_535u32), 1 => 500u32..65_536],
        prop_oneof![3 => Just(512u32), 1 => 2u32..20],
        (1u64..1000, any::<bool>(), prop::bool::weighted(0.9)),
    )
        .prop_map(
            |(profile, max_aggregate, max_segments, (max_timeout, flush_on_psh, udp))| Config {
                profile,
                max_aggregate,
                max_segments,
                // Whatever the intervals, no flow counts as idle before its deadline.
                min_timeout: max_timeout,
                max_timeout,
                flush_on_psh,
                udp,
                ..Config::default()
            },
        )
}

fn steps(moves: &[Move]) -> Vec<Step> {
    let step = |one: &Move| match one {
        Move::Datagram(datagram) => datagram.step(),
        Move::Other(step) => step.clone(),
    };
    moves.iter().map(step).collect()
}

/// A frame as it is to come out: without padding, with a complete checksum.
fn whole(moves: &[Move], at: usize) -> Vec<u8> {
    let Move::Datagram(datagram) = &moves[at] else { panic!("no datagram") };
    let mut whole = datagram.clone();
    if matches!(whole.kind, Kind::Partial(_) | Kind::Padded(_)) {
        whole.kind = Kind::Plain;
    }
    let Step::Frame(frame) = whole.step() else { unreachable!() };
    frame.bytes
}

fn check_aggregate(joined: &Joined, moves: &[Move]) -> Result<(), TestCaseError> {
    prop_assert_eq!(joined.vnet.gso_type, GsoType::UdpL4);
    prop_assert!((2..=64).contains(&joined.frames.len()));
    let parts = cut(joined);
    prop_assert_eq!(parts.len(), joined.frames.len());
    for (at, part) in joined.frames.iter().zip(parts) {
        prop_assert!(part == whole(moves, *at), "datagram {at} is another");
        prop_assert_eq!(verify::checksums(&part), Ok(()));
    }
    Ok(())
}

/// Each flow's datagrams come out as they came in, but for what is none.
fn check_order(run: &Run, moves: &[Move]) -> Result<(), TestCaseError> {
    let mut latest = [None; FLOWS as usize];
    for at in run.groups().into_iter().flatten() {
        let Move::Datagram(datagram) = &moves[at] else { panic!("no datagram") };
        if !matches!(datagram.refused(), Some(Ok(Pass::Malformed(_)))) {
            let before = latest[usize::from(datagram.flow)].replace(at);
            prop_assert!(before < Some(at), "{} after {:?}", at, before);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn datagrams_are_joined_as_linux_does_and_cut_to_what_came(
        config in configs(),
        moves in moves(),
    ) {
        let steps = steps(&moves);
        let run = run(&config, &steps);
        for joined in run.joined() {
            check_aggregate(joined, &moves)?;
        }
        check_order(&run, &moves)?;
        let mut groups: Vec<(Vec<usize>, usize)> = Vec::new();
        for event in &run.events {
            match &event.out {
                Out::Discarded(at, why) => {
                    let Move::Datagram(datagram) = &moves[*at] else { panic!("no datagram") };
                    prop_assert_eq!(datagram.refused(), Some(Err(*why)));
                }
                Out::Passed(at, why) => {
                    let Move::Datagram(datagram) = &moves[*at] else { panic!("no datagram") };
                    let refused = datagram.refused().unwrap_or(Ok(Pass::Alone));
                    let is = match refused {
                        Ok(Pass::Fragment | Pass::Malformed(_)) => refused,
                        _ if config.udp => refused,
                        _ => Ok(Pass::NotTcp),
                    };
                    prop_assert_eq!(is, Ok(*why));
                    groups.push((vec![*at], event.step));
                }
                Out::Joined(joined) => groups.push((joined.frames.clone(), event.step)),
            }
        }
        groups.sort();
        prop_assert_eq!(groups, expected(&config, &moves));
    }
}

fn datagrams(lens: &[usize]) -> Vec<Step> {
    let one = |(id, len): (u16, &usize)| {
        Datagram { flow: 0, len: *len, kind: Kind::Plain, header: USUAL, id }.step()
    };
    (0..).zip(lens).map(one).collect()
}

const UDP: Config = Config {
    profile: Profile::Endpoint,
    max_aggregate: 65_535,
    max_segments: 512,
    timeout_factor: 10,
    min_timeout: 20_000,
    max_timeout: 500_000,
    hole_timeout: 500_000,
    min_hole_timeout: 500_000,
    flush_on_psh: true,
    active_ack: lro::ActiveAck::Off,
    udp: true,
    flows: 16,
    held_frames: 256,
    flow_hash: FlowHash::from_seed(1),
};

#[test]
fn a_shorter_one_is_the_last_and_sixty_four_are_enough() {
    let run = run(&UDP, &datagrams(&[500, 500, 499, 500, 501, 1]));
    assert_eq!(run.groups(), [vec![0, 1, 2], vec![3], vec![4, 5]]);
    let run = self::run(&UDP, &datagrams(&[100; 130]));
    let sizes: Vec<usize> = run.groups().iter().map(Vec::len).collect();
    assert_eq!(sizes, [64, 64, 2]);
    assert_eq!(run.counters.flushed[Flush::Size as usize], 2);
    assert_eq!((run.counters.aggregates, run.counters.merged), (3, 130));
    assert_eq!(run.counters.aggregate_bytes, 13_000);
}

/// TCP and UDP of the same addresses and ports are two flows.
#[test]
fn tcp_is_another_flow() {
    let mut steps = Vec::new();
    for n in 0..4 {
        let udp = PacketBuilder::udp4().id(n).payload_pattern(100);
        let tcp = PacketBuilder::tcp4().seq(1 + 100 * u32::from(n)).payload_pattern(100);
        steps.extend([udp, tcp].map(|packet| Step::Frame(packet.build().into())));
    }
    let mut groups = run(&UDP, &steps).groups();
    groups.sort();
    assert_eq!(groups, [[0, 2, 4, 6], [1, 3, 5, 7]]);
}

/// What fills the largest aggregate to its last byte is let in, one byte less of room is not. Only
/// IPv6 has extension headers that count: the model once saw one on an IPv4 datagram, too, and
/// wanted the last of these alone (the kernel's answers: `kernel/datagrams.rs`).
#[test]
fn the_last_that_fits_is_let_in_whatever_is_asked_of_the_first() {
    for (flow, headers) in [(0, 20 + 8), (1, 40 + 8 + 8)] {
        let kind = |id| if id == 0 || flow == 1 { Kind::Extension } else { Kind::Plain };
        let one = |id| Datagram { flow, len: 200, kind: kind(id), header: USUAL, id };
        let moves: Vec<Move> = (0..49).map(|id| Move::Datagram(one(id))).collect();
        for (room, sizes) in [(0, &[49][..]), (1, &[48, 1])] {
            let max_aggregate = headers + 49 * 200 - room;
            let config = Config { max_aggregate, ..UDP };
            let groups = run(&config, &steps(&moves)).groups();
            assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
            let expected = expected(&config, &moves);
            assert!(expected.iter().map(|(group, _)| group).eq(&groups), "{expected:?}");
        }
    }
}

/// The largest that fit: 65,535 bytes of IP packet.
#[test]
fn large_datagrams_are_joined_as_far_as_an_ip_packet_reaches() {
    let groups = |lens: &[usize]| {
        run(&UDP, &datagrams(lens)).groups().iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(groups(&[32_753, 32_753]), [2]); // not 1 more
    assert_eq!(groups(&[32_754, 32_754]), [1, 1]);
    assert_eq!(groups(&[32_754, 32_753]), [2]);
    assert_eq!(groups(&[65_507, 1]), [1, 1]);
}
