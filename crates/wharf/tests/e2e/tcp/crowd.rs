//! Many at once, and some who take their time.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use testkit::lab::wait_until;
use testkit::missing::lacks;

use super::super::setup::{Ip, wharf};
use super::super::traffic::bytes;
use super::{Lab, counter};

const CROWD: usize = 1000;

/// Whether this process may have so many files open; a word if not.
fn may_open(files: u64) -> bool {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3)).unwrap_or("0");
    let may = soft == "unlimited" || soft.parse().is_ok_and(|soft: u64| soft >= files);
    if !may {
        lacks(format!("{files} open files (ulimit -n {files})"));
    }
    may
}

/// Kilobytes of memory that a process has (VmRSS).
pub(super) fn memory_of(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A thousand connections are open at the same time, and each gets its own bytes back.
#[test]
fn a_thousand_at_once_are_served() {
    if !may_open(4_000) {
        return;
    }
    let Some(lab) = Lab::start("echo --port 7 --json") else { return };
    let mut sockets: Vec<TcpStream> =
        (0..CROWD).map(|number| lab.connect(Ip::BOTH[number % 2], 7)).collect();
    let own = |number: usize| bytes(5_000 + 8 * number)[8 * number..].to_vec();
    thread::scope(|scope| {
        for (chunk, sockets) in sockets.chunks_mut(CROWD / 4).enumerate() {
            scope.spawn(move || {
                let number = |at: usize| chunk * CROWD / 4 + at;
                for (at, socket) in sockets.iter_mut().enumerate() {
                    socket.write_all(&own(number(at))).unwrap();
                    socket.shutdown(Shutdown::Write).unwrap();
                }
                for (at, socket) in sockets.iter_mut().enumerate() {
                    let mut received = Vec::new();
                    socket.read_to_end(&mut received).unwrap();
                    assert!(received == own(number(at)), "connection {}", number(at));
                }
            });
        }
    });
    // Their last acknowledgments may be lost in front of the engine, and are then asked for again.
    let over = || {
        let stats = lab.host.output(wharf().args(["stats", "--json"])).stdout;
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        let counters = stats["counters"].as_array().unwrap();
        counters.iter().any(|entry| {
            entry["group"] == "service" && entry["name"] == "ended" && entry["value"] == CROWD
        })
    };
    assert!(wait_until(over), "not all connections end");
    let (ended, _host) = lab.end();
    let service = |name| counter(&ended, "service", name);
    assert_eq!((service("begun"), service("failed")), (CROWD as u64, 0));
}

/// Connections that say one byte and then nothing take little memory and no other's turn.
#[test]
fn those_who_take_their_time_hold_up_nobody() {
    let Some(lab) = Lab::start("echo --port 7 --json") else { return };
    let before = memory_of(lab.engine.id());
    let slow: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut socket = lab.connect(Ip::V4, 7);
            socket.write_all(b"G").unwrap();
            socket
        })
        .collect();
    let sent = bytes(1 << 20);
    let mut quick = lab.connect(Ip::V4, 7);
    let mut writer = quick.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        quick.read_to_end(&mut received).unwrap();
        assert!(received == sent);
    });
    // The buffers of the quick one, and 16 KB for each of the others, are more than enough.
    let grown = memory_of(lab.engine.id()) - before;
    assert!(grown < 32 << 10, "{grown} KB for 300 connections that say nothing");
    for mut socket in slow {
        socket.write_all(b"ET").unwrap();
        let mut received = [0; 3];
        socket.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"GET");
    }
    lab.end();
}
