//! A client and a server joined by a wire, and wharf in front of the server's kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use sys::interface;
use sys::netlink::address;
use testkit::lab::{Ended, Host, Program, Wire, have, wait_until};
use testkit::lossy::Lossy;
use testkit::missing::lacks;
use testkit::snmp::trouble;

/// The client's end of the wire.
pub(crate) const PEER: &str = "peer0";
/// The server's end of the wire.
pub(crate) const WIRE: &str = "wire0";
/// The interface that wharf makes for the server.
pub(crate) const HOST: &str = "host0";

/// The largest MTU of an interface that wharf serves by AF_XDP, of its own choice or not.
const LARGEST_XDP_MTU: u32 = 3818;

/// How wharf reaches the wire and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// AF_XDP, and a TAP.
    Xdp,
    /// AF_PACKET, and a TAP where this process may open one.
    Packet,
    /// AF_PACKET, and a veth: all that is left to an ordinary user without `/dev/net/tun`.
    Veth,
    /// What wharf chooses by itself.
    Auto,
}

impl Port {
    /// Each way to run, by name.
    pub(crate) const EACH: [Port; 3] = [Port::Xdp, Port::Packet, Port::Veth];

    /// The settings that choose it.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Port::Xdp => &["--set", "wire.mode=xdp"],
            Port::Packet => &["--set", "wire.mode=packet"],
            Port::Veth => &["--set", "wire.mode=packet", "--set", "host.kind=veth"],
            Port::Auto => &[],
        }
    }

    /// What the first line of `wharf up` then says, over a veth of this MTU.
    fn name(self, mtu: u32) -> &'static str {
        match self {
            Port::Xdp => "AF_XDP",
            Port::Packet => "AF_PACKET",
            Port::Veth => "AF_PACKET, veth",
            Port::Auto if !sys::process::has_bpf() => "",
            Port::Auto if mtu <= LARGEST_XDP_MTU => "AF_XDP",
            Port::Auto => "AF_PACKET",
        }
    }
}

/// The address versions, each with the client's and the server's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    V4,
    V6,
}

impl Ip {
    pub(crate) const BOTH: [Ip; 2] = [Ip::V4, Ip::V6];

    /// The versions that cross a wire of this MTU: IPv6 needs 1,280 bytes (RFC 8200, section 5).
    pub(crate) fn over(mtu: u32) -> &'static [Ip] {
        if mtu < 1280 { &[Ip::V4] } else { &Ip::BOTH }
    }

    pub(crate) fn client(self) -> IpAddr {
        self.host(1)
    }

    pub(crate) fn server(self) -> IpAddr {
        self.host(2)
    }

    /// An address of wharf's own beside the server's.
    pub(crate) fn own(self) -> IpAddr {
        self.host(9)
    }

    /// A host of the network between client and server.
    fn host(self, number: u8) -> IpAddr {
        match self {
            Ip::V4 => Ipv4Addr::new(10, 77, 0, number).into(),
            Ip::V6 => Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, number.into()).into(),
        }
    }

    /// The group of counters of a kind of super-packet, such as `uso`, over this version.
    pub(crate) fn gso(self, kind: &str) -> String {
        format!("gso_{kind}{}", if self == Ip::V4 { 4 } else { 6 })
    }

    fn prefix_len(self) -> u8 {
        match self {
            Ip::V4 => 24,
            Ip::V6 => 64,
        }
    }
}

/// The two hosts and their wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) port: Port,
    pub(crate) mtu: u32,
    pub(crate) queues: u32,
    /// The client's end leaves checksums and segmentation to what is behind it.
    pub(crate) offloads: bool,
    /// Some frames are lost on the way, and others turned around.
    pub(crate) lossy: bool,
}

impl Plan {
    /// A wire as between two machines: frames of 1,500 bytes with complete checksums.
    pub(crate) fn new(port: Port) -> Self {
        Plan { port, mtu: 1500, queues: 1, offloads: false, lossy: false }
    }

