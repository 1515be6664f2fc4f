//! VXLAN over wharf: the host hands over super-packets in a tunnel, which wharf cuts, inside and out.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};

use testkit::lab::{Host, PATIENCE, have};
use testkit::missing::kernel_lacks;

use super::setup::{HOST, Hosts, Ip, PEER, Plan, Port};
use super::traffic::bytes;

const LENGTH: usize = 24 << 20;

/// The client's in the tunnel.
pub(crate) const ADDRESSES: [&str; 2] = ["10.88.0.1", "fd88::1"];

#[test]
fn through_xdp_with_outer_checksums() {
    tcp_goes_both_ways(Port::Xdp, "udpcsum");
}

#[test]
fn through_xdp_without_outer_checksums() {
    tcp_goes_both_ways(Port::Xdp, "noudpcsum");
}

#[test]
fn through_af_packet_with_outer_checksums() {
    tcp_goes_both_ways(Port::Packet, "udpcsum");
}

#[test]
fn through_af_packet_without_outer_checksums() {
    tcp_goes_both_ways(Port::Packet, "noudpcsum");
}

fn tcp_goes_both_ways(port: Port, checksums: &str) {
    // The client's kernel leaves the inner checksums to its interface, as a veth lets it.
    let Some(up) = (Plan { offloads: true, ..Plan::new(port) }).up() else { return };
    if !have(&["ip"]) || !dig(&up.hosts, [PEER, HOST], checksums) {
        return;
    }
    for address in ADDRESSES {
        let address: IpAddr = address.parse().unwrap();
        bulk(&up.hosts.client, &up.hosts.server, address);
        let kind = if address.is_ipv4() { "gso_tcp4" } else { "gso_tcp6" };
        let (supers, segments) = (up.counter(kind, "super_packets"), up.counter(kind, "segments"));
        // An older kernel cuts what is in a tunnel itself.
        assert!(supers == 0 || segments > 2 * supers, "{supers} became {segments}");
    }
}

/// A VXLAN between the hosts, over these interfaces of theirs, with addresses in it. `false`, and a
/// word why, where there is none.
pub(crate) fn dig(hosts: &Hosts, devices: [&str; 2], checksums: &str) -> bool {
    let end = |host: &Host, device: &str, near: IpAddr, far: IpAddr, number: u8| {
        let ip = |line: &str| {
            let mut command = std::process::Command::new("ip");
            host.output(command.args(line.split(' ')))
        };
        let made = ip(&format!(
            "link add tunnel0 type vxlan id 42 local {near} remote {far} dstport 4789 dev {device} \
             {checksums}"
        ));
        if !made.status.success() {
            kernel_lacks(format!("VXLAN: {made}"));
            return false;
        }
        for line in [
            format!("addr add 10.88.0.{number}/24 dev tunnel0"),
            format!("addr add fd88::{number}/64 dev tunnel0 nodad"),
            "link set tunnel0 up".to_owned(),
        ] {
            let done = ip(&line);
            assert!(done.status.success(), "{done}");
        }
        true
    };
    let (client, server) = (Ip::V4.client(), Ip::V4.server());
    end(&hosts.client, devices[0], client, server, 1)
        && end(&hosts.server, devices[1], server, client, 2)
}

/// From `sender` to `receiver`, which listens at `address`, and back; every byte is compared.
pub(crate) fn bulk(receiver: &Host, sender: &Host, address: IpAddr) {
    let sent = bytes(LENGTH);
    let listener = receiver.run(|| TcpListener::bind((address, 0))).unwrap();
    let to = listener.local_addr().unwrap();
    let client = sender.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
    let server = listener.accept().unwrap().0;
    for (mut from, mut to) in
        [(&client, server.try_clone().unwrap()), (&server, client.try_clone().unwrap())]
    {
        to.set_read_timeout(Some(PATIENCE)).unwrap();
        let received = std::thread::spawn(move || {
            let mut received = vec![0; LENGTH];
            to.read_exact(&mut received).map(|()| received)
        });
        from.write_all(&sent).unwrap();
        assert!(received.join().unwrap().unwrap() == sent, "{address}: other bytes");
    }
}
