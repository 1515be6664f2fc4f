//! A wharf that is stopped (SIGSTOP) for a while. What passes by it waits for it; nothing else does. That is judged by what
//! goes on while it is stopped, and not by time.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use sys::process::Signal;
use testkit::lab::{have, wait_until};

use crate::handoff::{EVENTS, PORT, THREADS, bytes, connect, echoes, ends, library, serve, up};
use crate::setup::{Hosts, Ip, Up, wharf};

/// wharf stands still until this is dropped.
struct Stopped<'a>(&'a Up);

impl<'a> Stopped<'a> {
    fn new(up: &'a Up) -> Self {
        up.wharf.signal(Signal::Stop);
        let stat = format!("/proc/{}/stat", up.wharf.id());
        let stops = wait_until(|| std::fs::read_to_string(&stat).unwrap().contains(") T "));
        assert!(stops, "wharf is to stop");
        Stopped(up)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.wharf.signal(Signal::Continue);
    }
}

/// A connection within the server, which no wharf has a part in.
fn connect_within(hosts: &Hosts) -> TcpStream {
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT);
    let stream = hosts.server.run(|| TcpStream::connect(to)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// The same server with sockets that do not block, and poll(2).
const POLLS: &str = "
import select, socket
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(64); s.setblocking(False); print('listens', flush=True)
p = select.poll()
p.register(s, select.POLLIN)
all, rest = {}, {}
while True:
    for fd, events in p.poll():
        if fd == s.fileno():
            try: c = s.accept()[0]
            except BlockingIOError: continue
            c.setblocking(False)
            all[c.fileno()], rest[c.fileno()] = c, b''
            p.register(c, select.POLLIN)
            continue
        c = all[fd]
        if not rest[fd]:
            try: rest[fd] = c.recv(65536)
            except BlockingIOError: continue
            if not rest[fd]:
                p.unregister(c)
                del all[fd], rest[fd]
                c.close()
                continue
        try: rest[fd] = rest[fd][c.send(rest[fd]):]
        except BlockingIOError: pass
        p.modify(c, select.POLLOUT if rest[fd] else select.POLLIN)
";

/// The session begins with the first connection, or was there before it.
fn an_idle_server_accepts(script: &str) {
    for has_session in [false, true] {
        let Some(up) = up() else { return };
        let _server = serve(&up.hosts, "at_accept", script);
        if has_session {
            ends(connect(&up.hosts, Ip::V4));
        }
        let stopped = Stopped::new(&up);
        for round in 0..3 {
            let stream = connect_within(&up.hosts);
            echoes(&stream, &bytes(300_000, round));
            // The end reaches the peer, though wharf was sent the socket.
            ends(stream);
        }
        drop(stopped);
        // Connections go to the NIC as before.
        let mut seed = 10;
        let moves = wait_until(|| {
            let stream = connect(&up.hosts, Ip::BOTH[seed as usize % 2]);
            echoes(&stream, &bytes(100_000, seed));
            seed += 1;
            let is_there = up.counter("handoff", "connections") > 0;
            ends(stream);
            is_there
        });
        assert!(
            moves,
            "{:?}",
            up.group("handoff_refused").filter(|(_, n)| *n > 0).collect::<Vec<_>>()
        );
        up.nothing_went_wrong();
    }
}

#[test]
fn an_idle_server_with_threads_accepts_while_wharf_is_stopped() {
    an_idle_server_accepts(THREADS);
}

#[test]
fn an_idle_event_loop_accepts_while_wharf_is_stopped() {
    an_idle_server_accepts(EVENTS);
}

#[test]
fn an_idle_server_by_poll_accepts_while_wharf_is_stopped() {
    an_idle_server_accepts(POLLS);
}

/// Does what each connection asks for by its first byte, and answers with the same: keeps it, closes one that it has kept,
/// forks a child that echoes the next one, or makes calls on one that do not block.
const DOES: &str = "
import os, select, signal, socket
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(64); print('listens', flush=True)
kept = []
while True:
    c = s.accept()[0]
    what = c.recv(1)
    c.sendall(what)
    if what == b'k':
        kept.append(c)
        continue
    if what == b'c':
        kept.pop(0).close()
    elif what == b'f':
        one = kept.pop(0)
        if os.fork() == 0:
            s.close(); c.close()
            for other in kept: other.close()
            while d := one.recv(65536): one.sendall(d)
            os._exit(0)
        one.close()
    elif what == b'n':
        one = kept[0]
        one.setblocking(False)
        try: one.recv(1)
        except BlockingIOError: pass
        assert select.select([one], [], [], 0) == ([], [], [])
        e = select.epoll()
        e.register(one, select.EPOLLIN)
        assert e.poll(0) == []
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 100)
        one.setblocking(True)
        e.close()
    c.sendall(what)
    c.close()
";

/// Asks for something, and waits until it is done.
fn asks(mut stream: TcpStream, what: u8) -> TcpStream {
    stream.write_all(&[what]).unwrap();
    let mut answer = [0; 2];
    let answer = if what == b'k' { &mut answer[..1] } else { &mut answer };
    stream.read_exact(answer).unwrap();
    assert!(answer.iter().all(|byte| *byte == what));
    stream
}

