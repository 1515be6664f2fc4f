//! Programs whose connections the NIC runs: `wharf run`, real servers, every byte compared.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::process::Signal;
use testkit::lab::{Ended, Program, have, wait_until};

use crate::ends::{guards, kill_with_guard};
use crate::setup::{HOST, Hosts, Ip, Plan, Port, Up, WIRE, give, lasting_refusals, wharf};

pub(crate) const PORT: u16 = 7000;

/// A server that echoes: a thread for each connection, and blocking calls.
pub(crate) const THREADS: &str = "
import socket, threading
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('::', 7000)); s.listen(64); print('listens', flush=True)
def serve(c):
    while True:
        d = c.recv(65536)
        if not d: break
        c.sendall(d)
    c.close()
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";

/// The same by an event loop: epoll, and calls that never block.
pub(crate) const EVENTS: &str = "
import asyncio, resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
async def serve(r, w):
    while True:
        d = await r.read(65536)
        if not d: break
        w.write(d)
        await w.drain()
    w.close()
async def main():
    s = await asyncio.start_server(serve, None, 7000)
    print('listens', flush=True)
    await s.serve_forever()
asyncio.run(main())
";

/// The same, but a connection's process forks in the middle of it: the child goes on.
const FORKS: &str = "
import os, socket
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(64); print('listens', flush=True)
while True:
    c = s.accept()[0]
    d = c.recv(65536)
    c.sendall(d)
    if os.fork() == 0:
        while True:
            d = c.recv(65536)
            if not d: os._exit(0)
            c.sendall(d)
    c.close()
";

/// Says a byte when a connection has something, which it leaves unread. It is told of two at a time.
const LEAVES: &str = "
import select, socket
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(64); print('listens', flush=True)
e = select.epoll()
e.register(s, select.EPOLLIN)
new = {}
while True:
    for fd, events in e.poll(maxevents=2):
        if fd == s.fileno():
            c = s.accept()[0]
            new[c.fileno()] = c
            e.register(c, select.EPOLLIN)
        elif fd in new:
            c = new.pop(fd)
            c.send(b'x')
            globals().setdefault('kept', []).append(c)
";

/// Writes once when it is told to by SIGHUP, and is an echo server then.
const SIGNALLED: &str = "
import signal, socket
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(64); print('listens', flush=True)
c = s.accept()[0]
print('accepted', flush=True)
signal.sigwait({signal.SIGHUP})
c.sendall(b'x'); print('sent', flush=True)
while True:
    d = c.recv(65536)
    if not d: break
    c.sendall(d)
";

/// The library that `wharf run` loads, as the tests have built it.
pub(crate) fn library() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_wharf")).parent().unwrap();
    let built = [folder.join("deps/libwharf.so"), folder.join("libwharf.so")];
    let newest = built
        .into_iter()
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().and_then(|file| file.modified()).unwrap());
    newest.expect("libwharf.so is built with the tests")
}

/// A Python server behind wharf.
pub(crate) fn serve(hosts: &Hosts, policy: &str, script: &str) -> Program {
    let mut run = wharf();
    run.env("WHARF_LIBRARY", library());
    run.args(["run", "--policy", policy, "--", "python3", "-u", "-c", script]);
    let mut server = hosts.server.spawn(&mut run);
    server.line_with("listens");
    server
}

