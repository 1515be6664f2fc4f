//! Clients that are connected keep nothing from ending as it should.

use std::time::Instant;

use sys::process::Signal;
use testkit::lab::{Host, Wire, have, wait_until};

use super::Lingering;
use crate::setup::{HOST, Ip, Plan, Port, WIRE, give, wharf};

/// The status of what a worker ended of, and the interfaces that are left.
#[test]
fn a_wire_that_is_gone_is_told_though_clients_are_connected() {
    if !have(&["ip"]) {
        return;
    }
    for port in Port::EACH {
        let Some(hosts) = Plan::new(port).hosts() else { continue };
        let up = hosts.wharf_up(&[]);
        let _clients = Lingering::on(&hosts.server);
        hosts.ip(&format!("link delete {WIRE}"));
        let ended = up.wait();
        assert_eq!(ended.status.code(), Some(1), "{port:?}: {ended}");
        assert!(ended.stderr.contains("is gone"), "{port:?}: {ended}");
        let names = hosts.server.run(sys::interface::list).unwrap();
        assert!(!names.iter().any(|interface| interface.name == HOST), "{names:?}");
    }
}

#[test]
fn ctrl_c_gives_the_addresses_back_though_clients_are_connected() {
    if !have(&["ip"]) {
        return;
    }
    for port in Port::EACH {
        let Some(hosts) = Plan::new(port).hosts() else { continue };
        give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
        let up = hosts.wharf_up(&["--take-addresses"]);
        assert!(!hosts.ip(&format!("-o address show dev {WIRE}")).contains("10.77.0.2"));
        let clients = Lingering::on(&hosts.server);
        let since = Instant::now();
        up.signal(Signal::Interrupt);
        let ended = up.wait();
        println!("{port:?}: ended after {} ms", since.elapsed().as_millis());
        assert!(ended.status.success() && ended.stderr.is_empty(), "{port:?}: {ended}");
        // There is nothing to wait for: the guard has done its work before wharf ended.
        assert!(hosts.ip(&format!("-o address show dev {WIRE}")).contains("10.77.0.2"));
        drop(clients);
        assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
    }
}

#[test]
fn an_interface_of_degen_that_is_gone_is_told_though_clients_are_connected() {
    if !have(&["ip"]) {
        return;
    }
    let (Some(middle), Some(far)) = (Host::new(), Host::new()) else { return };
    for (near, far_end) in [("left", "left0"), ("right", "right0")] {
        let wire = Wire { near, far: far_end, mtu: 1500, queues: 1, offloads: true };
        wire.lay(&middle, &far);
    }
    let words = ["degen", "--no-real-time", "--between", "left", "right"];
    let mut degen = middle.spawn(wharf().args(words));
    degen.line_with("degen: ");
    let _clients = Lingering::on(&middle);
    middle.succeed("ip", &["link", "delete", "left"]);
    let ended = degen.wait();
    assert_eq!(ended.status.code(), Some(1), "{ended}");
    assert!(ended.stderr.contains("left is gone"), "{ended}");
}

#[test]
fn an_endpoint_tells_its_counters_at_the_end_though_clients_are_connected() {
    let Some(host) = Host::new() else { return };
    let words = "tcp echo --host tcp0 --host-address 10.0.0.1/24 --address 10.0.0.2/24 --port 7";
    let mut engine = host.spawn(wharf().args(words.split(' ')));
    engine.line_with("tcp: echo");
    let _clients = Lingering::on(&host);
    host.run(|| std::net::TcpStream::connect("10.0.0.2:7")).unwrap();
    engine.signal(Signal::Interrupt);
    let ended = engine.wait();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended}");
    let begun = ended.stdout.lines().find(|line| line.contains("begun")).unwrap_or_default();
    assert!(begun.ends_with(" 1"), "{ended}");
}
