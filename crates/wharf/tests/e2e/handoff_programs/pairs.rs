//! Programs that no library is loaded into: static ones, those in Go, those that use io_uring.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use sys::process::Signal;
use testkit::lab::{Program, wait_until};

use super::http::Http;
use super::web::{CONNECTIONS, LENGTHS, load};
use super::{Stage, connect, files};
use crate::ends::guards;
use crate::handoff::{bytes, echoes};
use crate::setup::Ip;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/handoff_programs/programs");
/// Both ways.
const LONG: usize = 20_000_000;

impl Stage {
    /// Makes a program of a source, by this compiler and its arguments.
    fn build(&self, source: &str, compiler: &[&str], behind: &[&str]) -> String {
        let program = self.folder.text("program");
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(["-o", &program]);
        command.arg(Path::new(SOURCES).join(source)).args(behind);
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        program
    }

    /// The server of HTTP in Go, with files.
    fn go(&self, policy: &str) -> (Program, Vec<(String, Vec<u8>)>) {
        let program = self.build("server.go", &["go", "build"], &[]);
        let files = files(&self.folder.0, &LENGTHS);
        (self.serve(policy, 8080, &[&program, "8080"]), files)
    }

    /// wharf is killed, and another started: what was open goes on, and connections move again.
    fn outlives(&mut self, port: u16, open: &mut [Http], files: &[(String, Vec<u8>)]) {
        self.restart_wharf();
        for (number, http) in open.iter_mut().enumerate() {
            let (name, bytes) = &files[number % files.len()];
            assert!(http.get(name).unwrap().body == *bytes, "{name} has other bytes");
        }
        let _open = load(&self.hosts, port, files, 12);
        self.shows(port, 1);
    }
}

fn is_same(http: &mut Http, seed: u64) {
    let sent = bytes(LONG, seed);
    assert!(http.post("", &sent).unwrap().body == sent, "other bytes came back");
}

#[test]
fn a_server_in_go_runs_on_the_nic() {
    let Some(mut stage) = Stage::new(&["go"]) else { return };
    let (_go, files) = stage.go("at_accept");
    let mut open = load(&stage.hosts, 8080, &files, 20);
    stage.shows(8080, CONNECTIONS);
    stage.all_stayed();
    // Many answers, long ones among them, by one connection.
    for seed in 0..2 {
        is_same(&mut open[0], seed);
    }
    let stream = connect(&stage.hosts, 8080);
    let names = format!("{} {}", stream.peer_addr().unwrap(), stream.local_addr().unwrap());
    let found = Http::new(stream).get("names").unwrap().body;
    assert_eq!(String::from_utf8(found).unwrap(), names);
    stage.all_stayed();
    stage.outlives(8080, &mut open, &files);
}

#[test]
fn a_server_in_go_stays_with_the_kernel() {
    let Some(stage) = Stage::new(&["go"]) else { return };
    let (_go, files) = stage.go("none");
    let mut open = load(&stage.hosts, 8080, &files, 12);
    is_same(&mut open[0], 1);
    assert_eq!(stage.on_nic(8080), 0);
}

#[test]
fn a_static_server_by_edges_runs_on_the_nic() {
    let Some(mut stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.build("edges.c", &["gcc", "-O1", "-static"], &[]);
    is_an_echo(&mut stage, &[], &program);
}

#[test]
fn a_server_by_io_uring_runs_on_the_nic() {
    let Some(mut stage) = Stage::new(&["gcc", "/usr/include/liburing.h"]) else { return };
    let program = stage.build("uring.c", &["gcc", "-O1"], &["-luring"]);
    is_an_echo(&mut stage, &["--bypass", "pair"], &program);
}

/// Echoes on the NIC, while wharf is killed, and at the kernel.
fn is_an_echo(stage: &mut Stage, options: &[&str], program: &str) {
    let mut run = stage.wharf_run_with("at_accept", options, &[program, "7000"]);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let streams: Vec<_> = (0..4).map(|_| crate::handoff::connect(&stage.hosts, Ip::V4)).collect();
    for (seed, stream) in (0..).zip(&streams) {
        echoes(stream, &bytes(3_000_000, seed));
    }
    stage.shows(7000, streams.len());
    stage.all_stayed();
    let (first, sent) = (&streams[0], bytes(LONG, 9));
    std::thread::scope(|scope| {
        let echoed = scope.spawn(|| echoes(first, &sent));
        stage.wharf.signal(Signal::Kill);
        echoed.join().unwrap();
    });
    assert!(wait_until(|| !stage.wharf.runs() && guards(&stage.hosts).is_empty()));
    for (seed, stream) in (0..).zip(&streams) {
        echoes(stream, &bytes(300_000, seed));
    }
    assert!(server.runs(), "{}", server.wait());
}

#[test]
fn busyboxs_server_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["busybox"]) else { return };
    let files = files(&stage.folder.0, &LENGTHS);
    let words = ["busybox", "httpd", "-f", "-p", "8080", "-h", "."];
    let run = stage.wharf_run_with("at_accept", &["--bypass", "pair"], &words);
    let _server = stage.serves(run, 8080);
    for (name, bytes) in files.iter().cycle().take(12) {
        let mut stream = connect(&stage.hosts, 8080);
        write!(stream, "GET /{name} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let body = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
        assert!(answer[body..] == *bytes, "{name} has {} other bytes", answer.len() - body);
    }
    assert!(stage.counter("handoff", "handoffs") >= 12, "{:?}", stage.counters());
}

#[test]
fn caddy_runs_on_the_nic() {
    let Some(mut stage) = Stage::new(&["caddy"]) else { return };
    let files = files(&stage.folder.0, &LENGTHS);
    let words = ["caddy", "file-server", "--listen", ":8080", "--root", "."];
    let mut run = stage.wharf_run_with("after=64KB", &[], &words);
    run.env("HOME", stage.folder.text("home"));
    let _caddy = stage.serves(run, 8080);
    let mut open = load(&stage.hosts, 8080, &files, 12);
    stage.shows(8080, CONNECTIONS);
    stage.all_stayed();
    stage.outlives(8080, &mut open, &files);
}
