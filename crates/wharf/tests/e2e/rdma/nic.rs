//! Verbs where `wharf up` runs, at one end or at both: connections are its TCP's, and the kernel's again.

use std::net::Ipv4Addr;

use serde_json::Value;
use sys::process::Signal;
use testkit::lab::{Host, Program, Wire, have, wait_until};

use super::lives::Peer;
use super::programs::{self, PERFTESTS, SHARED_AND_BY_EVENTS, perftest, rping};
use super::{Pair, as_user, mpi};
use crate::setup::{HOST, Hosts, Ip, PEER, Plan, Port, WIRE, give, wharf};

/// The ends at which a NIC runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    Server,
    Both,
}

const EACH: [Ends; 2] = [Ends::Server, Ends::Both];

/// How often connections are moved under traffic.
const CHANGES: u32 = 10;
/// What is to come by the kernel's TCP when the NIC is gone.
const MORE_BYTES: u64 = 8 << 20;

const MORE: [&str; 3] = ["--set", "workers=1", "--take-addresses"];

/// A wharf of this host's, which traffic goes through.
fn up(host: &Host, wire: &str, name: &str) -> Program {
    let mut up = wharf();
    up.args(["up", "--wire", wire, "--host", name]).args(MORE);
    let mut up = host.spawn(&mut up);
    up.line_with("up: ");
    up
}

impl Pair {
    /// As [`new`](Self::new), with `wharf up` at these ends.
    pub(super) fn with_nic(ends: Ends, programs: &[&str]) -> Option<Pair> {
        if !have(programs) || !have(&["setpriv"]) {
            return None;
        }
        let hosts = Plan::new(Port::Auto).hosts()?;
        give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
        let mut wharfs = vec![hosts.wharf_up(&MORE)];
        let Hosts { client, server, .. } = hosts;
        if ends == Ends::Both {
            wharfs.push(up(&client, PEER, HOST));
        }
        Some(Pair::of(wharfs, client, server))
    }

    /// The hosts that have a NIC.
    pub(super) fn on_nic(&self) -> Vec<&Host> {
        [&self.server, &self.client].into_iter().take(self.wharfs.len()).collect()
    }

    /// Moves all connections of these hosts.
    fn move_all(&self, to: &str) {
        for host in self.on_nic() {
            // On a busy machine a wharf may answer later than it is waited for.
            let asked = || host.output(wharf().args(["handoff", "--to", to, "--all"]));
            assert!(wait_until(|| asked().status.success()), "{}", asked());
        }
    }
}

/// What `wharf connections` says of each: where it is.
fn places(host: &Host) -> Vec<String> {
    let ended = host.output(wharf().args(["connections", "--json"]));
    assert!(ended.status.success(), "{ended}");
    let all = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.map(|one| one["where"].as_str().unwrap().to_owned()).collect()
}

fn counter(host: &Host, group: &str, name: &str) -> u64 {
    let ended = host.output(wharf().args(["stats", "--json"]));
    assert!(ended.status.success(), "{ended}");
    let stats: Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut all = stats["counters"].as_array().unwrap().iter();
    all.find(|of| of["group"] == group && of["name"] == name).unwrap()["value"].as_u64().unwrap()
}

/// How many connections the NIC of this host has taken from the kernel.
pub(super) fn handoffs(host: &Host) -> u64 {
    counter(host, "handoff", "handoffs")
}

/// The NICs of these hosts have taken so many connections at least, each. A wharf tells what it has counted when it has nothing
/// else to do.
fn have_taken(pair: &Pair, least: u64) {
    let have_all = || pair.on_nic().into_iter().all(|host| handoffs(host) >= least);
    let counts = || pair.on_nic().into_iter().map(handoffs).collect::<Vec<_>>();
    assert!(wait_until(have_all), "{:?}, not {least}", counts());
}

/// Programs have their connections on the NIC, for as long as they have them.
#[test]
fn programs_run_on_the_tcp_of_the_nic() {
    for ends in EACH {
        let names = [&["rping"][..], &PERFTESTS].concat();
        let Some(pair) = Pair::with_nic(ends, &names) else { return };
        rping(&pair, Ip::V4, "64");
        rping(&pair, Ip::V6, "65000");
        have_taken(&pair, 2);
        let before: Vec<u64> = pair.on_nic().into_iter().map(handoffs).collect();
        for name in PERFTESTS {
            perftest(&pair, &[name, "-R", "-n", "300"]);
        }
        perftest(&pair, &["ib_read_bw", "-R", "-n", "100", "-b", "-q", "8", "-s", "4096"]);
        let mut runs = PERFTESTS.len() + 1;
        // The rest of what is tried at the kernel's TCP runs in a setting of its own (`settings`).
        if ends == Ends::Both {
            programs::all_sizes(&pair, "ib_write_bw");
            programs::shared_and_by_events(&pair);
            runs += 1 + SHARED_AND_BY_EVENTS.len();
        }
        for (host, before) in pair.on_nic().into_iter().zip(before) {
            // Each program of perftest's has one to exchange addresses, and those of its queue pairs.
            let have_all = || handoffs(host) >= before + runs as u64;
            assert!(wait_until(have_all), "{ends:?}: {}, {runs} runs", handoffs(host));
            let of = |group, name| counter(host, group, name);
            let stats = || host.output(wharf().args(["stats"]));
            // Connections of programs that end soon may have ended as they were offered.
            let of_the_moment: u64 =
                ["state", "load", "queue"].iter().map(|name| of("handoff_refused", name)).sum();
            let (refused, back) = (of("handoff", "refused"), of("handoff", "restored"));
            assert_eq!((refused, back), (of_the_moment, 0), "{ends:?}: {}", stats());
        }
    }
}

