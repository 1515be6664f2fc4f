//! The kernel has no memory for connections that are to go back. What it has is one for the whole machine, and taken from
//! all its connections: so not in the check, but where `WHARF_TCP_MEM` is set.

use std::fs;
use std::io::{Read, Write};
use std::time::Duration;

use sys::process::Signal;
use testkit::lab::have;

use crate::handoff::{THREADS, bytes, connect, ends, serve};
use crate::setup::{Ip, Plan, Port, Up, WIRE, give};

/// Bytes that each client sends before it reads the echo: more than the windows take.
const LEN: usize = 6 << 20;
const CONNECTIONS: usize = 24;

const PATIENCE: Duration = Duration::from_secs(120);

const SETTING: &str = "/proc/sys/net/ipv4/tcp_mem";

/// The kernel has no memory for TCP while this lives.
struct NoMemory(String);

impl NoMemory {
    fn new() -> Self {
        let before = fs::read_to_string(SETTING).unwrap();
        fs::write(SETTING, "1 1 1").unwrap();
        NoMemory(before)
    }
}

impl Drop for NoMemory {
    fn drop(&mut self) {
        fs::write(SETTING, &self.0).unwrap();
    }
}

/// Something has connections go back that are full of bytes, while the kernel has no memory: not one is lost.
fn go_back(back: impl FnOnce(&Up), waits: impl FnOnce(&Up)) {
    if std::env::var("WHARF_TCP_MEM").is_err() || !have(&["python3"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Auto).hosts() else { return };
    give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
    let wharf = hosts.wharf_up(&["--take-addresses", "--set", "workers=1"]);
    let up = Up { hosts, wharf };
    let _server = serve(&up.hosts, "at_accept", THREADS);
    let streams: Vec<_> = (0..CONNECTIONS).map(|at| connect(&up.hosts, Ip::BOTH[at % 2])).collect();
    // Windows were closed for lack of memory: probes find out that they are open again, and wait ever longer.
    for stream in &streams {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    let sent = bytes(LEN, 1);
    std::thread::scope(|scope| {
        for mut stream in &streams {
            let sent = &sent;
            scope.spawn(move || stream.write_all(sent).unwrap());
        }
        std::thread::sleep(Duration::from_secs(2));
        let lack = NoMemory::new();
        back(&up);
        std::thread::sleep(Duration::from_secs(2));
        waits(&up);
        drop(lack);
        for mut stream in &streams {
            let sent = &sent;
            scope.spawn(move || {
                let mut back = vec![0; LEN];
                stream.read_exact(&mut back).unwrap();
                assert!(back == *sent, "other bytes came back");
            });
        }
    });
    streams.into_iter().for_each(ends);
}

/// How many connections are on their way.
fn moving(up: &Up) -> usize {
    up.hosts.wharf(&["connections", "--where", "moving"]).stdout.lines().count() - 1
}

#[test]
fn what_goes_back_waits_for_memory() {
    let back = |up: &Up| {
        let ended = up.hosts.wharf(&["handoff", "--to", "os", "--all"]);
        assert!(ended.status.success(), "{ended}");
    };
    go_back(back, |up| assert!(moving(up) > 0, "the kernel has had memory"));
}

/// For a few seconds.
#[test]
fn what_a_killed_wharf_had_waits_for_memory() {
    go_back(|up| up.wharf.signal(Signal::Kill), |_| ());
}
