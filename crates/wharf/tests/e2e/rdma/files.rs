//! Registered memory that is a file's: the device reads and writes the file, if it can.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use sys::process::Signal;
use testkit::lab::{Program, wait_until};

use super::as_user;
use super::lives::Peer;

/// A file that ends with the test.
struct Kept(PathBuf);

impl Kept {
    fn new(folder: &str, name: &str) -> Kept {
        Kept(PathBuf::from(format!("{folder}/wharf-{name}-{}", std::process::id())))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// One-sided traffic to memory of this kind (see peer.c), and what the device tells of the process that has it.
fn told(name: &str, memory: &str) -> Option<Value> {
    let peer = Peer::new(name)?;
    let mut device = peer.pair.server.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let mut server = peer.serve_of(memory, "fork");
    let mut client = peer.call("call");
    peer.go();
    server.line_with("ready");
    assert_eq!(client.line_with("status"), "status 0", "{memory}");
    assert!(client.wait().status.success());
    let told = || {
        let ended = peer.pair.server.output(&mut as_user(&["rdma", "stats", "--json"]));
        assert!(ended.status.success(), "{ended}");
        serde_json::from_str::<Value>(&ended.stdout).unwrap()["processes"][0].clone()
    };
    // All that has come is told before the device sleeps.
    let is_all = || told()["counters"]["placed_bytes"].as_u64() >= Some(2000 * (64 << 10));
    assert!(wait_until(is_all), "{}", told());
    let told = told();
    end(server);
    Some(told)
}

fn end(mut server: Program) {
    server.signal(Signal::HangUp);
    server.line_with("disconnected");
    assert!(server.wait().status.success());
}

#[test]
fn memory_of_a_file_is_reached_by_the_file() {
    let file = Kept::new("/dev/shm", "reached");
    for memory in ["memfd", "append", file.path()] {
        let Some(told) = told("reached", memory) else { return };
        assert_eq!(told["objects"]["file_regions"], 1, "{memory}: {told}");
        let counters = &told["counters"];
        // A write and a read of 64 KB and an atomic operation each time.
        assert!(counters["file_calls"].as_u64() >= Some(4 * 2000), "{memory}: {told}");
        assert_eq!(counters["file_calls"], counters["memory_calls"], "{memory}: {told}");
    }
}

#[test]
fn memory_whose_file_cannot_be_had_is_the_programs() {
    // Where temporary files are on a tmpfs, these need not be.
    let file = Kept::new("/var/tmp", "other");
    for memory in ["closed", "sealed", "anonymous", file.path()] {
        let Some(told) = told("other", memory) else { return };
        assert_eq!(told["objects"]["file_regions"], 0, "{memory}: {told}");
        assert_eq!(told["counters"]["file_calls"], 0, "{memory}: {told}");
    }
}

#[test]
fn a_file_that_is_cut_off_ends_the_connection_and_does_not_grow() {
    let Some(peer) = Peer::new("shrink") else { return };
    let mut server = peer.serve_of("memfd", "shrink");
    let mut client = peer.call_until();
    peer.go();
    client.line_with("moves");
    server.signal(Signal::HangUp);
    assert_ne!(client.line_with("status"), "status 0");
    client.line_with("done");
    assert_eq!(server.line_with("size"), "size 4096");
    assert!(server.wait().status.success());
    assert!(client.wait().status.success());
}

#[test]
fn a_file_is_not_written_after_its_application_has_become_another() {
    let Some(peer) = Peer::new("file-exec") else { return };
    let file = Kept::new("/dev/shm", "exec");
    let mut server = peer.serve_of(file.path(), "exec");
    let mut client = peer.call_until();
    peer.go();
    client.line_with("moves");
    server.signal(Signal::HangUp);
    assert_ne!(client.line_with("status"), "status 0", "the connection has ended");
    client.line_with("done");
    peer.over();
    server.line_with("watches");
    server.line_with("untouched");
    assert!(server.wait().status.success());
}

/// Two programs that share a file, each with a device of its own.
#[test]
fn atomic_operations_on_a_file_are_one_after_the_other_on_the_whole_host() {
    const TIMES: u64 = 30_000;
    let Some(peer) = Peer::new("added") else { return };
    let file = Kept::new("/dev/shm", "added");
    let ports = ["5001", "5002"];
    let servers = ports.map(|port| peer.serve_of_at(port, file.path(), "fork"));
    let clients = ports.map(|port| peer.call_at(port, "add"));
    peer.go();
    for mut client in clients {
        assert_eq!(client.line_with("added"), format!("added {TIMES}"));
        assert!(client.wait().status.success());
    }
    for server in servers {
        end(server);
    }
    let number = *fs::read(file.path()).unwrap().first_chunk().unwrap();
    assert_eq!(u64::from_ne_bytes(number), 2 * TIMES);
}
