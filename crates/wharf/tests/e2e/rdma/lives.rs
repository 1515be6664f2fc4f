//! Applications that are stopped, that end, and whose device ends, while a peer reads and writes their memory.

use std::fs;
use std::path::PathBuf;

use sys::process::Signal;
use testkit::lab::{Host, Program, wait_until};

use super::{Folder, Pair, as_user, built};
use crate::setup::{Ip, WIRE};

const PORT: &str = "5001";
/// What is outstanding when the stream ends (`IBV_WC_WR_FLUSH_ERR`).
pub(super) const FLUSHED: &str = "status 5";

/// The program, and a folder that goes with the test.
pub(super) struct Peer {
    pub(super) pair: Pair,
    program: &'static str,
    folder: Folder,
}

impl Peer {
    pub(super) fn new(name: &str) -> Option<Peer> {
        Peer::of(Pair::new(&[])?, name)
    }

    /// Between these hosts.
    pub(super) fn of(pair: Pair, name: &str) -> Option<Peer> {
        Some(Peer { pair, program: built("peer.c")?, folder: Folder::new(name) })
    }

    pub(super) fn serve(&self, more: &str) -> Program {
        self.serve_at(PORT, more)
    }

    pub(super) fn serve_at(&self, port: &str, more: &str) -> Program {
        self.served(port, None, more)
    }

    /// A server with memory of this kind.
    pub(super) fn serve_of(&self, memory: &str, more: &str) -> Program {
        self.serve_of_at(PORT, memory, more)
    }

    pub(super) fn serve_of_at(&self, port: &str, memory: &str, more: &str) -> Program {
        self.served(port, Some(memory), more)
    }

    fn served(&self, port: &str, memory: Option<&str>, more: &str) -> Program {
        let mut serve = self.pair.run(&[self.program, "serve", port, more]);
        serve.env("OVER", self.folder.path("over"));
        serve.envs(memory.map(|memory| ("MEMORY", memory)));
        self.pair.serve_by(port.parse().unwrap(), &mut serve)
    }

    /// A client that does `what`, once it is connected. It begins when the file `go` is there.
    pub(super) fn call(&self, what: &str) -> Program {
        self.call_at(PORT, what)
    }

    pub(super) fn call_at(&self, port: &str, what: &str) -> Program {
        self.called(port, what, &[])
    }

    /// One that writes, reads and adds so often.
    pub(super) fn call_times(&self, rounds: u64) -> Program {
        self.called(PORT, "call", &[("ROUNDS", rounds.to_string().into())])
    }

    /// One that does so until it is [`enough`](Self::enough), or the connection ends.
    pub(super) fn call_until(&self) -> Program {
        self.call_until_at(PORT)
    }

    pub(super) fn call_until_at(&self, port: &str) -> Program {
        self.called(port, "call", &[("UNTIL", self.folder.path("until"))])
    }

    fn called(&self, port: &str, what: &str, with: &[(&str, PathBuf)]) -> Program {
        let to = Ip::V4.server().to_string();
        let mut call = self.pair.run(&[self.program, what, &to, port]);
        call.env("GO", self.folder.path("go")).envs(with.iter().cloned());
        let mut client = self.pair.client.spawn(&mut call);
        client.line_with("connected");
        client
    }

    fn leave(&self, name: &str) {
        fs::write(self.folder.path(name), "").unwrap();
    }

    /// Clients begin.
    pub(super) fn go(&self) {
        self.leave("go");
    }

    /// Those that do not end by themselves end.
    pub(super) fn enough(&self) {
        self.leave("until");
    }

    /// Nobody writes any more to what a server that has become another program watches.
    pub(super) fn over(&self) {
        self.leave("over");
    }
}

/// Ticks of CPU time that a process has used.
fn cpu_time(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let words: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap()
}

fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
}

#[test]
fn an_application_that_is_stopped_is_written_and_read() {
    let Some(peer) = Peer::new("stopped") else { return };
    let mut server = peer.serve("exit");
    let mut client = peer.call("call");
    server.line_with("ready");
    server.signal(Signal::Stop);
    assert!(wait_until(|| is_stopped(server.id())));
    let before = cpu_time(server.id());
    peer.go();
    assert_eq!(client.line_with("status"), "status 0");
    assert_eq!(cpu_time(server.id()), before, "it had no part in it");
    assert!(is_stopped(server.id()));
    let client = client.wait();
    assert!(client.status.success(), "{client}");
}

