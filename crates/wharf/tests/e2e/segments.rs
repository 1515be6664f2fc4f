//! What the kernel leaves to wharf to cut: TCP, UDP with `UDP_SEGMENT` and datagrams larger than
//! the wire's MTU, over wires of every size, and with the switches flipped meanwhile. Receiving
//! kernels count no wrong checksum, and no fragment without the rest.

use testkit::lab::have;

use super::running::set;
use super::setup::{Ip, PEER, Plan, Port, Up, may_have_room};
use super::through::iperf3;
use super::traffic::{Direction, Load, transfer};
use super::udp::{Datagrams, LARGEST_V4, LARGEST_V6, Shape, quiet};

const MB: u64 = 1 << 20;

/// What IPv4 always carries, what IPv6 does, Ethernet's, more than a page holds with all headers,
/// and jumbo frames.
const MTUS: [u32; 5] = [576, 1280, 1500, 4000, 9000];

/// Software cuts. Otherwise AF_PACKET would leave super-packets to the veth, which carries them
/// whole.
const SOFTWARE: &str = "gso.hardware=off";
/// The host's kernel leaves fragments to wharf.
const LARGEST_MTU: &str = "host.mtu=65535";

/// Hosts over a wire of this MTU with wharf between them, as the words say.
fn up(port: Port, mtu: u32, settings: &[&str]) -> Option<Up> {
    let words: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    (Plan { mtu, ..Plan::new(port) }).up_with(&words)
}

/// Bytes of a UDP payload that fill a frame.
fn full(ip: Ip, mtu: u32) -> usize {
    let headers = if ip == Ip::V4 { 28 } else { 48 };
    mtu as usize - headers
}

/// Writes for `UDP_SEGMENT`: one datagram, exactly two, two and a byte, many and a short one.
fn writes(segment: usize) -> Vec<usize> {
    // The kernel takes 64 datagrams at once; newer ones 128.
    let most = (LARGEST_V4 / segment).min(64) * segment;
    vec![segment, 2 * segment, 2 * segment + 1, 1, most, most - segment / 2 - 1]
}

/// How many of the first so many writes, one after the other and then again, are as asked.
fn how_many(shape: &Shape, writes: usize, asked: impl Fn(usize) -> u64) -> u64 {
    shape.writes.iter().cycle().take(writes).map(|write| asked(*write)).sum()
}

fn segments_of_every_size(port: Port, mtu: u32) {
    let Some(up) = up(port, mtu, &[SOFTWARE]) else { return };
    quiet(&up.hosts, port);
    for &ip in Ip::over(mtu) {
        let (mut super_packets, mut segments) = (0, 0);
        for segment in [full(ip, mtu), full(ip, mtu) - 1, 333, 1] {
            let shape = Shape { segment: Some(segment as u16), writes: writes(segment), mtu };
            let length = if segment > 1 { 3 * MB } else { 10_000 };
            let load = Datagrams::start(&up.hosts, ip, Direction::Out, &shape, Some(length));
            let writes = load.finish();
            super_packets += how_many(&shape, writes, |write| u64::from(write > segment));
            segments += how_many(&shape, writes, |write| {
                if write > segment { shape.datagrams(write).count() as u64 } else { 0 }
            });
        }
        up.all_counted();
        assert_eq!(up.counter(&ip.gso("uso"), "super_packets"), super_packets);
        assert_eq!(up.counter(&ip.gso("uso"), "segments"), segments);
    }
    up.nothing_went_wrong();
}

fn segments_over_every_wire(port: Port) {
    if may_have_room() {
        MTUS.into_iter().for_each(|mtu| segments_of_every_size(port, mtu));
    }
}

#[test]
fn datagrams_of_one_write_arrive_one_by_one_by_af_xdp() {
    segments_over_every_wire(Port::Auto);
}

#[test]
fn datagrams_of_one_write_arrive_one_by_one_by_af_packet() {
    segments_over_every_wire(Port::Packet);
}