    /// Makes the hosts; the client has its addresses. `None`, and a word why, without the right
    /// to make them or to load an XDP program.
    pub(crate) fn hosts(self) -> Option<Hosts> {
        if self.port == Port::Xdp && !sys::process::has_bpf() {
            lacks("root, for AF_XDP");
            return None;
        }
        let (client, server) = (Host::new()?, Host::new()?);
        let Plan { mtu, queues, offloads, .. } = self;
        let wire = |near, far| Wire { near, far, mtu, queues, offloads };
        let between = if self.lossy {
            let host = Host::new()?;
            wire(PEER, "left").lay(&client, &host);
            wire("right", WIRE).lay(&host, &server);
            Some((Lossy::between(&host, "left", "right"), host))
        } else {
            wire(PEER, WIRE).lay(&client, &server);
            None
        };
        let says = self.port.name(mtu);
        let hosts = Hosts { port: self.port, says, between, client, server };
        give(&hosts.client, PEER, Ip::over(mtu), Ip::client);
        Some(hosts)
    }

    /// Makes the hosts and brings wharf up; its host interface has the server's addresses.
    pub(crate) fn up(self) -> Option<Up> {
        self.up_with(&[])
    }

    /// As [`up`](Self::up), with more words.
    pub(crate) fn up_with(self, words: &[&str]) -> Option<Up> {
        let hosts = self.hosts()?;
        let wharf = hosts.wharf_up(words);
        give(&hosts.server, HOST, Ip::over(self.mtu), Ip::server);
        Some(Up { wharf, hosts })
    }
}

/// Gives an interface addresses of these versions, without duplicate address detection.
pub(crate) fn give(host: &Host, name: &str, versions: &[Ip], which: fn(Ip) -> IpAddr) {
    let add = || -> sys::Result<()> {
        let index = interface::index(name)?;
        versions.iter().try_for_each(|ip| address::add(index, which(*ip), ip.prefix_len(), true))
    };
    host.run(add).unwrap();
}

/// A client and a server.
#[derive(Debug)]
pub(crate) struct Hosts {
    port: Port,
    /// A part of the first line of `wharf up`.
    says: &'static str,
    /// What the wire goes through, if it is lossy.
    between: Option<(Lossy, Host)>,
    pub(crate) client: Host,
    pub(crate) server: Host,
}

impl Hosts {
    /// A client and a server with something of the test's own between them.
    pub(crate) fn of(client: Host, server: Host) -> Self {
        Hosts { port: Port::Auto, says: "", between: None, client, server }
    }

    /// `wharf up` on the server with more words, as far as its first line: traffic flows.
    pub(crate) fn wharf_up(&self, more: &[&str]) -> Program {
        let words = ["up", "--wire", WIRE, "--host", HOST];
        let mut wharf =
            self.server.spawn(wharf().args(words).args(self.port.settings()).args(more));
        let line = wharf.line_with("up: ");
        assert!(line.starts_with(&format!("up: {WIRE} -> {HOST} (")), "{line}");
        assert!(line.contains(self.says), "{line}");
        wharf
    }

    /// How many frames the wire has lost.
    pub(crate) fn lost(&self) -> u64 {
        self.between.as_ref().map_or(0, |(wire, _)| wire.lost())
    }

    /// Runs a command of wharf on the server, to its end.
    pub(crate) fn wharf(&self, words: &[&str]) -> Ended {
        self.server.output(wharf().args(words))
    }

    /// Runs `ip` on the server; the words are those of one command line.
    pub(crate) fn ip(&self, line: &str) -> String {
        self.server.succeed("ip", &line.split(' ').collect::<Vec<_>>())
    }
}

/// Hosts with wharf in front of the server.
#[derive(Debug)]
pub(crate) struct Up {
    /// Before the hosts, so that it ends before them.
    pub(crate) wharf: Program,
    pub(crate) hosts: Hosts,
}

impl Up {
    /// One counter of `wharf stats --json`.
    pub(crate) fn counter(&self, group: &str, name: &str) -> u64 {
        self.group(group).find(|(this, _)| this == name).unwrap().1
    }