/// What is at the NIC is closed, forked with and asked about while wharf is stopped, and goes on when it does.
#[test]
fn programs_close_fork_and_ask_while_wharf_is_stopped() {
    let Some(up) = up() else { return };
    let mut server = serve(&up.hosts, "at_accept", DOES);
    let mut kept: Vec<_> =
        (0..12).map(|at| asks(connect(&up.hosts, Ip::BOTH[at % 2]), b'k')).collect();
    let all = || {
        up.all_counted();
        up.counter("handoff", "connections") == 12
    };
    assert!(wait_until(all), "{} at the NIC", up.counter("handoff", "connections"));
    let stopped = Stopped::new(&up);
    for what in *b"ncfncfcn" {
        ends(asks(connect_within(&up.hosts), what));
    }
    assert!(server.runs());
    drop(stopped);
    let mut forked = Vec::new();
    for what in *b"cfcfc" {
        let mut one = kept.remove(0);
        match what {
            b'f' => forked.push(one),
            _ => assert_eq!(one.read(&mut [0]).unwrap(), 0, "it is closed"),
        }
    }
    for (seed, one) in forked.into_iter().enumerate() {
        echoes(&one, &bytes(200_000, seed as u64));
        ends(one);
    }
    // The others are the kernel's, or go to the NIC again.
    for _ in 0..kept.len() {
        ends(asks(connect_within(&up.hosts), b'c'));
    }
    for mut one in kept {
        assert_eq!(one.read(&mut [0]).unwrap(), 0, "it is closed");
    }
    up.nothing_went_wrong();
}

/// Keeps all connections, and forks when it is told to, between two lines.
const FORKS: &str = "
import os, signal, socket, threading
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(128); print('listens', flush=True)
kept = []
def accepts():
    while True:
        kept.append(s.accept()[0])
        kept[-1].recv(1)
threading.Thread(target=accepts, daemon=True).start()
signal.sigwait({signal.SIGHUP})
os.write(1, b'forks\\n')
child = os.fork()
if child == 0: os._exit(0)
os.write(1, b'forked\\n')
os.waitpid(child, 0)
signal.sigwait({signal.SIGHUP})
";

/// However many connections a process has at the NIC, fork(2) asks for all of them by one message.
#[test]
fn fork_asks_for_all_connections_at_once() {
    const CONNECTIONS: u64 = 60;
    if !have(&["strace"]) {
        return;
    }
    let Some(up) = up() else { return };
    let trace = std::env::temp_dir().join(format!("wharf-e2e-forks-{}", std::process::id()));
    let mut run = wharf();
    run.env("WHARF_LIBRARY", library()).args(["run", "--policy", "at_accept", "--"]);
    run.args(["strace", "-f", "-e", "trace=sendmsg,write", "-o"]).arg(&trace);
    let mut server = up.hosts.server.spawn(run.args(["python3", "-u", "-c", FORKS]));
    server.line_with("listens");
    let opened = |at: u64| {
        let mut stream = connect(&up.hosts, Ip::BOTH[at as usize % 2]);
        stream.write_all(b"x").unwrap();
        stream
    };
    let streams: Vec<_> = (0..CONNECTIONS).map(opened).collect();
    let all = || {
        up.all_counted();
        up.counter("handoff", "connections") == CONNECTIONS
    };
    assert!(wait_until(all), "{} at the NIC", up.counter("handoff", "connections"));
    // The program that strace runs.
    let python = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "python3"
    };
    let python = up.hosts.server.processes().into_iter().find(python).unwrap();
    sys::process::kill(python, Signal::HangUp).unwrap();
    server.line_with("forked");
    let all_back = || up.counter("handoff_restored", "fork") == CONNECTIONS;
    assert!(wait_until(all_back), "{} are back", up.counter("handoff_restored", "fork"));
    drop(streams);
    let calls = std::fs::read_to_string(&trace).unwrap();
    let _ = std::fs::remove_file(&trace);
    let forks = calls.split("\"forks").nth(1).unwrap().split("\"forked").next().unwrap();
    assert_eq!(forks.matches("sendmsg(").count(), 1, "{forks}");
}

/// The same numbers in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// wharf is stopped again and again while connections begin, move to and fro, are busy and end.
fn is_stopped_under_load(script: &str, seed: u64) {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", script);
    let mut random = Random(seed);
    let within = connect_within(&up.hosts);
    std::thread::scope(|scope| {
        let busy: Vec<_> = (0..4)
            .map(|number| {
                let hosts = &up.hosts;
                scope.spawn(move || {
                    for round in 0..6 {
                        let stream = connect(hosts, Ip::BOTH[number as usize % 2]);
                        echoes(&stream, &bytes(1_000_000, number << 8 | round));
                        ends(stream);
                    }
                })
            })
            .collect();
        while !busy.iter().all(|one| one.is_finished()) {
            let to = if random.below(2) == 0 { "os" } else { "nic" };
            let ended = up.hosts.wharf(&["handoff", "--to", to, "--all"]);
            assert!(ended.status.success(), "{ended}");
            std::thread::sleep(Duration::from_micros(random.below(60_000)));
            let stopped = Stopped::new(&up);
            // One that is there, and one that begins.
            echoes(&within, &bytes(10_000, random.below(1000)));
            let another = connect_within(&up.hosts);
            echoes(&another, &bytes(10_000, random.below(1000)));
            ends(another);
            drop(stopped);
        }
    });
    ends(within);
    up.nothing_went_wrong();
}

#[test]
fn a_server_with_threads_bears_a_wharf_that_is_stopped_at_any_time() {
    is_stopped_under_load(THREADS, 1);
}

#[test]
fn an_event_loop_bears_a_wharf_that_is_stopped_at_any_time() {
    is_stopped_under_load(EVENTS, 2);
}
