//! Descriptors of the library's own, in a program that closes all that it does not know, or gives one of its own the number
//! of any.

use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use testkit::lab::wait_until;

use crate::handoff::{bytes, connect, echoes, ends, serve};
use crate::handoff_reasons::up;
use crate::setup::Ip;

/// Does what each line of a first connection names, says so on it, and then serves a second connection: it sends back what
/// comes by either.
const DOES: &str = r#"
import ctypes, os, resource, select, socket, threading
libc = ctypes.CDLL(None, use_errno=True)
MOST = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
def numbers(): return [int(name) for name in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + name)]
def unknown(): return sorted(set(numbers()) - {0, 1, 2, s.fileno(), c.fileno()})
def gaps():
    first = 3
    for last in sorted([s.fileno(), c.fileno()]):
        if first < last: yield first, last - 1
        first = last + 1
    yield first, min(MOST, 4096) - 1
def nothing(): pass
def one_by_one():
    for first, last in gaps():
        for fd in range(first, last + 1):
            assert libc.close(fd) == -1 and ctypes.get_errno() == 9, fd
def by_number():
    for first, last in gaps():
        for fd in range(first, last + 1): libc.syscall(3, fd)
def by_range():
    for first, last in gaps(): assert libc.close_range(first, last, 0) == 0
    assert libc.close_range(max(s.fileno(), c.fileno()) + 1, 0xffffffff, 0) == 0
def from_there():
    libc.closefrom(max(s.fileno(), c.fileno()) + 1)
def covered():
    # None is where a program looks for a free number, or select(2) for a set's.
    all = unknown()
    assert all and min(all) >= min(1024, MOST - MOST // 8), all
    for fd in all:
        assert libc.dup2(-1, fd) == -1
        assert fd not in numbers(), fd
    own = unknown()
    near, far = os.pipe()
    for fd in own:
        os.dup2(far, fd)
        os.write(fd, b'f')
        assert os.read(near, 10) == b'f'
        others.append(fd)
    others.extend([near, far])
def uncovered():
    for fd in others: os.close(fd)
    others.clear()
def spliced():
    # The layer has a pipe for that, though nothing is there to be moved.
    near, far = os.pipe()
    c.setblocking(False)
    assert libc.splice(c.fileno(), None, far, None, 100, 0) == -1 and ctypes.get_errno() == 11
    c.setblocking(True)
    os.close(near)
    os.close(far)
def polls_without_any():
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, MOST))
    kept = []
    try:
        while True: kept.append(os.dup(2))
    except OSError: pass
    print('polls', flush=True)
    waits(c)
    assert c.recv(1) == b'x'
    for fd in kept: os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))
def without_any():
    # A thread that has not waited before.
    thread = threading.Thread(target=polls_without_any)
    thread.start()
    thread.join()
def in_child():
    child = os.fork()
    if child == 0:
        os._exit(len(unknown()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
def waits(c):
    p = select.poll()
    p.register(c, select.POLLIN)
    while not p.poll(): pass
def line():
    text = b''
    while not text.endswith(b'\n'):
        waits(c)
        text += c.recv(1)
    return text.decode().strip()
def serve(c):
    while True:
        waits(c)
        d = c.recv(65536)
        if not d: return c.close()
        c.sendall(d)
# What it was started with.
os.closerange(3, MOST)
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
others = []
c = s.accept()[0]
while True:
    name = line()
    if name == 'end': break
    globals()[name]()
    c.send(b'done\n')
    second = s.accept()[0]
    serve(second)
serve(c)
"#;

/// What the program does, one after the other; after each, its first connection lives on, and another moves to the NIC and
/// back, with its bytes and no others.
fn lives_on(all: &[&str]) {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", DOES);
    let handoffs = || up.counter("handoff", "handoffs");
    let first = connect(&up.hosts, Ip::V4);
    assert!(wait_until(|| handoffs() == 1));
    let mut told = BufReader::new(&first);
    for (at, what) in (1..).zip(all) {
        println!("{what}");
        (&first).write_all(format!("{what}\n").as_bytes()).unwrap();
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n", "{what}");
        let second = connect(&up.hosts, Ip::V4);
        assert!(wait_until(|| handoffs() > at), "{what}: at the kernel");
        echoes(&second, &bytes(300_000, at));
        ends(second);
    }
    (&first).write_all(b"end\n").unwrap();
    echoes(&first, &bytes(300_000, 99));
    assert!(up.hosts.wharf(&["handoff", "--to", "os", "--all"]).status.success());
    echoes(&first, &bytes(300_000, 100));
    ends(first);
    up.nothing_went_wrong();
}

#[test]
fn a_program_that_closes_all_that_it_does_not_know_keeps_its_connections() {
    lives_on(&["one_by_one", "by_range", "from_there"]);
}

/// The number is that of close(2) on this machine.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_program_that_closes_all_by_the_number_of_the_call_keeps_its_connections() {
    lives_on(&["by_number"]);
}

#[test]
fn a_program_may_use_the_number_of_any_descriptor() {
    lives_on(&["spliced", "covered", "spliced", "uncovered", "one_by_one", "spliced"]);
}

#[test]
fn a_thread_that_has_no_descriptor_to_wait_by_is_told() {
    let Some(up) = up() else { return };
    let mut server = serve(&up.hosts, "at_accept", DOES);
    let mut stream = connect(&up.hosts, Ip::V4);
    assert!(wait_until(|| up.counter("handoff", "handoffs") == 1));
    stream.write_all(b"without_any\n").unwrap();
    server.line_with("polls");
    // It waits by then, on most machines.
    std::thread::sleep(Duration::from_millis(200));
    stream.write_all(b"x").unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert_eq!(line, "done\n");
}

#[test]
fn a_child_has_none_of_them() {
    lives_on(&["in_child"]);
}
