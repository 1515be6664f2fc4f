//! Programs that are reached both ways: by the library where it is loaded, and by pairs what comes past it.

use std::net::{SocketAddr, TcpStream};

use serde_json::Value;
use sys::process::Signal;
use testkit::lab::wait_until;

use super::pairs::supervisors;
use super::{Stage, connect};
use crate::ends::guards;
use crate::handoff::{bytes, echoes};

impl Stage {
    /// The processes whose connections of this port are on the NIC.
    fn owners(&self, port: u16) -> Vec<u64> {
        let ended = self.hosts.wharf(&["connections", "--json"]);
        assert!(ended.status.success(), "{ended}");
        let all = ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_of_port = |one: &Value| {
            let local = one["local"].as_str().unwrap().parse::<SocketAddr>().unwrap();
            one["where"] == "nic" && local.port() == port
        };
        all.filter(is_of_port).map(|one| one["pid"].as_u64().unwrap()).collect()
    }

    /// So many connections with this port that echo, and that are on the NIC, as all of that port there are this process's.
    fn echo(&self, port: u16, count: usize, owner: impl Fn() -> u64) -> Vec<TcpStream> {
        let streams: Vec<_> = (0..count).map(|_| connect(&self.hosts, port)).collect();
        for (seed, stream) in (0..).zip(&streams) {
            echoes(stream, &bytes(300_000, seed));
        }
        assert!(wait_until(|| self.owners(port).len() >= count), "{:?}", self.counters());
        let (owner, found) = (owner(), self.owners(port));
        assert!(found.iter().all(|one| *one == owner), "{found:?} and not {owner}");
        streams
    }

    fn supervisor(&self) -> u64 {
        let [supervisor] = supervisors(self)[..] else { panic!("one supervisor") };
        supervisor.into()
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_past_the_library_get_pairs() {
    let Some(mut stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.build("past.c", &["gcc", "-O1"], &["-pthread"]);
    let words = [program.as_str(), "7000", "7001"];
    let mut run = stage.wharf_run_with("at_accept", &["--bypass", "both"], &words);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let mut streams = stage.echo(7000, 3, || server.id().into());
    streams.extend(stage.echo(7001, 3, || stage.supervisor()));
    stage.all_stayed();
    stage.restart_wharf();
    for (seed, stream) in (0..).zip(&streams) {
        echoes(stream, &bytes(300_000, seed));
    }
    // New ones move as those before.
    stage.echo(7000, 2, || server.id().into());
    stage.echo(7001, 2, || stage.supervisor());
    stage.wharf.signal(Signal::Kill);
    assert!(wait_until(|| guards(&stage.hosts).is_empty()));
    for (seed, stream) in (0..).zip(&streams) {
        echoes(stream, &bytes(300_000, seed));
    }
    assert!(server.runs(), "{}", server.wait());
}

/// Echoes, at this port.
const PYTHON: &str = "
import socketserver, sys
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while got := self.request.recv(65536): self.request.sendall(got)
socketserver.ThreadingTCPServer(('', int(sys.argv[1])), Echo).serve_forever()
";

#[test]
fn what_a_script_starts_is_reached_each_in_its_way() {
    let Some(stage) = Stage::new(&["gcc", "python3", "sh"]) else { return };
    let program = stage.build("edges.c", &["gcc", "-O1", "-static"], &[]);
    let script = "\"$1\" 7000 & exec python3 -c \"$2\" 7001";
    let words = ["sh", "-c", script, "sh", &program, PYTHON];
    let run = stage.wharf_run_with("at_accept", &["--bypass", "both"], &words);
    let server = stage.serves(run, 7001);
    assert!(wait_until(|| super::listens(&stage.hosts, 7000)));
    let of_python = stage.echo(7001, 3, || server.id().into());
    let of_c = stage.echo(7000, 3, || stage.supervisor());
    for (seed, stream) in (0..).zip(of_python.iter().chain(&of_c)) {
        echoes(stream, &bytes(1_000_000, seed));
    }
    stage.all_stayed();
}
