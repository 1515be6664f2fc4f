//! Several workers behind which the host's interface has fewer queues.

use testkit::lab::{have, wait_until};
use testkit::missing::lacks;

use super::setup::{Ip, Plan, Port, Up, wharf};
use super::traffic::{Direction, Load, datagrams};

const MB: u64 = 1 << 20;
const WORKERS: u32 = 4;
/// As many connections as spread over all workers, most likely.
const CONNECTIONS: usize = 8;

/// wharf with four workers, and what the words say of its host queues.
fn up(port: Port, words: &[&str]) -> Option<Up> {
    let workers = format!("workers={WORKERS}");
    let words: Vec<&str> = ["--set", &workers].iter().chain(words).copied().collect();
    (Plan { queues: WORKERS, ..Plan::new(port) }).up_with(&words)
}

/// Several connections at a time, each way and over both versions of IP.
fn everything_arrives(up: &Up) {
    for ip in Ip::BOTH {
        for direction in [Direction::In, Direction::Out] {
            let start = |_| Load::start(&up.hosts, ip, direction, Some(8 * MB + 77));
            let loads: Vec<Load> = (0..CONNECTIONS).map(start).collect();
            for load in loads {
                assert_eq!(load.finish(), 8 * MB + 77, "{ip:?} {direction:?}");
            }
        }
        datagrams(&up.hosts, ip, &[0, 1472, 9000, 65_000]);
    }
    let requests = || up.counter("host", "requests");
    assert!(requests() > 0);
    let dropped = |why| up.counter("host_drop", why);
    let served = || {
        let dropped = dropped("host_down") + dropped("host_full") + dropped("host_refused");
        up.counter("host", "delivered_packets") + dropped
    };
    // Requests first: what is served afterwards was one of them.
    assert!(wait_until(|| requests() <= served()), "requests that were never served");
}

#[test]
fn workers_share_one_queue() {
    if !have(&["sha256sum"]) {
        return;
    }
    for port in Port::EACH {
        if let Some(up) = up(port, &["--set", "host.queues=1"]) {
            everything_arrives(&up);
        }
    }
}

#[test]
fn workers_share_two_queues_with_room_for_few_requests() {
    if !have(&["sha256sum"]) {
        return;
    }
    for port in [Port::Auto, Port::Veth] {
        let words = ["--set", "host.queues=2", "--set", "host.requests=2"];
        if let Some(up) = up(port, &words) {
            everything_arrives(&up);
            assert!(up.counter("host", "requests_full") > 0);
        }
    }
}

#[test]
fn the_scheduler_lets_every_handshake_through() {
    let Some(up) = Plan::new(Port::Veth).hosts() else { return };
    let words = ["bench", "fairness", "--seconds", "0.1", "--lro", "off", "--json"];
    let ended = up.server.output(wharf().args(words));
    if ended.stderr.contains("/dev/net/tun") {
        lacks(ended);
        return;
    }
    assert!(ended.status.success(), "{ended}");
    let figures: Vec<serde_json::Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let value = |case: &str, metric: &str| {
        let this =
            |figure: &&serde_json::Value| figure["case"] == case && figure["metric"] == metric;
        figures.iter().find(this).unwrap()["value"].as_f64().unwrap()
    };
    assert_eq!(value("round_robin", "handshakes_completed"), 64.0, "{ended}");
    // How many of them the stack starves is a matter of who has a CPU when.
    for case in ["round_robin", "lifo"] {
        assert!(value(case, "throughput") > 0.0, "{ended}");
    }
}
