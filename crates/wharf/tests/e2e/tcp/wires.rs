//! The engine on a wire: against a kernel at the other end, and against itself.

use std::io::{Read, Write};
use std::net::Shutdown;

use sys::interface::Interface;
use testkit::lab::{Host, Program, Wire, have, wait_until};
use testkit::missing::lacks;

use super::super::setup::{Ip, PEER, WIRE, give, ping, wharf};
use super::super::traffic::{bytes, whole};
use super::lossy::{NETWORKS, Network};
use super::{connect, connections, counter, read_pattern, write_pattern};

const BYTES: u64 = 8 << 20;

/// Two hosts and the wire between them.
fn hosts() -> Option<(Host, Host)> {
    hosts_with_queues(1)
}

/// The same with so many queues each way.
fn hosts_with_queues(queues: u32) -> Option<(Host, Host)> {
    let (client, server) = (Host::new()?, Host::new()?);
    Wire { near: PEER, far: WIRE, mtu: 1500, queues, offloads: true }.lay(&client, &server);
    Some((client, server))
}

/// The ways to a wire, as settings.
fn modes() -> &'static [&'static str] {
    const MODES: [&str; 3] =
        ["wire.mode=packet", "wire.mode=xdp", "wire.mode=xdp --set wire.transmit=xdp"];
    if sys::process::has_bpf() { &MODES } else { &MODES[..1] }
}

/// An engine on an interface, with these addresses.
fn engine(host: &Host, wire: &str, which: fn(Ip) -> std::net::IpAddr, line: &str) -> Program {
    let addresses = format!("--address {}/24 --address {}/64", which(Ip::V4), which(Ip::V6));
    let line = format!("tcp {line} --json --wire {wire} {addresses}");
    let mut engine = host.spawn(wharf().args(line.split_whitespace()));
    engine.line_with("tcp");
    engine
}

fn interrupted(engine: Program) -> testkit::lab::Ended {
    engine.signal(sys::process::Signal::Interrupt);
    let ended = engine.wait();
    assert!(ended.status.success(), "{ended}");
    ended
}

#[test]
fn a_kernel_at_the_other_end_gets_its_bytes_back() {
    let sent = bytes(BYTES as usize);
    for mode in modes() {
        for lro in [true, false] {
            let Some((client, server)) = hosts() else { return };
            give(&client, PEER, &Ip::BOTH, Ip::client);
            let line = format!("echo --port 7 --set {mode} --set lro.enable={lro}");
            let echo = engine(&server, WIRE, Ip::server, &line);
            for ip in Ip::BOTH {
                let mut socket = connect(&client, ip.server(), 7);
                let mut writer = socket.try_clone().unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        writer.write_all(&sent).unwrap();
                        writer.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut received = Vec::new();
                    socket.read_to_end(&mut received).unwrap();
                    assert!(received == sent, "{mode} {ip:?}: {} bytes", received.len());
                });
            }
            ping(&client, Ip::V6.server(), &[]);
            let ended = interrupted(echo);
            assert_eq!(counter(&ended, "drop", "tcp_checksum"), 0, "{ended}");
            let merged = counter(&ended, "segments", "aggregates");
            assert!(merged > 0 || mode.contains("xdp") && !lro, "{mode} {lro}: {ended}");
        }
    }
}

/// However it ends, the wire is the kernel's again.
#[test]
fn the_kernel_has_the_wire_back_afterwards() {
    for mode in modes() {
        let Some((client, server)) = hosts() else { return };
        give(&client, PEER, &Ip::BOTH, Ip::client);
        give(&server, WIRE, &Ip::BOTH, |ip| match ip {
            Ip::V4 => [10, 77, 0, 3].into(),
            Ip::V6 => [0xfd77, 0, 0, 0, 0, 0, 0, 3].into(),
        });
        let echo = engine(&server, WIRE, Ip::server, &format!("echo --port 7 --set {mode}"));
        ping(&client, Ip::V4.server(), &[]);
        let again = server.output(wharf().args([
            "tcp",
            "echo",
            "--wire",
            WIRE,
            "--address",
            "10.77.0.4/24",
            "--port",
            "7",
        ]));
        assert!(again.stderr.contains("already"), "{again}");
        interrupted(echo);
        ping(&client, [10, 77, 0, 3].into(), &[]);
    }
}

