//! What a new user tries first: the usual programs, through `wharf up`.

use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use testkit::lab::have;

use super::setup::{Ip, PEER, Plan, Port, Up, WIRE, ping};
use super::traffic::{Direction, bytes, datagrams, keystrokes, serve_once, transfer};

const MB: u64 = 1 << 20;

/// Makes each of the functions a test over each kind of wire.
macro_rules! over_each_wire {
    ($($test:ident),* $(,)?) => {
        /// AF_XDP; the client's frames are as a real wire's.
        mod xdp {
            $(#[test] fn $test() { super::with(super::Port::Xdp, false, super::$test); })*
        }
        /// AF_XDP; the client leaves its checksums to its interface.
        mod xdp_partial_checksums {
            $(#[test] fn $test() { super::with(super::Port::Xdp, true, super::$test); })*
        }
        /// AF_PACKET; the client's frames are as a real wire's.
        mod packet {
            $(#[test] fn $test() { super::with(super::Port::Packet, false, super::$test); })*
        }
        /// AF_PACKET; the client hands super-packets to its interface.
        mod packet_super_packets {
            $(#[test] fn $test() { super::with(super::Port::Packet, true, super::$test); })*
        }
        /// AF_PACKET, and a veth instead of a TAP.
        mod veth {
            $(#[test] fn $test() { super::with(super::Port::Veth, false, super::$test); })*
        }
    };
}

over_each_wire! {
    ping_loses_nothing,
    iperf3_tcp_moves_what_it_is_asked_to,
    iperf3_udp_arrives_in_order,
    curl_fetches_a_file,
    bytes_arrive_as_they_were_sent,
    keystrokes_are_echoed_in_order,
    datagrams_of_all_sizes_are_answered,
}

fn with(port: Port, offloads: bool, test: fn(&Up)) {
    if let Some(up) = (Plan { offloads, ..Plan::new(port) }).up() {
        test(&up);
    }
}

fn ping_loses_nothing(up: &Up) {
    for ip in Ip::BOTH {
        ping(&up.hosts.client, ip.server(), &[]);
        ping(&up.hosts.server, ip.client(), &["-s", "1400"]);
    }
}

fn iperf3_tcp_moves_what_it_is_asked_to(up: &Up) {
    for ip in Ip::BOTH {
        for direction in [&[][..], &["--reverse"]] {
            let Some(report) = iperf3(up, ip, &[&["--bytes", "64M"], direction].concat()) else {
                return;
            };
            let bytes = |sum: &str| report["end"][sum]["bytes"].as_u64().unwrap();
            let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
            assert!(sent >= 64 * MB, "{ip:?} {direction:?}: {sent} bytes sent");
            // The receiver stops counting when the sender says that it is done; what was on its
            // way then is in the sockets' buffers.
            assert!(received > sent / 2, "{ip:?} {direction:?}: {received} of {sent} bytes");
        }
    }
}

fn iperf3_udp_arrives_in_order(up: &Up) {
    for ip in Ip::BOTH {
        for direction in [&[][..], &["--reverse"]] {
            let words = ["--udp", "--bitrate", "20M", "--length", "1400", "--time", "1"];
            let Some(report) = iperf3(up, ip, &[&words, direction].concat()) else { return };
            let sum = &report["end"]["sum"];
            let (sent, lost) = (sum["packets"].as_u64(), sum["lost_packets"].as_u64());
            assert!(sent > lost && lost.is_some(), "{ip:?} {direction:?}: {sum}");
            let late = &report["end"]["streams"][0]["udp"]["out_of_order"];
            assert_eq!(late, 0, "{ip:?} {direction:?}: datagrams out of order");
        }
    }
}

/// Runs iperf3 between the hosts, to its end, and returns the client's report.
pub(crate) fn iperf3(up: &Up, ip: Ip, words: &[&str]) -> Option<Value> {
    if !have(&["iperf3"]) {
        return None;
    }
    let address = ip.server().to_string();
    let mut server = Command::new("iperf3");
    let server = server.args(["--server", "--one-off", "--forceflush", "--bind", &address]);
    let mut server = up.hosts.server.spawn(server);
    server.line_with("listening");
    let mut client = Command::new("iperf3");
    client.args(["--json", "--client", &address]).args(words);
    let ended = up.hosts.client.output(&mut client);
    assert!(ended.status.success(), "{ended}");
    server.wait();
    Some(serde_json::from_str(&ended.stdout).unwrap())
}

fn curl_fetches_a_file(up: &Up) {
    if !have(&["curl"]) {
        return;
    }
    let file = Arc::new(bytes(8 * MB as usize));
    let place =
        std::env::temp_dir().join(format!("wharf-e2e-curl-{}-{:p}", std::process::id(), up));
    for ip in Ip::BOTH {
        let (url, server) = serve_once(&up.hosts, ip, Arc::clone(&file));
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--globoff", "--noproxy", "*", "--output"]);
        let ended = up.hosts.client.output(curl.arg(&place).arg(url));
        let fetched = std::fs::read(&place);
        let _ = std::fs::remove_file(&place);
        assert!(ended.status.success(), "{ended}");
        assert!(fetched.unwrap() == *file, "{ip:?}: the file is another");
        server.join().unwrap();
    }
}

fn bytes_arrive_as_they_were_sent(up: &Up) {
    if !have(&["sha256sum"]) {
        return;
    }
    for ip in Ip::BOTH {
        for direction in [Direction::In, Direction::Out] {
            // An odd number, so that the last segment is short.
            transfer(&up.hosts, ip, direction, 64 * MB + 1234);
        }
    }
    assert!(up.counter("lro", "merged") > 0);
    assert!(up.counter("gso", "super_packets") > 0);
}

fn keystrokes_are_echoed_in_order(up: &Up) {
    for ip in Ip::BOTH {
        keystrokes(&up.hosts, ip, 200);
    }
}

fn datagrams_of_all_sizes_are_answered(up: &Up) {
    for ip in Ip::BOTH {
        datagrams(&up.hosts, ip, &[0, 1, 17, 18, 19, 512, 1452, 1453, 1472, 1473, 9000, 65_000]);
    }
}

#[test]
fn a_gigabyte_arrives_as_it_was_sent() {
    if !have(&["sha256sum"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up() else { return };
    transfer(&up.hosts, Ip::V4, Direction::In, 1024 * MB);
    transfer(&up.hosts, Ip::V6, Direction::Out, 1024 * MB);
}

#[test]
fn jumbo_frames_pass_whole() {
    if !have(&["sha256sum"]) {
        return;
    }
    for (port, offloads) in [(Port::Auto, false), (Port::Auto, true), (Port::Veth, false)] {
        let Some(up) = (Plan { mtu: 9000, offloads, ..Plan::new(port) }).up() else { return };
        for ip in Ip::BOTH {
            // The largest that need no fragments: 9,000 less the IP and the ICMP header.
            let size = if ip == Ip::V4 { "8972" } else { "8952" };
            ping(&up.hosts.client, ip.server(), &["-M", "do", "-s", size]);
            transfer(&up.hosts, ip, Direction::In, 64 * MB);
            transfer(&up.hosts, ip, Direction::Out, 64 * MB);
            datagrams(&up.hosts, ip, &[1, 8952, 8972, 8973, 65_000]);
        }
    }
}

#[test]
fn the_peer_knows_the_host_interface_by_the_wires_mac_address() {
    if !have(&["ip"]) {
        return;
    }
    for port in Port::EACH {
        let Some(up) = Plan::new(port).up() else { return };
        let mac = |line: String| {
            let mut words = line.split_whitespace().skip_while(|word| *word != "link/ether");
            words.nth(1).map(str::to_owned)
        };
        let wire = mac(up.hosts.ip(&format!("-o link show dev {WIRE}"))).unwrap();
        for ip in Ip::BOTH {
            ping(&up.hosts.client, ip.server(), &[]);
            let address = ip.server().to_string();
            let neighbour =
                up.hosts.client.succeed("ip", &["neigh", "show", &address, "dev", PEER]);
            assert!(neighbour.contains(&format!("lladdr {wire} ")), "{wire} is not in {neighbour}");
        }
    }
}
