//! The laws of the offloads, over captures: what is joined and cut again is what it was, what is
//! joined carries the same bytes, what is cut fits.

use std::collections::BTreeMap;

use nic::capture::{self, Packet};
use nic::config::Config;
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::packet::{PacketBuilder, pattern};
use testkit::verify;
use wire::{Flags, Headers, Network, Tcp, Transport};

/// How a flow's IPv4 IDs move.
#[derive(Clone, Copy, Debug)]
enum Ids {
    Up,
    Fixed,
    Wild,
}

/// What all segments of a flow have in common.
#[derive(Clone, Debug)]
struct Flow {
    ipv6: bool,
    vlan: bool,
    timestamps: bool,
    ids: Ids,
    mss: usize,
    start: u32,
}

/// One segment: of which flow, how long after the one before, and what is odd about it.
#[derive(Clone, Debug)]
struct Step {
    flow: usize,
    gap: u64,
    odd: Odd,
}

#[derive(Clone, Debug)]
enum Odd {
    No,
    Short(usize),
    Flags(u8),
    Gap(u32),
    Repeat,
    Ack(u32),
    Window(u16),
    Clock,
    Tos(u8),
    PureAck,
    Syn,
    WrongChecksum,
    Udp,
}

fn flow() -> impl Strategy<Value = Flow> {
    let ids = prop_oneof![Just(Ids::Up), Just(Ids::Fixed), Just(Ids::Wild)];
    let start = prop_oneof![any::<u32>(), Just(u32::MAX - 3_000)];
    (any::<bool>(), any::<bool>(), any::<bool>(), ids, 1usize..1_460, start).prop_map(
        |(ipv6, vlan, timestamps, ids, mss, start)| Flow {
            ipv6,
            vlan,
            timestamps,
            ids,
            mss,
            start,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let odd = prop_oneof![
        30 => Just(Odd::No),
        1 => (1usize..1_460).prop_map(Odd::Short),
        2 => any::<u8>().prop_map(Odd::Flags),
        1 => (1u32..4_000).prop_map(Odd::Gap),
        1 => Just(Odd::Repeat),
        1 => (1u32..10_000).prop_map(Odd::Ack),
        1 => any::<u16>().prop_map(Odd::Window),
        1 => Just(Odd::Clock),
        1 => any::<u8>().prop_map(Odd::Tos),
        1 => Just(Odd::PureAck),
        1 => Just(Odd::Syn),
        1 => Just(Odd::Udp),
    ];
    let gap = prop_oneof![9 => 0u64..2_000, 1 => 0u64..300_000];
    (0usize..3, gap, odd).prop_map(|(flow, gap, odd)| Step { flow, gap, odd })
}

/// What a flow has sent so far.
#[derive(Clone, Debug)]
struct State {
    seq: u32,
    ack: u32,
    window: u16,
    clock: u32,
    id: u16,
    sent: usize,
}

/// A capture of three flows.
fn traffic(flows: &[Flow], steps: &[Step]) -> Vec<Packet> {
    let mut time = 1_000_000_000;
    let begin = |flow: &Flow| State {
        seq: flow.start,
        ack: 1,
        window: 500,
        clock: u32::MAX - 2,
        id: u16::MAX - 3,
        sent: 0,
    };
    let mut states: Vec<State> = flows.iter().map(begin).collect();
    let packets = steps.iter().map(|step| {
        time += step.gap;
        let (flow, state) = (&flows[step.flow], &mut states[step.flow]);
        Packet::new(time, segment(step.flow, flow, state, &step.odd))
    });
    packets.collect()
}

fn segment(number: usize, flow: &Flow, state: &mut State, odd: &Odd) -> Vec<u8> {
    let mut len = flow.mss;
    let mut flags = Flags::ACK;
    let mut tos = 0;
    match *odd {
        Odd::No | Odd::WrongChecksum | Odd::Udp => {}
        Odd::Short(short) => len = len.min(short),
        Odd::Flags(more) => flags = flags.with(Flags(more).without(Flags::SYN)),
        Odd::Gap(gap) => state.seq = state.seq.wrapping_add(gap),
        Odd::Repeat => state.seq = state.seq.wrapping_sub(len as u32),
        Odd::Ack(more) => state.ack = state.ack.wrapping_add(more),
        Odd::Window(window) => state.window = window,
        Odd::Clock => state.clock = state.clock.wrapping_add(1),
        Odd::Tos(value) => tos = value,
        Odd::PureAck => len = 0,
        Odd::Syn => (flags, len) = (Flags::SYN, 0),
    }
    let builder = match (flow.ipv6, matches!(odd, Odd::Udp)) {
        (false, false) => PacketBuilder::tcp4(),
        (true, false) => PacketBuilder::tcp6(),
        (false, true) => PacketBuilder::udp4(),
        (true, true) => PacketBuilder::udp6(),
    };
    let mut builder = builder
        .ports(1000 + number as u16, 80)
        .tos(tos)
        .id(state.id)
        .seq(state.seq)
        .ack(state.ack)
        .window(state.window)
        .flags(flags)
        .payload(&pattern(state.sent, len));
    if flow.vlan {
        builder = builder.vlan(7);
    }
    if flow.timestamps {
        builder = builder.timestamps(state.clock, 9);
    }
    if matches!(odd, Odd::WrongChecksum) {
        builder = builder.wrong_checksum();
    }
    state.id = match flow.ids {
        Ids::Up => state.id.wrapping_add(1),
        Ids::Fixed => state.id,
        Ids::Wild => state.id.wrapping_mul(31).wrapping_add(17),
    };
    if !matches!(odd, Odd::Udp) {
        state.seq = state.seq.wrapping_add(len as u32);
        state.sent += len;
    }
    builder.build()
}

/// Ports and protocol tell the flows of `traffic` apart.
fn by_flow(packets: &[Packet]) -> BTreeMap<Vec<u8>, Vec<&[u8]>> {
    let mut flows: BTreeMap<Vec<u8>, Vec<&[u8]>> = BTreeMap::new();
    for packet in packets {
        let headers = Headers::parse(&packet.data).unwrap();
        let mut key = packet.data[headers.transport_at..headers.transport_at + 4].to_vec();
        key.push(u8::from(headers.transport == Transport::Tcp));
        flows.entry(key).or_default().push(&packet.data);
    }
    flows
}

/// A TCP segment, read back.
struct Segment<'a> {
    seq: u32,
    ack: u32,
    window: u16,
    payload: &'a [u8],
}

fn read(frame: &[u8]) -> Option<Segment<'_>> {
    let headers = Headers::parse(frame).unwrap();
    if headers.transport != Transport::Tcp {
        return None;
    }
    let tcp = Tcp::new(&frame[headers.transport_at..headers.end]).unwrap();
    let payload = &frame[headers.payload_at..headers.end];
    Some(Segment { seq: tcp.seq().0, ack: tcp.ack().0, window: tcp.window(), payload })
}

