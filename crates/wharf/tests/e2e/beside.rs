//! Addresses of wharf's own beside the host's: `wharf up --address`.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};

use sys::interface::Interface;
use sys::process::Signal;
use testkit::lab::{Host, PATIENCE, have, wait_until};

use super::setup::{HOST, Hosts, Ip, PEER, Plan, Port, Up, WIRE, give, ping, wharf};
use super::traffic::{Direction, Load, bytes};

const BYTES: usize = 2 << 20;

/// The words for an echo on wharf's own addresses.
fn words() -> Vec<String> {
    let line = format!(
        "--service echo --port 7 --address {}/24 --address {}/64",
        Ip::V4.own(),
        Ip::V6.own()
    );
    line.split(' ').map(str::to_owned).collect()
}

/// wharf with two workers, and the echo beside its host.
fn up(port: Port) -> Option<Up> {
    let words = words();
    let words: Vec<&str> =
        ["--set", "workers=2"].into_iter().chain(words.iter().map(String::as_str)).collect();
    (Plan { queues: 2, ..Plan::new(port) }).up_with(&words)
}

/// What a host sends comes back as it was.
fn echoes(host: &Host, to: IpAddr, sent: &[u8]) {
    let mut socket = open(host, to);
    let mut writer = socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        socket.read_to_end(&mut received).unwrap();
        assert!(received == sent, "{to}: {} bytes of {}", received.len(), sent.len());
    });
}

/// Peers on the wire and the host's own kernel reach them, at the same time as traffic between the two kernels.
#[test]
fn own_addresses_are_served_beside_the_hosts() {
    let sent = bytes(BYTES);
    for port in Port::EACH {
        let Some(up) = up(port) else { continue };
        let Hosts { client, server, .. } = &up.hosts;
        for ip in Ip::BOTH {
            let start = |direction| Load::start(&up.hosts, ip, direction, Some(BYTES as u64));
            let loads = [Direction::In, Direction::Out].map(start);
            std::thread::scope(|scope| {
                for host in [client, server, client, server] {
                    scope.spawn(|| echoes(host, ip.own(), &sent));
                }
            });
            for load in loads {
                assert_eq!(load.finish(), BYTES as u64, "{port:?} {ip:?}");
            }
            ping(client, ip.own(), &[]);
            ping(server, ip.own(), &[]);
            ping(client, ip.server(), &[]);
        }
        up.all_counted();
        // Of two workers one may be behind.
        assert!(wait_until(|| up.counter("service", "ended") == 8), "{port:?}");
        assert_eq!(up.counter("service", "failed"), 0, "{port:?}");
        assert_eq!(up.counter("service", "bytes_read"), 8 * BYTES as u64, "{port:?}");
        // The bytes of the two on the host, each way, went by the short way, and headers besides.
        let short = |way| up.counter("short_way", way);
        assert!(short("from_host_bytes") > 4 * BYTES as u64, "{port:?}");
        assert!(short("to_host_bytes") > 4 * BYTES as u64, "{port:?}");
        assert_eq!(up.counter("strays", "dropped"), 0, "{port:?}");
        up.nothing_went_wrong();
        let Up { wharf, hosts } = up;
        wharf.signal(Signal::Interrupt);
        let ended = wharf.wait();
        assert!(ended.status.success(), "{ended}");
        drop(hosts);
    }
}

/// An address that is this machine's is refused at once; one that is a neighbour's as soon as that says so.
#[test]
fn addresses_of_others_are_refused() {
    if !have(&["ip"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Auto).hosts() else { return };
    give(&hosts.server, WIRE, &[Ip::V4], Ip::own);
    let up = ["up", "--wire", WIRE, "--host", HOST];
    let line = words();
    let refused = hosts.server.output(wharf().args(up).args(&line));
    assert_eq!(refused.status.code(), Some(2), "{refused}");
    assert!(refused.stderr.contains("10.77.0.9: it is this machine's, on wire0"), "{refused}");
    hosts.ip("address flush dev wire0");
    give(&hosts.client, PEER, &[Ip::V6], Ip::own);
    let refused = hosts.server.output(wharf().args(up).args(&line));
    assert!(!refused.status.success(), "{refused}");
    assert!(refused.stderr.contains("fd77::9 is the address of"), "{refused}");
}

/// A connection whose wire gets a smaller MTU goes on in smaller segments.
#[test]
fn a_connection_survives_a_smaller_mtu() {
    if !have(&["ip"]) {
        return;
    }
    let sent = bytes(BYTES);
    for port in [Port::Xdp, Port::Packet] {
        let Some(up) = up(port) else { continue };
        let Hosts { client, server, .. } = &up.hosts;
        for ip in Ip::BOTH {
            let mut socket = open(client, ip.own());
            swap(&mut socket, &sent[..100_000]);
            client.succeed("ip", &["link", "set", PEER, "mtu", "1300"]);
            server.succeed("ip", &["link", "set", WIRE, "mtu", "1300"]);
            let host_mtu = || server.run(|| Interface::by_name(HOST)).unwrap().mtu;
            assert!(wait_until(|| host_mtu() == 1300), "{port:?}");
            swap(&mut socket, &sent);
            client.succeed("ip", &["link", "set", PEER, "mtu", "1500"]);
            server.succeed("ip", &["link", "set", WIRE, "mtu", "1500"]);
            assert!(wait_until(|| host_mtu() == 1500), "{port:?}");
        }
    }
}

/// A connection to an echo.
fn open(host: &Host, to: IpAddr) -> TcpStream {
    let to = SocketAddr::new(to, 7);
    let socket = host.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends, and reads the same back.
fn swap(socket: &mut TcpStream, sent: &[u8]) {
    let mut writer = socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| writer.write_all(sent).unwrap());
        let mut received = vec![0; sent.len()];
        socket.read_exact(&mut received).unwrap();
        assert!(received == sent);
    });
}
