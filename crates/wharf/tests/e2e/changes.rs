//! What the host interface has when wharf ends is what the wire has then.

use std::process::Command;

use sys::process::Signal;
use testkit::lab::{Program, have, wait_until};

use super::ends::{End, bring_to_an_end, furnish, guards, shown};
use super::setup::{HOST, Hosts, Ip, Plan, Port, WIRE, ping, wharf};

/// Addresses, routes and permanent neighbours of an interface, in no order: what has come to the
/// wire last is there before the rest comes back.
fn all(hosts: &Hosts, name: &str) -> Vec<String> {
    let mut all = shown(hosts, name);
    for words in ["neigh show nud permanent", "neigh show proxy"] {
        let mut lines: Vec<String> = hosts
            .ip(&format!("{words} dev {name}"))
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        lines.sort();
        all.extend(lines);
    }
    all.sort();
    all
}

fn setting(hosts: &Hosts, family: &str, interface: &str, key: &str) -> String {
    hosts.server.run(|| sys::sysctl::read(&[family, "conf", interface, key])).unwrap()
}

fn set(hosts: &Hosts, family: &str, interface: &str, key: &str, value: &str) {
    hosts.server.run(|| sys::sysctl::write(&[family, "conf", interface, key], value)).unwrap();
}

/// Gives the wire an address and waits until the host interface has it.
fn moves(hosts: &Hosts, address: &str) {
    hosts.ip(&format!("address add {address} dev {WIRE}"));
    let moved = || shown(hosts, HOST).iter().any(|line| line.contains(address));
    assert!(wait_until(moved), "{address} does not move");
}

/// Waits until the guard knows all that has been changed so far: wharf tells it of one look at the
/// interfaces before it takes the next.
fn guard_knows(hosts: &Hosts) {
    moves(hosts, "10.77.7.1/32");
    moves(hosts, "10.77.7.2/32");
}

const SETTINGS: [(&str, &str, &str); 4] = [
    ("ipv4", "forwarding", "1"),
    ("ipv4", "rp_filter", "2"),
    ("ipv6", "accept_ra", "2"),
    ("ipv6", "use_tempaddr", "2"),
];

fn the_latest_state_is_the_wires(port: Port, end: End) {
    if !have(&["ip"]) {
        return;
    }
    let Some(hosts) = Plan::new(port).hosts() else { return };
    furnish(&hosts);
    hosts.ip(&format!("neigh add 10.77.0.50 lladdr 02:00:00:00:00:50 dev {WIRE}"));
    hosts.ip(&format!("neigh add proxy 10.77.0.60 dev {WIRE}"));
    hosts.ip(&format!("neigh add fd77::50 lladdr 02:00:00:00:00:50 dev {WIRE}"));
    for (family, key, value) in SETTINGS {
        set(&hosts, family, WIRE, key, value);
    }
    let wire = all(&hosts, WIRE);
    let wharf = hosts.wharf_up(&["--take-addresses"]);
    assert_eq!(all(&hosts, HOST), wire, "the host interface has what the wire had");
    assert_eq!(all(&hosts, WIRE), [""; 0], "the wire has nothing left");
    for (family, key, value) in SETTINGS {
        assert_eq!(setting(&hosts, family, HOST, key), value, "{family} {key}");
    }

    for line in [
        "address add 10.77.0.33/24 dev host0",
        "address del 10.77.0.22/24 dev host0",
        "address add fd77::33/64 dev host0 nodad",
        "route replace default via 10.77.0.7 dev host0 metric 5",
        "route add 198.51.100.0/24 via 10.77.0.8 dev host0 table 100",
        "-6 route del default dev host0",
        "neigh del 10.77.0.50 dev host0",
        "neigh add 10.77.0.51 lladdr 02:00:00:00:00:51 dev host0",
    ] {
        hosts.ip(line);
    }
    // Settings are for both at once, but for those that are wharf's own on the wire.
    set(&hosts, "ipv4", HOST, "send_redirects", "0");
    set(&hosts, "ipv6", WIRE, "accept_ra", "0");
    let followed = || {
        setting(&hosts, "ipv4", WIRE, "send_redirects") == "0"
            && setting(&hosts, "ipv6", HOST, "accept_ra") == "0"
    };
    assert!(wait_until(followed), "settings are not followed");
    guard_knows(&hosts);
    let latest = all(&hosts, HOST);
    assert!(latest.iter().any(|line| line.contains("10.77.0.33")), "{latest:#?}");

    bring_to_an_end(end, &hosts, wharf);
    let came_back = wait_until(|| all(&hosts, WIRE) == latest);
    assert!(came_back, "{port:?}, {end:?}: {:#?} is not {latest:#?}", all(&hosts, WIRE));
    let kept = hosts.ip("route show table 100");
    assert!(kept.contains(&format!("198.51.100.0/24 via 10.77.0.8 dev {WIRE}")), "{kept}");
    for (family, key, value) in [
        ("ipv4", "forwarding", "1"),
        ("ipv4", "rp_filter", "2"),
        ("ipv4", "send_redirects", "0"),
        ("ipv6", "accept_ra", "0"),
        ("ipv6", "use_tempaddr", "2"),
    ] {
        assert_eq!(setting(&hosts, family, WIRE, key), value, "{family} {key}");
    }
    assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
    ping(&hosts.client, Ip::V4.server(), &[]);
}

