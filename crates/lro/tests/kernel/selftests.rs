//! The named cases of Linux's selftests (`tools/testing/selftests/net/lib/gro.c`), each asked of
//! the kernel here and of wharf. Where those wait for a time-out, all is flushed instead.
//!
//! Cases are written as payload sizes: what is sent, and what comes out.

use testkit::gro::{BUCKET, KernelGro};
use testkit::packet::PacketBuilder;
use wire::{Flags, protocol};

use super::check::Oracles;
use super::flow::{Damage, Flow, damage};
use super::model::{self, Arrivals, Out};
use super::packet::Packet;
use super::reasons::{Reason, Reasons};
use super::wharf;

const LEN: usize = 100;
/// Large segments, so that few fill an aggregate.
const MTU: usize = 4096;

/// `len` bytes from offset `at` of the stream on.
fn data(v6: bool, at: usize, len: usize) -> PacketBuilder {
    Flow { seq: 100 + at as u32, id: 0, ..Flow::plain(v6) }.builder(len)
}

/// The `n`th of equal segments.
fn nth(v6: bool, n: usize) -> PacketBuilder {
    data(v6, n * LEN, LEN)
}

fn build(packets: impl IntoIterator<Item = PacketBuilder>) -> Vec<Vec<u8>> {
    packets.into_iter().map(|packet| packet.build()).collect()
}

/// Payload sizes; a fragment is not looked into, but its headers are of known size.
fn sizes(outs: &[Out]) -> Vec<usize> {
    let size = |out: &Out| match Packet::read(&out.bytes) {
        Some(packet) => packet.payload().len(),
        None if out.bytes[12] == 0x08 => out.bytes.len() - (14 + 20 + 20),
        None => out.bytes.len() - (14 + 40 + 8 + 20),
    };
    outs.iter().map(size).collect()
}

/// The kernel makes these sizes of the frames and wharf those, for these reasons.
#[track_caller]
fn compare(frames: &[Vec<u8>], kernel: &[usize], wharf: &[usize], reasons: &[Reason]) {
    assert_eq!(sizes(&wharf::run(frames)), wharf, "wharf");
    Oracles::with(|oracles| {
        assert_eq!(sizes(&oracles.kernel(frames)), kernel, "the kernel");
        let verdict = oracles.check(frames).unwrap_or_else(|found| panic!("{found}"));
        assert_eq!(verdict.reasons, reasons);
    });
}

/// The same of packets.
#[track_caller]
fn differs(
    packets: impl IntoIterator<Item = PacketBuilder>,
    kernel: &[usize],
    wharf: &[usize],
    reasons: &[Reason],
) {
    compare(&build(packets), kernel, wharf, reasons);
}

/// Both make these sizes of the packets.
#[track_caller]
fn both(packets: impl IntoIterator<Item = PacketBuilder>, expected: &[usize]) {
    differs(packets, expected, expected, &[]);
}

/// The same over IPv4 and IPv6.
#[track_caller]
fn over_both(packets: impl Fn(bool) -> Vec<PacketBuilder>, expected: &[usize]) {
    both(packets(false), expected);
    both(packets(true), expected);
}

#[test]
fn data_same() {
    over_both(|v6| vec![nth(v6, 0), nth(v6, 1)], &[200]);
}

#[test]
fn data_large_then_small() {
    over_both(|v6| vec![nth(v6, 0), data(v6, LEN, 50)], &[150]);
}

#[test]
fn data_large_then_one_byte() {
    over_both(|v6| vec![nth(v6, 0), data(v6, LEN, 1)], &[101]);
    // As Ethernet has it, which a card's driver hands on as it is.
    let padded = [nth(false, 0), data(false, LEN, 1).padding(60 - 55)];
    differs(padded, &[100, 1], &[101], &[Reason::Padding]);
}

#[test]
fn data_small_then_large() {
    over_both(|v6| vec![data(v6, 0, 50), data(v6, 50, 100)], &[50, 100]);
}

/// Two bursts with a pause between them: what is flushed does not come back.
#[test]
fn data_bursts() {
    for v6 in [false, true] {
        let bursts = [[0, 1], [2, 3]].map(|burst| build(burst.map(|n| nth(v6, n))));
        Oracles::with(|oracles| {
            for burst in &bursts {
                assert_eq!(sizes(&oracles.kernel(burst)), [200]);
                assert_eq!(sizes(&wharf::run(burst)), [200]);
            }
        });
    }
}

#[test]
fn ack() {
    let acks = |v6| vec![data(v6, 0, 0), data(v6, 0, 0), data(v6, 0, 0).ack(2)];
    over_both(acks, &[0, 0, 0]);
}

