//! Connections on the NIC and packets of every form: what any host may send, and what a router on the way says.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use sys::netlink::route::{self, NewRoute};
use testkit::icmp::{error4, error6};
use testkit::lab::{Host, Wire, wait_until};
use testkit::packet::PacketBuilder;
use wire::protocol;

use crate::handoff::{PORT, THREADS, bytes, connect, echoes, ends, serve, up};
use crate::handoff_reasons::restored;
use crate::setup::{HOST, Hosts, Ip, PEER, Plan, Port, Up, give};
use crate::tagged::Tap;

/// Ethernet addresses of the wire's two ends, the client's first.
fn macs(up: &Up) -> [[u8; 6]; 2] {
    let mac = |host: &Host, name: &str| {
        host.run(|| sys::interface::Interface::by_name(name)).unwrap().mac.unwrap()
    };
    [mac(&up.hosts.client, PEER), mac(&up.hosts.server, HOST)]
}

fn v4(ip: IpAddr) -> [u8; 4] {
    match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => panic!("{ip}"),
    }
}

fn v6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => panic!("{ip}"),
    }
}

/// A frame with the error of a router, about a segment from the server to this port of the client. Of the quoted header
/// the second byte of the ID, or of the payload length, is where a plain segment has its control bits.
fn too_big(ip: Ip, port: u16, low: u8, [from, to]: [[u8; 6]; 2]) -> Vec<u8> {
    let (client, server) = (ip.client(), ip.server());
    let segment = if ip == Ip::V4 { PacketBuilder::tcp4() } else { PacketBuilder::tcp6() };
    let segment = segment.ports(PORT, port).seq(77).id(0x1000 | u16::from(low));
    // Of IPv6: 20 bytes of TCP, and so many of payload that the length ends with this byte.
    let segment = segment.payload_pattern(usize::from(0x100 + u16::from(low) - 20));
    let (router, message) = match ip {
        Ip::V4 => {
            let segment = segment.addresses4(v4(server), v4(client)).build();
            let message = error4(3, 4, 1000, &segment[14..14 + 28]);
            let packet = PacketBuilder::ip4(protocol::ICMP).addresses4(v4(client), v4(server));
            (packet, message)
        }
        Ip::V6 => {
            let segment = segment.addresses6(v6(server), v6(client)).build();
            let ends = [v6(client), v6(server)];
            let message = error6(ends, (2, 0), 1280, &segment[14..14 + 60]);
            let packet = PacketBuilder::ip6(protocol::ICMPV6).addresses6(ends[0], ends[1]);
            (packet, message)
        }
    };
    router.macs(from, to).payload(&message).build()
}

/// An error that any host can send, as it knows the ports: each value of the byte that lies where a segment has URG.
#[test]
fn forged_icmp_errors_leave_connections_on_the_nic() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", THREADS);
    let streams = Ip::BOTH.map(|ip| (ip, connect(&up.hosts, ip)));
    assert!(wait_until(|| up.counter("handoff", "handoffs") == 2), "not all were handed off");
    let macs = macs(&up);
    let mut peer = Tap::open(&up.hosts.client, PEER);
    for (ip, stream) in &streams {
        echoes(stream, &bytes(10_000, 1));
        let port = stream.local_addr().unwrap().port();
        for low in 0..=255 {
            peer.send(&too_big(*ip, port, low, macs));
        }
        echoes(stream, &bytes(10_000, 2));
    }
    up.all_counted();
    assert_eq!(restored(&up), [].into());
    streams.into_iter().for_each(|(_, stream)| ends(stream));
    up.nothing_went_wrong();
}

/// The router's end of the wire to the client, and the client's.
const ENDS: [&str; 2] = ["near0", "far0"];

fn far(ip: Ip, number: u8) -> IpAddr {
    match ip {
        Ip::V4 => [10, 88, 0, number].into(),
        Ip::V6 => [0xfd88, 0, 0, 0, 0, 0, 0, number.into()].into(),
    }
}

