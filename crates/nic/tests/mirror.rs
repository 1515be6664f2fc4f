//! What changes on the wire while the host interface stands for it, against the running kernel.
//!
//! Without the privilege to make a network namespace, each test says so and returns.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use nic::mirror::{Latest, Mirror, Sysctls};
use sys::interface;
use sys::netlink::link::{self, VethEnd};
use sys::netlink::route::NewRoute;
use sys::netlink::saved::Saved;
use sys::netlink::{address, route};
use sys::netns::Namespace;
use sys::sysctl;
use testkit::missing::lacks;

/// How long a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn veth_up(near: &str, far: &str) -> u32 {
    link::create_veth(&VethEnd::new(near), &VethEnd::new(far)).unwrap();
    interface::set_up(near).unwrap();
    interface::set_up(far).unwrap();
    interface::index(near).unwrap()
}

/// A wire that has nothing yet, and the host interface in its place.
fn with_mirror(test: impl FnOnce(Mirror, u32, u32) + Send) {
    let run = || {
        let (wire, host) = (veth_up("wire", "wire-peer"), veth_up("host", "host-peer"));
        let before = Latest { saved: Saved::save(wire).unwrap(), sysctls: Sysctls::read("wire") };
        test(Mirror::start(&before, host).unwrap(), wire, host);
    };
    match Namespace::new() {
        Ok(namespace) => namespace.run(run).unwrap(),
        Err(error) if error.is_permission() => lacks(error),
        Err(error) => panic!("{error}"),
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn has(index: u32, wanted: &str) -> bool {
    address::list(index).unwrap().iter().any(|address| address.ip() == ip(wanted))
}

fn has_route(index: u32, wanted: &str) -> bool {
    route::list(index).unwrap().iter().any(|route| route.destination().0 == ip(wanted))
}

/// Follows, as wharf does, until something is so; what was told meanwhile.
fn follow_until(mirror: &mut Mirror, mut so: impl FnMut() -> bool) -> Vec<String> {
    let give_up = Instant::now() + PATIENCE;
    let mut notices = Vec::new();
    while !so() {
        assert!(Instant::now() < give_up, "it does not come to be; told: {notices:?}");
        notices.extend(mirror.follow().notice);
        mirror.settle();
        std::thread::sleep(Duration::from_nanos(mirror.timeout().min(10_000_000)));
    }
    notices
}

/// A DHCP client adds an address, and a while later its script a route: the address is not taken
/// from the wire, with all IPv4 routes, before that route has been seen.
#[test]
fn nothing_goes_from_the_wire_before_what_is_new_is_seen() {
    with_mirror(|mut mirror, wire, host| {
        address::add(wire, ip("192.0.2.10"), 24, false).unwrap();
        follow_until(&mut mirror, || has(host, "192.0.2.10"));
        std::thread::sleep(Duration::from_millis(1100));

        // One look, after which there is none for a moment ...
        address::add(host, ip("192.0.2.11"), 24, false).unwrap();
        mirror.follow();
        // ... in which the route comes.
        route::add(wire, &NewRoute::new(ip("198.51.100.0"), 24, Some(ip("192.0.2.1")))).unwrap();
        mirror.follow();
        mirror.settle();
        assert!(has_route(wire, "198.51.100.0") || has_route(host, "198.51.100.0"));
        follow_until(&mut mirror, || !has(wire, "192.0.2.10"));
        assert!(has_route(host, "198.51.100.0"));
    });
}

/// What the host interface refuses stays on the wire and is told of once; the rest moves.
#[test]
fn what_is_refused_does_not_hold_up_the_rest() {
    with_mirror(|mut mirror, wire, host| {
        sysctl::write(&["ipv6", "conf", "host", "disable_ipv6"], "1").unwrap();
        address::add(wire, ip("2001:db8::10"), 64, true).unwrap();
        address::add(wire, ip("192.0.2.10"), 24, false).unwrap();
        let notices =
            follow_until(&mut mirror, || has(host, "192.0.2.10") && !has(wire, "192.0.2.10"));
        assert!(has(wire, "2001:db8::10") && !has(host, "2001:db8::10"));
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].contains("2001:db8::10"), "{notices:?}");

        // The kernel has nothing more to tell then, so nothing more is looked at.
        let give_up = Instant::now() + PATIENCE;
        let mut calm = 0;
        while calm < 10 {
            assert!(Instant::now() < give_up, "there is no end of looks");
            std::thread::sleep(Duration::from_millis(30));
            calm = if mirror.follow().changed { 0 } else { calm + 1 };
        }
    });
}

/// A setting that was changed last is known at the end, of a host interface that is down, too.
#[test]
fn the_last_change_of_a_setting_is_told_at_the_end() {
    with_mirror(|mut mirror, _, _| {
        sysctl::write(&["ipv4", "conf", "host", "forwarding"], "1").unwrap();
        interface::set_down("host").unwrap();
        assert!(mirror.finish().changed);
        assert_eq!(mirror.latest().sysctls, Sysctls::read("host"));
    });
}