pub(crate) fn connect(hosts: &Hosts, ip: Ip) -> TcpStream {
    let to = SocketAddr::new(ip.server(), PORT);
    let stream = hosts.client.run(|| TcpStream::connect(to)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

pub(crate) fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let byte = |at: u64| (at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[1];
    (0..len as u64).map(byte).collect()
}

/// What was sent comes back, while it is still being sent.
pub(crate) fn echoes(stream: &TcpStream, sent: &[u8]) {
    std::thread::scope(|scope| {
        scope.spawn(|| (&mut &*stream).write_all(sent).unwrap());
        let mut back = vec![0; sent.len()];
        (&mut &*stream).read_exact(&mut back).unwrap();
        assert_same(&back, sent);
    });
}

/// What came back is what was sent. If not, it is told where it begins to differ, and whether those are bytes of another
/// place: such as come again, or after some that are lost.
fn assert_same(back: &[u8], sent: &[u8]) {
    let Some(at) = (0..sent.len()).find(|&at| back[at] != sent[at]) else { return };
    let piece = &back[at..(at + 16).min(back.len())];
    let from = sent.windows(piece.len()).position(|other| other == piece);
    panic!("other bytes came back from {at} of {} on, those of {from:?}", sent.len());
}

/// The end of the stream comes back, too.
pub(crate) fn ends(mut stream: TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "more came than was sent");
}

pub(crate) fn up() -> Option<Up> {
    if !have(&["python3"]) {
        return None;
    }
    Plan::new(Port::Auto).up_with(&["--set", "workers=1"])
}

#[test]
fn a_server_with_threads_runs_on_the_nic() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", THREADS);
    for round in 0..3_u64 {
        std::thread::scope(|scope| {
            for number in 0..4 {
                let hosts = &up.hosts;
                scope.spawn(move || {
                    let stream = connect(hosts, Ip::BOTH[number as usize % 2]);
                    echoes(&stream, &bytes(1_500_000, round * 4 + number));
                    ends(stream);
                });
            }
        });
    }
    assert!(wait_until(|| up.counter("handoff", "handoffs") == 12), "not all were handed off");
    assert!(wait_until(|| up.counter("handoff_commands", "ch_nic_send") > 12));
    let lasting = lasting_refusals(&up.hosts, HOST);
    assert!(lasting.is_empty(), "{lasting:?}");
    up.nothing_went_wrong();
}

#[test]
fn an_event_loop_runs_on_the_nic_after_so_many_bytes() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "after=64KB", EVENTS);
    let streams: Vec<_> = (0..8).map(|at| connect(&up.hosts, Ip::BOTH[at % 2])).collect();
    streams.iter().for_each(|stream| echoes(stream, &bytes(20_000, 1)));
    assert_eq!(up.counter("handoff", "handoffs"), 0, "no connection has had 64 KB");
    std::thread::scope(|scope| {
        for (number, stream) in streams.iter().enumerate() {
            scope.spawn(move || echoes(stream, &bytes(2_000_000, number as u64)));
        }
    });
    // Idle for a while, and then at once again.
    streams.iter().for_each(|stream| echoes(stream, &bytes(100, 7)));
    assert!(wait_until(|| up.counter("handoff", "handoffs") == 8));
    streams.into_iter().for_each(ends);
    up.nothing_went_wrong();
}

#[test]
fn a_policy_learns_which_connections_are_worth_it() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "learned", THREADS);
    let run = |count: usize, len: usize| {
        for number in 0..count {
            let stream = connect(&up.hosts, Ip::BOTH[number % 2]);
            echoes(&stream, &bytes(len, number as u64));
            ends(stream);
        }
    };
    let handoffs = || up.counter("handoff", "handoffs");
    run(20, 30_000);
    assert_eq!(handoffs(), 0, "none has carried 64 KB");
    run(30, 2_000_000);
    assert!(wait_until(|| handoffs() > 8), "{}", handoffs());
    assert!(wait_until(|| up.counter("handoff", "connections") == 0), "all have ended");
    // They are likely to carry much from now on: one that has carried nothing moves.
    let mut idle = Vec::new();
    let are_there = wait_until(|| {
        idle.push(connect(&up.hosts, Ip::V4));
        up.counter("handoff", "connections") > 0
    });
    assert!(are_there, "{}", handoffs());
}

/// Two processes would share the rings: the connection goes back to the kernel before the fork, with what was in
/// flight, and to the NIC again when the parent has closed it.
#[test]
fn a_connection_goes_to_the_child_that_has_it_alone() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", FORKS);
    let stream = connect(&up.hosts, Ip::V4);
    echoes(&stream, &bytes(100, 1));
    let is_alone = || {
        echoes(&stream, &bytes(50_000, 2));
        up.counter("handoff", "connections") == 1
    };
    assert!(wait_until(is_alone), "{} handed off", up.counter("handoff", "handoffs"));
    assert!(wait_until(|| up.counter("handoff_restored", "fork") == 1));
    echoes(&stream, &bytes(500_000, 3));
    ends(stream);
    assert!(wait_until(|| up.counter("handoff", "handoffs") == 2));
    up.nothing_went_wrong();
}