#[test]
fn datagrams_of_one_write_arrive_one_by_one_by_veth() {
    segments_over_every_wire(Port::Veth);
}

/// Datagrams of every size, up to the largest there are, over wires that are too small for them.
fn fragments_of_every_size(port: Port, mtu: u32) {
    let Some(up) = up(port, mtu, &[SOFTWARE, LARGEST_MTU]) else { return };
    quiet(&up.hosts, port);
    for &ip in Ip::over(mtu) {
        let full = full(ip, mtu);
        let largest = if ip == Ip::V4 { LARGEST_V4 } else { LARGEST_V6 };
        let writes = vec![full, full + 1, 2 * full, 20_000, 1, largest, 65_000, largest - 1];
        let shape = Shape { segment: None, writes, mtu };
        // The other way the client's kernel makes the fragments.
        for direction in [Direction::Out, Direction::In] {
            let load = Datagrams::start(&up.hosts, ip, direction, &shape, Some(4 * MB));
            let writes = load.finish();
            if direction == Direction::Out {
                let cut = how_many(&shape, writes, |write| u64::from(write > full));
                up.all_counted();
                assert_eq!(up.counter(&ip.gso("frag"), "super_packets"), cut);
            }
        }
    }
    up.nothing_went_wrong();
}

fn fragments_over_every_wire(port: Port) {
    if may_have_room() {
        MTUS.into_iter().for_each(|mtu| fragments_of_every_size(port, mtu));
    }
}

#[test]
fn large_datagrams_arrive_whole_by_af_xdp() {
    fragments_over_every_wire(Port::Auto);
}

#[test]
fn large_datagrams_arrive_whole_by_af_packet() {
    fragments_over_every_wire(Port::Packet);
}

#[test]
fn large_datagrams_arrive_whole_by_veth() {
    fragments_over_every_wire(Port::Veth);
}

/// Writes for `UDP_SEGMENT` whose datagrams are longer than the wire's MTU, a byte or several times.
fn segments_over_a_wire_too_small(port: Port) {
    if !may_have_room() {
        return;
    }
    for mtu in [576, 1500] {
        let Some(up) = up(port, mtu, &[SOFTWARE, LARGEST_MTU]) else { return };
        quiet(&up.hosts, port);
        for &ip in Ip::over(mtu) {
            let (full, mut super_packets) = (full(ip, mtu), 0);
            for segment in [full + 1, 2 * full, 4001] {
                let most = (20_000 / segment) * segment;
                // One; the last as long, a byte, just fitting, just not.
                let writes = vec![
                    segment,
                    2 * segment,
                    segment + 1,
                    most + full,
                    most + full - 1,
                    most - 1,
                    1,
                ];
                let shape = Shape { segment: Some(segment as u16), writes, mtu };
                let load = Datagrams::start(&up.hosts, ip, Direction::Out, &shape, Some(2 * MB));
                let writes = load.finish();
                super_packets += how_many(&shape, writes, |write| u64::from(write > full));
            }
            up.all_counted();
            assert_eq!(up.counter(&ip.gso("frag"), "super_packets"), super_packets);
            assert_eq!(up.counter(&ip.gso("uso"), "super_packets"), 0);
        }
        up.nothing_went_wrong();
    }
}

#[test]
fn datagrams_of_one_write_that_are_too_long_arrive_whole_by_af_xdp() {
    segments_over_a_wire_too_small(Port::Auto);
}

#[test]
fn datagrams_of_one_write_that_are_too_long_arrive_whole_by_af_packet() {
    segments_over_a_wire_too_small(Port::Packet);
}

#[test]
fn datagrams_of_one_write_that_are_too_long_arrive_whole_by_veth() {
    segments_over_a_wire_too_small(Port::Veth);
}