/// What a flow's segments say one after the other: where in the stream, and which bytes; those
/// that follow one another directly are one.
fn stream(frames: &[&[u8]]) -> Vec<(u32, Vec<u8>)> {
    let mut chunks: Vec<(u32, Vec<u8>)> = Vec::new();
    for segment in frames.iter().filter_map(|frame| read(frame)) {
        match chunks.last_mut() {
            _ if segment.payload.is_empty() => {}
            Some((seq, bytes)) if seq.wrapping_add(bytes.len() as u32) == segment.seq => {
                bytes.extend(segment.payload);
            }
            _ => chunks.push((segment.seq, segment.payload.to_vec())),
        }
    }
    chunks
}

fn ip_len(frame: &[u8]) -> usize {
    let headers = Headers::parse(frame).unwrap();
    headers.end - headers.network_at
}

proptest! {
    /// segment(coalesce(x)) is x: every packet comes back bit for bit, in the order of its flow,
    /// whatever else is in the capture.
    #[test]
    fn a_round_trip_restores_every_packet(
        flows in vec(flow(), 3),
        steps in vec(step(), 0..150),
    ) {
        let input = traffic(&flows, &steps);
        let mut output = Vec::new();
        let statistics =
            capture::roundtrip(input.iter().cloned().map(Ok), &Config::default(), &mut output)
                .unwrap();
        prop_assert_eq!(by_flow(&output), by_flow(&input));
        prop_assert_eq!(statistics.counter("pcap", "changed"), 0);
        prop_assert_eq!(
            statistics.counter("pcap", "restored"),
            statistics.counter("lro", "merged")
        );
    }

    /// By either profile: every byte is there once, where it was, under a checksum that verifies,
    /// and the last word on acknowledgment and window is the same.
    #[test]
    fn what_lro_joins_says_the_same(
        flows in vec(flow(), 3),
        steps in vec(step(), 0..150),
        lossless: bool,
    ) {
        let input = traffic(&flows, &steps);
        let mut config = Config::default();
        config.set("lro.profile", if lossless { "lossless" } else { "endpoint" }).unwrap();
        let mut output = Vec::new();
        let statistics =
            capture::lro(input.iter().cloned().map(Ok), &config, &mut output).unwrap();

        for packet in &output {
            prop_assert_eq!(verify::checksums(&packet.data), Ok(()));
        }
        let (before, after) = (by_flow(&input), by_flow(&output));
        prop_assert!(before.keys().eq(after.keys()));
        for (before, after) in before.values().zip(after.values()) {
            prop_assert_eq!(stream(before), stream(after));
            let last = |frames: &[&[u8]]| {
                frames.last().and_then(|frame| read(frame)).map(|s| (s.ack, s.window))
            };
            prop_assert_eq!(last(before), last(after));
        }
        let saved = statistics.counter("lro", "merged") - statistics.counter("lro", "aggregates");
        prop_assert_eq!(statistics.packets_in, statistics.packets_out + saved);
        prop_assert_eq!(statistics.packets_out, output.len() as u64);
    }

    /// No packet is held past its deadline, and none is written before it came.
    #[test]
    fn nothing_is_written_late(
        flows in vec(flow(), 3),
        steps in vec(step(), 0..100),
        timeout in 1_000u64..1_000_000,
    ) {
        let input = traffic(&flows, &steps);
        let mut config = Config::default();
        config.lro.max_timeout = timeout;
        let mut output = Vec::new();
        capture::lro(input.iter().cloned().map(Ok), &config, &mut output).unwrap();
        prop_assert!(output.is_sorted_by_key(|packet| packet.time));

        // The n-th byte of a flow that came in is the n-th that goes out.
        let arrivals = |packets: &[Packet]| {
            let mut times: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
            for packet in packets {
                let headers = Headers::parse(&packet.data).unwrap();
                let key = packet.data[headers.transport_at..headers.transport_at + 4].to_vec();
                let bytes = std::iter::repeat_n(packet.time, headers.payload_len());
                if headers.transport == Transport::Tcp {
                    times.entry(key).or_default().extend(bytes);
                }
            }
            times
        };
        let (came, went) = (arrivals(&input), arrivals(&output));
        for (came, went) in came.values().zip(went.values()) {
            for (came, went) in came.iter().zip(went) {
                prop_assert!(came <= went && *went <= came + timeout);
            }
        }
    }

    /// What is cut fits the MTU, holds all bytes in order, and has checksums that verify.
    #[test]
    fn what_gso_cuts_fits(
        packets in vec((flow(), 0usize..64_000, any::<u8>(), any::<bool>()), 0..12),
        mtu in 200u16..9_001,
    ) {
        let (input, whole): (Vec<Packet>, Vec<Packet>) = packets.iter().enumerate().map(|(number, (flow, len, flags, partial))| {
            let builder = if flow.ipv6 { PacketBuilder::tcp6() } else { PacketBuilder::tcp4() };
            let builder = builder
                .ports(number as u16, 80)
                .seq(flow.start)
                .flags(Flags(*flags))
                .payload(&pattern(0, *len));
            let builder = if flow.timestamps { builder.timestamps(1, 2) } else { builder };
            // As a capture on a host with TSO has it.
            let time = number as u64;
            let whole = Packet::new(time, builder.build());
            let builder = if *partial { builder.partial_checksum() } else { builder };
            (Packet::new(time, builder.build()), whole)
        }).unzip();
        let mut output = Vec::new();
        let statistics = capture::gso(input.iter().cloned().map(Ok), mtu, &mut output).unwrap();

        let (before, after) = (by_flow(&whole), by_flow(&output));
        for (before, after) in before.values().zip(after.values()) {
            prop_assert_eq!(stream(before), stream(after));
            prop_assert!(after.iter().all(|frame| ip_len(frame) <= usize::from(mtu)));
            for frame in after {
                prop_assert_eq!(verify::checksums(frame), Ok(()));
                let parsed = Headers::parse(frame).unwrap();
                prop_assert!(!matches!(parsed.network, Network::Other(_)));
            }
            if before.len() == after.len() {
                prop_assert_eq!(before, after);
            }
        }
        prop_assert_eq!(before.len(), after.len());
        prop_assert_eq!(statistics.packets_out, output.len() as u64);
    }
}