#[test]
fn a_connection_that_two_processes_have_is_the_kernels() {
    let Some(up) = up() else { return };
    let keeps = FORKS.replace("c.close()", "kept = c; time.sleep(1000)");
    let keeps = keeps.replace("import os,", "import os, time,");
    let _server = serve(&up.hosts, "at_accept", &keeps);
    let stream = connect(&up.hosts, Ip::V4);
    echoes(&stream, &bytes(100, 1));
    for round in 0..10 {
        echoes(&stream, &bytes(50_000, round));
        std::thread::sleep(Duration::from_millis(20));
    }
    up.all_counted();
    let (handoffs, forks) =
        (up.counter("handoff", "handoffs"), up.counter("handoff_restored", "fork"));
    assert_eq!((handoffs, forks), (1, 1));
    up.nothing_went_wrong();
}

/// Connections that are moved by hand, to and fro, while they are busy.
#[test]
fn connections_go_to_and_fro_by_hand() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "by_hand", THREADS);
    let streams: Vec<_> = (0..4).map(|at| connect(&up.hosts, Ip::BOTH[at % 2])).collect();
    let moved = |words: &[&str]| {
        let ended = up.hosts.wharf(&[&["handoff"], words].concat());
        assert!(ended.status.success(), "{ended}");
    };
    let listed = || {
        let ended = up.hosts.wharf(&["connections", "--json"]);
        assert!(ended.status.success(), "{ended}");
        ended.stdout.lines().filter(|line| line.contains(r#""where":"nic""#)).count()
    };
    for round in 0..10_u64 {
        moved(&["--to", "nic", "--all"]);
        std::thread::scope(|scope| {
            for (number, stream) in streams.iter().enumerate() {
                scope.spawn(move || echoes(stream, &bytes(400_000, round * 4 + number as u64)));
            }
            if round % 2 == 0 {
                moved(&["--to", "os", "--all"]);
            }
        });
        streams.iter().for_each(|stream| echoes(stream, &bytes(10, round)));
    }
    let all_are = wait_until(|| {
        moved(&["--to", "nic", "--all"]);
        streams.iter().for_each(|stream| echoes(stream, &bytes(10_000, 50)));
        listed() == 4
    });
    assert!(all_are, "{}", listed());
    streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 51)));
    let are_counted =
        || up.counter("handoff", "handoffs") > 4 && up.counter("handoff", "restored") > 1;
    assert!(wait_until(are_counted), "not often enough");
    streams.into_iter().for_each(ends);
    up.nothing_went_wrong();
}

/// Echoes one connection by a pipe.
const SPLICES: &str = "
import os, socket
s = socket.create_server(('', 7000))
print('listens')
c, _ = s.accept()
out, into = os.pipe()
while n := os.splice(c.fileno(), into, 1 << 16):
    while n: n -= os.splice(out, c.fileno(), n)
";

/// A connection that moves again as soon as it has moved delivers all the same.
#[test]
fn a_connection_that_moves_without_a_pause_goes_on() {
    moves_without_a_pause(EVENTS);
}

/// What a pipe has of a connection by the time that it moves does not come again.
#[test]
fn a_connection_that_goes_by_a_pipe_moves_without_a_pause() {
    moves_without_a_pause(SPLICES);
}

fn moves_without_a_pause(script: &str) {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "by_hand", script);
    let stream = connect(&up.hosts, Ip::V4);
    std::thread::scope(|scope| {
        let echoed = scope.spawn(|| echoes(&stream, &bytes(20_000_000, 1)));
        for to in ["nic", "os"].into_iter().cycle() {
            if echoed.is_finished() {
                break;
            }
            let ended = up.hosts.wharf(&["handoff", "--to", to, "--all"]);
            assert!(ended.status.success(), "{ended}");
        }
    });
    ends(stream);
    up.nothing_went_wrong();
}

