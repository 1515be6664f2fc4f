//! However wharf ends, the server's network is as it was before.

use std::time::Instant;

use sys::process::Signal;
use testkit::lab::{Program, have, wait_until};
use testkit::missing::lacks;

use super::setup::{HOST, Hosts, Ip, Plan, Port, WIRE, give, ping};
use super::traffic::{Direction, Load};

/// The beginning of the line that the guard logs when wharf was killed.
const DEATH: &str = "wharf: wharf has died: ";

/// What ends it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// `kill -9` of wharf.
    Kill,
    /// `kill -9` of the process that is to put the wire back, then of wharf.
    KillGuardThenWharf,
    /// Ctrl-C, and what service managers send.
    Signal(Signal),
}

/// What `ip` shows of an interface, without what the kernel makes by itself.
pub(crate) fn shown(hosts: &Hosts, name: &str) -> Vec<String> {
    let addresses = hosts.ip(&format!("-o address show dev {name} scope global"));
    let (v4, v6) = (
        hosts.ip(&format!("-4 route show dev {name}")),
        hosts.ip(&format!("-6 route show dev {name}")),
    );
    let addresses = addresses.lines().map(|line| match line.split_once(name) {
        Some((_, address)) => address.replace(name, "IF"),
        None => line.to_owned(),
    });
    let mut routes: Vec<&str> = v4.lines().chain(v6.lines()).collect();
    routes.retain(|route| !route.starts_with("fe80::/64"));
    routes.sort_unstable();
    let lines = addresses.chain(routes.into_iter().map(str::to_owned));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// The settings of the wire that wharf may have a reason to change.
fn switches(hosts: &Hosts) -> Vec<String> {
    let read = || {
        let v4 = ["rp_filter", "arp_ignore", "arp_announce", "forwarding", "accept_local"];
        let v6 = ["disable_ipv6", "accept_ra", "forwarding", "accept_dad"];
        let v4 = v4.map(|key| sys::sysctl::ipv4_conf(WIRE, key).unwrap());
        let v6 = v6.map(|key| sys::sysctl::ipv6_conf(WIRE, key).unwrap_or_default());
        v4.into_iter().chain(v6).collect()
    };
    hosts.server.run(read)
}

/// Everything of the server's network that must be as it was.
fn network(hosts: &Hosts) -> (Vec<String>, Vec<String>, String) {
    let mut names: Vec<String> =
        hosts.server.run(sys::interface::list).unwrap().into_iter().map(|i| i.name).collect();
    names.sort();
    let link = hosts.ip(&format!("-d link show dev {WIRE}"));
    // Whether an XDP program is attached is among the flags and behind "prog/xdp".
    let xdp = if link.contains("xdp") { "XDP program" } else { "no XDP program" };
    let (mut all, shown) = (switches(hosts), shown(hosts, WIRE));
    all.extend(names);
    (shown, all, xdp.to_owned())
}

/// Gives the wire the addresses and routes of a server.
pub(crate) fn furnish(hosts: &Hosts) {
    give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
    hosts.ip(&format!("address add 10.77.0.22/24 dev {WIRE}"));
    hosts.ip(&format!("route add default via 10.77.0.1 dev {WIRE}"));
    hosts.ip(&format!("route add 192.0.2.0/24 via 10.77.0.9 dev {WIRE} metric 7 src 10.77.0.22"));
    hosts.ip(&format!("-6 route add default via fd77::1 dev {WIRE} metric 50"));
}

/// Ids of the guards on the server.
pub(crate) fn guards(hosts: &Hosts) -> Vec<u32> {
    let named = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "nic-guard\n")
    };
    hosts.server.processes().into_iter().filter(named).collect()
}

/// Kills wharf and its guard at once: neither acts when the other has gone.
pub(crate) fn kill_with_guard(hosts: &Hosts, wharf: u32) {
    let [guard] = guards(hosts)[..] else { panic!("there is one guard") };
    // So that it starts no other guard. To stop the guard is not enough: its process group is orphaned when wharf dies, and
    // the kernel has it go on (setpgid(2)).
    sys::process::kill(wharf, Signal::Stop).unwrap();
    let stat = format!("/proc/{wharf}/stat");
    assert!(wait_until(|| std::fs::read_to_string(&stat).unwrap().contains(") T ")));
    for pid in [guard, wharf] {
        sys::process::kill(pid, Signal::Kill).unwrap();
    }
}

pub(crate) fn bring_to_an_end(end: End, hosts: &Hosts, wharf: Program) {
    match end {
        End::Kill => wharf.signal(Signal::Kill),
        End::KillGuardThenWharf => {
            let mut first = Vec::new();
            assert!(wait_until(|| {
                first = guards(hosts);
                first.len() == 1
            }));
            sys::process::kill(first[0], Signal::Kill).unwrap();
            let other = || matches!(guards(hosts)[..], [guard] if guard != first[0]);
            assert!(wait_until(other), "no other guard took over");
            wharf.signal(Signal::Kill);
        }
        End::Signal(signal) => wharf.signal(signal),
    }
    let ended = wharf.wait();
    if let End::Signal(_) = end {
        assert!(ended.status.success(), "{ended}");
        assert!(!ended.stderr.contains(DEATH), "{ended}");
    }
}

