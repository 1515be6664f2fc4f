//! The control plane against the running kernel, in network namespaces of the tests' own.
//!
//! Without the privilege to make one the tests fail, or are left out (`testkit::missing`). The kernel's state
//! is compared by the output of `ip`.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::process::Command;

use sys::ethtool::{Ethtool, Offload};
use sys::interface::{self, Interface};
use sys::netlink::link::{self, VethEnd};
use sys::netlink::route::NewRoute;
use sys::netlink::saved::Saved;
use sys::netlink::{Connection, Protocol, address, neighbour, route};
use sys::netns::{self, Namespace};
use sys::sysctl;
use testkit::missing::lacks;

/// Runs `test` in a namespace of its own, if this process may make one.
fn in_namespace(test: impl FnOnce() + Send) {
    match Namespace::new() {
        Ok(namespace) => namespace.run(test).unwrap(),
        Err(error) if error.is_permission() => lacks(error),
        Err(error) => panic!("{error}"),
    }
}

/// Like [`in_namespace`], for tests that also need `ip`.
fn with_ip(test: impl FnOnce() + Send) {
    match Command::new("ip").arg("-V").output() {
        Ok(_) => in_namespace(test),
        Err(error) => lacks(format!("ip: {error}")),
    }
}

/// Runs `ip` in the calling thread's namespace; each line of `script` is one command.
fn ip(script: &str) -> String {
    let mut output = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let run = Command::new("ip").args(line.split_whitespace()).output().unwrap();
        assert!(run.status.success(), "ip {line}: {}", String::from_utf8_lossy(&run.stderr));
        output.push_str(&String::from_utf8_lossy(&run.stdout));
    }
    output
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A veth pair, both ends up, without IPv6 addresses of the kernel's making in the way.
fn veth_up(near: &str, far: &str) -> u32 {
    link::create_veth(&VethEnd::new(near), &VethEnd::new(far)).unwrap();
    interface::set_up(near).unwrap();
    interface::set_up(far).unwrap();
    interface::index(near).unwrap()
}

/// The addresses and routes of one interface in the words of `ip`, without its name, its link-local
/// address and what is in flux: lifetimes and the state of duplicate address detection.
fn state(name: &str) -> Vec<String> {
    let shown = ip(&format!("-details address show dev {name} scope global"));
    let addresses = shown.lines().map(str::trim).filter(|line| line.starts_with("inet"));
    let mut routes = joined(&ip("
        -4 -details route show table all
        -6 -details route show table all
    "));
    routes.retain(|line| {
        let by_itself = line.contains("table local") || line.starts_with("unicast fe80::/64");
        line.contains(name) && !by_itself
    });
    routes.sort();
    let lines = addresses.map(str::to_owned).chain(routes);
    lines.map(|line| without_flux(&line.replace(name, "IF"))).collect()
}

/// `line` without " tentative" and without " expires" and the word after it.
fn without_flux(line: &str) -> String {
    let mut words = line.split_whitespace().filter(|word| *word != "tentative");
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "expires" => drop(words.next()),
            _ => kept.push(word),
        }
    }
    kept.join(" ")
}

