//! `--trace`: one connection, from its SYN to its end, and no other.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;

use serde_json::Value;
use testkit::lab::Host;

use super::super::setup::{Ip, wharf};
use super::{Lab, listen, patient, read_pattern};

/// A file that goes with the test.
struct Traced(PathBuf);

impl Traced {
    fn new(name: &str) -> Traced {
        let name = format!("wharf-trace-{name}-{}", std::process::id());
        Traced(std::env::temp_dir().join(name))
    }

    /// The words that ask for it.
    fn words(&self, path: &str) -> String {
        format!("--trace {path} --trace-to {}", self.0.display())
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.0).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn has(line: &Value, flag: &str) -> bool {
    line["flags"].as_array().is_some_and(|flags| flags.iter().any(|name| name == flag))
}

fn number(line: &Value, name: &str) -> u32 {
    line[name].as_u64().unwrap() as u32
}

/// How many bytes went in one direction, each counted once; there must be a SYN before and a FIN behind
/// them.
fn bytes(lines: &[Value], event: &str) -> u32 {
    let segments: Vec<_> = lines.iter().filter(|line| line["event"] == event).collect();
    let syn = segments.iter().find(|line| has(line, "SYN")).unwrap();
    let first = number(syn, "seq").wrapping_add(1);
    let end = |line: &Value| number(line, "seq").wrapping_add(number(line, "len"));
    let data = segments.iter().filter(|line| number(line, "len") > 0);
    let bytes = data.map(|line| end(line).wrapping_sub(first)).max().unwrap_or(0);
    let fin = segments.iter().find(|line| has(line, "FIN")).unwrap();
    assert_eq!(end(fin).wrapping_sub(first), bytes, "{fin}");
    bytes
}

fn states(lines: &[Value]) -> Vec<&str> {
    let changes = lines.iter().filter(|line| line["event"] == "state");
    changes.map(|line| line["to"].as_str().unwrap()).collect()
}

#[test]
fn a_trace_has_one_connection_and_nothing_of_another() {
    const LEN: usize = 100_000;
    for ip in Ip::BOTH {
        let file = Traced::new(&format!("served-{ip:?}"));
        let (own, any) = (SocketAddr::new(ip.server(), 7), SocketAddr::new(ip.client(), 0));
        let line = format!("echo --port 7 {}", file.words(&format!("{own}-{any}")));
        let Some(lab) = Lab::start(&line) else { return };
        let mut first = lab.connect(ip, 7);
        let name = first.local_addr().unwrap().to_string();
        let mut second = lab.connect(ip, 7);
        for socket in [&mut first, &mut second] {
            socket.write_all(&vec![7; LEN]).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            let mut echoed = Vec::new();
            socket.read_to_end(&mut echoed).unwrap();
            assert_eq!(echoed.len(), LEN);
        }
        lab.end();
        let lines = file.lines();
        for line in &lines {
            assert_eq!(
                (&line["local"], &line["remote"]),
                (&own.to_string().into(), &name.clone().into())
            );
            assert_eq!(line["dropped"], 0, "{line}");
        }
        assert_eq!(bytes(&lines, "received") as usize, LEN);
        assert_eq!(bytes(&lines, "sent") as usize, LEN);
        let all = ["SYN-RECEIVED", "ESTABLISHED", "CLOSE-WAIT", "LAST-ACK", "CLOSED"];
        assert_eq!(states(&lines), all);
        assert_eq!(lines.last().unwrap()["end"], "closed");
        let sorted = lines.is_sorted_by_key(|line| line["time"].as_u64().unwrap());
        assert!(sorted && lines[0]["time"].as_u64() > Some(1_600_000_000_000_000_000));
        let grew = lines.iter().filter_map(|line| line["after"]["cwnd"].as_u64()).max();
        assert!(grew.is_some_and(|cwnd| cwnd > 0));
    }
}

#[test]
fn of_the_connections_that_the_engine_opens_one_is_traced() {
    const BYTES: u64 = 200_000;
    let file = Traced::new("opened");
    let Some(host) = Host::new() else { return };
    let (listener, port) = listen(&host, "0.0.0.0".parse().unwrap());
    let to = SocketAddr::new(Ip::V4.client(), port);
    let words = file.words(&format!("0.0.0.0:0-{to}"));
    let engine = Lab::spawn(
        &host,
        &format!("source --bytes {BYTES} --connections 3 --connect {to} {words}"),
    );
    for _ in 0..3 {
        assert_eq!(read_pattern(&patient(listener.accept().unwrap().0)), BYTES);
    }
    let ended = engine.wait();
    assert!(ended.status.success(), "{ended}");
    let lines = file.lines();
    assert!(lines.iter().all(|line| line["local"] == lines[0]["local"]));
    assert_eq!(u64::from(bytes(&lines, "sent")), BYTES);
    assert_eq!(states(&lines)[..2], ["SYN-SENT", "ESTABLISHED"]);
}

#[test]
fn a_trace_that_cannot_be_is_refused_with_a_word() {
    let Some(host) = Host::new() else { return };
    let start = "echo --host t0 --address 10.0.0.2/24 --port 7";
    for (words, part) in [
        ("--trace 10.0.0.2:7-10.0.0.1:1", "--trace-to"),
        ("--trace-to f", "--trace"),
        ("--trace 10.0.0.2:7 --trace-to f", "LOCAL-REMOTE"),
        ("--trace 10.0.0.2-10.0.0.1 --trace-to f", "LOCAL-REMOTE"),
        ("--trace 10.0.0.9:7-10.0.0.1:0 --trace-to f", "10.0.0.9 is no --address"),
        ("--trace 10.0.0.2:7-[fd00::1]:0 --trace-to f", "one IP version"),
        ("--trace 10.0.0.2:7-10.0.0.1:0 --trace-to /nowhere/f", "cannot create /nowhere/f"),
    ] {
        let words = start.split(' ').chain(words.split(' '));
        let ended = host.output(wharf().arg("tcp").args(words));
        assert_eq!(ended.status.code(), Some(2), "{ended}");
        assert!(ended.stderr.contains(part), "{ended}");
    }
}
