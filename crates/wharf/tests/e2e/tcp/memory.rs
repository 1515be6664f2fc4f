//! Peers that do not read, and what becomes of the memory that they cost.

use std::net::TcpStream;
use std::thread;

use testkit::lab::wait_until;

use super::super::setup::{Ip, wharf};
use super::crowd::memory_of;
use super::{Lab, counter, read_pattern};

const PEERS: usize = 200;

/// A counter of the endpoint, as it is now.
fn stat(lab: &Lab, group: &str, name: &str) -> u64 {
    let stats = lab.host.output(wharf().args(["stats", "--json"])).stdout;
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let counters = stats["counters"].as_array().unwrap();
    let wanted = |entry: &&serde_json::Value| entry["group"] == group && entry["name"] == name;
    counters.iter().find(wanted).unwrap()["value"].as_u64().unwrap()
}

fn peers(lab: &Lab, count: usize) -> Vec<TcpStream> {
    (0..count).map(|number| lab.connect(Ip::BOTH[number % 2], 80)).collect()
}

/// All have something to read, and the endpoint has filled all windows: it probes them.
fn wait_until_full(lab: &Lab, peers: &[TcpStream]) {
    let full = || {
        let has_some = |peer: &TcpStream| peer.peek(&mut [0]).is_ok_and(|count| count > 0);
        peers.iter().all(has_some) && stat(lab, "tcp", "window_probes") >= peers.len() as u64
    };
    assert!(wait_until(full), "not all windows are full");
}

/// A source writes as much as it may. Peers that do not read pin what was sent to them and as much again,
/// and when they are gone the process is as small as before.
#[test]
fn those_who_do_not_read_pin_little_and_leave_nothing() {
    let Some(lab) = Lab::start("source --port 80 --json") else { return };
    let before = memory_of(lab.engine.id());
    let sockets = peers(&lab, PEERS);
    wait_until_full(&lab, &sockets);
    let pinned = memory_of(lab.engine.id()) - before;
    assert!(pinned < 160 << 10, "{pinned} KB for {PEERS} peers that do not read");
    drop(sockets);
    let is_small = || memory_of(lab.engine.id()) < before + (24 << 10);
    assert!(wait_until(is_small), "{} KB are kept", memory_of(lab.engine.id()) - before);
    assert!(wait_until(|| stat(&lab, "memory", "sending") == 0));
    lab.end();
}

/// With a bound all get less, and all their bytes in the end.
#[test]
fn a_bound_for_all_is_kept_and_everyone_is_served() {
    const BOUND: u64 = 8 << 20;
    const BYTES: u64 = 1 << 20;
    let words = format!("source --port 80 --bytes {BYTES} --json --set tcp.memory={BOUND}");
    let Some(lab) = Lab::start(&words) else { return };
    let sockets = peers(&lab, 64);
    let spent = || {
        ["promised", "sending", "tables", "kept"]
            .map(|what| stat(&lab, "memory", what))
            .iter()
            .sum::<u64>()
    };
    let is_short = || {
        assert!(spent() <= BOUND);
        stat(&lab, "tcp", "writes_short") > 0
    };
    assert!(wait_until(is_short), "memory is never short");
    assert_eq!(stat(&lab, "memory", "limit"), BOUND);
    thread::scope(|scope| {
        for socket in &sockets {
            scope.spawn(move || assert_eq!(read_pattern(socket), BYTES));
        }
    });
    assert!(spent() <= BOUND);
    drop(sockets);
    let (ended, _host) = lab.end();
    assert_eq!(counter(&ended, "service", "failed"), 0);
}