#[test]
fn rping_runs_in_its_modes_on_the_tcp_of_the_nic() {
    let Some(pair) = Pair::with_nic(Ends::Both, &["rping"]) else { return };
    programs::rping_modes(&pair);
    have_taken(&pair, 4);
}

#[test]
fn programs_of_the_connection_manager_run_on_the_tcp_of_the_nic() {
    let names = ["ucmatose", "rdma_server", "rdma_client", "fi_pingpong"];
    let Some(pair) = Pair::with_nic(Ends::Both, &names) else { return };
    programs::connection_manager(&pair);
    programs::libfabric(&pair);
    // What is over soon may be over before it was to move.
    have_taken(&pair, 4);
}

#[test]
fn storage_and_benchmarks_run_on_the_tcp_of_the_nic() {
    let Some(pair) = Pair::with_nic(Ends::Both, &["fio", "qperf"]) else { return };
    programs::storage(&pair);
    have_taken(&pair, 9);
}

/// What processes of one host send each other stays with the kernel's TCP, as does what is compared with it.
#[test]
fn collectives_are_the_same_on_the_tcp_of_the_nic() {
    let Some(pair) = Pair::with_nic(Ends::Both, &mpi::PROGRAMS) else { return };
    mpi::collectives(&pair, &[4]);
    have_taken(&pair, 1);
}

#[test]
fn hpcc_passes_its_own_verification_on_the_tcp_of_the_nic() {
    let Some(pair) = Pair::with_nic(Ends::Both, &["mpirun", "hpcc"]) else { return };
    mpi::hpcc(&pair);
    have_taken(&pair, 1);
}

#[test]
fn netpipe_finds_every_byte_right_on_the_tcp_of_the_nic() {
    let Some(pair) = Pair::with_nic(Ends::Both, &["mpirun", "NPopenmpi"]) else { return };
    mpi::netpipe(&pair);
    have_taken(&pair, 1);
}

/// The counters of the one process that this host's device serves.
fn told(host: &Host) -> Value {
    let ended = host.output(&mut as_user(&["rdma", "stats", "--json"]));
    assert!(ended.status.success(), "{ended}");
    serde_json::from_str::<Value>(&ended.stdout).unwrap()["processes"][0]["counters"].clone()
}

fn of(told: &Value, name: &str) -> u64 {
    told[name].as_u64().unwrap()
}

/// Where the connection is, what the device has done says.
#[test]
fn the_device_tells_what_the_nic_has_carried_and_by_which_calls() {
    let Some(peer) = peer(Ends::Server, "told") else { return };
    let mut device = peer.pair.server.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let mut server = peer.serve("fork");
    let mut client = peer.call("call");
    server.line_with("ready");
    assert!(wait_until(|| places(&peer.pair.server) == ["nic"]));
    peer.go();
    assert_eq!(client.line_with("status"), "status 0");
    assert!(client.wait().status.success());
    let told = || told(&peer.pair.server);
    // All that has come is told before the device sleeps.
    assert!(wait_until(|| of(&told(), "placed_bytes") >= 2000 * (64 << 10)), "{}", told());
    let told = told();
    // Set-up, and what came while the connection moved, went by the kernel.
    assert!(of(&told, "nic_bytes_in") > of(&told, "bytes_in") / 2, "{told}");
    assert!(of(&told, "nic_bytes_out") > of(&told, "bytes_out") / 2, "{told}");
    assert_eq!(of(&told, "in_place_bytes"), of(&told, "nic_bytes_in"), "{told}");
    // All but FPDUs, if any, for which there was no room in one piece.
    let [laid, out] = ["in_place_bytes_out", "nic_bytes_out"].map(|name| of(&told, name));
    assert!(laid > out / 10 * 9 && laid <= out, "{told}");
    assert!(of(&told, "nic_reads") > 0 && of(&told, "nic_reads") <= of(&told, "reads"), "{told}");
    assert!(of(&told, "memory_calls") > 2000 && of(&told, "waits") > 0, "{told}");
    // Each byte comes in whole FPDUs, or its FPDU's first part is copied once more, which is less than a segment a read.
    assert!(of(&told, "held_bytes") <= of(&told, "reads") * 1500, "{told}");
    server.signal(Signal::HangUp);
    server.line_with("disconnected");
    assert!(server.wait().status.success());
}

