//! `TCP_INFO` of a connection on the NIC is the engine's: beside the kernel's own of the same connection and traffic.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use testkit::lab::{have, wait_until};

use crate::handoff::{bytes, connect, echoes, ends, serve};
use crate::setup::{Ip, Plan, Port, Up};

/// Bytes of `struct tcp_info` that are looked at.
const LEN: usize = 236;

/// An echo server that tells its `TCP_INFO` instead where a message begins with `?`, which is asked for `LEN` bytes or
/// fewer.
const TELLS: &str = "
import socket
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(64); print('listens', flush=True)
while True:
    c = s.accept()[0]
    while True:
        d = c.recv(65536)
        if not d: break
        if d[:1] == b'?':
            d = c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, int(d[1:]))
            d = bytes([len(d)]) + d
        c.sendall(d)
    c.close()
";

/// One answer.
#[derive(Debug)]
struct Info(Vec<u8>);

impl Info {
    /// Of the server's side of this stream.
    fn of(mut stream: &TcpStream, room: usize) -> Info {
        stream.write_all(format!("?{room}").as_bytes()).unwrap();
        let mut len = [0];
        stream.read_exact(&mut len).unwrap();
        let mut info = vec![0; len[0].into()];
        stream.read_exact(&mut info).unwrap();
        Info(info)
    }

    fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_ne_bytes(*self.0[at..].first_chunk().unwrap())
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(*self.0[at..].first_chunk().unwrap())
    }
}

fn moves(up: &Up, to: &str, stream: &TcpStream) {
    let is_there = wait_until(|| {
        let ended = up.hosts.wharf(&["handoff", "--to", to, "--all"]);
        assert!(ended.status.success(), "{ended}");
        echoes(stream, b"ping");
        let listed = up.hosts.wharf(&["connections", "--json", "--where", to]);
        listed.stdout.lines().count() == 1
    });
    assert!(is_there, "{}", up.hosts.wharf(&["connections"]));
}

#[test]
fn what_tcp_info_says_on_the_nic_is_what_the_kernel_says() {
    if !have(&["python3"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let _server = serve(&up.hosts, "by_hand", TELLS);
    for ip in Ip::BOTH {
        let begun = Instant::now();
        let stream = connect(&up.hosts, ip);
        let traffic = || {
            echoes(&stream, &bytes(100_000, 1).iter().map(|byte| byte | 0x80).collect::<Vec<_>>());
        };
        traffic();
        let kernel = Info::of(&stream, LEN);
        moves(&up, "nic", &stream);
        let before = Info::of(&stream, LEN);
        traffic();
        let nic = Info::of(&stream, LEN);
        // State, that of loss recovery, retransmissions, probes, back-off, options, both window shifts.
        let same: Vec<usize> = (0..7).filter(|at| kernel.byte(*at) != nic.byte(*at)).collect();
        assert!(same.is_empty(), "{same:?}: {kernel:?}, {nic:?}");
        // snd_mss, pmtu, advmss; segments that are not acknowledged, by SACK, lost, and sent again.
        for at in [16, 60, 84, 24, 28, 32, 36] {
            assert_eq!(kernel.number(at), nic.number(at), "at {at}: {kernel:?}, {nic:?}");
        }
        // Bytes acknowledged and received: those of the traffic, and of the question and the answer before.
        let answer = 1 + LEN as u64;
        let more = [(120, 100_000 + answer), (128, 100_000 + 4)];
        for (at, more) in more {
            assert_eq!(nic.long(at) - before.long(at), more, "at {at}: {before:?}, {nic:?}");
        }
        // Times: rto, rtt, rttvar; what the kernel's rules make of the last two bounds the first (RFC 6298).
        let [rto, rtt, rttvar, min_rtt] = [8, 68, 72, 148].map(|at| nic.number(at));
        assert!(rtt > 0 && rtt < 1_000_000 && rto >= rtt + rttvar && min_rtt <= rtt, "{nic:?}");
        // A window that lets more than the first ten segments go, and windows that are open.
        let [cwnd, snd_wnd, rcv_wnd, rcv_space] = [80, 228, 232, 96].map(|at| nic.number(at));
        assert!(cwnd >= 10 && snd_wnd > 0 && rcv_wnd > 0 && rcv_space > 0, "{nic:?}");
        // Data was sent, and the peer heard, since the test began: milliseconds.
        let [sent, heard] = [44, 56].map(|at| nic.number(at));
        assert!(u128::from(sent.max(heard)) <= begun.elapsed().as_millis(), "{nic:?}");
        // A program that knows a shorter struct gets so much.
        let short = Info::of(&stream, 104);
        assert_eq!((short.0.len(), short.byte(0)), (104, 1));
        // The kernel's again.
        moves(&up, "os", &stream);
        traffic();
        let back = Info::of(&stream, LEN);
        assert_eq!((back.byte(0), back.number(16)), (1, kernel.number(16)), "{back:?}");
        ends(stream);
    }
    up.nothing_went_wrong();
}

/// A connection whose peer has closed, and one that has ended.
const ENDS: &str = "
import select, socket
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(64); print('listens', flush=True)
state = lambda c: c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
while True:
    c = s.accept()[0]
    c.sendall(c.recv(10))
    while c.recv(10): pass
    print('closed', state(c), flush=True)
    c.shutdown(socket.SHUT_WR)
    while state(c) == 9: pass
    print('over', state(c), flush=True)
    c.close()
";

#[test]
fn tcp_info_on_the_nic_says_how_a_connection_ends() {
    if !have(&["python3"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    for policy in ["none", "at_accept"] {
        let mut server = serve(&up.hosts, policy, ENDS);
        let stream = connect(&up.hosts, Ip::V4);
        echoes(&stream, b"there");
        ends(stream);
        // CLOSE-WAIT; then LAST-ACK, and CLOSED.
        assert_eq!(server.line_with("closed"), "closed 8", "{policy}");
        assert_eq!(server.line_with("over"), "over 7", "{policy}");
    }
    assert!(wait_until(|| up.counter("handoff", "handoffs") == 1));
}
