//! Data both ways, so that each segment acknowledges more than the one before: such are joined because the
//! worker sees what the host sends, and none that the host would not take (RFC 5961 section 5.2).

use nic::config::Config;
use testkit::packet::{PacketBuilder, pattern};
use wire::{Flags, Headers, VirtioNetHdr};

use super::rig::{Rig, read, segment, stream};

/// Where the host's data begins.
const HOST: u32 = 5_000;

/// So much of the host's data leaves as one packet, from `at` on.
fn host_sends(rig: &mut Rig, at: u32, len: usize) {
    let packet = PacketBuilder::tcp4().addresses4([10, 0, 0, 2], [10, 0, 0, 1]).ports(80, 1);
    let packet = packet.seq(HOST + at).payload(&pattern(at as usize, len));
    let (bytes, vnet) = packet.super_packet(1448);
    rig.host.send(vnet, bytes);
    rig.turn();
    rig.sent();
}

/// The connection as it opens.
fn open(rig: &mut Rig) {
    let syn = PacketBuilder::tcp4().ports(1, 80).flags(Flags::SYN);
    rig.arrive(&syn.clone().seq(u32::MAX));
    rig.turn();
    let answer = syn.addresses4([10, 0, 0, 2], [10, 0, 0, 1]).ports(80, 1).seq(HOST - 1).ack(0);
    rig.host.send(VirtioNetHdr::default(), answer.flags(Flags::SYN.with(Flags::ACK)).build());
    rig.turn();
    rig.sent();
    rig.delivered();
}

fn ack_of(bytes: &[u8]) -> u32 {
    let at = Headers::parse(bytes).unwrap().transport_at + 8;
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Rounds, segments of the peer in each, and bytes of the host for each of them.
const ROUNDS: u32 = 50;
const SEGMENTS: u32 = 40;
const BYTES: u32 = 700;

/// Segments for each packet that the host gets, if they acknowledge the host's data of the round before,
/// or all the same; pairs of them change places, or none.
fn mean_aggregate(advance: bool, swapped: bool) -> f64 {
    let mut config = Config::default();
    config.set("poll.batch", "64").unwrap();
    let mut rig = Rig::with_chunks(&config, 1024);
    open(&mut rig);
    for round in 0..ROUNDS {
        for n in 0..SEGMENTS {
            let n = round * SEGMENTS + if swapped { n ^ 1 } else { n };
            let acknowledged = if advance { n.saturating_sub(SEGMENTS) * BYTES } else { 0 };
            rig.arrive(&segment(1, n).ack(HOST + acknowledged));
        }
        host_sends(&mut rig, round * SEGMENTS * BYTES, (SEGMENTS * BYTES) as usize);
        rig.now += 10_000;
    }
    rig.settle();
    let delivered = rig.delivered();
    let acks: Vec<u32> = delivered.iter().map(|(_, bytes)| ack_of(bytes)).collect();
    assert!(acks.is_sorted());
    assert_eq!(
        delivered.iter().map(|(_, bytes)| read(bytes).1.len()).sum::<usize>(),
        (ROUNDS * SEGMENTS) as usize * 1000
    );
    f64::from(ROUNDS * SEGMENTS) / delivered.len() as f64
}

/// As large as those of data that acknowledges nothing new, which always were the largest.
#[test]
fn aggregates_of_two_way_traffic_are_as_large_as_of_one_way() {
    for swapped in [false, true] {
        let (one_way, two_way) = (mean_aggregate(false, swapped), mean_aggregate(true, swapped));
        println!("{two_way:.1} segments both ways, {one_way:.1} one way, swapped: {swapped}");
        assert!(one_way > 30.0 && two_way >= 0.9 * one_way, "{two_way} for {one_way}");
    }
}

/// A forger who knows the ports sends a segment, a little ahead of a flow that holds nothing or next to
/// what it holds, with an acknowledgment of what the host has not sent or of long ago: it reaches the host
/// as it came, to be dropped, not under another's acknowledgment; and no other does under its own.
#[test]
fn a_forged_segment_is_not_let_in_by_others() {
    for (ack, arrives, place) in [
        (0x4000_0000, 0, 1),
        (0xa000_0000, 0, 1),
        (0x4000_0000, 3, 3),
        (0xa000_0000, 3, 3),
        (0x4000_0000, 3, 5),
    ] {
        let mut rig = Rig::new(&Config::default());
        open(&mut rig);
        host_sends(&mut rig, 0, 10_000);
        let forged = segment(1, place).payload(&[0xee; 1000]).ack(ack);
        for n in 0..8 {
            if n == arrives {
                rig.arrive(&forged);
            }
            rig.arrive(&segment(1, n).ack(HOST + n * 100));
        }
        rig.settle();
        let delivered = rig.delivered();
        let (of_forger, honest): (Vec<_>, Vec<_>) =
            delivered.into_iter().map(|(_, bytes)| bytes).partition(|bytes| ack_of(bytes) == ack);
        assert!(of_forger == [forged.build()], "{ack:x} for {place}");
        assert!(stream(honest.iter().map(Vec::as_slice)) == pattern(0, 8_000));
    }
}