#[test]
fn tcp_crosses_wires_of_every_mtu() {
    if !have(&["sha256sum"]) {
        return;
    }
    for port in [Port::Auto, Port::Packet] {
        for mtu in MTUS {
            let Some(up) = up(port, mtu, &[SOFTWARE]) else { return };
            for &ip in Ip::over(mtu) {
                transfer(&up.hosts, ip, Direction::In, 4 * MB + 77);
                transfer(&up.hosts, ip, Direction::Out, 8 * MB + 77);
                iperf3(&up, ip, &["--bytes", "4M", "--reverse"]);
                up.all_counted();
                assert!(up.counter(&ip.gso("tcp"), "super_packets") > 0);
            }
            up.nothing_went_wrong();
        }
    }
}

/// The client says that it takes segments of 8,960 bytes, and the server's kernel believes it.
#[test]
fn tcp_segments_larger_than_the_wires_mtu_are_cut() {
    if !have(&["ip", "sha256sum"]) {
        return;
    }
    for port in [Port::Auto, Port::Packet, Port::Veth] {
        let Some(up) = up(port, 1500, &[SOFTWARE, "host.mtu=9000"]) else { return };
        for (ip, network) in [(Ip::V4, "10.77.0.0/25"), (Ip::V6, "fd77::/65")] {
            // A longer prefix than that of the route that came with the address.
            let route = format!("route add {network} dev {PEER} advmss 8940 mtu 1500");
            up.hosts.client.succeed("ip", &route.split(' ').collect::<Vec<_>>());
            for switch in ["true", "false"] {
                // Without super-packets it hands over each segment, as large as it may be.
                set(&up, "gso.tcp", switch);
                up.all_counted();
                let before = up.counter(&ip.gso("tcp"), "super_packets");
                transfer(&up.hosts, ip, Direction::Out, 8 * MB + 77);
                up.all_counted();
                let cut = up.counter(&ip.gso("tcp"), "super_packets") - before;
                assert!(cut > 0, "{port:?} {ip:?} gso.tcp={switch}");
            }
        }
        up.nothing_went_wrong();
    }
}

/// The other end of a veth takes super-packets whole.
#[test]
fn what_the_wires_interface_can_cut_is_left_to_it() {
    if !have(&["sha256sum"]) || !may_have_room() {
        return;
    }
    for port in Port::EACH {
        let Some(up) = up(port, 1500, &[]) else { return };
        quiet(&up.hosts, port);
        for ip in Ip::BOTH {
            let full = full(ip, 1500);
            let shape = Shape { segment: Some(full as u16), writes: writes(full), mtu: 1500 };
            Datagrams::start(&up.hosts, ip, Direction::Out, &shape, Some(4 * MB)).finish();
            transfer(&up.hosts, ip, Direction::Out, 8 * MB + 77);
            up.all_counted();
            for kind in ["uso", "tcp"] {
                let group = ip.gso(kind);
                let count = up.counter(&group, "super_packets");
                assert!(count > 0 && up.counter(&group, "hardware") == count, "{group}: {count}");
            }
        }
        up.nothing_went_wrong();
    }
}