/// Lines of `ip route`, each with the next hops that follow it.
fn joined(routes: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in routes.lines() {
        match lines.last_mut() {
            Some(last) if line.starts_with(['\t', ' ']) => last.push_str(line),
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

#[test]
fn a_veth_pair_is_made_as_asked_and_deleted_as_one() {
    in_namespace(|| {
        let other = Namespace::new().unwrap();
        let near = VethEnd { mac: Some([2, 0, 0, 0, 0, 1]), queues: 2, ..VethEnd::new("near") };
        let far = VethEnd {
            namespace: Some(other.as_fd()),
            mac: Some([2, 0, 0, 0, 0, 2]),
            mtu: Some(9000),
            ..VethEnd::new("far")
        };
        link::create_veth(&near, &far).unwrap();
        let near = Interface::by_name("near").unwrap();
        assert_eq!(near.mac, Some([2, 0, 0, 0, 0, 1]));
        assert_eq!((near.rx_queues, near.tx_queues), (2, 2));
        assert_eq!(near.kind.as_deref(), Some("veth"));
        assert!(near.ethernet && !near.up && !near.running && !near.xdp);
        assert!(near.link_netnsid.is_some());

        let far = other.run(|| Interface::by_name("far").unwrap()).unwrap();
        assert_eq!((far.mac, far.mtu), (Some([2, 0, 0, 0, 0, 2]), 9000));
        assert_eq!((far.link, near.link), (Some(near.index), Some(far.index)));
        assert!(interface::index("far").unwrap_err().is_missing());

        interface::set_up("near").unwrap();
        other.run(|| interface::set_up("far").unwrap()).unwrap();
        interface::set_mtu("near", 1400).unwrap();
        interface::set_mac("near", [2, 0, 0, 0, 0, 3]).unwrap();
        let near = Interface::by_name("near").unwrap();
        assert!(near.up && near.running);
        assert_eq!((near.mtu, near.mac), (1400, Some([2, 0, 0, 0, 0, 3])));
        interface::set_down("near").unwrap();
        assert!(!Interface::by_name("near").unwrap().up);

        let taken = link::create_veth(&VethEnd::new("near"), &VethEnd::new("x")).unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
        link::delete("near").unwrap();
        assert!(other.run(|| interface::index("far").unwrap_err().is_missing()).unwrap());
        assert!(link::delete("near").unwrap_err().is_missing());
    });
}

#[test]
fn namespaces_do_not_see_each_other() {
    in_namespace(|| {
        let here = netns::current().unwrap();
        let other = Namespace::new().unwrap();
        veth_up("mine", "peer");
        assert!(other.run(|| interface::index("mine").is_err()).unwrap());
        link::set_namespace("peer", other.as_fd()).unwrap();
        assert!(interface::index("peer").is_err());
        let thread = other.spawn(|| interface::index("peer").is_ok()).unwrap();
        assert!(thread.join().unwrap().unwrap());
        assert!(Interface::by_name("lo").unwrap().up);
        // A thread's settings follow it too.
        sysctl::set_ipv4_conf("mine", "rp_filter", "2").unwrap();
        assert_eq!(sysctl::ipv4_conf("mine", "rp_filter").unwrap(), "2");
        assert!(other.run(|| sysctl::ipv4_conf("mine", "rp_filter").is_err()).unwrap());
        other
            .run(|| {
                netns::enter(here.as_fd()).unwrap();
                interface::index("mine").unwrap();
            })
            .unwrap();
    });
}

#[test]
fn addresses_and_routes_are_added_listed_and_deleted() {
    in_namespace(|| {
        let index = veth_up("wire", "peer");
        for (ip, length) in [("10.1.0.2", 24), ("2001:db8::2", 64)] {
            address::add(index, address(ip), length, true).unwrap();
            let again = address::add(index, address(ip), length, true).unwrap_err();
            assert_eq!(again.errno(), Some(libc::EEXIST));
            let listed = address::list(index).unwrap();
            let found = listed.iter().find(|found| found.ip() == address(ip)).unwrap();
            assert_eq!((found.prefix_len(), found.index()), (length, index));
        }
        for (any, gateway) in [("0.0.0.0", "10.1.0.1"), ("::", "2001:db8::1")] {
            let new = NewRoute {
                metric: Some(50),
                table: Some(1000),
                ..NewRoute::new(address(any), 0, Some(address(gateway)))
            };
            route::add(index, &new).unwrap();
            let listed = route::list(index).unwrap();
            let found = listed.iter().find(|route| route.destination() == (address(any), 0));
            let found = found.unwrap();
            assert_eq!(found.gateway(), Some(address(gateway)));
            assert_eq!((found.metric(), found.table()), (50, 1000));
            route::delete(found).unwrap();
            assert_eq!(route::delete(found).unwrap_err().errno(), Some(libc::ESRCH));
        }
        let unreachable = NewRoute::new(address("10.9.0.0"), 16, Some(address("192.0.2.1")));
        let error = route::add(index, &unreachable).unwrap_err();
        assert!(error.to_string().starts_with("cannot add the route 10.9.0.0/16 through wire"));
        address::delete(index, address("10.1.0.2"), 24).unwrap();
        assert!(address::delete(index, address("10.1.0.2"), 24).is_err());
    });
}

/// What a machine's uplink may carry, in the words of `ip`.
const UPLINK: &str = "
    address add 192.0.2.10/24 brd 192.0.2.255 dev wire
    address add 192.0.2.11/24 dev wire label wire:1
    address add 198.51.100.1 peer 198.51.100.2/32 dev wire
    address add 203.0.113.5/24 dev wire noprefixroute metric 77
    address add 192.0.2.20/25 dev wire valid_lft 5000 preferred_lft 4000
    address add 2001:db8:1::10/64 dev wire nodad
    address add 2001:db8:2::10/64 dev wire noprefixroute nodad
    address add 2001:db8:3::10/64 dev wire valid_lft 5000 preferred_lft 0
    route add 203.0.113.0/24 dev wire proto kernel scope link src 203.0.113.5 metric 100
    route add default via 192.0.2.1 dev wire src 192.0.2.11 metric 100 proto dhcp
    route add default via 192.0.2.1 dev wire metric 300 mtu lock 1400 initcwnd 20
    route add 10.0.0.0/8 via 192.0.2.254 dev wire tos 0x10
    route add 172.16.0.0/12 via 10.9.9.9 dev wire onlink
    route add 172.31.0.0/16 via 192.0.2.7 dev wire table 100
    route add 198.18.0.0/16 via 198.51.100.2 dev wire proto bird
    route add 198.19.0.0/16 nexthop via 192.0.2.1 dev wire weight 3 nexthop via 10.200.0.1 dev other
    route add 192.88.99.0/24 via inet6 2001:db8:1::1 dev wire
    -6 route add default via fe80::1 dev wire metric 512 proto ra expires 1500 pref high
    -6 route add 2001:db8:100::/48 via 2001:db8:1::1 dev wire src 2001:db8:2::10
    -6 route add 2001:db8:200::/48 dev wire table 200 mtu 1400
    -6 route add 2001:db8:300::/48 nexthop via 2001:db8:1::1 dev wire nexthop via fe80::2 dev wire weight 2
    nexthop add id 7 via 192.0.2.99 dev wire
    route add 198.20.0.0/16 nhid 7
    route add blackhole 10.66.0.0/16
    -6 route add unreachable 2001:db8:666::/48
";

fn uplink() -> (u32, u32) {
    let wire = veth_up("wire", "wire-peer");
    let host = veth_up("nic0", "nic0-peer");
    let other = veth_up("other", "other-peer");
    address::add(other, address("10.200.0.2"), 24, false).unwrap();
    ip(UPLINK);
    // A second interface has a default route of the same metric: it must not be in the way.
    ip("route append default via 10.200.0.1 dev other metric 100");
    (wire, host)
}

#[test]
fn addresses_and_routes_move_to_another_interface_and_back() {
    with_ip(|| {
        let (wire, host) = uplink();
        let before = state("wire");
        let elsewhere = state("other");
        for kept in ["onlink", "pref high", "initcwnd 20", "via fe80::2", "nhid 7", "table 100"] {
            assert!(before.iter().any(|line| line.contains(kept)), "{kept}: {before:#?}");
        }

        let saved = Saved::save(wire).unwrap();
        assert!(!saved.is_empty());
        saved.remove().unwrap();
        let gone = Saved::save(wire).unwrap();
        assert!(gone.is_empty(), "{:#?} {:#?}", state("wire"), gone);
        saved.remove().unwrap();

        saved.apply(host).unwrap();
        let moved = state("nic0");
        let expires = ip("-6 route show default dev nic0");
        assert!(expires.contains("expires 1") && expires.contains("sec"), "{expires}");
        assert_eq!(moved, by_gateway(&before));
        saved.apply(host).unwrap();
        assert_eq!(state("nic0"), moved);

        // The process that moved them is gone with its interface; another puts them back.
        link::delete("nic0").unwrap();
        let restored = Saved::from_bytes(&saved.to_bytes()).unwrap();
        assert_eq!(restored, saved);
        restored.apply(wire).unwrap();
        assert_eq!(state("wire"), before);
        assert_eq!(state("other"), elsewhere);
        let untouched = ip("route show type blackhole\n -6 route show type unreachable");
        assert!(untouched.contains("10.66.0.0/16") && untouched.contains("2001:db8:666::/48"));
    });
}

/// A next-hop object belongs to its interface: on another one the route names the gateway itself.
fn by_gateway(state: &[String]) -> Vec<String> {
    let plain = |line: &String| match line.split_once(" nh_info") {
        Some((line, _)) => line.replace("nhid 7 ", ""),
        None => line.clone(),
    };
    state.iter().map(plain).collect()
}

#[test]
fn what_moved_to_a_living_interface_can_be_moved_back_from_there() {
    with_ip(|| {
        let (wire, host) = uplink();
        ip("route del 198.20.0.0/16\n nexthop del id 7");
        let before = state("wire");
        let there = Saved::save(wire).unwrap();
        there.remove().unwrap();
        there.apply(host).unwrap();
        let back = Saved::save(host).unwrap();
        back.remove().unwrap();
        back.apply(wire).unwrap();
        assert_eq!(state("wire"), before);
    });
}

#[test]
fn a_route_outlives_its_next_hop_object() {
    with_ip(|| {
        let wire = veth_up("wire", "peer");
        ip("
            address add 192.0.2.10/24 dev wire
            nexthop add id 7 via 192.0.2.99 dev wire
            route add 198.20.0.0/16 nhid 7
        ");
        let saved = Saved::save(wire).unwrap();
        saved.remove().unwrap();
        ip("nexthop del id 7");
        saved.apply(wire).unwrap();
        assert!(ip("route show 198.20.0.0/16").contains("via 192.0.2.99 dev wire"));
    });
}

#[test]
fn lifetimes_go_on_where_they_were() {
    with_ip(|| {
        let wire = veth_up("wire", "peer");
        ip("
            address add 192.0.2.20/24 dev wire valid_lft 5000 preferred_lft 4000
            address add 2001:db8::20/64 dev wire valid_lft 5000 preferred_lft 4000
            address add 192.0.2.30/24 dev wire valid_lft 100 preferred_lft 50
        ");
        let mut saved = Saved::save(wire).unwrap();
        saved.remove().unwrap();
        saved.saved_at = sys::clock::since_boot().saturating_sub(1000 * 1_000_000_000);
        let seconds_up = sys::clock::since_boot() / 1_000_000_000;
        let elapsed = seconds_up.min(1000);
        saved.apply(wire).unwrap();
        let shown = ip("address show dev wire");
        let lifetimes = shown.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some("valid_lft")).then(|| words.next().unwrap().to_owned())
        });
        let finite = lifetimes.filter_map(|left| left.strip_suffix("sec")?.parse::<u64>().ok());
        for left in finite.filter(|&left| left > 100) {
            assert!((4900 - elapsed..=5000 - elapsed).contains(&left), "{shown}");
        }
        assert_eq!(shown.contains("192.0.2.30"), elapsed < 100);
        assert!(shown.contains("192.0.2.20") && shown.contains("2001:db8::20"));
    });
}

#[test]
fn a_default_route_with_source_and_metric_waits_for_its_address() {
    in_namespace(|| {
        let wire = veth_up("wire", "peer");
        let host = veth_up("nic0", "nic0-peer");
        for (ip, gateway, any) in
            [("192.0.2.10", "192.0.2.1", "0.0.0.0"), ("2001:db8::10", "2001:db8::1", "::")]
        {
            let ip = address(ip);
            address::add(wire, ip, if ip.is_ipv4() { 24 } else { 64 }, true).unwrap();
            let default = NewRoute {
                source: Some(ip),
                metric: Some(42),
                ..NewRoute::new(address(any), 0, Some(address(gateway)))
            };
            route::add(wire, &default).unwrap();
        }
        let saved = Saved::save(wire).unwrap();
        saved.remove().unwrap();
        assert!(Saved::save(wire).unwrap().is_empty());
        saved.apply(host).unwrap();
        let routes = route::list(host).unwrap();
        for (any, source) in [("0.0.0.0", "192.0.2.10"), ("::", "2001:db8::10")] {
            let found = routes.iter().find(|route| route.destination() == (address(any), 0));
            let found = found.unwrap();
            assert_eq!((found.source(), found.metric()), (Some(address(source)), 42));
            assert!(found.leaves_through(host));
        }
    });
}

#[test]
fn a_route_outlives_the_address_that_its_gateway_was_reached_by() {
    with_ip(|| {
        let (wire, host) = uplink();
        ip("-6 addr add fd77::2/64 dev wire nodad
            -6 route add 2001:db8::/32 via fd77::1 dev wire
            -6 addr del fd77::2/64 dev wire");
        let saved = Saved::save(wire).unwrap();
        saved.remove().unwrap();
        for index in [host, wire] {
            saved.apply(index).unwrap();
            let there = Saved::save(index).unwrap();
            assert!(there.routes.iter().any(|route| route.to_string().contains("2001:db8::/32")));
            there.remove().unwrap();
        }
    });
}

#[test]
fn what_cannot_be_added_is_reported_and_the_rest_is_there() {
    with_ip(|| {
        let wire = veth_up("wire", "peer");
        // A route's preferred source is an address of this host, which is gone when the route is to come back.
        ip("addr add 203.0.113.1/32 dev lo
            addr add 192.0.2.10/24 dev wire
            route add 198.51.100.0/24 dev wire src 203.0.113.1");
        let saved = Saved::save(wire).unwrap();
        saved.remove().unwrap();
        ip("addr del 203.0.113.1/32 dev lo");
        let error = saved.apply(wire).unwrap_err().to_string();
        assert!(error.contains("cannot add the route") && error.contains("wire"), "{error}");
        assert!(address::list(wire).unwrap().iter().any(|one| one.ip() == address("192.0.2.10")));
        ip("addr add 203.0.113.1/32 dev lo");
        saved.apply(wire).unwrap();
        let is_back = |route: &route::Route| route.to_string().contains("198.51.100.0/24");
        assert!(route::list(wire).unwrap().iter().any(is_back));
    });
}

/// The kernel refuses routes of an interface that is down, and forgot those that there were when it went down.
#[test]
fn an_interface_that_is_down_gets_its_addresses_without_an_error() {
    in_namespace(|| {
        let wire = veth_up("wire", "peer");
        address::add(wire, address("192.0.2.10"), 24, false).unwrap();
        let gateway = Some(address("192.0.2.1"));
        route::add(wire, &NewRoute::new(address("0.0.0.0"), 0, gateway)).unwrap();
        let saved = Saved::save(wire).unwrap();
        saved.remove().unwrap();
        interface::set_down("wire").unwrap();
        saved.apply(wire).unwrap();
        assert_eq!(address::list(wire).unwrap().len(), 1);
        interface::set_up("wire").unwrap();
        saved.apply(wire).unwrap();
        let default = route::list(wire).unwrap();
        assert!(default.iter().any(|route| route.gateway() == gateway));
    });
}

#[test]
fn ethtool_sets_what_a_veth_can_change() {
    in_namespace(|| {
        let near = VethEnd { queues: 2, ..VethEnd::new("veth0") };
        link::create_veth(&near, &VethEnd::new("veth1")).unwrap();
        let ethtool = Ethtool::open("veth0").unwrap();
        assert_eq!(ethtool.driver().unwrap(), "veth");
        assert_eq!(ethtool.rx_queues().unwrap(), 2);
        for offload in [Offload::Tso, Offload::Gso, Offload::TxChecksum, Offload::Gro] {
            for on in [false, true, false] {
                ethtool.set_offload(offload, on).unwrap();
                assert_eq!(ethtool.offload(offload).unwrap(), on, "{offload:?}");
            }
        }
        // USO waits for the checksum offload that was turned off above.
        let uso = "tx-udp-segmentation";
        assert!(!ethtool.set_feature(uso, true).unwrap());
        ethtool.set_offload(Offload::TxChecksum, true).unwrap();
        assert!(ethtool.set_feature(uso, true).unwrap());
        assert!(ethtool.features().unwrap()[uso]);
        assert!(!ethtool.set_feature(uso, false).unwrap());
        let fixed = ethtool.set_feature("loopback", true).unwrap_err();
        assert_eq!(fixed.kind(), std::io::ErrorKind::Unsupported);
    });
}

#[test]
fn the_next_hop_of_a_packet_and_its_ethernet_address_are_found() {
    with_ip(|| {
        link::create_veth(&VethEnd::new("near"), &VethEnd::new("far")).unwrap();
        ip("addr add 10.0.0.1/24 dev near
            addr add fd00::1/64 dev near nodad
            link set near up
            link set far up
            route add 10.9.0.0/16 via 10.0.0.7
            -6 route add fd09::/16 via fd00::7
            neigh add 10.0.0.7 lladdr 02:00:00:00:00:07 dev near
            neigh add fd00::7 lladdr 02:00:00:00:00:07 dev near");
        let near = interface::index("near").unwrap();
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        let kernel = RefCell::new(Connection::open(Protocol::Route).unwrap());
        let next_hop = |from, to, port| {
            let (from, to) = (SocketAddr::new(parse(from), 5000), SocketAddr::new(parse(to), port));
            route::next_hop(&mut kernel.borrow_mut(), from, to, sys::process::uid())
        };
        for (from, to, hop) in [
            ("10.0.0.1", "10.0.0.5", "10.0.0.5"),
            ("10.0.0.1", "10.9.0.5", "10.0.0.7"),
            ("fd00::1", "fd00::5", "fd00::5"),
            ("fd00::1", "fd09::5", "fd00::7"),
        ] {
            let found = next_hop(from, to, 80).unwrap();
            assert_eq!((found.interface, found.neighbour), (near, parse(hop)));
            let found = found.neighbour;
            let mac = neighbour::ethernet_address(&mut kernel.borrow_mut(), near, found).unwrap();
            assert_eq!(mac, hop.ends_with('7').then_some([2, 0, 0, 0, 0, 7]), "{hop}");
        }
        for to in ["192.0.2.1", "2001:db8::1"] {
            let from = if to.contains(':') { "fd00::1" } else { "10.0.0.1" };
            let error = next_hop(from, to, 80).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable);
        }
        // A rule that goes by the port.
        ip("rule add ipproto tcp dport 443 lookup 77
            route add 10.9.0.0/16 via 10.0.0.8 table 77");
        let hop = |port| next_hop("10.0.0.1", "10.9.0.5", port).unwrap().neighbour;
        assert_eq!([hop(80), hop(443)], [parse("10.0.0.7"), parse("10.0.0.8")]);
        let own = |ip| route::is_own(&mut kernel.borrow_mut(), parse(ip)).unwrap();
        assert!(own("10.0.0.1") && own("fd00::1"));
        assert!(!own("10.0.0.7") && !own("fd00::7") && !own("192.0.2.1") && !own("2001:db8::1"));
        // One that does not answer is asked all the same, and is known of then.
        let mut kernel = kernel.borrow_mut();
        neighbour::keep_fresh(&mut kernel, near, parse("10.0.0.99")).unwrap();
        let known = Command::new("ip").args(["neigh", "show", "10.0.0.99"]).output().unwrap();
        assert!(!known.stdout.is_empty(), "{known:?}");
    });
}
