//! Packets without a link layer become what the same packets with Ethernet become, but for Ethernet.

use lro::{Aggregate, Config, Discard, Link, Lro, Nanos, Pass, Sink};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;
use wire::{ETHERNET_LEN, Flags, Headers, VirtioNetHdr};

use super::run::{Frame, START, Step};
use super::trace::{configs, traces};

/// What came out, from the IP header on.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Out {
    Passed(usize, Pass),
    Aggregate(VirtioNetHdr, bool, Vec<u8>, Vec<usize>),
    Discarded(usize, Discard),
    Acknowledgment(Vec<u8>),
}

/// Writes it down; packets begin with `link` bytes that are none of IP's.
struct Recorder<'a> {
    steps: &'a [Step],
    link: usize,
    out: Vec<(Nanos, Out)>,
    now: Nanos,
}

impl Recorder<'_> {
    fn record(&mut self, out: Out) {
        self.out.push((self.now, out));
    }
}

impl Sink<usize> for Recorder<'_> {
    fn pass(&mut self, frame: usize, why: Pass) {
        self.record(Out::Passed(frame, why));
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, usize>) {
        let mut vnet = aggregate.vnet();
        vnet.hdr_len -= self.link as u16;
        vnet.csum_start -= self.link as u16;
        let fixed_id = aggregate.fixed_id();
        let mut bytes = aggregate.header()[self.link..].to_vec();
        let mut frames = Vec::new();
        while let Some(slice) = aggregate.next_slice() {
            let Step::Frame(frame) = &self.steps[slice.frame] else { unreachable!() };
            bytes.extend(&frame.bytes[slice.start..slice.start + slice.len]);
            frames.push(slice.frame);
        }
        drop(aggregate);
        self.record(Out::Aggregate(vnet, fixed_id, bytes, frames));
    }

    fn discard(&mut self, frame: usize, why: Discard) {
        self.record(Out::Discarded(frame, why));
    }

    fn acknowledge(&mut self, frame: &[u8]) {
        self.record(Out::Acknowledgment(frame[self.link..].to_vec()));
    }
}

fn run<L: Link>(mut lro: Lro<usize, L>, steps: &[Step], link: usize) -> Vec<(Nanos, Out)> {
    let mut out = Recorder { steps, link, out: Vec::new(), now: START };
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Frame(frame) => {
                lro.announce(&frame.bytes);
                lro.receive(at, &frame.bytes, frame.checksum, out.now, &mut out);
            }
            Step::Host(frame) => lro.observe(&frame.bytes),
            Step::Wait(time) => {
                let end = out.now + time;
                while let Some(due) = lro.next_deadline().filter(|due| *due <= end) {
                    out.now = due;
                    lro.expire(due, &mut out);
                }
                out.now = end;
            }
            Step::BurstEnds => {
                lro.burst_ends(&mut out);
                lro.acknowledge(&mut out);
            }
            Step::Idle => lro.idle(&mut out),
            Step::FlushAll => lro.flush_all(&mut out),
            Step::Interrupt => lro.interrupt(&mut out),
            Step::InterruptFlow(bytes) => lro.interrupt_flow(bytes, &mut out),
            Step::Reconfigure(config) => lro.reconfigure(config.clone(), &mut out),
        }
    }
    lro.flush_all(&mut out);
    out.out
}

/// The packet behind a plain Ethernet header whose type is that of the IP header behind it; none whose
/// headers are too long for a flow (128 bytes) only by Ethernet's.
fn ip(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET_LEN)?;
    let of_tcp = Headers::parse_ip(packet).map_or(0, |headers| headers.payload_at);
    if (128 - ETHERNET_LEN + 1..=128).contains(&of_tcp) {
        return None;
    }
    match (&ethernet[12..], packet.first()? >> 4) {
        ([0x08, 0x00], 4) | ([0x86, 0xdd], 6) => Some(packet),
        _ => None,
    }
}

/// The same steps with one Ethernet header for all of a version, and without any; other packets are left
/// out, as no TUN has them.
fn both(steps: &[Step]) -> (Vec<Step>, Vec<Step>) {
    let with = |packet: &[u8]| {
        let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
        [&[2; 12], &kind[..], packet].concat()
    };
    let of = |frame: &Frame, bytes| Frame { bytes, checksum: frame.checksum };
    let pair = |step: &Step| match step {
        Step::Frame(frame) => ip(&frame.bytes).map(|packet| {
            (Step::Frame(of(frame, with(packet))), Step::Frame(of(frame, packet.to_vec())))
        }),
        Step::Host(frame) => ip(&frame.bytes).map(|packet| {
            (Step::Host(of(frame, with(packet))), Step::Host(of(frame, packet.to_vec())))
        }),
        Step::InterruptFlow(bytes) => ip(bytes).map(|packet| {
            (Step::InterruptFlow(with(packet)), Step::InterruptFlow(packet.to_vec()))
        }),
        step => Some((step.clone(), step.clone())),
    };
    steps.iter().filter_map(pair).unzip()
}

fn compare(config: &Config, steps: &[Step]) -> Vec<(Nanos, Out)> {
    let (with, without) = both(steps);
    let with = run(Lro::new(config.clone()), &with, ETHERNET_LEN);
    let without = run(Lro::of_ip(config.clone()), &without, 0);
    assert_eq!(with, without);
    without
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn packets_without_ethernet_become_the_same(
        config in configs(),
        udp in any::<bool>(),
        active_ack in prop_oneof![Just(lro::ActiveAck::Off), Just(lro::ActiveAck::Safe), Just(lro::ActiveAck::Paper)],
        steps in traces(4, 60),
    ) {
        compare(&Config { udp, active_ack, ..config }, &steps);
    }
}

/// One segment after another joins, with timestamps and without, over both versions, and none with a bad
/// checksum: what prediction finds in IP packets.
#[test]
fn a_stream_of_ip_packets_is_merged() {
    for (packet, timestamps, ip_len) in [
        (PacketBuilder::tcp4(), false, 40),
        (PacketBuilder::tcp4(), true, 52),
        (PacketBuilder::tcp6(), false, 60),
        (PacketBuilder::tcp6(), true, 72),
    ] {
        let segment = |n: u32| {
            let packet = packet.clone().seq(n * 100).id(n as u16).flags(Flags::ACK);
            let packet = if timestamps { packet.timestamps(n, 1) } else { packet };
            packet.payload_pattern(100).build().split_off(ETHERNET_LEN)
        };
        let mut steps: Vec<_> = (0..20).map(|n| Step::Frame(segment(n).into())).collect();
        let mut damaged = segment(20);
        *damaged.last_mut().unwrap() ^= 1;
        steps.push(Step::Frame(damaged.into()));
        let out = run(Lro::of_ip(Config::default()), &steps, 0);
        let [
            (_, Out::Discarded(20, Discard::TcpChecksum)),
            (_, Out::Aggregate(vnet, _, bytes, frames)),
        ] = &out[..]
        else {
            panic!("{out:?}");
        };
        assert_eq!(
            (frames.len(), usize::from(vnet.hdr_len), bytes.len()),
            (20, ip_len, ip_len + 2000)
        );
        assert_eq!(usize::from(vnet.csum_start), if packet_is_v6(bytes) { 40 } else { 20 });
    }
}

fn packet_is_v6(bytes: &[u8]) -> bool {
    bytes[0] >> 4 == 6
}