#[test]
fn what_is_switched_off_is_not_taken_from_the_host() {
    if !have(&["sha256sum"]) || !may_have_room() {
        return;
    }
    let cases = [
        (Port::Auto, "gso.enable=false", [false, false]),
        (Port::Veth, "gso.enable=false", [false, false]),
        (Port::Packet, "gso.tcp=false", [false, true]),
        (Port::Veth, "gso.tcp=false", [false, true]),
        (Port::Auto, "gso.udp=false", [true, false]),
        (Port::Veth, "gso.udp=false", [true, false]),
        (Port::Auto, "gso.max_burst=9000", [true, true]),
        (Port::Veth, "gso.max_burst=9000", [true, true]),
    ];
    for (port, setting, cut) in cases {
        let Some(up) = up(port, 1500, &[LARGEST_MTU, setting]) else { return };
        quiet(&up.hosts, port);
        for ip in Ip::BOTH {
            let full = full(ip, 1500);
            let segments = Shape { segment: Some(full as u16), writes: writes(full), mtu: 1500 };
            let large = Shape { segment: None, writes: vec![full, full + 1, 60_000], mtu: 1500 };
            for shape in [segments, large] {
                Datagrams::start(&up.hosts, ip, Direction::Out, &shape, Some(2 * MB)).finish();
            }
            transfer(&up.hosts, ip, Direction::Out, 4 * MB + 77);
            up.all_counted();
            let [tcp, udp] = cut;
            for (kind, cut) in [("tcp", tcp), ("uso", udp), ("frag", udp)] {
                let group = ip.gso(kind);
                let count = up.counter(&group, "super_packets");
                assert_eq!(count > 0, cut, "{port:?} {setting}: {group}: {count}");
                if setting.starts_with("gso.max_burst") {
                    // With its link header.
                    assert!(up.counter(&group, "max_burst") <= 9014, "{group}");
                }
            }
        }
        up.nothing_went_wrong();
    }
}

/// Each switch, off and on.
const SWITCHES: [(&str, [&str; 2]); 5] = [
    ("gso.enable", ["false", "true"]),
    ("gso.tcp", ["false", "true"]),
    ("gso.udp", ["false", "true"]),
    ("gso.max_burst", ["9000", "65535"]),
    ("gso.hardware", ["off", "auto"]),
];

/// Flips all switches several times while something goes on.
fn flip(up: &Up, goes_on: impl Fn()) {
    for _ in 0..2 {
        for value in [0, 1] {
            for (key, values) in SWITCHES {
                set(up, key, values[value]);
                goes_on();
            }
        }
    }
}

/// No byte of TCP is lost when the switches are flipped under load.
#[test]
fn switches_flipped_under_tcp_lose_nothing() {
    if !have(&["sha256sum"]) {
        return;
    }
    for (port, ip) in [(Port::Auto, Ip::V4), (Port::Packet, Ip::V6), (Port::Veth, Ip::V4)] {
        let Some(up) = up(port, 1500, &[LARGEST_MTU]) else { return };
        let load = Load::start(&up.hosts, ip, Direction::Out, None);
        flip(&up, || load.goes_on());
        assert!(!load.is_done());
        load.finish();
        up.all_counted();
        assert!(up.counter(&ip.gso("tcp"), "super_packets") > 0);
        up.nothing_went_wrong();
    }
}

/// No datagram is lost, changed or moved when the switches are flipped meanwhile.
fn flipped_under_udp(port: Port) {
    if !may_have_room() {
        return;
    }
    let mtu = 1500;
    let Some(up) = up(port, mtu, &[LARGEST_MTU]) else { return };
    quiet(&up.hosts, port);
    for ip in Ip::BOTH {
        let full = full(ip, mtu);
        let segments = Shape { segment: Some(full as u16), writes: writes(full), mtu };
        let large = Shape { segment: None, writes: vec![full + 1, 9000, 20_000, 65_000, 1], mtu };
        for shape in [segments, large] {
            let load = Datagrams::start(&up.hosts, ip, Direction::Out, &shape, None);
            flip(&up, || load.goes_on());
            load.finish();
        }
        up.all_counted();
        for kind in ["uso", "frag"] {
            assert!(up.counter(&ip.gso(kind), "super_packets") > 0);
        }
    }
    up.nothing_went_wrong();
}

#[test]
fn switches_flipped_under_udp_lose_nothing_by_af_xdp() {
    flipped_under_udp(Port::Auto);
}

#[test]
fn switches_flipped_under_udp_lose_nothing_by_af_packet() {
    flipped_under_udp(Port::Packet);
}

#[test]
fn switches_flipped_under_udp_lose_nothing_by_veth() {
    flipped_under_udp(Port::Veth);
}