/// As in the kernel, epoll_wait(2) tells of all that is ready in turn, however few it may tell of at a time.
#[test]
fn connections_that_are_always_ready_leave_room_for_others() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", LEAVES);
    let mut streams = Vec::new();
    for number in 1..=8 {
        let mut stream = connect(&up.hosts, Ip::V4);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        streams.push(stream);
        let is_there = || {
            up.all_counted();
            up.counter("handoff", "connections") == number
        };
        assert!(wait_until(is_there), "{} of {number}", up.counter("handoff", "connections"));
    }
    up.nothing_went_wrong();
}

/// The wire loses its carrier, and later its MTU changes: the kernel has the connections then.
#[test]
fn connections_return_when_the_wire_changes() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "by_hand", THREADS);
    let streams: Vec<_> = (0..3).map(|_| connect(&up.hosts, Ip::V4)).collect();
    // One that the kernel does not give now is asked for again.
    let to_nic = || {
        let all_are = wait_until(|| {
            let ended = up.hosts.wharf(&["handoff", "--to", "nic", "--all"]);
            assert!(ended.status.success(), "{ended}");
            streams.iter().for_each(|stream| echoes(stream, &bytes(10_000, 1)));
            up.all_counted();
            up.counter("handoff", "connections") == 3
        });
        let refused: Vec<_> = up.group("handoff_refused").filter(|(_, n)| *n > 0).collect();
        assert!(all_are, "not at the NIC: {refused:?}");
    };
    let restored = |reason: &str| wait_until(|| up.counter("handoff_restored", reason) == 3);
    to_nic();
    let peer = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        up.hosts.client.succeed("ip", &words)
    };
    peer("link set peer0 down");
    assert!(restored("link_down"), "{}", up.counter("handoff_restored", "link_down"));
    peer("link set peer0 up");
    streams.iter().for_each(|stream| echoes(stream, &bytes(100_000, 2)));
    to_nic();
    up.hosts.ip("link set wire0 mtu 1400");
    assert!(restored("mtu"), "{}", up.counter("handoff_restored", "mtu"));
    peer("link set peer0 mtu 1400");
    streams.iter().for_each(|stream| echoes(stream, &bytes(100_000, 3)));
    streams.into_iter().for_each(ends);
}

/// wharf ends by this while its connections are busy: they go on in the kernel, and neither end notices. Returns how it
/// ended.
fn outlive(script: &str, end: impl FnOnce(&Hosts, &Program)) -> Option<Ended> {
    if !have(&["python3"]) {
        return None;
    }
    let hosts = Plan::new(Port::Auto).hosts()?;
    give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
    let wharf = hosts.wharf_up(&["--set", "workers=1", "--take-addresses"]);
    let _server = serve(&hosts, "at_accept", script);
    let streams: Vec<_> = (0..4).map(|at| connect(&hosts, Ip::BOTH[at % 2])).collect();
    streams.iter().for_each(|stream| echoes(stream, &bytes(300_000, 3)));
    let ended = std::thread::scope(|scope| {
        for (number, stream) in streams.iter().enumerate() {
            scope.spawn(move || echoes(stream, &bytes(20_000_000, number as u64)));
        }
        std::thread::sleep(Duration::from_millis(50));
        end(&hosts, &wharf);
        wharf.wait()
    });
    streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 5)));
    streams.into_iter().for_each(ends);
    Some(ended)
}

#[test]
fn connections_outlive_a_wharf_that_is_stopped() {
    let ended = outlive(EVENTS, |_, wharf| wharf.signal(Signal::Interrupt));
    assert!(ended.as_ref().is_none_or(|ended| ended.status.success()), "{}", ended.unwrap());
}

#[test]
fn connections_outlive_a_wharf_that_is_killed() {
    outlive(EVENTS, |_, wharf| wharf.signal(Signal::Kill));
}