/// A client behind a router, on a wire whose MTU is smaller than what the client's SYN says: only the router knows.
fn behind(hosts: &Hosts) -> Option<Host> {
    let client = Host::new()?;
    let [near, name] = ENDS;
    Wire { near, far: name, mtu: 1400, queues: 1, offloads: true }.lay(&hosts.client, &client);
    give(&hosts.client, near, &Ip::BOTH, |ip| far(ip, 1));
    give(&client, name, &Ip::BOTH, |ip| far(ip, 2));
    let forward = || -> sys::Result<()> {
        sys::sysctl::set_ipv4_conf("all", "forwarding", "1")?;
        sys::sysctl::set_ipv6_conf("all", "forwarding", "1")
    };
    hosts.client.run(forward).unwrap();
    for ip in Ip::BOTH {
        let bits = if ip == Ip::V4 { 24 } else { 64 };
        let to = format!("{}/{bits}", network(ip.server()));
        let by = far(ip, 1).to_string();
        let words = ["route", "add", &to, "via", &by, "advmss", "1440"];
        client.succeed("ip", &words);
        let back = || {
            let index = sys::interface::index(HOST)?;
            route::add(index, &NewRoute::new(far(ip, 0), bits, Some(ip.client())))
        };
        hosts.server.run(back).unwrap();
    }
    Some(client)
}

/// The network that the server is in.
fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            [a, b, c, 0].into()
        }
        IpAddr::V6(ip) => {
            let mut all = ip.segments();
            all[4..].fill(0);
            all.into()
        }
    }
}

/// Large segments do not pass, and the router says so: the NIC sends smaller ones, and keeps all of its connections.
#[test]
fn a_router_with_a_smaller_mtu_leaves_connections_on_the_nic() {
    let Some(up) = up() else { return };
    let Some(client) = behind(&up.hosts) else { return };
    let _server = serve(&up.hosts, "at_accept", THREADS);
    std::thread::scope(|scope| {
        for number in 0..16_u64 {
            let client = &client;
            scope.spawn(move || {
                let ip = Ip::BOTH[number as usize % 2];
                let to = SocketAddr::new(ip.server(), PORT);
                let stream = client.run(|| TcpStream::connect(to)).unwrap();
                let patience = Some(Duration::from_secs(60));
                stream.set_read_timeout(patience).unwrap();
                stream.set_write_timeout(patience).unwrap();
                echoes(&stream, &bytes(300_000, number));
                ends(stream);
            });
        }
    });
    assert!(wait_until(|| up.counter("handoff", "handoffs") == 16), "not all were handed off");
    up.all_counted();
    assert_eq!(restored(&up), [].into());
}

/// Link-local addresses, which the kernel finds only with their interface.
#[test]
fn connections_between_link_local_addresses_run_on_the_nic() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", THREADS);
    let local = |host: &Host, name: &str| -> std::net::Ipv6Addr {
        let address = || {
            let shown = host.succeed("ip", &["-6", "-o", "address", "show", "dev", name]);
            let mut words = shown.split_whitespace().filter(|word| word.starts_with("fe80:"));
            let is_tentative = shown.contains("tentative");
            words
                .next()
                .filter(|_| !is_tentative)
                .map(|word| word.split('/').next().unwrap().to_owned())
        };
        assert!(wait_until(|| address().is_some()), "{name} has no link-local address");
        address().unwrap().parse().unwrap()
    };
    let to = local(&up.hosts.server, HOST);
    local(&up.hosts.client, PEER);
    let index = up.hosts.client.run(|| sys::interface::index(PEER)).unwrap();
    let to = std::net::SocketAddrV6::new(to, PORT, 0, index);
    for round in 0..2 {
        let stream = up.hosts.client.run(|| TcpStream::connect(to)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert!(
            wait_until(|| up.counter("handoff", "handoffs") == round + 1),
            "refused: {:?}",
            up.group("handoff_refused").filter(|(_, count)| *count > 0).collect::<Vec<_>>()
        );
        echoes(&stream, &bytes(300_000, round));
        // It goes back to the kernel, and lives on there.
        let ended = up.hosts.wharf(&["handoff", "--to", "os", "--all"]);
        assert!(ended.status.success(), "{ended}");
        assert!(wait_until(|| up.counter("handoff", "restored") == round + 1), "not given back");
        echoes(&stream, &bytes(100_000, round + 7));
        ends(stream);
    }
    up.nothing_went_wrong();
}

