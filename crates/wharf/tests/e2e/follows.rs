//! A wharf that runs follows what is changed around it.

use sys::interface::Interface;
use testkit::lab::{have, wait_until};

use super::setup::{HOST, Hosts, Ip, PEER, Plan, Port, Up, WIRE, give, ping};

/// What the host interface has.
fn host_mtu(up: &Up) -> u32 {
    up.hosts.server.run(|| Interface::by_name(HOST)).unwrap().mtu
}

fn set_mtu(up: &Up, name: &str, mtu: u32) {
    up.hosts.ip(&format!("link set {name} mtu {mtu}"));
}

#[track_caller]
fn host_gets(up: &Up, mtu: u32) {
    assert!(wait_until(|| host_mtu(up) == mtu), "{} is not {mtu}", host_mtu(up));
}

#[track_caller]
fn says(up: &Up, words: &str) {
    let errors = || up.wharf.errors();
    assert!(wait_until(|| errors().contains(words)), "{words:?} is not in {}", errors());
}

/// Waits until wharf has seen all that was changed before: it tells of the next change in the same
/// breath.
fn all_seen(up: &Up) {
    up.hosts.server.run(|| sys::sysctl::write(&["ipv4", "ip_forward"], "1")).unwrap();
    says(up, "this host forwards");
}

#[test]
fn the_host_has_the_wires_mtu_both_ways_and_nothing_false_is_said() {
    if !have(&["ip"]) {
        return;
    }
    for port in Port::EACH {
        let Some(up) = Plan::new(port).up() else { continue };
        for mtu in [1400, 1500, 1280, 1500] {
            set_mtu(&up, WIRE, mtu);
            host_gets(&up, mtu);
        }
        ping(&up.hosts.client, Ip::V4.server(), &["-M", "do", "-s", "1472"]);
        all_seen(&up);
        let said = up.wharf.errors();
        assert!(!said.contains("lost") && !said.contains("until"), "{port:?}: {said}");
    }
}

#[test]
fn a_wire_that_is_made_wider_is_used_as_far_as_its_memory_goes() {
    if !have(&["ip"]) {
        return;
    }
    for port in Port::EACH {
        let Some(up) = Plan::new(port).up() else { continue };
        up.hosts.client.succeed("ip", &["link", "set", PEER, "mtu", "3000"]);
        set_mtu(&up, WIRE, 3000);
        // 2 KB without the kernel's headroom, Ethernet and two VLAN tags; AF_PACKET takes all.
        let (mtu, words) = match port {
            Port::Xdp => (1770, "packets of more than 1770 bytes are lost"),
            _ => (3000, "LRO leaves packets of more than 1962 bytes alone"),
        };
        host_gets(&up, mtu);
        says(&up, words);
        let size = (mtu - 28).to_string();
        ping(&up.hosts.client, Ip::V4.server(), &["-M", "do", "-s", &size]);
    }
}

#[test]
fn an_mtu_that_the_user_has_set_stays() {
    if !have(&["ip"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Packet).up() else { return };
    set_mtu(&up, HOST, 1300);
    says(&up, "the MTU of host0 was set to 1300: it stays so");
    set_mtu(&up, WIRE, 1400);
    all_seen(&up);
    assert_eq!(host_mtu(&up), 1300);
    set_mtu(&up, HOST, 1400);
    says(&up, "the MTU of host0 follows that of wire0 again");
    set_mtu(&up, WIRE, 1450);
    host_gets(&up, 1450);

    let Some(up) = Plan::new(Port::Packet).up_with(&["--set", "host.mtu=1300"]) else { return };
    set_mtu(&up, WIRE, 1400);
    all_seen(&up);
    assert_eq!(host_mtu(&up), 1300);
    set_mtu(&up, HOST, 1350);
    says(&up, "the MTU of host0 was set to 1350: it stays so");
    assert_eq!(host_mtu(&up), 1350);
}

/// The server's addresses, each on a line.
fn addresses(hosts: &Hosts) -> String {
    hosts.ip("-o -4 address show scope global")
}

#[test]
fn queues_that_nothing_serves_end_it_with_a_word() {
    if !have(&["ip", "ethtool"]) {
        return;
    }
    let Some(hosts) = (Plan { queues: 4, ..Plan::new(Port::Xdp) }).hosts() else { return };
    // The driver wants a queue for each that the peer sends to.
    hosts.client.succeed("ethtool", &["-L", PEER, "tx", "1"]);
    hosts.server.succeed("ethtool", &["-L", WIRE, "rx", "1"]);
    give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
    let before = addresses(&hosts);
    let wharf = hosts.wharf_up(&["--take-addresses"]);
    assert_ne!(addresses(&hosts), before);
    hosts.server.succeed("ethtool", &["-L", WIRE, "rx", "4"]);
    let ended = wharf.wait();
    assert_eq!(ended.status.code(), Some(1), "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
    assert!(ended.stderr.contains("wire0 has 4 receive queues now (ethtool -L)"), "{ended}");
    assert_eq!(addresses(&hosts), before);
    assert!(!hosts.ip("link").contains(HOST));
    assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
    ping(&hosts.client, Ip::V4.server(), &[]);
}