fn peer(ends: Ends, name: &str) -> Option<Peer> {
    Peer::of(Pair::with_nic(ends, &[])?, &format!("{name}-{ends:?}"))
}

/// Traffic of programs that share a device at either end, each with a connection and a thread of the device's, while
/// `change` is made so often. Every byte is compared.
fn traffic(peer: &Peer, ports: &[&str], mut change: impl FnMut(u32)) {
    let pair = &peer.pair;
    let mut devices = [&pair.server, &pair.client].map(|host| host.spawn(&mut as_user(&["rdma"])));
    devices.iter_mut().for_each(|device| drop(device.line_with("serves")));
    let start = |port: &&str| {
        let mut server = peer.serve_at(port, "fork");
        let client = peer.call_until_at(port);
        server.line_with("ready");
        (server, client)
    };
    let mut programs: Vec<(Program, Program)> = ports.iter().map(start).collect();
    let is_there = |host: &&Host| places(host) == vec!["nic"; ports.len()];
    assert!(wait_until(|| pair.on_nic().iter().all(is_there)));
    peer.go();
    programs.iter_mut().for_each(|(_, client)| drop(client.line_with("moves")));
    (0..CHANGES).for_each(&mut change);
    peer.enough();
    for (mut server, client) in programs {
        let client = client.wait();
        assert!(client.status.success() && client.stdout.contains("status 0"), "{client}");
        server.signal(Signal::HangUp);
        server.line_with("disconnected");
        assert!(server.wait().status.success());
    }
}

#[test]
fn connections_move_to_and_fro_under_load() {
    for ends in EACH {
        let Some(peer) = peer(ends, "moves") else { return };
        traffic(&peer, &["5001", "5002", "5003"], |round| {
            peer.pair.move_all(["os", "nic"][round as usize % 2])
        });
        for host in peer.pair.on_nic() {
            let of = |name| counter(host, "handoff", name);
            // The first are those of the beginning.
            assert!(of("handoffs") > 3 && of("restored") > 0, "{ends:?}: {}", of("handoffs"));
        }
    }
}

/// The kernel's TCP goes on with them.
#[test]
fn the_end_of_the_nic_is_not_noticed() {
    for signal in [Signal::Interrupt, Signal::Kill] {
        for ends in EACH {
            let Some(mut peer) = peer(ends, "ends") else { return };
            let mut wharfs = std::mem::take(&mut peer.pair.wharfs);
            let hosts = [&peer.pair.server, &peer.pair.client];
            let mut devices = hosts.map(|host| host.spawn(&mut as_user(&["rdma"])));
            devices.iter_mut().for_each(|device| drop(device.line_with("serves")));
            let mut server = peer.serve("fork");
            let mut client = peer.call_until();
            server.line_with("ready");
            let on_nic = || hosts.iter().take(wharfs.len()).all(|host| places(host) == ["nic"]);
            assert!(wait_until(on_nic));
            peer.go();
            client.line_with("moves");
            // FPDUs are laid out in its memory when it ends.
            let are_laid = |host: &&Host| of(&told(host), "in_place_bytes_out") > 0;
            assert!(wait_until(|| hosts.iter().take(wharfs.len()).all(are_laid)));
            wharfs.iter().for_each(|wharf| wharf.signal(signal));
            assert!(wait_until(|| wharfs.iter_mut().all(|wharf| !wharf.runs())));
            let placed = || of(&told(&peer.pair.server), "placed_bytes");
            let before = placed();
            assert!(wait_until(|| placed() > before + MORE_BYTES), "{signal:?} {ends:?}");
            peer.enough();
            assert_eq!(client.line_with("status"), "status 0", "{signal:?} {ends:?}");
            assert!(client.wait().status.success());
            server.signal(Signal::HangUp);
            server.line_with("disconnected");
            assert!(server.wait().status.success());
        }
    }
}

/// A second wire's ends, and its host's interface.
const PEER2: &str = "peer1";
const WIRE2: &str = "wire1";
const HOST2: &str = "host1";
/// How often a client writes and reads, and how many bytes.
const ROUNDS: u64 = 100;
const PIECE: u64 = 64 << 10;

