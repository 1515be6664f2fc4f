//! How connections end with their process: at the NIC as in the kernel.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use sys::process::Signal;
use testkit::lab::wait_until;

use crate::handoff::{connect, serve, up};
use crate::setup::Ip;

/// Does with each connection as its first byte says, and then nothing.
const KEEPS: &str = "
import os, socket, struct
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
kept = []
while True:
    c = s.accept()[0]
    what = c.recv(1)
    kept.append(c)
    if what in b'lc': c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    if what == b'w': c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 5))
    c.sendall(what)
    if what == b'c': c.close()
    if what == b'x': os._exit(0)
";

/// What the peer sees.
fn seen(stream: &mut TcpStream) -> String {
    match stream.read(&mut [0; 100]) {
        Ok(0) => "end".to_owned(),
        Ok(some) => format!("{some} bytes"),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => "reset".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// The ends that the peers of connections see whose program closes them, or ends: by itself, or killed.
fn ends_of(policy: &str, is_killed: bool) -> Option<Vec<(char, String)>> {
    let up = up()?;
    let server = serve(&up.hosts, policy, KEEPS);
    // Lingers for no time, and closes then; lingers for a time; leaves bytes unread; none of these.
    let whats = b"lcwun";
    let mut streams = Vec::new();
    for what in whats {
        let mut stream = connect(&up.hosts, Ip::V4);
        // In one segment.
        let unread: &[u8] = if *what == b'u' { b"unread" } else { b"" };
        stream.write_all(&[&[*what], unread].concat()).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        streams.push(stream);
    }
    if policy == "at_accept" {
        let all = || {
            up.all_counted();
            up.counter("handoff", "handoffs") == 5
        };
        assert!(wait_until(all), "{} handed off", up.counter("handoff", "handoffs"));
        assert_eq!(up.counter("handoff", "restored"), 0);
    }
    if is_killed {
        server.signal(Signal::Kill);
    } else {
        let mut last = connect(&up.hosts, Ip::V4);
        last.write_all(b"x").unwrap();
        last.read_exact(&mut [0]).unwrap();
    }
    let seen = whats.iter().zip(&mut streams).map(|(what, one)| (char::from(*what), seen(one)));
    Some(seen.collect())
}

fn end_as_in_the_kernel(is_killed: bool) {
    let Some(at_nic) = ends_of("at_accept", is_killed) else { return };
    let Some(at_kernel) = ends_of("by_hand", is_killed) else { return };
    assert_eq!(at_nic, at_kernel);
    let wanted = [('l', "reset"), ('c', "reset"), ('w', "end"), ('u', "reset"), ('n', "end")];
    assert_eq!(at_kernel, wanted.map(|(what, end)| (what, end.to_owned())));
}

#[test]
fn connections_of_a_process_that_exits_end_as_in_the_kernel() {
    end_as_in_the_kernel(false);
}

#[test]
fn connections_of_a_process_that_is_killed_end_as_in_the_kernel() {
    end_as_in_the_kernel(true);
}
