//! `wharf tcp`: real kernels and real programs against wharf's own TCP.

mod active;
mod bulk;
mod crowd;
mod duplicates;
mod flood;
mod lossy;
mod memory;
mod plain;
mod routed;
mod trace;
mod wires;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};

use nic::tcp::Pattern;
use serde_json::Value;
use sys::process::Signal;
use testkit::lab::{Ended, Host, PATIENCE, Program};

use super::setup::{Ip, wharf};
use super::traffic::whole;

/// The interface that is made for the engine.
const TAP: &str = "tcp0";

/// A host, and an engine behind an interface of it. The host has the client's addresses, the engine the
/// server's.
struct Lab {
    /// Before the host, so that it ends before it.
    engine: Program,
    host: Host,
}

/// The words for an engine's addresses and those of the host that it is behind.
fn addresses() -> Vec<String> {
    let each = Ip::BOTH.into_iter().flat_map(|ip| {
        let len = if ip == Ip::V4 { 24 } else { 64 };
        let words = [("--address", ip.server()), ("--host-address", ip.client())];
        words.into_iter().flat_map(move |(word, ip)| [word.to_owned(), format!("{ip}/{len}")])
    });
    each.collect()
}

impl Lab {
    /// An engine with a service and more words: one line of a command, without its addresses.
    fn start(line: &str) -> Option<Lab> {
        Lab::on(Host::new()?, line)
    }

    /// The same on a host that is there already.
    fn on(host: Host, line: &str) -> Option<Lab> {
        let engine = Lab::spawn(&host, line);
        Some(Lab { engine, host })
    }

    /// The engine alone, as far as its first line.
    fn spawn(host: &Host, line: &str) -> Program {
        let mut words = vec!["tcp".to_owned()];
        words.extend(line.split_whitespace().map(str::to_owned));
        words.extend(["--host".to_owned(), TAP.to_owned()]);
        words.extend(addresses());
        let mut engine = host.spawn(wharf().args(&words));
        engine.line_with("tcp");
        engine
    }

    /// A connection to the engine.
    fn connect(&self, ip: Ip, port: u16) -> TcpStream {
        connect(&self.host, ip.server(), port)
    }

    /// Ctrl-C, and what the engine then says. It must succeed.
    fn end(self) -> (Ended, Host) {
        self.engine.signal(Signal::Interrupt);
        let ended = self.engine.wait();
        assert!(ended.status.success(), "{ended}");
        (ended, self.host)
    }
}

/// A connection from a host.
fn connect(host: &Host, to: IpAddr, port: u16) -> TcpStream {
    let to = SocketAddr::new(to, port);
    patient(host.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap())
}

/// A listener on a host.
fn listen(host: &Host, ip: IpAddr) -> (TcpListener, u16) {
    let listener = host.run(|| TcpListener::bind((ip, 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn patient(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Writes so many bytes of the pattern, and closes that half.
fn write_pattern(mut to: &TcpStream, len: u64) {
    let pattern = Pattern::default();
    let mut written = 0;
    while written < len {
        let piece = pattern.at(written);
        let piece = &piece[..piece.len().min((len - written) as usize)];
        to.write_all(piece).unwrap();
        written += piece.len() as u64;
    }
    to.shutdown(Shutdown::Write).unwrap();
}

/// Reads to the end, which must be that of the pattern; returns how many bytes that were.
fn read_pattern(mut from: &TcpStream) -> u64 {
    let (pattern, mut buffer) = (Pattern::default(), vec![0; 256 << 10]);
    let mut read = 0;
    loop {
        let len = whole(|| from.read(&mut buffer)).unwrap();
        if len == 0 {
            return read;
        }
        assert_eq!(pattern.mismatch(read, &buffer[..len]), None, "after {read} bytes");
        read += len as u64;
    }
}

/// The JSON lines of a program that has ended.
fn lines(ended: &Ended) -> Vec<Value> {
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The connections that an engine with `--json` tells of.
fn connections(ended: &Ended) -> Vec<Value> {
    let lines = lines(ended).into_iter();
    lines.map(|line| line["connection"].clone()).filter(Value::is_object).collect()
}

/// Its counters at the end, by group and name.
fn counters(ended: &Ended) -> BTreeMap<(String, String), u64> {
    let lines = lines(ended);
    let last = lines.last().unwrap()["counters"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entry = |entry: &Value| {
        ((text(&entry["group"]), text(&entry["name"])), entry["value"].as_u64().unwrap())
    };
    last.iter().map(entry).collect()
}

/// One of them.
fn counter(ended: &Ended, group: &str, name: &str) -> u64 {
    counters(ended)[&(group.to_owned(), name.to_owned())]
}