/// Nothing starts, the message names both, and the wire is free afterwards.
#[test]
fn an_address_that_another_host_has_is_not_taken() {
    for mode in modes() {
        for ip in Ip::BOTH {
            let Some((client, server)) = hosts() else { return };
            give(&client, PEER, &[ip], Ip::server);
            let mac = client.run(|| Interface::by_name(PEER)).unwrap().mac.unwrap();
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            let (v4, v6) = (Ip::V4.server(), Ip::V6.server());
            let line = format!(
                "tcp echo --port 7 --set {mode} --wire {WIRE} --address {v4}/24 --address {v6}/64"
            );
            let ended = server.output(wharf().args(line.split_whitespace()));
            assert_eq!(ended.status.code(), Some(2), "{mode} {ip:?}: {ended}");
            let told = format!("{} is the address of {mac} already", ip.server());
            assert!(ended.stderr.contains(&told), "{mode} {ip:?}: {ended}");
            interrupted(engine(
                &server,
                WIRE,
                Ip::server,
                &format!("echo --port 7 --no-dad --set {mode}"),
            ));
        }
    }
}

/// A source here and a sink there, and the other way round, through each network.
#[test]
fn two_engines_speak_with_each_other() {
    for (at, (name, text)) in NETWORKS.into_iter().enumerate() {
        let Some((client, server)) = hosts() else { return };
        let network = Network::of(name, text);
        let (ip, mode) = (Ip::BOTH[at % 2], modes()[at / 2 % modes().len()]);
        let to = match ip {
            Ip::V4 => format!("{}:9", ip.server()),
            Ip::V6 => format!("[{}]:9", ip.server()),
        };
        let words = network.words();
        let (passive, active, bytes) = match at % 4 < 2 {
            true => ("sink --verify", "source --bytes 400000", "bytes_written"),
            false => ("source --bytes 400000", "sink --verify", "bytes_read"),
        };
        let ecn = "--set tcp.ecn=on";
        let line = format!("{passive} --port 9 --set {mode} {words} {ecn}");
        let passive = engine(&server, WIRE, Ip::server, &line);
        let line = format!("{active} --connect {to} --connections 3 --set {mode} {ecn}");
        let active = engine(&client, PEER, Ip::client, &line);
        let ended = active.wait();
        assert!(ended.status.success(), "{name}: {ended}");
        assert_eq!(counter(&ended, "service", bytes), 1_200_000, "{name}: {ended}");
        let other = interrupted(passive);
        for told in connections(&ended).iter().chain(&connections(&other)) {
            assert_eq!((&told["end"], &told["mismatch"]), (&"closed".into(), &().into()), "{name}");
        }
    }
}

/// By AF_PACKET a veth leaves super-packets and partial checksums to the engine, by AF_XDP partial
/// checksums alone.
#[test]
fn offloads_of_the_other_end_are_understood() {
    for mode in modes() {
        let Some((client, server)) = hosts() else { return };
        give(&client, PEER, &Ip::BOTH, Ip::client);
        let line = format!("sink --verify --port 9 --set {mode}");
        let sink = engine(&server, WIRE, Ip::server, &line);
        for ip in Ip::BOTH {
            let mut socket = connect(&client, ip.server(), 9);
            write_pattern(&socket, BYTES);
            assert_eq!(whole(|| socket.read(&mut [0])).unwrap(), 0);
        }
        let ended = interrupted(sink);
        for told in connections(&ended) {
            assert_eq!((&told["read"], &told["mismatch"]), (&BYTES.into(), &().into()), "{mode}");
        }
        let source =
            engine(&server, WIRE, Ip::server, &format!("source --bytes {BYTES} --port 80"));
        for ip in Ip::BOTH {
            assert_eq!(read_pattern(&connect(&client, ip.server(), 80)), BYTES, "{mode}");
        }
        interrupted(source);
    }
}