/// The server's device serves a program, to which a client writes: by the TCP of a NIC, or by the kernel's alone.
fn serves(peer: &Peer, by_nic: bool) {
    let host = &peer.pair.server;
    let mut server = peer.serve("fork");
    let mut client = peer.call_times(ROUNDS);
    server.line_with("ready");
    assert!(!by_nic || wait_until(|| places(host) == ["nic"]), "{:?}", places(host));
    peer.go();
    assert_eq!(client.line_with("status"), "status 0");
    let places = places(host);
    assert!(by_nic || places.iter().all(|place| place == "os"), "{places:?}");
    assert!(client.wait().status.success());
    // All that has come is told before the device sleeps.
    let is_told = || of(&told(host), "placed_bytes") >= ROUNDS * PIECE;
    assert!(wait_until(is_told), "{}", told(host));
    let told = told(host);
    let [nic_in, nic_out] = ["nic_bytes_in", "nic_bytes_out"].map(|name| of(&told, name));
    match by_nic {
        // The client has begun when the connection was there; only set-up went by the kernel.
        true => assert!(nic_in > of(&told, "bytes_in") / 2 && nic_out > 0, "{told}"),
        false => assert_eq!((nic_in, nic_out), (0, 0), "{told}"),
    }
    server.signal(Signal::HangUp);
    server.line_with("disconnected");
    assert!(server.wait().status.success());
}

/// All connections go by the first wire. A device that has the second one's wharf alone leaves them to the kernel.
#[test]
fn a_device_has_those_nics_that_it_is_given() {
    let Some(mut pair) = Pair::with_nic(Ends::Server, &[]) else { return };
    let wire = Wire { near: PEER2, far: WIRE2, mtu: 1500, queues: 1, offloads: false };
    wire.lay(&pair.client, &pair.server);
    give(&pair.server, WIRE2, &[Ip::V4], |_| Ipv4Addr::new(10, 78, 0, 2).into());
    pair.wharfs.push(up(&pair.server, WIRE2, HOST2));
    let both = [HOST, HOST2].join(",");
    let choices: [(&[&str], bool); 4] = [
        (&["--nic", HOST], true),
        (&["--nic", &both], true),
        (&["--nic", HOST2], false),
        (&["--no-nic"], false),
    ];
    for (number, (choice, by_nic)) in choices.into_iter().enumerate() {
        eprintln!("{choice:?}");
        let Some(peer) = Peer::of(pair, &format!("given-{number}")) else { return };
        let mut device = peer.pair.server.spawn(&mut as_user(&[&["rdma"], choice].concat()));
        device.line_with("serves");
        serves(&peer, by_nic);
        pair = peer.pair;
    }
    let none = pair.server.output(&mut as_user(&["rdma", "--nic", "other0"]));
    assert_eq!(none.status.code(), Some(2), "{none}");
    assert!(none.stderr.contains("no wharf has the host interface other0 here"), "{none}");
    let neither = pair.server.output(&mut as_user(&["rdma", "--nic", HOST, "--no-nic"]));
    assert_eq!(neither.status.code(), Some(2), "{neither}");
}

#[test]
fn a_device_that_began_before_any_wharf_stays_with_the_kernel() {
    if !have(&["setpriv"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Auto).hosts() else { return };
    give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
    let mut device = hosts.server.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let wharfs = vec![hosts.wharf_up(&MORE)];
    let Hosts { client, server, .. } = hosts;
    let Some(peer) = Peer::of(Pair::of(wharfs, client, server), "before") else { return };
    serves(&peer, false);
}

/// Its connection goes on as well: it is the first wharf's, the kernel's, and then the next one's.
#[test]
fn a_device_that_began_under_a_wharf_goes_on_with_the_next() {
    let Some(mut peer) = peer(Ends::Server, "next") else { return };
    let first = peer.pair.wharfs.remove(0);
    let host = &peer.pair.server;
    let mut device = host.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let mut server = peer.serve("fork");
    let mut client = peer.call_until();
    server.line_with("ready");
    assert!(wait_until(|| places(host) == ["nic"]), "{:?}", places(host));
    peer.go();
    client.line_with("moves");
    first.signal(Signal::Interrupt);
    let ended = first.wait();
    assert!(ended.status.success(), "{ended}");
    let by_kernel = || {
        let told = told(host);
        of(&told, "bytes_in") - of(&told, "nic_bytes_in")
    };
    let before = by_kernel();
    assert!(wait_until(|| by_kernel() > before + MORE_BYTES), "{}", told(host));
    let _next = up(host, WIRE, HOST);
    assert!(wait_until(|| places(host) == ["nic"]), "{:?}", places(host));
    let by_nic = || of(&told(host), "nic_bytes_in");
    let before = by_nic();
    assert!(wait_until(|| by_nic() > before + MORE_BYTES), "{}", told(host));
    peer.enough();
    assert_eq!(client.line_with("status"), "status 0");
    assert!(client.wait().status.success());
    server.signal(Signal::HangUp);
    server.line_with("disconnected");
    assert!(server.wait().status.success());
}
