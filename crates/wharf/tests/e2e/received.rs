//! What LRO does beyond joining TCP: UDP, and acknowledgments in the host's name.

use testkit::lab::{have, wait_until};

use super::running::set;
use super::setup::{Hosts, Ip, Plan, Port, Up, may_have_room};
use super::traffic::{Direction, Load, transfer};
use super::udp::{Datagrams, Reader, Shape, quiet};

const MB: u64 = 1 << 20;
/// Datagrams of equal size, which may be joined; of sizes that end a run; of all sizes, fragments
/// among them.
fn shapes() -> [Shape; 3] {
    let shape = |segment, writes: &[usize]| Shape { segment, writes: writes.to_vec(), mtu: 1500 };
    [
        shape(Some(1200), &[1200 * 50, 1200 * 20 + 1, 1200]),
        shape(Some(100), &[100 * 64, 99, 100, 100 * 30 + 50, 1]),
        shape(None, &[1, 1452, 1452, 1453, 700, 700, 701, 700, 9000, 2, 2, 1]),
    ]
}

/// Sends each shape through each port, in both IP versions; `arrives` is to say whether it was received
/// joined.
fn each_joined(arrives: impl Fn(&Hosts, Ip, &Shape) -> bool) {
    if !may_have_room() {
        return;
    }
    for port in Port::EACH {
        let Some(up) = Plan::new(port).up_with(&["--set", "lro.udp=true"]) else { return };
        quiet(&up.hosts, port);
        for ip in Ip::BOTH {
            for shape in shapes() {
                up.all_counted();
                let before = up.counter("lro", "merged");
                let joined = arrives(&up.hosts, ip, &shape);
                up.all_counted();
                let merged = up.counter("lro", "merged") - before;
                assert!(
                    merged > 0 && joined || shape.segment.is_none(),
                    "{port:?} {ip:?} {shape:?}: {merged} merged, received joined: {joined}"
                );
            }
        }
        up.nothing_went_wrong();
    }
}

#[test]
fn udp_that_is_joined_arrives_as_it_was_sent() {
    each_joined(|hosts, ip, shape| {
        Datagrams::start(hosts, ip, Direction::In, shape, Some(3 * MB)).finish();
        // The kernel cuts it again for such a reader.
        true
    });
}

/// What `UDP_GRO` hands over, cut by the size that it says, is what was sent.
#[test]
fn udp_that_is_joined_is_taken_joined_as_it_was_sent() {
    each_joined(|hosts, ip, shape| {
        let (direction, length) = (Direction::In, Some(3 * MB));
        let load = Datagrams::start_with(hosts, ip, direction, shape, length, Reader::Gro);
        load.finish_joined().1 > 0
    });
}

/// Waits until wharf has joined some. The first time that the counter grows may be by what was joined
/// before it was last switched on, and published late; the second is not.
fn joins(up: &Up) {
    let merged = || up.counter("lro", "merged");
    for _ in 0..2 {
        let before = merged();
        assert!(wait_until(|| merged() > before), "nothing more is joined after {before}");
    }
}

#[test]
fn udp_stays_whole_while_joining_is_switched() {
    if !may_have_room() {
        return;
    }
    for port in Port::EACH {
        let Some(up) = Plan::new(port).up() else { return };
        quiet(&up.hosts, port);
        for ip in Ip::BOTH {
            for shape in shapes() {
                let load = Datagrams::start(&up.hosts, ip, Direction::In, &shape, None);
                for _ in 0..2 {
                    for (key, value, on) in [
                        ("lro.udp", "true", true),
                        ("lro.enable", "false", false),
                        ("lro.enable", "true", true),
                        ("lro.udp", "false", false),
                    ] {
                        set(&up, key, value);
                        load.goes_on();
                        if on {
                            joins(&up);
                        }
                    }
                }
                load.finish();
            }
        }
        up.nothing_went_wrong();
    }
}

/// Bulk both ways, with acknowledgments in the host's name.
fn acknowledged_for_the_host(port: Port, lossy: bool) {
    if !have(&["sha256sum"]) {
        return;
    }
    let words = ["lro.active_ack=safe", "lro.max_timeout=20ms", "poll.batch=8", "gso.hardware=off"];
    let words: Vec<&str> = words.iter().flat_map(|word| ["--set", word]).collect();
    let Some(up) = (Plan { lossy, ..Plan::new(port) }).up_with(&words) else { return };
    let length = if lossy { 8 * MB } else { 24 * MB } + 77;
    for ip in Ip::BOTH {
        let begin = |direction| Load::start(&up.hosts, ip, direction, Some(length));
        up.all_counted();
        let before = up.counter("lro", "acknowledged");
        // One after the other, then both at the same time.
        for direction in [Direction::In, Direction::Out] {
            transfer(&up.hosts, ip, direction, length);
        }
        for load in [Direction::In, Direction::Out].map(begin) {
            assert_eq!(load.finish(), length, "{port:?} {ip:?}");
        }
        up.all_counted();
        assert!(up.counter("lro", "acknowledged") > before, "{port:?} {ip:?}");
    }
    assert_eq!(up.hosts.lost() > 0, lossy);
    up.nothing_went_wrong();
}

#[test]
fn what_is_acknowledged_for_the_host_reaches_it() {
    for port in Port::EACH {
        acknowledged_for_the_host(port, false);
    }
}

#[test]
fn what_is_acknowledged_for_the_host_reaches_it_over_a_lossy_wire() {
    for port in Port::EACH {
        acknowledged_for_the_host(port, true);
    }
}
