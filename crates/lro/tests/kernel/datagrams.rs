//! Named cases of UDP, which the random sequences have none of: the kernel with
//! `rx-udp-gro-forwarding` beside `lro.udp`, in both profiles.

use lro::{Config, Profile};
use testkit::gro::KernelGro;
use testkit::packet::PacketBuilder;
use wire::protocol;

use super::check::{observed, same};
use super::model::Out;
use super::wharf;

const LEN: usize = 200;
const COUNT: usize = 49;
/// Ethernet, which no limit counts.
const LINK: usize = 14;

/// The kernel and wharf make aggregates of these sizes, in bytes of IP packet, and the same bytes.
#[track_caller]
fn both(packets: &[PacketBuilder], max_aggregate: usize, expected: &[usize]) {
    let frames: Vec<Vec<u8>> = packets.iter().map(PacketBuilder::build).collect();
    let sizes = |outs: &[Out]| outs.iter().map(|out| out.bytes.len() - LINK).collect::<Vec<_>>();
    let max_aggregate = max_aggregate as u32;
    let config = Config { max_aggregate, udp: true, held_frames: 256, ..Config::default() };
    let wharf = [Profile::Endpoint, Profile::Lossless]
        .map(|profile| wharf::run_with(Config { profile, ..config.clone() }, &frames));
    wharf.iter().for_each(|outs| assert_eq!(sizes(outs), expected, "wharf"));
    KernelGro::with(|mut gro| {
        gro.join_datagrams(max_aggregate).unwrap();
        let kernel: Vec<Out> = gro.witnessed(&frames).unwrap().into_iter().map(observed).collect();
        assert_eq!(sizes(&kernel), expected, "the kernel");
        wharf.iter().for_each(|outs| assert!(same(&kernel, outs), "other bytes"));
    });
}

/// Datagrams that fill the largest aggregate to its last byte, and a byte less of room: `headers` of
/// IP packet and UDP are counted once, and extension headers with them where there are some.
#[track_caller]
fn fills(packet: impl Fn(u16) -> PacketBuilder, headers: usize) {
    let packets: Vec<PacketBuilder> =
        (0..COUNT as u16).map(|id| packet(id).id(id).payload_pattern(LEN)).collect();
    let whole = headers + COUNT * LEN;
    both(&packets, whole, &[whole]);
    both(&packets, whole - 1, &[whole - LEN, headers + LEN]);
}

#[test]
fn the_last_datagram_that_fits_is_joined() {
    fills(|_| PacketBuilder::udp4(), 20 + 8);
    fills(|_| PacketBuilder::udp6(), 40 + 8);
}

#[test]
fn extension_headers_count() {
    fills(|_| PacketBuilder::udp6().extension(protocol::DESTINATION, 8), 40 + 8 + 8);
}

/// The case that the model of `laws/udp.rs` had wrong: the builder has no extension header to give
/// to IPv4, so the first datagram is as the others, and all 49 are 9,828 bytes.
#[test]
fn what_only_ipv6_has_does_not_count_for_ipv4() {
    let extended = |id| match id {
        0 => PacketBuilder::udp4().extension(protocol::DESTINATION, 8),
        _ => PacketBuilder::udp4(),
    };
    fills(extended, 9_828 - COUNT * LEN);
}