/// Five packets, of which the third has another flag and, but for PSH, no data.
fn flagged(flag: Flags, len: usize) -> impl Fn(bool) -> Vec<PacketBuilder> {
    move |v6| {
        let odd = data(v6, 2 * len, len).flags(Flags::ACK.with(flag));
        vec![nth(v6, 0), nth(v6, 1), odd, nth(v6, 3), nth(v6, 4)]
    }
}

#[test]
fn flags_psh() {
    over_both(flagged(Flags::PSH, LEN), &[300, 200]);
}

#[test]
fn flags_syn() {
    over_both(flagged(Flags::SYN, 0), &[200, 0, 200]);
}

#[test]
fn flags_rst() {
    over_both(flagged(Flags::RST, 0), &[200, 0, 200]);
}

#[test]
fn flags_urg() {
    over_both(flagged(Flags::URG, 0), &[200, 0, 200]);
}

/// Two of five have CWR: each stands alone, since Accurate ECN counts them.
#[test]
fn flags_cwr() {
    for v6 in [false, true] {
        let cwr = |n| nth(v6, n).flags(Flags::ACK.with(Flags::CWR));
        let packets = [nth(v6, 0), cwr(1), cwr(2), nth(v6, 3), nth(v6, 4)];
        let append_to_cwr = Oracles::with(|oracles| oracles.kernel.cwr).unwrap_or(false);
        let (wharf, before) = (&[100, 100, 100, 200], &[100, 100, 300]);
        match append_to_cwr {
            true => differs(packets, before, wharf, &[Reason::Cwr]),
            false => both(packets, wharf),
        }
    }
}

/// The wrong one does not wait for what is held.
#[test]
fn tcp_checksum() {
    over_both(|v6| vec![nth(v6, 0), nth(v6, 1).wrong_checksum()], &[100, 100]);
    over_both(|v6| vec![nth(v6, 0), nth(v6, 1).wrong_checksum(), nth(v6, 1)], &[100, 200]);
}

#[test]
fn tcp_sequence() {
    over_both(|v6| vec![nth(v6, 0), data(v6, LEN + 1, LEN)], &[100, 100]);
}

/// Other values, and the same value laid out in three ways.
#[test]
fn tcp_timestamps() {
    let stamp = |value: u32| [&[8, 10], &value.to_be_bytes()[..], &[0; 4]].concat();
    let laid_out = move |order, value| match order {
        0 => [&[1, 1], &stamp(value)[..]].concat(),
        1 => [&[1], &stamp(value)[..], &[1]].concat(),
        _ => [&stamp(value)[..], &[1, 1]].concat(),
    };
    let packets = |v6| {
        let kinds = [(0, 0), (0, 0), (0, 100), (1, 100), (2, 100)];
        let with = |(n, (order, value))| nth(v6, n).options(&laid_out(order, value));
        kinds.into_iter().enumerate().map(with).collect()
    };
    over_both(packets, &[200, 100, 100, 100]);
}

#[test]
fn tcp_options() {
    let packets = |v6| {
        let window_scale = nth(v6, 2).options(&[1, 3, 3, 0]);
        vec![nth(v6, 0).timestamps(0, 0), nth(v6, 1).timestamps(0, 0), window_scale]
    };
    over_both(packets, &[200, 100]);
}

#[test]
fn ip_ecn() {
    over_both(|v6| vec![nth(v6, 0), nth(v6, 1).tos(2)], &[100, 100]);
}

#[test]
fn ip_tos() {
    over_both(|v6| vec![nth(v6, 0), nth(v6, 1).tos(0xf0)], &[100, 100]);
}

#[test]
fn ip_ttl() {
    over_both(|v6| vec![nth(v6, 0), nth(v6, 1).ttl(7)], &[100, 100]);
}

#[test]
fn ip_options() {
    let timestamp = [68, 8, 5, 0, 0, 0, 0, 0];
    let odd = nth(false, 1).ip_options(&timestamp);
    let packets = [nth(false, 0), odd.clone(), nth(false, 2)];
    differs(packets, &[100, 100, 100], &[100, 100, 100], &[Reason::IpOptions]);
    // It overtakes what is held, so what continues that can still join it.
    let packets = [nth(false, 0), odd, nth(false, 1)];
    differs(packets, &[100, 200], &[100, 100, 100], &[Reason::IpOptions]);
}

#[test]
fn ip_fragments() {
    both([nth(false, 0), nth(false, 1).fragment(0, true)], &[100, 100]);
    // One more in between: fragments overtake what is held of any flow.
    let packets = [nth(false, 0), nth(false, 1).fragment(8, false), nth(false, 1)];
    both(packets, &[100, 200]);
    let packets = [nth(true, 0), nth(true, 1), nth(true, 2).fragment(0, false), nth(true, 3)];
    both(packets, &[100, 200, 100]);
}

