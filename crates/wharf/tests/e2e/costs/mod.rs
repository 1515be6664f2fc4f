//! What a call pays for the library where no connection of the NIC's is concerned: instructions, which callgrind counts
//! the same each time.

mod program;

use std::fs;
use std::io::Write;
use std::process::Command;

use testkit::lab::{Wire, have, wait_until};

use crate::handoff::library;
use crate::handoff_programs::Folder;
use crate::setup::{HOST, Hosts, Ip, Plan, Port, WIRE, give, wharf};

use program::{CALLS, KINDS, TIMES};

/// Instructions that a call may pay (issue 17).
const MOST: f64 = 60.0;
/// select(2) may pay more: its sets are walked bit by bit, and kept for the case that a connection moves meanwhile.
const MOST_OF_SELECT: f64 = 300.0;

/// Runs the program under callgrind; instructions of each call, of each kind of descriptor.
fn counts(hosts: &Hosts, handoff: Option<&str>) -> Vec<f64> {
    let folder = Folder::new();
    let out = folder.text("out");
    let mut run = Command::new("valgrind");
    run.args(["--tool=callgrind", &format!("--callgrind-out-file={out}")]);
    let counted = program::COUNTED;
    run.args([format!("--zero-before={counted}"), format!("--dump-after={counted}")]);
    run.arg(std::env::current_exe().unwrap());
    run.args(["--exact", program::NAME, "--ignored", "--nocapture", "--test-threads=1"]);
    if let Some(address) = handoff {
        run.env("LD_PRELOAD", library()).env("WHARF_HANDOFF", address);
        run.env("WHARF_HANDOFF_POLICY", "at_accept");
    }
    let mut program = hosts.server.spawn(&mut run);
    program.line_with("listens");
    let to = (Ip::V4.server(), program::PORT);
    let mut streams: Vec<_> = (0..2 * program::EACH)
        .map(|_| {
            let mut stream = hosts.client.run(|| std::net::TcpStream::connect(to)).unwrap();
            stream.write_all(&[1; program::SENT]).unwrap();
            stream
        })
        .collect();
    program.line_with("accepted");
    if handoff.is_some() {
        let all_are = |count: usize| {
            let listed = hosts.wharf(&["connections", "--json"]);
            listed.stdout.lines().filter(|line| line.contains(r#""where":"nic""#)).count() == count
        };
        assert!(wait_until(|| all_are(program::EACH)), "{}", hosts.wharf(&["connections"]));
        assert!(hosts.wharf(&["handoff", "--to", "os", "--all"]).status.success());
        assert!(wait_until(|| all_are(0)), "{}", hosts.wharf(&["connections"]));
    }
    streams[2 * program::EACH - 1].write_all(b"x").unwrap();
    program.line_with("counted");
    let ended = program.wait();
    assert!(ended.status.success(), "{ended}");
    let dumps = (1..=CALLS.len() * KINDS.len()).map(|number| {
        let text = fs::read_to_string(format!("{out}.{number}")).unwrap();
        let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).unwrap();
        total.trim().parse::<f64>().unwrap() / TIMES as f64
    });
    dumps.collect()
}

#[test]
fn calls_that_concern_no_connection_of_the_nics_pay_little() {
    if !have(&["valgrind"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Auto).hosts() else { return };
    give(&hosts.server, WIRE, &[Ip::V4], Ip::server);
    // The memory of more connections is more than callgrind lets a program map.
    let more = ["--take-addresses", "--set", "workers=1", "--set", "handoff.connections=100"];
    let address = |host: &str| {
        let stats = hosts.wharf(&["stats", "--json", "--host", host]);
        let stats: serde_json::Value = serde_json::from_str(&stats.stdout).unwrap();
        stats["handoff"].as_str().unwrap().to_owned()
    };
    let _wharf = hosts.wharf_up(&more);
    let one = address(HOST);
    let bare = counts(&hosts, None);
    let with_one = counts(&hosts, Some(&one));
    Wire { near: "peer1", far: "wire1", mtu: 1500, queues: 1, offloads: false }
        .lay(&hosts.client, &hosts.server);
    let mut up = wharf();
    up.args(["up", "--wire", "wire1", "--host", "host1"]).args(more);
    let mut other = hosts.server.spawn(&mut up);
    other.line_with("up: ");
    let with_two = counts(&hosts, Some(&format!("{one} {}", address("host1"))));
    let names = KINDS.iter().flat_map(|kind| CALLS.map(|call| format!("{call} on {kind}")));
    let all: Vec<(String, [f64; 2])> = names
        .zip(with_one.iter().zip(&with_two).zip(&bare))
        .map(|(name, ((one, two), bare))| (name, [one - bare, two - bare]))
        .collect();
    all.iter().for_each(|(name, [one, two])| println!("{name}: {one:.1}, with two NICs {two:.1}"));
    let most = |name: &str| if name.starts_with("select") { MOST_OF_SELECT } else { MOST };
    let is_dear = |(name, cost): &&(String, [f64; 2])| cost.iter().any(|one| *one > most(name));
    let dear: Vec<_> = all.iter().filter(is_dear).collect();
    assert!(dear.is_empty(), "too many instructions: {dear:?}");
}