    /// Waits until wharf has published all that it has counted. It does before it sleeps, and a
    /// setting wakes it.
    pub(crate) fn all_counted(&self) {
        let sleeps = || self.counter("worker", "sleeps");
        let before = sleeps();
        let ended = self.hosts.wharf(&["set", "poll.spin", "20us"]);
        assert!(ended.status.success(), "{ended}");
        assert!(wait_until(|| sleeps() > before), "the worker does not sleep");
    }

    /// Neither kernel received anything that was not as it should be, and wharf refused nothing
    /// that it was to cut.
    pub(crate) fn nothing_went_wrong(&self) {
        for host in [&self.hosts.client, &self.hosts.server] {
            let trouble = trouble(host);
            assert!(trouble.is_empty(), "{trouble:?}");
        }
        let refused: Vec<_> = self.group("gso_refused").filter(|(_, count)| *count > 0).collect();
        assert!(refused.is_empty(), "{refused:?}");
    }

    /// The counters of a group, by name.
    pub(crate) fn group(&self, group: &str) -> impl Iterator<Item = (String, u64)> {
        let ended = self.hosts.wharf(&["stats", "--json"]);
        assert!(ended.status.success(), "{ended}");
        let stats: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        let counters = stats["counters"].as_array().unwrap();
        let of_group = counters.iter().filter(|entry| entry["group"] == group);
        let pair = |entry: &serde_json::Value| {
            (entry["name"].as_str().unwrap().to_owned(), entry["value"].as_u64().unwrap())
        };
        of_group.map(pair).collect::<Vec<_>>().into_iter()
    }
}

/// Returns why connections were not handed off by this NIC, or went back from it, with the counter of each reason.
///
/// Reasons that come of the moment are not among them: on a busy machine a connection may be over by the time that it is
/// taken, and may find a queue full or the NIC without time; it is offered again then.
pub(crate) fn lasting_refusals(hosts: &Hosts, nic: &str) -> Vec<(String, u64)> {
    const OF_THE_MOMENT: [&str; 3] = ["state", "load", "queue"];
    let ended = hosts.wharf(&["stats", "--json", "--host", nic]);
    assert!(ended.status.success(), "{ended}");
    let stats: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let counters = stats["counters"].as_array().unwrap().iter();
    let pair = |entry: &serde_json::Value| {
        let group = entry["group"].as_str().unwrap();
        let name = entry["name"].as_str().unwrap();
        let is_reason = ["handoff_refused", "handoff_restored"].contains(&group);
        (is_reason && !OF_THE_MOMENT.contains(&name))
            .then(|| (format!("{group}.{name}"), entry["value"].as_u64().unwrap()))
    };
    counters.filter_map(pair).filter(|(_, count)| *count > 0).collect()
}

/// Whether a socket may have as much room as is asked for; a word if not.
pub(crate) fn may_have_room() -> bool {
    let may = sys::process::has_bpf();
    if !may {
        lacks("root, for sockets with more room than net.core.rmem_max");
    }
    may
}

/// The built program.
pub(crate) fn wharf() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
    command.env_remove("RUST_BACKTRACE");
    command
}

/// Copies a program that is run then. This process does not write it: a child that another test is about to start would have
/// it open for writing, too, and the kernel runs no such file (`ETXTBSY`).
pub(crate) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "{}", to.display());
}

/// `ping` from a host, five times, none of which is lost. The words come before the address.
pub(crate) fn ping(from: &Host, to: IpAddr, words: &[&str]) {
    if !have(&["ping"]) {
        return;
    }
    // One after the other. Of several, `ping` waits two round trips for the last, and on a busy machine
    // calls lost what is late; with a deadline it sends more, and ends once five are answered, which need
    // not be the first five: what follows overtakes packets that have waited for a neighbour's address.
    for _ in 0..5 {
        let mut ping = Command::new("ping");
        ping.args(["-n", "-c", "1", "-W", "10"]).args(words).arg(to.to_string());
        let ended = from.output(&mut ping);
        assert!(ended.status.success(), "{ended}");
    }
}
