//! What the host has a say about while the NIC runs its connections: routes, addresses, neighbours, the firewall,
//! conntrack, quotas. Whatever changes, connections live on, every byte compared.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use sys::netlink::{Connection, Protocol, conntrack};
use sys::process::Signal;
use testkit::firewall::{self, Hook, Kind, Rule};
use testkit::lab::{Host, Program, Wire, have, wait_until};
use testkit::missing::kernel_lacks;

use crate::handoff::{PORT, THREADS, bytes, connect, echoes, ends, serve};
use crate::setup::{HOST, Hosts, Ip, PEER, Plan, Port, Up, WIRE, give};

/// wharf, a server that echoes, and connections to it of both versions.
struct Lab {
    up: Up,
    _server: Program,
    streams: Vec<TcpStream>,
}

impl Lab {
    fn new(words: &[&str], policy: &str, connections: usize) -> Option<Lab> {
        let up = up(words)?;
        Some(Lab::on(up, policy, connections))
    }

    fn on(up: Up, policy: &str, connections: usize) -> Lab {
        let server = serve(&up.hosts, policy, THREADS);
        let streams = (0..connections).map(|at| connect(&up.hosts, Ip::BOTH[at % 2])).collect();
        Lab { up, _server: server, streams }
    }

    fn hosts(&self) -> &Hosts {
        &self.up.hosts
    }

    fn all_echo(&self, len: usize, seed: u64) {
        std::thread::scope(|scope| {
            for (number, stream) in self.streams.iter().enumerate() {
                scope.spawn(move || echoes(stream, &bytes(len, seed + number as u64)));
            }
        });
    }

    /// All connections go to the NIC. One that the kernel does not give now is asked for again.
    fn to_nic(&self) {
        let all_are = wait_until(|| {
            let ended = self.hosts().wharf(&["handoff", "--to", "nic", "--all"]);
            assert!(ended.status.success(), "{ended}");
            self.all_echo(5_000, 1);
            self.at_nic() == self.streams.len()
        });
        assert!(
            all_are,
            "{} at the NIC, refused: {:?}",
            self.at_nic(),
            self.why("handoff_refused")
        );
    }