/// Brings wharf up with the wire's addresses and routes, under load, and ends it. The connection,
/// older than wharf, outlives it.
fn the_network_comes_back(port: Port, end: End) {
    if !have(&["ip", "sha256sum"]) {
        return;
    }
    let Some(hosts) = Plan::new(port).hosts() else { return };
    furnish(&hosts);
    let load = Load::start(&hosts, Ip::V4, Direction::In, None);
    let before = network(&hosts);
    let wire = shown(&hosts, WIRE);

    let wharf = hosts.wharf_up(&["--take-addresses"]);
    assert_eq!(shown(&hosts, HOST), wire, "the host interface has what the wire had");
    assert_eq!(shown(&hosts, WIRE), [""; 0], "the wire has nothing left");
    load.goes_on();
    let since = Instant::now();
    bring_to_an_end(end, &hosts, wharf);

    let came_back = wait_until(|| network(&hosts) == before);
    assert!(came_back, "{:#?} is not {before:#?}", network(&hosts));
    println!("{port:?}, {end:?}: the network was back after {} ms", since.elapsed().as_millis());
    assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
    load.goes_on();
    load.finish();
    for ip in Ip::BOTH {
        ping(&hosts.client, ip.server(), &[]);
    }
}

macro_rules! by_each_end {
    ($($name:ident: $end:expr),* $(,)?) => {
        mod xdp {
            $(#[test] fn $name() { super::the_network_comes_back(super::Port::Xdp, $end); })*
        }
        mod packet {
            $(#[test] fn $name() { super::the_network_comes_back(super::Port::Packet, $end); })*
        }
        mod veth {
            $(#[test] fn $name() { super::the_network_comes_back(super::Port::Veth, $end); })*
        }
    };
}

by_each_end! {
    the_network_comes_back_after_kill_9: super::End::Kill,
    the_network_comes_back_after_kill_9_of_guard_and_wharf: super::End::KillGuardThenWharf,
    the_network_comes_back_after_ctrl_c: super::End::Signal(super::Signal::Interrupt),
    the_network_comes_back_after_sigterm: super::End::Signal(super::Signal::Terminate),
}

/// Since Linux 6.16 an nftables hook of a device goes by the name (`nf_tables_netdev_event`). wharf's
/// table has the name of its interface in its own, so that another of that name is refused.
fn the_drop_moves(hosts: &Hosts) {
    let on = |name| hosts.server.run(|| sys::ingress::IngressDrop::on(name));
    assert!(wait_until(|| on(WIRE).is_ok()), "what has the old name now is still dropped");
    assert!(on("lan0").is_err(), "the wire is dropped under its new name");
    ping(&hosts.client, Ip::V4.server(), &[]);
}

/// What gives the wire its network back knows it by its index: its name may change meanwhile, and
/// another interface may have the old one.
#[test]
fn a_wire_renamed_meanwhile_gets_its_network_back() {
    if !have(&["ip"]) {
        return;
    }
    for (port, end) in [
        (Port::Packet, End::Kill),
        (Port::Packet, End::Signal(Signal::Interrupt)),
        (Port::Xdp, End::Kill),
        (Port::Xdp, End::Signal(Signal::Interrupt)),
    ] {
        let Some(hosts) = Plan::new(port).hosts() else { continue };
        furnish(&hosts);
        let before = shown(&hosts, WIRE);
        let wharf = hosts.wharf_up(&["--take-addresses"]);
        // Linux renames an interface that is up since 6.2; older kernels want it down.
        let renamed = hosts
            .server
            .output(std::process::Command::new("ip").args(["link", "set", WIRE, "name", "lan0"]));
        if !renamed.status.success() {
            lacks("a kernel that renames an interface which is up");
            return;
        }
        hosts.ip(&format!("link add {WIRE} type veth peer name spare0"));
        if port == Port::Packet {
            the_drop_moves(&hosts);
        }
        // What wharf turns off on a wire, and on again.
        let off = || sys::ethtool::Ethtool::open(WIRE)?.set_feature("rx-vlan-hw-parse", false);
        let features = || sys::ethtool::Ethtool::open(WIRE)?.features();
        hosts.server.run(off).unwrap();
        bring_to_an_end(end, &hosts, wharf);
        let came_back = wait_until(|| shown(&hosts, "lan0") == before);
        assert!(came_back, "{port:?}, {end:?}: {:#?} is not {before:#?}", shown(&hosts, "lan0"));
        assert_eq!(shown(&hosts, WIRE), [""; 0], "what has the old name now is left alone");
        let features = hosts.server.run(features).unwrap();
        assert_eq!(features.get("rx-vlan-hw-parse"), Some(&false), "{port:?}, {end:?}");
        assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
        ping(&hosts.client, Ip::V4.server(), &[]);
    }
}

/// Without `--take-addresses` too, nothing of what wharf made stays.
#[test]
fn nothing_stays_behind_after_kill_9() {
    if !have(&["ip", "sha256sum"]) {
        return;
    }
    for port in Port::EACH {
        let Some(hosts) = Plan::new(port).hosts() else { continue };
        let before = network(&hosts);
        let wharf = hosts.wharf_up(&[]);
        give(&hosts.server, HOST, &Ip::BOTH, Ip::server);
        ping(&hosts.client, Ip::V4.server(), &[]);
        bring_to_an_end(End::Kill, &hosts, wharf);
        let came_back = wait_until(|| network(&hosts) == before);
        assert!(came_back, "{:#?} is not {before:#?}", network(&hosts));
        assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
    }
}

/// A wire that goes away ends wharf: there is nothing left to do.
#[test]
fn wharf_ends_when_its_wire_is_gone() {
    if !have(&["ip"]) {
        return;
    }
    for port in Port::EACH {
        let Some(hosts) = Plan::new(port).hosts() else { continue };
        let wharf = hosts.wharf_up(&[]);
        hosts.ip(&format!("link delete {WIRE}"));
        let ended = wharf.wait();
        assert_eq!(ended.status.code(), Some(1), "{ended}");
        let last = ended.stderr.lines().last();
        assert!(last.is_some_and(|line| line.contains("is gone")), "{ended}");
        assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
        let names = hosts.server.run(sys::interface::list).unwrap();
        assert!(!names.iter().any(|interface| interface.name == HOST), "{names:?}");
    }
}

/// A line in the log, also where no connection was on the NIC.
#[test]
fn the_death_of_wharf_is_logged() {
    for words in [&[][..], &["--take-addresses"]] {
        let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
        let mut wharf = hosts.wharf_up(words);
        wharf.signal(Signal::Kill);
        let is_over = || !wharf.runs() && hosts.server.processes().is_empty();
        assert!(wait_until(is_over), "a process stays behind");
        assert!(wait_until(|| wharf.errors().contains(DEATH)), "{}", wharf.errors());
        let text = wharf.errors();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("has died")).collect();
        let [line] = lines[..] else { panic!("{text}") };
        assert!(line.contains(&format!("{WIRE} is as it was before")), "{text}");
        assert!(line.contains("no connections"), "{text}");
    }
}

#[test]
fn a_wire_without_addresses_to_take_is_told_of() {
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let wharf = hosts.wharf_up(&["--take-addresses"]);
    let line = format!("wharf: {WIRE} has no addresses to take");
    assert!(wait_until(|| wharf.errors().contains(&line)), "{}", wharf.errors());
    drop(wharf);
    assert!(wait_until(|| hosts.server.processes().is_empty()), "a process stays behind");
    furnish(&hosts);
    let wharf = hosts.wharf_up(&["--take-addresses"]);
    wharf.signal(Signal::Interrupt);
    let ended = wharf.wait();
    assert!(!ended.stderr.contains("no addresses to take"), "{ended}");
}

/// The kernel has no routes of an interface that is down, and takes none: neither is an error.
#[test]
fn a_wire_that_is_down_gets_its_addresses_back_without_an_error() {
    if !have(&["ip"]) {
        return;
    }
    let addresses = |hosts: &Hosts| -> Vec<String> {
        let all = shown(hosts, WIRE).into_iter().filter(|line| line.starts_with("inet"));
        all.filter_map(|line| line.split(' ').nth(1).map(str::to_owned)).collect()
    };
    for port in Port::EACH {
        for end in [End::Signal(Signal::Terminate), End::Kill] {
            let Some(hosts) = Plan::new(port).hosts() else { continue };
            furnish(&hosts);
            let before = addresses(&hosts);
            assert!(!before.is_empty());
            let mut wharf = hosts.wharf_up(&["--take-addresses"]);
            hosts.ip(&format!("link set {WIRE} down"));
            let gone = || !hosts.ip(&format!("link show {HOST}")).contains("LOWER_UP");
            if port != Port::Veth {
                assert!(wait_until(gone), "{HOST} has a carrier");
            }
            let End::Signal(signal) = end else {
                wharf.signal(Signal::Kill);
                let is_over = || !wharf.runs() && hosts.server.processes().is_empty();
                assert!(wait_until(is_over), "a process stays behind");
                assert!(wait_until(|| wharf.errors().contains(DEATH)), "{}", wharf.errors());
                assert_eq!(wharf.errors().lines().count(), 1, "{}", wharf.errors());
                assert_eq!(addresses(&hosts), before, "{port:?}, {end:?}");
                continue;
            };
            wharf.signal(signal);
            let ended = wharf.wait();
            assert!(ended.status.success(), "{port:?}: {ended}");
            assert_eq!(ended.stderr, "", "{port:?}: {ended}");
            assert_eq!(addresses(&hosts), before, "{port:?}");
            assert!(!hosts.ip(&format!("link show {WIRE}")).contains("state UP"), "{port:?}");
        }
    }
}
