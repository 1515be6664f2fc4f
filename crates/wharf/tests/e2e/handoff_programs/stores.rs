//! Stores in memory.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::process::Command;

use super::{Stage, connect};
use crate::handoff::bytes;
use crate::setup::Hosts;

/// What a store is asked, and what is read of its answer.
trait Protocol {
    fn set(key: &str, value: &[u8]) -> Vec<u8>;
    fn get(key: &str) -> Vec<u8>;
    /// Reads that a value was stored.
    fn stored(from: &mut BufReader<TcpStream>);
    /// Reads a value, if there is one.
    fn value(from: &mut BufReader<TcpStream>) -> Option<Vec<u8>>;
}

fn line(from: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn exactly(from: &mut BufReader<TcpStream>, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len + 2];
    from.read_exact(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

struct Redis;

impl Protocol for Redis {
    fn set(key: &str, value: &[u8]) -> Vec<u8> {
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len());
        [head.as_bytes(), value, b"\r\n"].concat()
    }

    fn get(key: &str) -> Vec<u8> {
        format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).into_bytes()
    }

    fn stored(from: &mut BufReader<TcpStream>) {
        assert_eq!(line(from), "+OK");
    }

    fn value(from: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
        let head = line(from);
        let len = head.strip_prefix('$').unwrap().parse::<i64>().unwrap();
        usize::try_from(len).ok().map(|len| exactly(from, len))
    }
}

struct Memcached;

impl Protocol for Memcached {
    fn set(key: &str, value: &[u8]) -> Vec<u8> {
        let head = format!("set {key} 0 0 {}\r\n", value.len());
        [head.as_bytes(), value, b"\r\n"].concat()
    }

    fn get(key: &str) -> Vec<u8> {
        format!("get {key}\r\n").into_bytes()
    }

    fn stored(from: &mut BufReader<TcpStream>) {
        assert_eq!(line(from), "STORED");
    }

    fn value(from: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
        let head = line(from);
        if head == "END" {
            return None;
        }
        let len = head.rsplit(' ').next().unwrap().parse().unwrap();
        let value = exactly(from, len);
        assert_eq!(line(from), "END");
        Some(value)
    }
}

/// A client that sends so many batches of commands, each without waiting for answers, and compares these with what it
/// has stored. Its keys are its own: they begin with the number.
fn client<P: Protocol>(hosts: &Hosts, port: u16, number: usize, batches: u64) -> TcpStream {
    let stream = connect(hosts, port);
    let mut from = BufReader::new(stream.try_clone().unwrap());
    let mut has: HashMap<String, Vec<u8>> = HashMap::new();
    for batch in 0..batches {
        let (mut out, mut wants) = (Vec::new(), Vec::new());
        for at in 0..16 {
            let random =
                (number as u64 * 1000 + batch * 16 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let key = format!("{number}-{}", (random >> 20) % 12);
            if random >> 63 == 0 {
                let value = bytes([10, 1000, 20_000, 200_000][(random >> 40) as usize % 4], random);
                out.extend(P::set(&key, &value));
                has.insert(key, value);
                wants.push(None);
            } else {
                out.extend(P::get(&key));
                wants.push(Some(has.get(&key).cloned()));
            }
        }
        std::thread::scope(|scope| {
            scope.spawn(|| (&stream).write_all(&out).unwrap());
            for want in wants {
                match want {
                    None => P::stored(&mut from),
                    Some(value) => assert!(P::value(&mut from) == value, "other bytes were stored"),
                }
            }
        });
    }
    stream
}

fn clients<P: Protocol>(
    hosts: &Hosts,
    port: u16,
    numbers: Range<usize>,
    batches: u64,
) -> Vec<TcpStream> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = numbers
            .map(|number| scope.spawn(move || client::<P>(hosts, port, number, batches)))
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

fn redis(stage: &Stage, policy: &str) -> testkit::lab::Program {
    let words = "redis-server --port 6379 --bind 0.0.0.0 --protected-mode no --save";
    let words: Vec<&str> = words.split(' ').chain(["1 10"]).collect();
    stage.serve(policy, 6379, &words)
}

#[test]
fn redis_runs_on_the_nic_with_pipelines() {
    let Some(stage) = Stage::new(&["redis-server", "redis-benchmark"]) else { return };
    let _redis = redis(&stage, "at_accept");
    for words in ["-n 5000 -c 20", "-n 50000 -c 10 -P 32 -d 512"] {
        let mut benchmark = Command::new("redis-benchmark");
        benchmark.args(["-h", "10.77.0.2", "-q", "-t", "set,get,lpush,lrange_100"]);
        let ended = stage.hosts.client.output(benchmark.args(words.split(' ')));
        assert!(ended.status.success() && !ended.stderr.contains("rror"), "{ended}");
    }
    stage.was_refused_nothing();
}

#[test]
fn redis_goes_on_while_its_child_saves() {
    let Some(mut stage) = Stage::new(&["redis-server"]) else { return };
    let _redis = redis(&stage, "after=64KB");
    drop(clients::<Redis>(&stage.hosts, 6379, 0..6, 20));
    // A child that saves at the end has had all go back.
    assert!(stage.counter("handoff", "handoffs") > 0, "{:?}", stage.counters());
    stage.restart_wharf();
    clients::<Redis>(&stage.hosts, 6379, 6..12, 20);
}

#[test]
fn memcached_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["memcached"]) else { return };
    let user = if sys::process::is_root() { "-u root" } else { "" };
    let words = format!("memcached -l 0.0.0.0 -p 11211 -t 4 {user}");
    let words: Vec<&str> = words.split_whitespace().collect();
    let _memcached = stage.serve("at_accept", 11211, &words);
    let _open = clients::<Memcached>(&stage.hosts, 11211, 0..8, 20);
    stage.shows(11211, 8);
    stage.all_stayed();
}
