//! The engine behind a router: its gateway, and what routers have to say.

use std::net::IpAddr;

use sys::netlink::route::{self, NewRoute};
use testkit::lab::{Host, Wire};

use super::super::setup::{Ip, give, ping};
use super::{Lab, connect, counter, read_pattern};

const BYTES: u64 = 2_000_000;

/// The router's end of the wire to the client, and the client's.
const ENDS: [&str; 2] = ["near0", "far0"];

fn router(ip: Ip) -> IpAddr {
    far(ip, 1)
}

fn client(ip: Ip) -> IpAddr {
    far(ip, 2)
}

/// A host of the client's network.
fn far(ip: Ip, number: u8) -> IpAddr {
    match ip {
        Ip::V4 => [10, 88, 0, number].into(),
        Ip::V6 => [0xfd88, 0, 0, 0, 0, 0, 0, number.into()].into(),
    }
}

/// A client behind a router, whose wire takes fewer bytes than its own end says: only the router
/// knows.
fn network() -> Option<(Host, Host)> {
    let (host, behind) = (Host::new()?, Host::new()?);
    let [near, far] = ENDS;
    Wire { near, far, mtu: 1500, queues: 1, offloads: true }.lay(&host, &behind);
    give(&host, near, &Ip::BOTH, router);
    give(&behind, far, &Ip::BOTH, client);
    host.run(|| -> sys::Result<()> {
        sys::sysctl::set_ipv4_conf("all", "forwarding", "1")?;
        sys::sysctl::set_ipv6_conf("all", "forwarding", "1")?;
        sys::interface::set_mtu(near, 1300)
    })
    .unwrap();
    let add = || {
        let index = sys::interface::index(far)?;
        let way = |ip: Ip| {
            let any = if ip == Ip::V4 { [0; 4].into() } else { [0_u16; 8].into() };
            route::add(index, &NewRoute::new(any, 0, Some(router(ip))))
        };
        Ip::BOTH.into_iter().try_for_each(way)
    };
    behind.run(add).unwrap();
    Some((host, behind))
}

#[test]
fn a_router_that_takes_less_is_listened_to() {
    let Some((host, behind)) = network() else { return };
    let line = format!(
        "source --port 80 --bytes {BYTES} --json --gateway {} --gateway {}",
        Ip::V4.client(),
        Ip::V6.client()
    );
    let Some(lab) = Lab::on(host, &line) else { return };
    for ip in Ip::BOTH {
        ping(&behind, ip.server(), &[]);
        assert_eq!(read_pattern(&connect(&behind, ip.server(), 80)), BYTES, "{ip:?}");
    }
    let (ended, _host) = lab.end();
    assert!(counter(&ended, "network", "icmp_errors") >= 2, "{ended}");
    assert_eq!(counter(&ended, "drop", "no_route"), 0);
}

#[test]
fn without_a_gateway_only_neighbours_are_reached() {
    let Some((host, behind)) = network() else { return };
    let Some(lab) = Lab::on(host, "echo --port 7 --json") else { return };
    let to = std::net::SocketAddr::new(Ip::V4.server(), 7);
    let a_while = std::time::Duration::from_millis(300);
    let connected = behind.run(|| std::net::TcpStream::connect_timeout(&to, a_while));
    assert!(connected.is_err());
    drop(lab.connect(Ip::V4, 7));
    let (ended, _host) = lab.end();
    assert!(counter(&ended, "drop", "no_route") > 0, "{ended}");
}
