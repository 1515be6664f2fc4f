//! Several NICs at once: a program whose connections go by two wires, a wharf in front of each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use sys::process::Signal;
use testkit::lab::{Program, Wire, have, wait_until};

use crate::ends::guards;
use crate::handoff::{EVENTS, PORT, THREADS, bytes, echoes, ends, library};
use crate::setup::{HOST, Hosts, Ip, Plan, Port, WIRE, give, lasting_refusals, wharf};

/// The second wire's ends, and its host's interface.
const PEER2: &str = "peer1";
const WIRE2: &str = "wire1";
const HOST2: &str = "host1";

/// The same as the other servers, by select(2).
const SELECTS: &str = "
import select, socket
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('::', 7000)); s.listen(64); print('listens', flush=True)
owed = {}
while True:
    readable = [s] + [c for c in owed if len(owed[c]) < 1 << 20]
    for c in sum(select.select(readable, [c for c in owed if owed[c]], [])[:2], []):
        if c is s:
            c = s.accept()[0]
            c.setblocking(False)
            owed[c] = b''
            continue
        if c not in owed: continue
        try:
            if len(owed[c]) < 1 << 20:
                d = c.recv(65536)
                if not d:
                    c.setblocking(True); c.sendall(owed.pop(c)); c.close()
                    continue
                owed[c] += d
        except BlockingIOError: pass
        try:
            if owed[c]: owed[c] = owed[c][c.send(owed[c]):]
        except BlockingIOError: pass
";

/// An address of the second wire's.
fn second(ip: Ip, host: u8) -> IpAddr {
    match ip {
        Ip::V4 => Ipv4Addr::new(10, 78, 0, host).into(),
        Ip::V6 => Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, host.into()).into(),
    }
}

/// A client and a server joined by two wires, which have their addresses.
fn hosts() -> Option<Hosts> {
    if !have(&["python3"]) {
        return None;
    }
    let hosts = Plan::new(Port::Auto).hosts()?;
    Wire { near: PEER2, far: WIRE2, mtu: 1500, queues: 1, offloads: false }
        .lay(&hosts.client, &hosts.server);
    give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
    give(&hosts.client, PEER2, &Ip::BOTH, |ip| second(ip, 1));
    give(&hosts.server, WIRE2, &Ip::BOTH, |ip| second(ip, 2));
    Some(hosts)
}

/// wharf in front of one of the wires.
fn up(hosts: &Hosts, wire: &str, host: &str) -> Program {
    let words = ["up", "--wire", wire, "--host", host, "--take-addresses", "--set", "workers=1"];
    let mut wharf = hosts.server.spawn(wharf().args(words));
    wharf.line_with("up: ");
    wharf
}

fn serve(hosts: &Hosts, options: &[&str], script: &str) -> Program {
    let mut run = wharf();
    run.env("WHARF_LIBRARY", library()).arg("run").args(options);
    let mut server = hosts.server.spawn(run.args(["--", "python3", "-u", "-c", script]));
    server.line_with("listens");
    server
}

