//! The example of a tunnel carries real TCP, and UDP that is longer than its MTU, between two hosts.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sys::interface;
use sys::netlink::address;
use testkit::lab::{Host, Wire};
use testkit::lossy::Lossy;
use testkit::missing::lacks;
use testkit::packet::pattern;

#[path = "../examples/tun.rs"]
mod example;

use example::Tunnel;

const LEN: usize = 3_000_000;
/// Of the tunnel; its TUNs have a larger one, so that the host leaves large datagrams whole.
const MTU: usize = 1400;

/// The end of the tunnel on a host, whose addresses end in `own`; `None`, and a word why, where this
/// process may make no TUN.
fn end(own: u8, other: u8) -> Option<Tunnel> {
    let wire = interface::index("wire").unwrap();
    address::add(wire, [10, 0, 0, own].into(), 24, true).unwrap();
    let socket = UdpSocket::bind((Ipv4Addr::new(10, 0, 0, own), 5000)).unwrap();
    socket.connect((Ipv4Addr::new(10, 0, 0, other), 5000)).unwrap();
    let tunnel = Tunnel::new("tun0", socket, MTU).inspect_err(|error| lacks(error)).ok()?;
    interface::set_mtu("tun0", 9000).unwrap();
    interface::set_up("tun0").unwrap();
    let tun = interface::index("tun0").unwrap();
    address::add(tun, [10, 8, 0, own].into(), 24, true).unwrap();
    Some(tunnel)
}

fn bytes_arrive(first: &Host, second: &Host) {
    let listener = second.run(|| TcpListener::bind("10.8.0.2:80").unwrap());
    let receive = || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let sent = pattern(0, LEN);
    thread::scope(|scope| {
        let received = scope.spawn(receive);
        first.run(|| TcpStream::connect("10.8.0.2:80").unwrap().write_all(&sent).unwrap());
        assert!(received.join().unwrap() == sent, "other bytes came out");
    });
}

fn a_large_datagram_arrives(first: &Host, second: &Host) {
    let there = second.run(|| UdpSocket::bind("10.8.0.2:53").unwrap());
    there.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sent = pattern(0, 8000);
    first.run(|| UdpSocket::bind("10.8.0.1:53").unwrap().send_to(&sent, "10.8.0.2:53").unwrap());
    let mut received = vec![0; 9000];
    let len = there.recv(&mut received).unwrap();
    assert!(received[..len] == sent, "another datagram came out");
}

/// Both ends of a tunnel over whatever lies between the hosts.
fn carries(first: &Host, second: &Host, also: impl Fn()) {
    let (Some(mut here), Some(mut there)) = (first.run(|| end(1, 2)), second.run(|| end(2, 1)))
    else {
        return;
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let tunnels = [&mut here, &mut there].map(|end| scope.spawn(|| end.run(&stop).unwrap()));
        bytes_arrive(first, second);
        also();
        stop.store(true, Ordering::Relaxed);
        for tunnel in tunnels {
            tunnel.join().unwrap();
        }
    });
    let (here, there) = (here.counters, there.counters);
    assert!(here.cut > 0, "no super-packet was cut: {here:?}");
    assert!(there.aggregates > 0, "nothing was merged: {there:?}");
    assert_eq!([here.dropped, there.dropped, here.damaged, there.damaged], [0; 4]);
}

const WIRE: Wire<'_> = Wire { near: "wire", far: "wire", mtu: 1500, queues: 1, offloads: false };

#[test]
fn the_example_carries_tcp_and_large_datagrams() {
    let (Some(first), Some(second)) = (Host::new(), Host::new()) else { return };
    WIRE.lay(&first, &second);
    carries(&first, &second, || a_large_datagram_arrives(&first, &second));
}

#[test]
fn the_example_carries_tcp_over_a_path_that_reorders_and_loses() {
    let (Some(first), Some(path), Some(second)) = (Host::new(), Host::new(), Host::new()) else {
        return;
    };
    Wire { far: "one", ..WIRE }.lay(&first, &path);
    Wire { far: "other", ..WIRE }.lay(&second, &path);
    let lossy = Lossy::between(&path, "one", "other");
    carries(&first, &second, || {});
    assert!(lossy.lost() > 0);
}