macro_rules! by_each_end {
    ($($name:ident: $end:expr),* $(,)?) => {
        mod xdp {
            $(#[test] fn $name() { super::the_latest_state_is_the_wires(super::Port::Xdp, $end); })*
        }
        mod packet {
            $(#[test] fn $name() { super::the_latest_state_is_the_wires(super::Port::Packet, $end); })*
        }
    };
}

by_each_end! {
    the_wire_has_the_latest_state_after_kill_9: super::End::Kill,
    the_wire_has_the_latest_state_after_kill_9_of_guard_and_wharf: super::End::KillGuardThenWharf,
    the_wire_has_the_latest_state_after_ctrl_c: super::End::Signal(super::Signal::Interrupt),
}

/// Ends the guard.
fn kill_guard(hosts: &Hosts) {
    let mut found = Vec::new();
    assert!(wait_until(|| {
        found = guards(hosts);
        found.len() == 1
    }));
    sys::process::kill(found[0], Signal::Kill).unwrap();
    assert!(wait_until(|| !guards(hosts).contains(&found[0])));
}

fn says(wharf: &Program, words: &str) {
    assert!(wait_until(|| wharf.errors().contains(words)), "{words:?}: {}", wharf.errors());
}

/// A guard that cannot be started is tried again, with pauses, and ends nothing.
#[test]
fn wharf_goes_on_while_no_guard_can_be_started() {
    if !have(&["ip", "cp", "chmod"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    furnish(&hosts);
    let copy = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("wharf-without-guard");
    super::setup::copy(wharf().get_program().as_ref(), &copy);
    let mut command = Command::new(&copy);
    command.args(["up", "--wire", WIRE, "--host", HOST, "--take-addresses"]);
    let mut wharf = hosts.server.spawn(command.args(["--set", "wire.mode=packet"]));
    wharf.line_with("up: ");

    // Without a right to execute it even root is refused.
    let chmod = |mode| hosts.server.succeed("chmod", &[mode, copy.to_str().unwrap()]);
    chmod("0600");
    kill_guard(&hosts);
    says(&wharf, "no guard can be started");
    says(&wharf, "another is started in 400 ms");
    ping(&hosts.client, Ip::V4.server(), &[]);
    hosts.ip("address add 10.77.0.33/24 dev host0");
    chmod("0700");
    assert!(wait_until(|| guards(&hosts).len() == 1), "no guard took over");
    guard_knows(&hosts);
    let latest = all(&hosts, HOST);

    bring_to_an_end(End::Kill, &hosts, wharf);
    let came_back = wait_until(|| all(&hosts, WIRE) == latest);
    assert!(came_back, "{:#?} is not {latest:#?}", all(&hosts, WIRE));
    std::fs::remove_file(copy).unwrap();
}

/// Guards that die again and again are not started in a loop that never rests.
#[test]
fn the_pause_before_another_guard_grows() {
    if !have(&["ip"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let wharf = hosts.wharf_up(&[]);
    for when in ["now", "in 100 ms", "in 200 ms", "in 400 ms"] {
        kill_guard(&hosts);
        says(&wharf, &format!("another is started {when}"));
    }
    assert!(wait_until(|| guards(&hosts).len() == 1), "no guard took over");
    bring_to_an_end(End::Signal(Signal::Interrupt), &hosts, wharf);
}