#[test]
fn connections_of_threads_outlive_a_wharf_that_is_killed() {
    outlive(THREADS, |_, wharf| wharf.signal(Signal::Kill));
}

/// A worker that has ended gives nothing back.
#[test]
fn connections_outlive_the_host_interface() {
    let ends = |hosts: &Hosts, _: &Program| drop(hosts.ip(&format!("link delete {HOST}")));
    let Some(ended) = outlive(EVENTS, ends) else {
        return;
    };
    assert_eq!(ended.status.code(), Some(1), "{ended}");
    assert!(ended.stderr.contains("4 connections are the kernel's again, 0 are lost"), "{ended}");
}

/// What it offers, wharf never looks at: the kernel has the connection still.
#[test]
fn an_offer_to_a_wharf_that_dies_is_none() {
    if !have(&["python3"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Auto).hosts() else { return };
    give(&hosts.server, WIRE, &[Ip::V4], Ip::server);
    let wharf = hosts.wharf_up(&["--set", "workers=1", "--take-addresses"]);
    let mut server = serve(&hosts, "after=1", SIGNALLED);
    let mut stream = connect(&hosts, Ip::V4);
    server.line_with("accepted");
    wharf.signal(Signal::Stop);
    server.signal(Signal::HangUp);
    server.line_with("sent");
    wharf.signal(Signal::Kill);
    wharf.wait();
    stream.read_exact(&mut [0; 1]).unwrap();
    echoes(&stream, b"is there still");
    ends(stream);
}

/// The program goes on, and its connections move to the next wharf.
#[test]
fn connections_move_to_a_wharf_that_is_started_again() {
    if !have(&["python3"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Auto).hosts() else { return };
    give(&hosts.server, WIRE, &[Ip::V4], Ip::server);
    let more = ["--set", "workers=1", "--take-addresses"];
    let mut wharf = hosts.wharf_up(&more);
    let _server = serve(&hosts, "at_accept", EVENTS);
    let stream = connect(&hosts, Ip::V4);
    for signal in [Signal::Kill, Signal::Interrupt] {
        echoes(&stream, &bytes(300_000, 1));
        wharf.signal(signal);
        wharf.wait();
        echoes(&stream, &bytes(300_000, 2));
        // The guard has put the wire back by now.
        assert!(wait_until(|| guards(&hosts).is_empty()));
        wharf = hosts.wharf_up(&more);
        let moves = wait_until(|| {
            echoes(&stream, &bytes(1000, 3));
            hosts.wharf(&["connections"]).stdout.contains(" nic")
        });
        assert!(moves, "{}", hosts.wharf(&["connections"]));
    }
    ends(stream);
}

/// The same, but another program is started in the middle of each connection: its process closes all descriptors, while
/// it has this one's memory (vfork).
const STARTS: &str = "
import socket, subprocess
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
while True:
    c = s.accept()[0]
    while True:
        d = c.recv(65536)
        if not d: break
        subprocess.run(['true'], close_fds=True)
        c.sendall(d)
    c.close()
";

/// The same, and tells of a connection that was reset.
pub(crate) const TELLS: &str = "
import socket
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
c = s.accept()[0]
try:
    while True:
        c.sendall(c.recv(65536))
except ConnectionResetError:
    print('reset', flush=True)
";

#[test]
fn a_program_that_starts_others_keeps_its_connections() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", STARTS);
    for round in 0..3 {
        let stream = connect(&up.hosts, Ip::V4);
        (0..5).for_each(|at| echoes(&stream, &bytes(1000, round + at)));
        ends(stream);
    }
    up.nothing_went_wrong();
}

/// wharf and its guard are gone: the program is told so, and does not wait for ever.
#[test]
fn a_wharf_that_is_killed_with_its_guard_resets_its_connections() {
    let Some(up) = up() else { return };
    let mut server = serve(&up.hosts, "at_accept", TELLS);
    let stream = connect(&up.hosts, Ip::V4);
    echoes(&stream, &bytes(100_000, 9));
    kill_with_guard(&up.hosts, up.wharf.id());
    server.line_with("reset");
}