/// A frame of SCTP whose checksum its sender left to a card, as a kernel does on a veth.
#[test]
fn sctp_from_a_veth_arrives_with_its_checksum() {
    for port in [Port::Xdp, Port::Packet] {
        let Some(up) = Plan::new(port).up() else { continue };
        let mut peer = Tap::open(&up.hosts.client, PEER);
        let mut host = Tap::open(&up.hosts.server, HOST);
        let packet = testkit::sctp::packet(&[testkit::sctp::chunk(0, 500)]);
        let frame = |packet: &[u8]| PacketBuilder::ip4(protocol::SCTP).payload(packet).build();
        let whole = frame(&packet);
        let mut partial = packet.clone();
        partial[8..12].fill(0);
        let ours = |bytes: &[u8]| bytes.get(..12) == Some(&whole[..12]);
        peer.send(&whole);
        assert_eq!(host.receive(1, ours), std::slice::from_ref(&whole), "{port:?}");
        if port == Port::Xdp {
            // AF_PACKET says which checksums are partial, and this socket cannot.
            peer.send(&frame(&partial));
            assert_eq!(host.receive(1, ours), std::slice::from_ref(&whole), "{port:?}");
        }
    }
}

/// Frames with two VLAN tags and a full MTU, from the host to the wire. The far end of the wire takes more than its
/// MTU would let it: a veth drops what is longer than that and one tag.
#[test]
fn two_tags_and_a_full_mtu_leave_by_af_packet() {
    let transmits = ["--set", "wire.transmit=packet"];
    for (port, words) in [(Port::Packet, &[][..]), (Port::Xdp, &transmits)] {
        let Some(up) = Plan::new(port).up_with(words) else { continue };
        up.hosts.client.run(|| sys::interface::set_mtu(PEER, 1600)).unwrap();
        // A packet socket sends no more than the MTU; VLAN interfaces on top of each other do.
        up.hosts.server.run(|| sys::interface::set_mtu(HOST, 1508)).unwrap();
        let mut peer = Tap::open(&up.hosts.client, PEER);
        let mut host = Tap::open(&up.hosts.server, HOST);
        let tagged = |builder: PacketBuilder| builder.vlan(5).vlan(7);
        let mut frames = Vec::new();
        for number in 0..70 {
            // With a short one between them, which must not overtake.
            let tcp = tagged(PacketBuilder::tcp4()).seq(number * 1460);
            let len = if number % 7 == 3 { 100 } else { 1460 };
            frames.push(tcp.payload_pattern(len).build());
        }
        frames.push(tagged(PacketBuilder::ip4(protocol::ICMP)).payload(&[7; 1480]).build());
        frames.push(tagged(PacketBuilder::udp6()).payload_pattern(1452).build());
        assert_eq!(frames.iter().map(Vec::len).max(), Some(14 + 8 + 1500));
        let ours = |bytes: &[u8]| bytes.get(..12) == Some(&frames[0][..12]);
        frames.iter().for_each(|frame| host.send(frame));
        let received = peer.receive(frames.len(), ours);
        assert_eq!(received.len(), frames.len(), "{port:?}");
        for (received, sent) in received.iter().zip(&frames) {
            assert_eq!(received, sent, "{port:?}");
        }
    }
}