#[test]
fn queues_that_nothing_reads_end_it_with_a_word() {
    if !sys::process::has_bpf() {
        lacks("root, for AF_XDP");
        return;
    }
    if !have(&["ip", "ethtool", "ping"]) {
        return;
    }
    let Some((client, server)) = hosts_with_queues(4) else { return };
    // The driver wants a queue for each that the peer sends to.
    client.succeed("ethtool", &["-L", PEER, "tx", "1"]);
    server.succeed("ethtool", &["-L", WIRE, "rx", "1"]);
    give(&client, PEER, &Ip::BOTH, Ip::client);
    let echo = engine(&server, WIRE, Ip::server, "echo --port 7 --set wire.mode=xdp");
    ping(&client, Ip::V4.server(), &[]);
    server.succeed("ethtool", &["-L", WIRE, "rx", "4"]);
    let ended = echo.wait();
    assert_eq!(ended.status.code(), Some(1), "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert!(ended.stderr.contains("wire0 has 4 receive queues now (ethtool -L)"), "{ended}");
    assert!(ended.stderr.contains("start it again, and it serves all of them"), "{ended}");
    assert!(wait_until(|| server.processes().is_empty()), "a process stays behind");
    give(&server, WIRE, &Ip::BOTH, Ip::server);
    ping(&client, Ip::V4.server(), &[]);
}

/// Two workers each, on a wire of two queues: what a kernel sends comes back, and two engines speak with each other.
#[test]
fn several_workers_have_the_connections_of_one_engine() {
    const EACH: u64 = 1 << 20;
    let sent = bytes(EACH as usize);
    for mode in modes() {
        let Some((client, server)) = hosts_with_queues(2) else { return };
        give(&client, PEER, &Ip::BOTH, Ip::client);
        let workers = format!("--set {mode} --set workers=2");
        let echo = engine(&server, WIRE, Ip::server, &format!("echo --port 7 {workers}"));
        std::thread::scope(|scope| {
            for ip in [Ip::BOTH; 4].concat() {
                let (client, sent) = (&client, &sent);
                scope.spawn(move || {
                    let mut socket = connect(client, ip.server(), 7);
                    let mut writer = socket.try_clone().unwrap();
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            writer.write_all(sent).unwrap();
                            writer.shutdown(Shutdown::Write).unwrap();
                        });
                        let mut received = Vec::new();
                        socket.read_to_end(&mut received).unwrap();
                        assert!(received == *sent, "{mode} {ip:?}: {} bytes", received.len());
                    });
                });
            }
        });
        ping(&client, Ip::V4.server(), &[]);
        ping(&client, Ip::V6.server(), &[]);
        let ended = interrupted(echo);
        assert_eq!(counter(&ended, "service", "ended"), 8, "{mode}: {ended}");
        assert_eq!(counter(&ended, "service", "failed"), 0, "{mode}: {ended}");
        assert_eq!(counter(&ended, "strays", "dropped"), 0, "{mode}: {ended}");

        let Some((client, server)) = hosts_with_queues(2) else { return };
        let line = format!("sink --verify --port 9 {workers}");
        let sink = engine(&server, WIRE, Ip::server, &line);
        let to = format!("{}:9", Ip::V4.server());
        let line = format!("source --bytes {EACH} --connect {to} --connections 7 {workers}");
        let ended = engine(&client, PEER, Ip::client, &line).wait();
        assert!(ended.status.success(), "{mode}: {ended}");
        assert_eq!(counter(&ended, "service", "bytes_written"), 7 * EACH, "{mode}: {ended}");
        let other = interrupted(sink);
        assert_eq!(connections(&other).len(), 7, "{mode}: {other}");
        for told in connections(&other) {
            assert_eq!((&told["read"], &told["mismatch"]), (&EACH.into(), &().into()), "{mode}");
        }
    }
}