/// A connection by each wire and version, and then again.
fn connect(hosts: &Hosts, count: usize) -> Vec<TcpStream> {
    let one = |at: usize| {
        let ip = Ip::BOTH[at / 2 % 2];
        let to = if at.is_multiple_of(2) { ip.server() } else { second(ip, 2) };
        let to = SocketAddr::new(to, PORT);
        let stream = hosts.client.run(|| TcpStream::connect(to)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    };
    (0..count).map(one).collect()
}

fn all_echo(streams: &[TcpStream], len: usize, seed: u64) {
    std::thread::scope(|scope| {
        for (number, stream) in streams.iter().enumerate() {
            scope.spawn(move || echoes(stream, &bytes(len, seed + number as u64)));
        }
    });
}

/// What `wharf connections --json` shows, with more words.
fn listed(hosts: &Hosts, words: &[&str]) -> Vec<Value> {
    let ended = hosts.wharf(&[&["connections", "--json"], words].concat());
    assert!(ended.status.success(), "{ended}");
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How many connections this NIC has, all of which go by its wire.
fn on(hosts: &Hosts, nic: &str) -> usize {
    let all = listed(hosts, &["--where", "nic"]);
    let its = all.iter().filter(|one| one["nic"] == nic);
    its.inspect(|one| {
        let end: SocketAddr = one["local"].as_str().unwrap().parse().unwrap();
        let is_second = Ip::BOTH.iter().any(|ip| second(*ip, 2) == end.ip());
        assert_eq!(is_second, nic == HOST2, "{one}");
    })
    .count()
}

/// Waits until so many are on each, while all go on.
fn are_on(hosts: &Hosts, streams: &[TcpStream], (first, other): (usize, usize)) {
    let there = wait_until(|| {
        all_echo(streams, 3000, 11);
        (on(hosts, HOST), on(hosts, HOST2)) == (first, other)
    });
    assert!(there, "{}", hosts.wharf(&["connections"]));
}

fn done(hosts: &Hosts, words: &[&str]) -> String {
    let ended = hosts.wharf(words);
    assert!(ended.status.success(), "{ended}");
    ended.stdout
}

/// A counter of one of the wharfs.
fn counter(hosts: &Hosts, nic: &str, name: &str) -> u64 {
    let stats: Value =
        serde_json::from_str(&done(hosts, &["stats", "--json", "--host", nic])).unwrap();
    let all = stats["counters"].as_array().unwrap();
    let one = all.iter().find(|one| one["group"] == "handoff" && one["name"] == name);
    one.unwrap()["value"].as_u64().unwrap()
}

/// One wharf is killed and started again, and the other is stopped and started again: connections go on, those of the other
/// NIC stay there, and all are where they were in the end.
fn outlive(options: &[&str], script: &str) {
    let Some(hosts) = hosts() else { return };
    let (first, other) = (up(&hosts, WIRE, HOST), up(&hosts, WIRE2, HOST2));
    let _server = serve(&hosts, &[&["--policy", "at_accept"], options].concat(), script);
    let streams = connect(&hosts, 8);
    are_on(&hosts, &streams, (4, 4));
    for nic in [HOST, HOST2] {
        let lasting = lasting_refusals(&hosts, nic);
        assert!(lasting.is_empty(), "{nic}: {lasting:?}");
    }
    all_echo(&streams, 1_000_000, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| all_echo(&streams, 10_000_000, 20));
        std::thread::sleep(Duration::from_millis(50));
        first.signal(Signal::Kill);
        drop(first.wait());
    });
    assert_eq!(on(&hosts, HOST2), 4, "{}", hosts.wharf(&["connections"]));
    assert!(wait_until(|| guards(&hosts).len() == 1), "the guard does not end");
    let first = up(&hosts, WIRE, HOST);
    are_on(&hosts, &streams, (4, 4));
    std::thread::scope(|scope| {
        scope.spawn(|| all_echo(&streams, 10_000_000, 30));
        std::thread::sleep(Duration::from_millis(50));
        other.signal(Signal::Interrupt);
        let ended = other.wait();
        assert!(ended.status.success(), "{ended}");
    });
    assert_eq!(on(&hosts, HOST), 4, "{}", hosts.wharf(&["connections"]));
    assert_eq!(counter(&hosts, HOST, "restored"), 0);
    let _other = up(&hosts, WIRE2, HOST2);
    are_on(&hosts, &streams, (4, 4));
    all_echo(&streams, 1_000_000, 40);
    streams.into_iter().for_each(ends);
    drop(first);
}

#[test]
fn connections_of_an_event_loop_outlive_one_of_two_wharfs() {
    outlive(&[], EVENTS);
}

#[test]
fn connections_of_threads_outlive_one_of_two_wharfs() {
    outlive(&[], THREADS);
}

#[test]
fn connections_in_poll_outlive_one_of_two_wharfs() {
    outlive(&[], &THREADS.replace("def serve(c):", "def serve(c):\n    c.settimeout(60)"));
}

#[test]
fn connections_in_select_outlive_one_of_two_wharfs() {
    outlive(&[], SELECTS);
}