/// Long trains do become long aggregates, so the laws above speak of something.
#[test]
fn a_steady_flow_becomes_aggregates_of_64_kilobytes() {
    let flow =
        Flow { ipv6: false, vlan: false, timestamps: true, ids: Ids::Up, mss: 1_448, start: 1 };
    let steps = vec![Step { flow: 0, gap: 1_000, odd: Odd::No }; 450];
    let input = traffic(&[flow], &steps);
    let mut output = Vec::new();
    let statistics =
        capture::lro(input.into_iter().map(Ok), &Config::default(), &mut output).unwrap();
    assert_eq!(statistics.counter("lro", "merged"), 450);
    assert_eq!(output.len(), 10);
    assert!(output.iter().all(|packet| ip_len(&packet.data) > 65_000));
}

/// As the paper has it: what arrived damaged does not go on.
#[test]
fn a_segment_with_a_wrong_checksum_is_left_out_and_counted() {
    let flow = Flow { ipv6: true, vlan: false, timestamps: true, ids: Ids::Up, mss: 100, start: 1 };
    let odd = [Odd::No, Odd::WrongChecksum, Odd::No];
    let steps: Vec<Step> = odd.into_iter().map(|odd| Step { flow: 0, gap: 1, odd }).collect();
    let input = traffic(&[flow], &steps);
    let mut output = Vec::new();
    let statistics =
        capture::lro(input.into_iter().map(Ok), &Config::default(), &mut output).unwrap();
    assert_eq!(statistics.counter("lro_discard", "tcp_checksum"), 1);
    assert_eq!(output.len(), 2);
}