#[test]
fn what_an_application_becomes_is_not_written() {
    let Some(peer) = Peer::new("exec") else { return };
    let mut server = peer.serve("exec");
    let mut client = peer.call_until();
    peer.go();
    client.line_with("moves");
    server.signal(Signal::HangUp);
    server.line_with("watches");
    assert_eq!(client.line_with("status"), FLUSHED, "the connection has ended");
    client.line_with("done");
    peer.over();
    server.line_with("untouched");
    assert!(server.wait().status.success());
}

#[test]
fn the_end_of_an_application_is_seen_by_its_peer() {
    let Some(peer) = Peer::new("exit") else { return };
    for signal in [Signal::HangUp, Signal::Kill] {
        let _ = fs::remove_file(peer.folder.path("go"));
        let server = peer.serve("exit");
        let mut client = peer.call_until();
        peer.go();
        client.line_with("moves");
        server.signal(signal);
        assert_eq!(client.line_with("status"), FLUSHED);
        client.line_with("done");
        assert!(client.wait().status.success());
        server.wait();
    }
}

#[test]
fn the_end_of_a_client_in_the_middle_is_seen_by_its_server() {
    let Some(peer) = Peer::new("middle") else { return };
    let mut server = peer.serve("fork");
    let mut client = peer.call_until();
    peer.go();
    client.line_with("moves");
    client.signal(Signal::Kill);
    server.signal(Signal::HangUp);
    server.line_with("disconnected");
    assert!(server.wait().status.success());
    client.wait();
}

#[test]
fn the_child_of_a_fork_has_no_device_and_ends_nothing() {
    let Some(peer) = Peer::new("fork") else { return };
    let mut server = peer.serve("fork");
    let mut client = peer.call_until();
    peer.go();
    client.line_with("moves");
    server.signal(Signal::HangUp);
    server.line_with("forked");
    peer.enough();
    assert_eq!(client.line_with("status"), "status 0");
    assert!(client.wait().status.success());
    server.line_with("disconnected");
    assert!(server.wait().status.success());
}

#[test]
fn a_device_that_is_killed_is_told_and_flushes() {
    let Some(peer) = Peer::new("fatal") else { return };
    let mut device = peer.pair.client.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let mut server = peer.serve("fork");
    let mut client = peer.call("wait");
    server.line_with("ready");
    client.line_with("waits");
    device.signal(Signal::Kill);
    client.line_with("fatal");
    client.line_with("flushed");
    assert!(client.wait().status.success());
    // And the peer's application is told that the connection is over.
    server.signal(Signal::HangUp);
    server.line_with("disconnected");
    assert!(server.wait().status.success());
}

#[test]
fn a_peer_that_does_not_answer_is_left() {
    let Some(peer) = Peer::new("leave") else { return };
    let mut device = peer.pair.server.spawn(&mut as_user(&["rdma"]));
    device.line_with("serves");
    let _server = peer.serve("exit");
    let mut client = peer.call("leave");
    device.signal(Signal::Stop);
    assert!(wait_until(|| is_stopped(device.id())));
    peer.go();
    client.line_with("left");
    assert!(client.wait().status.success());
}

/// Nothing that the peer sends comes through any more: what waits for it ends, and so does who only serves it.
#[test]
fn a_peer_that_is_cut_off_is_given_up() {
    let Some(peer) = Peer::new("cut") else { return };
    let begin = |host: &Host| {
        let mut device = host.spawn(&mut as_user(&["rdma", "--peer-timeout", "2"]));
        device.line_with("serves");
        device
    };
    let _devices = [begin(&peer.pair.client), begin(&peer.pair.server)];
    let mut server = peer.serve("fork");
    let mut client = peer.call_until();
    server.signal(Signal::HangUp);
    server.line_with("forked");
    peer.go();
    client.line_with("moves");
    peer.pair.server.succeed("ip", &["link", "set", WIRE, "down"]);
    assert_eq!(client.line_with("status"), FLUSHED);
    client.line_with("done");
    assert!(client.wait().status.success());
    server.line_with("disconnected");
    assert!(server.wait().status.success());
}