/// IDs of two or three packets, with DF and without.
#[test]
fn ip_id() {
    let fixed_without_df = Oracles::with(|oracles| oracles.kernel.fixed_id).unwrap_or(true);
    for (ids, df, expected) in [
        (&[8, 9][..], true, &[200][..]),
        (&[8, 8], true, &[200]),
        (&[8, 9], false, &[200]),
        (&[8, 8], false, &[200]),
        (&[8, 9, 9], true, &[200, 100]),
        (&[8, 8, 9], true, &[200, 100]),
        (&[0xffff, 0], true, &[200]),
        (&[8, 10], true, &[100, 100]),
    ] {
        let with = |(n, id): (usize, &u16)| nth(false, n).id(*id).dont_fragment(df);
        let packets: Vec<PacketBuilder> = ids.iter().enumerate().map(with).collect();
        match ids {
            [8, 8] if !df && !fixed_without_df => {
                differs(packets, &[100, 100], expected, &[Reason::FixedId]);
            }
            _ => both(packets, expected),
        }
    }
}

#[test]
fn ip6_extensions() {
    let with = |n, kind| nth(true, n).extension(kind, 8);
    let same = [with(0, protocol::DESTINATION), with(1, protocol::DESTINATION)];
    both(same, &[200]);
    let kinds = [with(0, protocol::DESTINATION), with(1, protocol::HOP_BY_HOP)];
    both(kinds, &[100, 100]);
    let mut contents = build([0, 1].map(|n| with(n, protocol::DESTINATION)));
    damage(&mut contents[1], 0, Damage::ExtensionByte(0x11));
    compare(&contents, &[100, 100], &[100, 100], &[]);
}

/// As many segments as fit, one that fills the rest or is a byte too long, and one more.
fn large(v6: bool, too_long: usize) -> (Vec<PacketBuilder>, [usize; 3]) {
    let headers = if v6 { 60 } else { 40 };
    let (most, mss) = (65_535 - headers, MTU - headers);
    let (count, rest) = (most / mss, most % mss + too_long);
    let full = (0..count).map(|n| data(v6, n * mss, mss));
    let last = [data(v6, count * mss, rest), data(v6, (count + 1) * mss, rest)];
    (full.chain(last).collect(), [count * mss, rest, rest])
}

#[test]
fn large_max() {
    for v6 in [false, true] {
        let (packets, [full, rest, after]) = large(v6, 0);
        both(packets, &[full + rest, after]);
    }
}

#[test]
fn large_remainder() {
    for v6 in [false, true] {
        let (packets, sizes) = large(v6, 1);
        both(packets, &sizes);
    }
}

#[test]
fn single() {
    over_both(|v6| vec![nth(v6, 0)], &[100]);
}

/// The first packets of so many flows, then the second.
fn capacity(v6: bool, flows: u16) -> Vec<PacketBuilder> {
    let of = |n, flow| nth(v6, n).ports(1500 + flow, 8000);
    let push = |flow| of(1, flow).flags(Flags::ACK.with(Flags::PSH));
    (0..flows).map(|flow| of(0, flow)).chain((0..flows).map(push)).collect()
}

#[test]
fn capacity_of_a_few() {
    over_both(|v6| capacity(v6, 4), &[200; 4]);
    over_both(|v6| capacity(v6, BUCKET as u16 - 1), &[200; BUCKET - 1]);
}

/// A ninth flow in one bucket has the kernel flush the oldest; wharf has room.
///
/// The witness is held second, so that it is not the oldest, and completed before the last frame,
/// which is the one that finds its flow gone and can only be flushed, be it early.
#[test]
fn capacity_overrun() {
    let flow = |n: u16, second: usize| nth(false, second).ports(1500 + n, 8000).build();
    let [witness, end] = KernelGro::witness();
    let mut frames = vec![flow(0, 0), witness];
    frames.extend((1..BUCKET as u16).map(|n| flow(n, 0)));
    frames.extend([flow(1, 1), end, flow(0, 1)]);

    let all = [LEN; BUCKET - 1];
    let wharf = sizes(&wharf::run(&frames));
    assert_eq!(wharf, [&[16, 200, 200][..], &all[1..]].concat().as_slice());
    Oracles::with(|oracles| {
        let arrivals = Arrivals::new(&frames);
        let model = model::run(&arrivals, oracles.kernel, Reasons::NONE);
        let without = model::run(&arrivals, oracles.kernel, Reasons::NONE.with(Reason::Bucket));
        assert_eq!(sizes(&without), wharf);
        // A witness that is not merged says that a jiffy has passed, and nothing of the rest.
        let delivered = (0..200).find_map(|_| {
            let seen = oracles.gro.deliver(&frames).unwrap();
            seen.iter().any(|seen| seen.bytes.len() == 54 + 16).then_some(seen)
        });
        let got: Vec<Vec<u8>> = delivered.unwrap().into_iter().map(|seen| seen.bytes).collect();
        assert_eq!(got, model.into_iter().map(|out| out.bytes).collect::<Vec<_>>());
    });
}