    /// Connections that the NIC runs.
    fn at_nic(&self) -> usize {
        let ended = self.hosts().wharf(&["connections", "--json"]);
        assert!(ended.status.success(), "{ended}");
        ended.stdout.lines().filter(|line| line.contains(r#""where":"nic""#)).count()
    }

    /// The counters of a group that are not 0.
    fn why(&self, group: &str) -> Vec<(String, u64)> {
        self.up.group(group).filter(|(_, count)| *count > 0).collect()
    }

    /// Something is done while all are busy at the NIC, and they go back for this reason; `after` it they can go on.
    fn goes_back(&self, reason: &str, change: impl FnOnce(&Hosts), after: impl FnOnce(&Hosts)) {
        self.to_nic();
        let before = self.up.counter("handoff_restored", reason);
        let restored = || self.up.counter("handoff_restored", reason) - before;
        std::thread::scope(|scope| {
            for (number, stream) in self.streams.iter().enumerate() {
                scope.spawn(move || echoes(stream, &bytes(3_000_000, number as u64)));
            }
            change(self.hosts());
            let all_did = wait_until(|| restored() == self.streams.len() as u64);
            assert!(all_did, "{} for {reason}: {:?}", restored(), self.why("handoff_restored"));
            after(self.hosts());
        });
        self.all_echo(10_000, 3);
    }

    /// Connections are not handed off, for this reason.
    fn are_refused(&self, reason: &str) {
        let refused = || self.up.counter("handoff_refused", reason);
        // What waits is offered at once.
        let before = refused();
        let ended = self.hosts().wharf(&["handoff", "--to", "nic", "--all"]);
        assert!(ended.status.success(), "{ended}");
        let all_are = wait_until(|| {
            self.all_echo(100, 5);
            refused() - before >= self.streams.len() as u64
        });
        assert!(all_are, "{:?}", self.why("handoff_refused"));
        assert_eq!(self.at_nic(), 0);
    }

    fn end(self) {
        self.streams.into_iter().for_each(ends);
        self.up.nothing_went_wrong();
    }
}

fn up(words: &[&str]) -> Option<Up> {
    if !have(&["python3"]) {
        return None;
    }
    Plan::new(Port::Auto).up_with(&[&["--set", "workers=1"], words].concat())
}

/// Whether a command is done on a host: a kernel may lack a part of what it asks for.
fn done(host: &Host, line: &str) -> bool {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    host.output(command.args(words)).status.success()
}

/// Whether there is a firewall to be had.
fn has_firewall() -> bool {
    let Some(host) = Host::new() else { return false };
    let added = host.run(|| firewall::add(Kind::Filter, &[Hook::Forward], &[Rule::DropInvalid]));
    if let Err(error) = &added {
        kernel_lacks(format!("nftables with conntrack: {error}"));
    }
    added.is_ok()
}

#[test]
fn a_rule_of_the_firewall_gives_connections_back() {
    if !has_firewall() {
        return;
    }
    let Some(lab) = Lab::new(&[], "by_hand", 4) else { return };
    let add = |hosts: &Hosts| {
        hosts
            .server
            .run(|| firewall::add(Kind::Filter, &[Hook::Input, Hook::Output], &[Rule::Accept]))
            .unwrap();
    };
    lab.goes_back("firewall", add, |_| ());
    lab.are_refused("firewall");
    lab.hosts().server.run(firewall::remove).unwrap();
    // What is forwarded is others'.
    lab.hosts()
        .server
        .run(|| firewall::add(Kind::Filter, &[Hook::Forward], &[Rule::Accept]))
        .unwrap();
    lab.to_nic();
    // What might be translated was not.
    lab.hosts().server.run(|| {
        firewall::remove().unwrap();
        firewall::add(Kind::Nat, &[Hook::Input, Hook::Output], &[Rule::Accept]).unwrap();
    });
    lab.all_echo(10_000, 7);
    assert_eq!(lab.at_nic(), 4);
    lab.end();
}

#[test]
fn filters_of_tc_give_connections_back() {
    if !have(&["tc"]) {
        return;
    }
    let Some(lab) = Lab::new(&[], "by_hand", 2) else { return };
    let server = &lab.hosts().server;
    let filter = format!("tc filter add dev {HOST} egress protocol ip pref 1 u32 match u32 0 0");
    if !done(server, &format!("tc qdisc add dev {HOST} clsact")) || !done(server, &filter) {
        return kernel_lacks("clsact and u32 of tc");
    }
    lab.are_refused("traffic_control");
    assert!(done(server, &format!("tc filter del dev {HOST} egress")));
    lab.goes_back("firewall", |hosts| assert!(done(&hosts.server, &filter)), |_| ());
    lab.end();
}

/// A policy of IPsec without a state drops what it applies to, so it is removed again.
#[test]
fn a_policy_of_ipsec_gives_connections_back() {
    let Some(lab) = Lab::new(&[], "by_hand", 2) else { return };
    let of = |ip: Ip, what: &str| {
        format!("ip xfrm policy {what} src {} dst {} dir out", ip.server(), ip.client())
    };
    let add = |host: &Host| {
        Ip::BOTH.iter().all(|ip| done(host, &(of(*ip, "add") + " tmpl proto esp mode transport")))
    };
    let remove = |host: &Host| assert!(Ip::BOTH.iter().all(|ip| done(host, &of(*ip, "del"))));
    if !add(&lab.hosts().server) {
        return kernel_lacks("ip xfrm");
    }
    remove(&lab.hosts().server);
    let both = |hosts: &Hosts| assert!(add(&hosts.server));
    lab.goes_back("firewall", both, |hosts| remove(&hosts.server));
    lab.end();
}

/// The server's packets go by another wire from now on, and so do the client's.
#[test]
fn a_route_that_moves_to_another_interface_takes_connections_with_it() {
    let Some(lab) = Lab::new(&[], "by_hand", 4) else { return };
    let hosts = lab.hosts();
    Wire { near: "peer1", far: "wire1", mtu: 1500, queues: 1, offloads: false }
        .lay(&hosts.client, &hosts.server);
    let bits = |ip: Ip| if ip == Ip::V4 { 32 } else { 128 };
    let by = |host: &Host, what: &str, to: &str, dev: &str| {
        assert!(done(host, &format!("ip route {what} {to} dev {dev}")), "{to} by {dev}");
    };
    let to = |ip: Ip, end: fn(Ip) -> std::net::IpAddr| format!("{}/{}", end(ip), bits(ip));
    // IPv6 answers for addresses of the interface alone.
    for (host, dev, end) in [
        (&hosts.client, "peer1", Ip::client as fn(Ip) -> std::net::IpAddr),
        (&hosts.server, "wire1", Ip::server),
    ] {
        assert!(done(host, &format!("ip -6 addr add {} dev {dev} nodad", to(Ip::V6, end))));
    }
    let moves = |hosts: &Hosts| {
        for ip in Ip::BOTH {
            by(&hosts.client, "add", &to(ip, Ip::server), "peer1");
            by(&hosts.server, "add", &to(ip, Ip::client), "wire1");
        }
    };
    lab.goes_back("route", moves, |_| ());
    lab.are_refused("route");
    for ip in Ip::BOTH {
        by(&hosts.client, "del", &to(ip, Ip::server), "peer1");
        by(&hosts.server, "del", &to(ip, Ip::client), "wire1");
    }
    // Another gateway, by the same interface.
    let router = |ip| if ip == Ip::V4 { "10.77.0.7" } else { "fd77::7" }.parse().unwrap();
    give(&hosts.client, PEER, &Ip::BOTH, router);
    let gateway = |hosts: &Hosts| {
        for ip in Ip::BOTH {
            let to = format!("{} via {}", to(ip, Ip::client), router(ip));
            by(&hosts.server, "add", &to, HOST);
        }
    };
    lab.goes_back("route", gateway, |_| ());
    lab.end();
}

/// There is no way to the peer for a while. Afterwards the policy picks them again.
#[test]
fn connections_outlive_a_route_that_goes_away() {
    let Some(lab) = Lab::new(&[], "after=64KB", 4) else { return };
    let unreachable = |hosts: &Hosts, what: &str| {
        for ip in Ip::BOTH {
            let bits = if ip == Ip::V4 { 32 } else { 128 };
            let to = format!("{}/{bits}", ip.client());
            assert!(done(&hosts.server, &format!("ip route {what} unreachable {to} metric 7")));
        }
    };
    let gone = |hosts: &Hosts| unreachable(hosts, "add");
    lab.goes_back("route", gone, |hosts| unreachable(hosts, "del"));
    let all_are = wait_until(|| {
        lab.all_echo(20_000, 4);
        lab.at_nic() == 4
    });
    assert!(all_are, "{:?}", lab.why("handoff_refused"));
    lab.end();
}

#[test]
fn connections_outlive_an_address_that_goes_away() {
    let Some(lab) = Lab::new(&[], "by_hand", 4) else { return };
    let address = |hosts: &Hosts, what: &str| {
        for (ip, len, more) in [(Ip::V4, 24, ""), (Ip::V6, 64, " nodad")] {
            let line = format!("ip addr {what} {}/{len} dev {HOST}{more}", ip.server());
            assert!(done(&hosts.server, &line), "{line}");
        }
    };
    let gone = |hosts: &Hosts| address(hosts, "del");
    lab.goes_back("address", gone, |hosts| address(hosts, "add"));
    lab.end();
}

/// The client has another Ethernet address from now on, and says so.
#[test]
fn connections_follow_their_neighbour() {
    let Some(lab) = Lab::new(&[], "by_hand", 4) else { return };
    let hosts = lab.hosts();
    hosts.client.run(|| {
        for (version, key) in [("ipv4", "arp_notify"), ("ipv6", "ndisc_notify")] {
            sys::sysctl::write(&[version, "conf", PEER, key], "1").unwrap();
        }
    });
    lab.to_nic();
    std::thread::scope(|scope| {
        for (number, stream) in lab.streams.iter().enumerate() {
            scope.spawn(move || echoes(stream, &bytes(3_000_000, number as u64)));
        }
        let line = format!("ip link set {PEER} address 02:77:00:00:00:77");
        assert!(done(&hosts.client, &line));
    });
    lab.all_echo(10_000, 3);
    assert_eq!((lab.at_nic(), lab.why("handoff_restored")), (4, vec![]));
    lab.end();
}

/// The ends of the server's side of a connection.
fn ends_of(stream: &TcpStream) -> (SocketAddr, SocketAddr) {
    (stream.peer_addr().unwrap(), stream.local_addr().unwrap())
}

/// conntrack follows all connections here, and no rule decides about those of this host.
#[test]
fn an_entry_of_conntrack_is_kept_and_made_liberal() {
    if !has_firewall() {
        return;
    }
    let Some(up) = up(&[]) else { return };
    up.hosts
        .server
        .run(|| firewall::add(Kind::Filter, &[Hook::Forward], &[Rule::DropInvalid]))
        .unwrap();
    let mut lab = Lab::on(up, "by_hand", 2);
    let entries = |lab: &Lab| -> Vec<_> {
        let all: Vec<_> = lab.streams.iter().map(ends_of).collect();
        lab.hosts().server.run(|| {
            let mut netlink = Connection::open(Protocol::Netfilter).unwrap();
            all.into_iter().map(|one| conntrack::entry(&mut netlink, one).unwrap()).collect()
        })
    };
    lab.all_echo(1000, 1);
    assert!(entries(&lab).iter().flatten().all(|entry| !entry.is_liberal));
    lab.to_nic();
    let liberal = || entries(&lab).iter().all(|entry| entry.is_some_and(|entry| entry.is_liberal));
    assert!(wait_until(liberal), "{:?}", entries(&lab));
    lab.all_echo(3_000_000, 2);
    let ended = lab.hosts().wharf(&["handoff", "--to", "os", "--all"]);
    assert!(ended.status.success(), "{ended}");
    assert!(wait_until(|| lab.at_nic() == 0));
    // From now on it matters what conntrack thinks of them.
    lab.hosts().server.run(|| {
        firewall::remove().unwrap();
        let rules = [Rule::DropInvalid, Rule::AcceptEstablished];
        firewall::add(Kind::Filter, &[Hook::Input, Hook::Output], &rules).unwrap();
    });
    lab.all_echo(300_000, 3);
    lab.hosts().server.run(|| {
        firewall::remove().unwrap();
        firewall::add(Kind::Filter, &[Hook::Forward], &[Rule::DropInvalid]).unwrap();
    });
    // What ends at the NIC is forgotten.
    lab.to_nic();
    let stream = lab.streams.pop().unwrap();
    let ends_there = ends_of(&stream);
    ends(stream);
    let is_gone = || {
        lab.hosts().server.run(|| {
            let mut netlink = Connection::open(Protocol::Netfilter).unwrap();
            conntrack::entry(&mut netlink, ends_there).unwrap().is_none()
        })
    };
    assert!(wait_until(is_gone), "{:?}", lab.why("handoff"));
    lab.end();
}

/// Whatever port is asked for, the server's answers.
#[test]
fn a_connection_that_is_translated_stays_with_the_kernel() {
    if !has_firewall() {
        return;
    }
    let Some(mut lab) = Lab::new(&[], "by_hand", 0) else { return };
    let redirect = [Rule::Redirect(PORT)];
    let added = lab.hosts().server.run(|| firewall::add(Kind::Nat, &[Hook::Prerouting], &redirect));
    if let Err(error) = added {
        return kernel_lacks(format!("redirect of nftables: {error}"));
    }
    let client = &lab.up.hosts.client;
    let to = |ip: Ip| SocketAddr::new(ip.server(), PORT + 1);
    lab.streams = Ip::BOTH.map(|ip| client.run(|| TcpStream::connect(to(ip))).unwrap()).into();
    lab.all_echo(10_000, 1);
    lab.are_refused("nat");
    lab.all_echo(300_000, 2);
    lab.end();
}

/// Rules that go by what conntrack thinks are passed by, as was asked for, and connections go to and fro.
#[test]
fn connections_pass_a_firewall_by_if_that_is_asked_for() {
    if !has_firewall() {
        return;
    }
    let Some(up) = up(&["--set", "handoff.bypass_firewall=true"]) else { return };
    up.hosts.server.run(|| {
        let rules = [Rule::DropInvalid, Rule::AcceptEstablished];
        firewall::add(Kind::Filter, &[Hook::Input, Hook::Output], &rules).unwrap();
    });
    let lab = Lab::on(up, "by_hand", 4);
    for round in 0..3 {
        lab.to_nic();
        lab.all_echo(2_000_000, round);
        let ended = lab.hosts().wharf(&["handoff", "--to", "os", "--all"]);
        assert!(ended.status.success(), "{ended}");
        assert!(wait_until(|| lab.at_nic() == 0));
        lab.all_echo(200_000, round);
    }
    lab.end();
}

#[test]
fn a_user_has_no_more_connections_than_the_quota() {
    let words = ["--set", "handoff.connections_per_uid=2"];
    let Some(lab) = Lab::new(&words, "at_accept", 4) else { return };
    lab.all_echo(100_000, 1);
    let refused = || lab.up.counter("handoff_refused", "quota");
    assert!(wait_until(|| refused() >= 2), "{:?}", lab.why("handoff_refused"));
    assert_eq!(lab.at_nic(), 2);
    lab.all_echo(100_000, 2);
    lab.end();
}

/// A NIC with room for two: what nobody uses makes room for others.
#[test]
fn an_idle_connection_goes_back_when_others_need_its_place() {
    let words = ["--set", "handoff.connections=2"];
    let Some(lab) = Lab::new(&words, "at_accept", 2) else { return };
    lab.all_echo(10_000, 1);
    assert!(wait_until(|| lab.at_nic() == 2), "{:?}", lab.why("handoff_refused"));
    let mut more = Vec::new();
    let made_room = wait_until(|| {
        let stream = connect(lab.hosts(), Ip::V4);
        echoes(&stream, &bytes(1000, 2));
        more.push(stream);
        std::thread::sleep(std::time::Duration::from_millis(100));
        lab.up.counter("handoff_restored", "connections") > 0
    });
    assert!(made_room, "{:?}", lab.why("handoff_restored"));
    assert!(lab.up.counter("handoff_refused", "connections") > 0);
    lab.all_echo(100_000, 2);
    for (number, stream) in more.into_iter().enumerate() {
        echoes(&stream, &bytes(1000, number as u64));
        ends(stream);
    }
    lab.end();
}

/// wharf has given up most of what root may do by then, and needs to bind the port when the kernel gets the connection.
#[test]
fn a_connection_to_a_port_below_1024_moves_to_and_fro_and_outlives_wharf() {
    let hosts = Plan::new(Port::Auto).hosts();
    let Some(hosts) = hosts.filter(|_| have(&["python3"])) else { return };
    give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
    let up = Up { wharf: hosts.wharf_up(&["--set", "workers=1", "--take-addresses"]), hosts };
    let _server = serve(&up.hosts, "by_hand", &THREADS.replace("7000", "80"));
    let streams = Ip::BOTH.map(|ip| up.hosts.client.run(|| TcpStream::connect((ip.server(), 80))));
    let streams = streams.map(Result::unwrap);
    let moves = |to: &str| {
        let is_done = || {
            let ended = up.hosts.wharf(&["handoff", "--to", to, "--all"]);
            assert!(ended.status.success(), "{ended}");
            streams.iter().for_each(|stream| echoes(stream, &bytes(10_000, 1)));
            up.counter("handoff", "connections") == if to == "nic" { 2 } else { 0 }
        };
        assert!(wait_until(is_done), "to {to}");
    };
    for to in ["nic", "os", "nic"] {
        moves(to);
    }
    assert_eq!(up.counter("handoff_refused", "port"), 0);
    up.wharf.signal(Signal::Kill);
    streams.iter().for_each(|stream| echoes(stream, &bytes(300_000, 2)));
    streams.into_iter().for_each(ends);
}
