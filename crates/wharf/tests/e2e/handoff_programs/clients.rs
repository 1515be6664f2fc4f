//! Programs that connect.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use testkit::lab::wait_until;

use super::{Stage, files};

/// Files from a server of the client's host, by curl and wget of the server's, under wharf.
fn fetches(stage: &Stage, program: &[&str]) {
    let files = files(&stage.folder.0, &[100, 50_000, 2_000_000]);
    let mut python = Command::new("python3");
    python.args(["-m", "http.server", "8000", "--directory"]).arg(&stage.folder.0);
    let _server = stage.hosts.client.spawn(&mut python);
    let own = stage.folder.text("fetched");
    for policy in ["at_accept", "after=64KB"] {
        let before = stage.counter("handoff", "handoffs");
        for (name, bytes) in &files {
            let url = format!("http://10.77.0.1:8000/{name}");
            let fetched = wait_until(|| {
                let mut run = stage.wharf_run(policy, &[program, &[&own, &url]].concat());
                stage.hosts.server.output(&mut run).status.success()
            });
            assert!(fetched, "{url} is not fetched");
            assert!(fs::read(&own).unwrap() == *bytes, "{name} has other bytes");
        }
        let least = if policy == "at_accept" { files.len() as u64 } else { 1 };
        stage.were_handed_off(before, least);
    }
    assert_eq!(stage.counter("handoff", "restored"), 0, "{:?}", stage.counters());
}

#[test]
fn curl_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["curl", "python3"]) else { return };
    fetches(&stage, &["curl", "-sf", "--max-time", "50", "-o"]);
}

#[test]
fn wget_runs_on_the_nic() {
    let Some(stage) = Stage::new(&["wget", "python3"]) else { return };
    fetches(&stage, &["wget", "-q", "-T", "50", "-t", "1", "-O"]);
}

/// As nginx does with its upstreams: the set has the socket before that is connected.
const EXPECTED: &str = r#"
import select, socket, sys
e = select.epoll()
for _ in range(4):
    s = socket.socket()
    s.setblocking(False)
    e.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
    try:
        s.connect(("10.77.0.1", int(sys.argv[1])))
    except BlockingIOError:
        pass
    sent, got = 0, 0
    while got < 200_000:
        events = e.poll(30)
        if not events:
            sys.exit("nothing is told after %d of %d" % (got, sent))
        while sent == got and sent < 200_000:
            try:
                sent += s.send(b"x" * 1000)
            except BlockingIOError:
                break
            try:
                got += len(s.recv(100_000))
            except BlockingIOError:
                break
        while got < sent:
            try:
                got += len(s.recv(100_000))
            except BlockingIOError:
                break
            if got == sent:
                sent += s.send(b"x" * 1000) if sent < 200_000 else 0
    s.close()
"#;

/// The other end of each sends back what comes, to the last byte.
fn echo_server(stage: &Stage) -> String {
    let listener = stage.hosts.client.run(|| TcpListener::bind("10.77.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut bytes)
                    && stream.write_all(&bytes[..len]).is_ok()
                {}
            });
        }
    });
    port
}

/// What is duplicated, or is to send a signal, before it is connected.
const EARLY: &str = r#"
import fcntl, os, signal, socket, sys
to = ("10.77.0.1", int(sys.argv[1]))
def echoes(write, read):
    for _ in range(50):
        os.write(write, b"x" * 1000)
        got = 0
        while got < 1000:
            more = len(os.read(read, 1000 - got))
            assert more > 0, "the end"
            got += more
a = socket.socket()
b = os.dup(a.fileno())
c = fcntl.fcntl(b, fcntl.F_DUPFD_CLOEXEC, 0)
a.connect(to)
echoes(a.fileno(), b)
echoes(c, a.fileno())
# It lives as long as one of them.
a.close()
os.close(c)
echoes(b, b)
told = []
signal.signal(signal.SIGIO, lambda *_: told.append(1))
d = socket.socket()
fcntl.fcntl(d, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(d, fcntl.F_SETFL, fcntl.fcntl(d, fcntl.F_GETFL) | os.O_ASYNC)
d.connect(to)
echoes(d.fileno(), d.fileno())
assert told, "no signal came"
"#;

#[test]
fn what_is_done_with_a_socket_before_it_is_connected_holds() {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let port = echo_server(&stage);
    let before = stage.counter("handoff", "handoffs");
    let mut run = stage.wharf_run("at_accept", &["python3", "-c", EARLY, &port]);
    let ended = stage.hosts.server.output(&mut run);
    assert!(ended.status.success(), "{ended}");
    // That with signals is the kernel's.
    stage.were_handed_off(before, 1);
    assert_eq!(stage.counter("handoff", "handoffs") - before, 1, "{:?}", stage.counters());
}

/// As many as a process may poll, and what has hung up in a set in which it is not found.
const POLLS: &str = r#"
import ctypes, resource, select, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
a = socket.create_connection(("10.77.0.1", int(sys.argv[1])))
def polls(events, timeout):
    each = struct.pack("ihh", a.fileno(), events, 0)
    all = ctypes.create_string_buffer(each * 64)
    found = libc.poll(all, 64, timeout)
    assert found >= 0, ctypes.get_errno()
    return found
a.sendall(b"x")
assert a.recv(1) == b"x"
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
for _ in range(20):
    assert polls(select.POLLIN, 0) == 0
    assert polls(select.POLLIN | select.POLLOUT, -1) == 64
    a.sendall(b"x")
    # The byte may come while the kernel goes through them.
    assert polls(select.POLLIN, -1) > 0
    assert polls(select.POLLIN, 0) == 64
    assert a.recv(1) == b"x"
a.shutdown(socket.SHUT_WR)
assert a.recv(1) == b""
assert polls(0, -1) == 64, "no POLLHUP"
began = time.monotonic()
assert select.select([], [], [a], 1) == ([], [], [])
assert time.monotonic() - began > 0.9, "it has not waited"
assert select.select([a], [], [a], 60) == ([a], [], [])
"#;

#[test]
fn what_is_waited_for_is_told_as_by_the_kernel() {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let port = echo_server(&stage);
    for policy in ["at_accept", "by_hand"] {
        let mut run = stage.wharf_run(policy, &["python3", "-c", POLLS, &port]);
        let ended = stage.hosts.server.output(&mut run);
        assert!(ended.status.success(), "{policy}: {ended}");
    }
    stage.were_handed_off(0, 1);
    assert_eq!(stage.counter("handoff", "handoffs"), 1, "{:?}", stage.counters());
}

#[test]
fn a_socket_that_a_set_has_before_it_is_connected_is_told_of() {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let port = echo_server(&stage);
    for policy in ["at_accept", "after=64KB"] {
        let before = stage.counter("handoff", "handoffs");
        let mut run = stage.wharf_run(policy, &["python3", "-c", EXPECTED, &port]);
        let ended = stage.hosts.server.output(&mut run);
        assert!(ended.status.success(), "{policy}: {ended}");
        stage.were_handed_off(before, 4);
        let moved = stage.counter("handoff", "handoffs") - before;
        assert_eq!(moved, 4, "{policy}: {:?}", stage.counters());
    }
}
