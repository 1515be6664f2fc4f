//! A host that forwards: `lro.profile=auto` leaves the packets of others as they are.

use std::collections::HashSet;

use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::packet::{Message, PacketSocket, Received, VNET_HDR_LEN};
use testkit::lab::{Host, Wire, have, wait_until};
use testkit::packet::PacketBuilder;

use super::running::set;
use super::setup::{HOST, Ip, PEER, Plan, Port, Up, WIRE, ping};
use super::traffic::{Direction, Load};

/// Segments sent at once.
const BURST: u32 = 8;
const LEN: usize = 1000;

/// What `wharf stats` says of LRO's profile, and why.
fn profile(up: &Up) -> (String, String) {
    let ended = up.hosts.wharf(&["stats", "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let text = |key| stats[key].as_str().unwrap_or_default().to_owned();
    (text("lro_profile"), text("lro_profile_because"))
}

#[track_caller]
fn becomes(up: &Up, wanted: &str) {
    assert!(wait_until(|| profile(up).0 == wanted), "{:?} is not {wanted}", profile(up));
}

fn forward(up: &Up, setting: &[&str], on: &str) {
    up.hosts.server.run(|| sys::sysctl::write(setting, on)).unwrap();
}

const IP_FORWARD: &[&str] = &["ipv4", "ip_forward"];

/// One end of the way: what the client sends by hand, and what the host behind the server sees.
struct End {
    socket: PacketSocket,
    pool: FramePool,
}

impl End {
    fn at(host: &Host, name: &str) -> Self {
        let open = || PacketSocket::open(interface::index(name).unwrap(), Default::default());
        End { socket: host.run(open).unwrap(), pool: FramePool::new(1024, 2048).unwrap() }
    }

    fn send(&mut self, frames: &[Vec<u8>]) {
        let message =
            |frame| Message { vnet: [0; VNET_HDR_LEN], header: frame, payload: Default::default() };
        let messages: Vec<Message<'_>> = frames.iter().map(|frame| message(frame)).collect();
        assert_eq!(self.socket.send(&messages).unwrap(), frames.len());
    }

    /// Adds the TCP packets that have arrived.
    fn arrived(&mut self, into: &mut Vec<Vec<u8>>) {
        let mut received: Vec<Received> = Vec::new();
        self.socket.receive(&mut self.pool, &mut received, 64).unwrap();
        for packet in received {
            let bytes = self.pool.bytes(&packet.frame);
            if bytes.get(12..14) == Some(&[8, 0]) && bytes.get(23) == Some(&6) {
                into.push(as_others_see_it(bytes));
            }
            self.pool.free(packet.frame);
        }
    }
}

/// An IPv4 packet without what each router changes: TTL and the header's checksum.
fn as_others_see_it(frame: &[u8]) -> Vec<u8> {
    let mut packet = frame[14..].to_vec();
    packet[8] = 0;
    packet[10..12].fill(0);
    packet
}

/// A stream from the client to a host behind the server.
struct Stream {
    from: End,
    to: End,
    macs: [[u8; 6]; 2],
    sent: u32,
    all: HashSet<Vec<u8>>,
}

impl Stream {
    fn new(up: &Up, behind: &Host) -> Self {
        let mac = |host: &Host, name| host.run(|| Interface::by_name(name)).unwrap().mac.unwrap();
        Stream {
            from: End::at(&up.hosts.client, PEER),
            to: End::at(behind, "behind0"),
            macs: [mac(&up.hosts.client, PEER), mac(&up.hosts.server, WIRE)],
            sent: 0,
            all: HashSet::new(),
        }
    }

    /// Window and timestamps of each two differ from those before. Linux GRO, too, joins the two.
    fn segment(&self, number: u32) -> Vec<u8> {
        let two = number / 2;
        PacketBuilder::tcp4()
            .macs(self.macs[0], self.macs[1])
            .addresses4([10, 77, 0, 1], [10, 78, 0, 2])
            .ports(1000, 2000)
            .dont_fragment(true)
            .id(number as u16)
            .seq(number.wrapping_mul(LEN as u32))
            .ack(1)
            .window(1000 + (two % 1000) as u16)
            .timestamps(two + 1, 1)
            .payload_pattern(LEN)
            .build()
    }

    /// Sends a burst and waits until so many packets have arrived: these, and those that were sent.
    fn burst(&mut self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let frames: Vec<_> = (self.sent..self.sent + BURST).map(|n| self.segment(n)).collect();
        self.sent += BURST;
        self.from.send(&frames);
        let sent: Vec<_> = frames.iter().map(|frame| as_others_see_it(frame)).collect();
        self.all.extend(sent.iter().cloned());
        let mut arrived = Vec::new();
        let all = wait_until(|| {
            self.to.arrived(&mut arrived);
            arrived.len() >= frames.len()
        });
        assert!(all, "{} of {} have arrived", arrived.len(), frames.len());
        (arrived, sent)
    }
}

#[test]
fn what_is_forwarded_leaves_as_it_came() {
    if !have(&["ip", "ping"]) {
        return;
    }
    for port in Port::EACH {
        let Some(up) = Plan::new(port).up() else { continue };
        assert_eq!(profile(&up).0, "endpoint");
        let Some(behind) = Host::new() else { return };
        Wire { near: "out0", far: "behind0", mtu: 1500, queues: 1, offloads: false }
            .lay(&up.hosts.server, &behind);
        up.hosts.ip("address add 10.78.0.1/24 dev out0");
        behind.succeed("ip", &["address", "add", "10.78.0.2/24", "dev", "behind0"]);
        ping(&up.hosts.server, [10, 78, 0, 2].into(), &[]);
        forward(&up, IP_FORWARD, "1");
        becomes(&up, "lossless");
        let told = "this host forwards (net.ipv4.conf.all.forwarding";
        assert!(wait_until(|| up.wharf.errors().contains(told)), "{}", up.wharf.errors());
        let mut stream = Stream::new(&up, &behind);

        // Joined by wharf and cut by the kernel, they are what they were.
        let merged = || up.counter("lro", "merged");
        assert!(wait_until(|| {
            let (arrived, sent) = stream.burst();
            assert!(arrived == sent, "{port:?}: changed on the way");
            up.all_counted();
            merged() > 0
        }));

        // A profile that was asked for wins, and is not for those who forward.
        set(&up, "lro.profile", "endpoint");
        assert_eq!(profile(&up), ("endpoint".to_owned(), String::new()));
        assert!(wait_until(|| {
            let (arrived, sent) = stream.burst();
            arrived != sent
        }));

        set(&up, "lro.profile", "auto");
        let (profile, because) = profile(&up);
        assert_eq!(profile, "lossless");
        assert!(because.starts_with("this host forwards"), "{because}");
        for _ in 0..10 {
            let (arrived, sent) = stream.burst();
            assert!(arrived == sent, "{port:?}: changed on the way");
        }
    }
}

#[test]
fn auto_follows_the_host_while_traffic_flows() {
    if !have(&["ip", "sha256sum"]) {
        return;
    }
    let settings = ["--set", "lro.active_ack=safe"];
    let Some(up) = Plan::new(Port::Packet).up_with(&settings) else { return };
    let load = Load::start(&up.hosts, Ip::V4, Direction::In, None);
    let switches: [&[&str]; 4] = [
        IP_FORWARD,
        &["ipv4", "conf", "lo", "forwarding"],
        &["ipv6", "conf", "all", "forwarding"],
        &["ipv6", "conf", WIRE, "forwarding"],
    ];
    for switch in switches {
        forward(&up, switch, "1");
        becomes(&up, "lossless");
        load.goes_on();
        forward(&up, switch, "0");
        becomes(&up, "endpoint");
        load.goes_on();
    }
    for told in [
        "lro.profile=auto is lossless, without active ACK",
        "this host no longer forwards: lro.profile=auto is endpoint",
    ] {
        let times = || up.wharf.errors().matches(told).count();
        assert!(wait_until(|| times() >= switches.len()), "{told}: {}", up.wharf.errors());
        assert_eq!(times(), switches.len(), "{told}: {}", up.wharf.errors());
    }

    // A bridge of what a macvlan takes.
    up.hosts.ip("link add br0 type bridge");
    up.hosts.ip(&format!("link add link {HOST} name mac0 type macvlan mode private"));
    assert_eq!(profile(&up).0, "endpoint");
    up.hosts.ip("link set mac0 master br0");
    becomes(&up, "lossless");
    assert!(profile(&up).1.contains("in the bridge br0"), "{:?}", profile(&up));
    load.goes_on();
    up.hosts.ip("link delete br0");
    becomes(&up, "endpoint");
    load.goes_on();
    load.finish();
}

#[test]
fn a_hosts_interface_in_a_bridge_is_lossless() {
    if !have(&["ip"]) {
        return;
    }
    for port in [Port::Packet, Port::Veth] {
        let Some(up) = Plan::new(port).up() else { return };
        up.hosts.ip("link add br0 type bridge");
        up.hosts.ip(&format!("link set {HOST} master br0"));
        becomes(&up, "lossless");
        let stats = up.hosts.wharf(&["stats"]).stdout;
        let words = "lro profile lossless; lro profile because this host forwards: its interface \
                     is in the bridge br0";
        assert!(stats.contains(words), "{stats}");
        up.hosts.ip(&format!("link set {HOST} nomaster"));
        becomes(&up, "endpoint");
    }
}

#[test]
fn a_host_that_forwards_from_the_start_is_told() {
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    hosts.server.run(|| sys::sysctl::write(IP_FORWARD, "1")).unwrap();
    let wharf = hosts.wharf_up(&[]);
    assert!(wait_until(|| wharf.errors().contains("lro.profile=auto is lossless")));
    drop(wharf);
    let wharf = hosts.wharf_up(&["--set", "lro.profile=endpoint"]);
    let shown = hosts.wharf(&["stats"]).stdout;
    assert!(shown.contains("lro profile endpoint"), "{shown}");
    assert_eq!(wharf.errors(), "");
}