/// Each wharf moves its own by hand, and both do together. Idle ones move, too.
#[test]
fn connections_of_two_nics_move_by_hand() {
    let polls = THREADS.replace("def serve(c):", "def serve(c):\n    c.settimeout(60)");
    for script in [EVENTS, &polls] {
        let Some(hosts) = hosts() else { return };
        let _first = (up(&hosts, WIRE, HOST), up(&hosts, WIRE2, HOST2));
        let _server = serve(&hosts, &["--policy", "by_hand"], script);
        let streams = connect(&hosts, 8);
        all_echo(&streams, 1000, 1);
        let idle_are_on = |to: (usize, usize), words: &[&str]| {
            let there = wait_until(|| {
                done(&hosts, words);
                (on(&hosts, HOST), on(&hosts, HOST2)) == to
            });
            assert!(there, "{words:?}: {}", hosts.wharf(&["connections"]));
            all_echo(&streams, 100_000, 2);
        };
        idle_are_on((0, 4), &["handoff", "--to", "nic", "--all", "--host", HOST2]);
        idle_are_on((4, 4), &["handoff", "--to", "nic", "--all"]);
        idle_are_on((4, 0), &["handoff", "--to", "os", "--all", "--host", HOST2]);
        // One, which is found by its ends.
        let [local, remote] =
            [streams[1].peer_addr(), streams[1].local_addr()].map(|end| end.unwrap().to_string());
        idle_are_on((4, 1), &["handoff", "--to", "nic", &local, &remote]);
        let said = done(&hosts, &["handoff", "--to", "nic", &local, &remote]);
        assert!(said.contains("on the NIC"), "{said}");
        idle_are_on((4, 0), &["handoff", "--to", "os", &local, &remote]);
        idle_are_on((0, 0), &["handoff", "--to", "os", "--all"]);
        let unknown = hosts.wharf(&["handoff", "--to", "os", &local, "10.99.0.1:1"]);
        assert!(unknown.stderr.contains("no such connection"), "{unknown}");
        streams.into_iter().for_each(ends);
    }
}

/// A program with connections at the kernel finds a wharf that is started after it. With `--nic` it does not.
#[test]
fn a_wharf_that_is_started_later_joins() {
    for (options, finds) in [(&[][..], true), (&["--nic", HOST], false)] {
        let Some(hosts) = hosts() else { return };
        let _first = up(&hosts, WIRE, HOST);
        let _server = serve(&hosts, &[&["--policy", "at_accept"], options].concat(), EVENTS);
        let mut streams = connect(&hosts, 4);
        are_on(&hosts, &streams, (2, 0));
        let _other = up(&hosts, WIRE2, HOST2);
        streams.extend(connect(&hosts, 4));
        // Root's wharfs have files, which are found.
        let is_root = std::fs::exists("/run/wharf").unwrap() && sys::process::has_bpf();
        are_on(&hosts, &streams, (4, if finds && is_root { 4 } else { 0 }));
        streams.into_iter().for_each(ends);
    }
}

/// The route to the client moves from one NIC to the other.
#[test]
fn a_connection_follows_its_route_to_the_other_nic() {
    let Some(hosts) = hosts() else { return };
    let _wharfs = (up(&hosts, WIRE, HOST), up(&hosts, WIRE2, HOST2));
    let _server = serve(&hosts, &["--policy", "at_accept", "--nic", "host0,host1"], THREADS);
    let stream = connect(&hosts, 1).remove(0);
    let is_on = |nic: &str| {
        wait_until(|| {
            echoes(&stream, &bytes(3000, 1));
            let all = listed(&hosts, &["--where", "nic"]);
            all.len() == 1 && all[0]["nic"] == nic
        })
    };
    assert!(is_on(HOST), "{}", hosts.wharf(&["connections"]));
    hosts.client.succeed("ip", &["route", "add", "10.77.0.2/32", "dev", PEER2]);
    hosts.ip(&format!("route add 10.77.0.1/32 dev {HOST2}"));
    assert!(is_on(HOST2), "{}", hosts.wharf(&["connections"]));
    ends(stream);
}

/// The supervisor of a program that gets pairs has connections of both NICs, as any program that has the library.
#[test]
fn connections_of_pairs_outlive_one_of_two_wharfs() {
    outlive(&["--bypass", "pair"], EVENTS);
}
