//! What a program does that the NIC does not: the connection goes back to the kernel, lives on there, and the reason is
//! counted by its name.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::lab::{have, wait_until};

use crate::handoff::{bytes, connect, echoes, ends, serve};
use crate::setup::{Ip, Plan, Port, Up};

/// Before a program in Python: what it may become, or have another become, which says "done" after a line and is an echo
/// server then.
pub(crate) const ECHOES: &str = r#"
ECHOES = '''
import socket, sys
def line(c):
    while c.recv(1) != b'\\n': pass
def serve(c):
    line(c)
    c.sendall(b'done\\n')
    while True:
        d = c.recv(65536)
        if not d: return c.close()
        c.sendall(d)
if len(sys.argv) > 1: serve(socket.socket(fileno=int(sys.argv[1])))
'''
exec(ECHOES)
"#;

/// Does what the first line of a connection names, says so after the second, and is an echo server then.
const DOES: &str = r#"
import array, ctypes, fcntl, mmap, os, select, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
kept = []
def nothing(c): pass
def urgent_sent(c): c.send(b'u', socket.MSG_OOB)
def urgent_asked_for(c):
    try: c.recv(1, socket.MSG_OOB)
    except OSError: pass
def zerocopy(c): c.send(b'z', 0x4000000)
def dontroute(c): c.send(b'r', socket.MSG_DONTROUTE)
def in_set(c):
    kept.append(select.epoll())
    kept[-1].register(c, select.EPOLLIN)
    return kept[-1]
def exclusive(c):
    kept.append(select.epoll())
    kept[-1].register(c, select.EPOLLIN | select.EPOLLEXCLUSIVE)
def nested(c):
    inner = in_set(c)
    kept.append(select.epoll())
    kept[-1].register(inner, select.EPOLLIN)
def nested_before(c):
    inner = select.epoll()
    kept.extend([inner, select.epoll()])
    kept[-1].register(inner, select.EPOLLIN)
    inner.register(c, select.EPOLLIN)
def mapped(c):
    try: c.getsockopt(socket.IPPROTO_TCP, 35, 64) # TCP_ZEROCOPY_RECEIVE
    except OSError: pass
def polled(c): select.select([in_set(c)], [], [], 0)
def closed_in_set(c):
    dup = os.dup(c.fileno())
    kept.append(select.epoll())
    kept[-1].register(dup, select.EPOLLIN)
    os.close(dup)
def forked(c):
    child = os.fork()
    if child == 0:
        c.send(b'f')
        os._exit(0)
    os.waitpid(child, 0)
def passed(c):
    near, far = socket.socketpair()
    kept.extend([near, far])
    fds = array.array('i', [c.fileno()])
    near.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
def passed_by_several(c):
    near, far = socket.socketpair()
    kept.extend([near, far])
    at = ctypes.addressof
    text = ctypes.create_string_buffer(b'x')
    vector = ctypes.create_string_buffer(struct.pack('PN', at(text), 1))
    rights = ctypes.create_string_buffer(struct.pack('Niii4x', 20, 1, socket.SCM_RIGHTS, c.fileno()))
    head = struct.pack('PI4xPNPNi4xI4x', 0, 0, at(vector), 1, at(rights), 24, 0, 0)
    assert libc.sendmmsg(near.fileno(), ctypes.create_string_buffer(head), 1, 0) == 1
def signalled(c):
    fcntl.fcntl(c, fcntl.F_SETFL, fcntl.fcntl(c, fcntl.F_GETFL) | os.O_ASYNC)
    fcntl.fcntl(c, fcntl.F_SETFL, fcntl.fcntl(c, fcntl.F_GETFL) & ~os.O_ASYNC)
def signalled_by_ioctl(c):
    for on in [1, 0]: fcntl.ioctl(c, 0x5452, on.to_bytes(4, 'little'))
def printed(c):
    assert libc.dprintf(c.fileno(), b'%d %s %.1f', 7, b'words', ctypes.c_double(0.5)) == 11
def option(c): c.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)
def buffer(c): c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
def priority(c): c.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)
def lingers_when_closed(c): c.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, 20)
def harmless(c):
    for option in [socket.SO_BROADCAST, socket.SO_REUSEPORT, socket.SO_KEEPALIVE, 46]:
        c.setsockopt(socket.SOL_SOCKET, option, 1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 500_000)
def congestion(c): c.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'reno')
def stream(c):
    libc.fdopen.restype = ctypes.c_void_p
    libc.fclose(ctypes.c_void_p(libc.fdopen(os.dup(c.fileno()), b'r')))
def standard(c):
    kept_0 = os.dup(0)
    os.dup2(c.fileno(), 0)
    os.dup2(kept_0, 0)
    os.close(kept_0)
def standard_by_dup(c):
    kept_0 = os.dup(0)
    os.close(0)
    assert os.dup(c.fileno()) == 0
    os.dup2(kept_0, 0)
    os.close(kept_0)
def vectored(c):
    assert os.pwritev(c.fileno(), [b'v', b'w'], -1) == 2
def nowhere(c):
    text = ctypes.create_string_buffer(b'text')
    def parts(*all): return b''.join(struct.pack('PN', *part) for part in all)
    known, unknown = (ctypes.addressof(text), 4), (0, 4)
    assert libc.writev(c.fileno(), parts(known, unknown, known), 3) == 4
    assert (libc.writev(c.fileno(), parts(unknown, known), 2), ctypes.get_errno()) == (-1, 14)
def closed_as_a_stream(c):
    # The number is another's afterwards: a socket's, by which the connection goes to another process, and a set's.
    libc.fdopen.restype = ctypes.c_void_p
    number = os.dup(c.fileno())
    libc.fclose(ctypes.c_void_p(libc.fdopen(number, b'r')))
    kept.append(select.epoll())
    assert kept[-1].fileno() == number
    kept[-1].register(c, select.EPOLLIN)
def past(c):
    # write(2) of a program's own: mov $1, %eax; syscall; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b'\xb8\x01\0\0\0\x0f\x05\xc3')
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    of = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
    of(at)(c.fileno(), b'p', 1)
    kept.append(code)
def by_number(c):
    assert libc.syscall(1, c.fileno(), b's', 1) == 1
def rings(c):
    # io_uring_setup(2)
    made = libc.syscall(425, 8, ctypes.create_string_buffer(1024))
    assert (made, ctypes.get_errno()) == (-1, 38), made
def duplicated(c):
    dup = os.dup(c.fileno())
    os.write(dup, b'd')
    os.close(dup)
def executed(c):
    os.set_inheritable(c.fileno(), True)
    os.execvp('python3', ['python3', '-u', '-c', ECHOES, str(c.fileno())])
def executed_by_list(c):
    os.set_inheritable(c.fileno(), True)
    libc.execlp(b'python3', b'python3', b'-u', b'-c', ECHOES.encode(), str(c.fileno()).encode(), None)
def lingers(c):
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, (1).to_bytes(4, 'little') + (60).to_bytes(4, 'little'))
    c.setblocking(False)
    # Until the peer takes no more.
    while select.select([], [c], [], 1)[1]:
        try: c.send(bytes(65536))
        except BlockingIOError: pass
    c.close()
    print('closed at', time.monotonic_ns(), flush=True)
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
while True:
    c = s.accept()[0]
    name = b''
    while not name.endswith(b'\n'): name += c.recv(1)
    globals()[name.decode().strip()](c)
    if c.fileno() >= 0: serve(c)
    kept.clear()
"#;

/// What is done, and why the connection goes back, if it does.
const CASES: [(&str, Option<&str>); 33] = [
    ("nothing", None),
    ("duplicated", None),
    ("by_number", None),
    ("rings", None),
    ("in_set", None),
    ("urgent_sent", Some("urgent")),
    ("urgent_asked_for", Some("urgent")),
    ("zerocopy", Some("zerocopy")),
    ("dontroute", Some("unserved")),
    ("exclusive", Some("epoll")),
    ("nested", Some("epoll")),
    ("nested_before", Some("epoll")),
    ("polled", Some("epoll")),
    ("closed_in_set", Some("epoll")),
    ("forked", Some("fork")),
    ("passed", Some("passed")),
    ("passed_by_several", Some("passed")),
    ("signalled", Some("unserved")),
    ("signalled_by_ioctl", Some("unserved")),
    ("standard", Some("unserved")),
    ("standard_by_dup", Some("unserved")),
    ("vectored", None),
    ("nowhere", None),
    ("closed_as_a_stream", Some("unserved")),
    ("printed", Some("unserved")),
    ("mapped", Some("unserved")),
    ("option", Some("refused")),
    ("buffer", Some("refused")),
    ("priority", Some("refused")),
    ("lingers_when_closed", Some("refused")),
    ("harmless", None),
    ("congestion", Some("refused")),
    ("stream", Some("unserved")),
];

pub(crate) fn up() -> Option<Up> {
    if !have(&["python3"]) {
        return None;
    }
    Plan::new(Port::Auto).up_with(&["--set", "workers=1"])
}

/// Why connections went back, and how many.
pub(crate) fn restored(up: &Up) -> BTreeMap<String, u64> {
    up.all_counted();
    up.group("handoff_restored").filter(|(_, count)| *count > 0).collect()
}

/// A connection that is at the NIC when the program does this with it.
pub(crate) fn does(up: &Up, what: &str) -> TcpStream {
    let before = up.counter("handoff", "handoffs");
    let mut stream = connect(&up.hosts, Ip::V4);
    assert!(wait_until(|| up.counter("handoff", "handoffs") > before), "{what}: at the kernel");
    stream.write_all(format!("{what}\n").as_bytes()).unwrap();
    stream
}

/// The connection goes back for this reason alone, if there is one, and lives on.
pub(crate) fn goes_back(
    up: &Up,
    before: &BTreeMap<String, u64>,
    stream: TcpStream,
    reason: Option<&str>,
) {
    let mut wanted = before.clone();
    reason.into_iter().for_each(|reason| *wanted.entry(reason.to_owned()).or_default() += 1);
    let has = wait_until(|| reason.is_none() || restored(up) == wanted);
    assert!(has, "{:?} in place of {wanted:?}", restored(up));
    (&stream).write_all(b"\n").unwrap();
    let mut told = Vec::new();
    while !told.ends_with(b"done\n") {
        let mut byte = [0];
        (&stream).read_exact(&mut byte).unwrap();
        told.extend(byte);
    }
    echoes(&stream, &bytes(100_000, 1));
    ends(stream);
    assert_eq!(restored(up), wanted);
}

#[test]
fn what_the_nic_does_not_do_is_counted_by_its_name() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", &[ECHOES, DOES].concat());
    for (what, reason) in CASES {
        println!("{what}");
        let before = restored(&up);
        let stream = does(&up, what);
        goes_back(&up, &before, stream, reason);
    }
    up.nothing_went_wrong();
}

/// Past the library there is nothing but the system calls themselves.
#[cfg(target_arch = "x86_64")]
#[test]
fn what_is_written_past_the_library_goes_back_with_its_connection() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", &[ECHOES, DOES].concat());
    let stream = does(&up, "past");
    goes_back(&up, &BTreeMap::new(), stream, Some("unserved"));
}

#[test]
fn urgent_data_of_the_peers_goes_to_the_kernel() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", &[ECHOES, DOES].concat());
    let stream = does(&up, "nothing");
    sys::calls::send(&stream, b"u", libc::MSG_OOB).unwrap();
    goes_back(&up, &BTreeMap::new(), stream, Some("urgent"));
}

#[test]
fn another_program_gets_its_connections_from_the_kernel() {
    let Some(up) = up() else { return };
    for (what, count) in [("executed", 1), ("executed_by_list", 2)] {
        let _server = serve(&up.hosts, "at_accept", &[ECHOES, DOES].concat());
        let before = restored(&up);
        goes_back(&up, &before, does(&up, what), Some("exec"));
        assert!(wait_until(|| up.counter("handoff_restored", "exec") == count), "{what}");
    }
    up.nothing_went_wrong();
}

/// close(2) waits until the peer has all (`SO_LINGER`), by the kernel, which knows how. The peer takes no more before it
/// reads.
#[test]
fn a_close_that_lingers_waits_for_the_peer() {
    let Some(up) = up() else { return };
    let mut server = serve(&up.hosts, "at_accept", &[ECHOES, DOES].concat());
    let mut stream = does(&up, "lingers");
    // It does not grow.
    let few = 65_536_i32.to_ne_bytes();
    sys::calls::set_option(&stream, libc::SOL_SOCKET, libc::SO_RCVBUF, &few).unwrap();
    let back = wait_until(|| restored(&up).get("unserved") == Some(&1));
    assert!(back, "{:?}", restored(&up));
    let begun = sys::clock::now();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all.len() >= 65_536 && all.iter().all(|byte| *byte == 0), "{} bytes", all.len());
    let line = server.line_with("closed at ");
    let closed: u64 = line.trim_start_matches("closed at ").parse().unwrap();
    assert!(closed > begun, "close(2) did not wait for the peer");
}

/// A thread waits for bytes of a first connection, which another thread closes, and the second has its number. The first
/// thread waits in that call once it sleeps while no thread has the interpreter's lock.
const CLOSES: &str = r#"
import os, socket, threading, time
s = socket.create_server(("", 7000), family=socket.AF_INET6, dualstack_ipv6=True)
print("listens", flush=True)
for turn in range(4):
    first, _ = s.accept()
    while len(first.recv(1)) < 1: pass
    fd = first.detach()
    got = []
    def reads():
        try: got.append(os.read(fd, 100))
        except OSError as error: got.append(error.errno)
    thread = threading.Thread(target=reads)
    thread.start()
    asleep = 0
    while asleep < 5:
        time.sleep(0.05)
        state = open("/proc/self/task/%d/stat" % thread.native_id).read().rsplit(")", 1)[1].split()[0]
        asleep = asleep + 1 if state == "S" else 0
    os.close(fd)
    second, _ = s.accept()
    assert second.fileno() == fd
    print("accepted", flush=True)
    # In the kernel the call ends with the first connection; here it may fail before.
    thread.join(20)
    print("read", got, flush=True)
    bytes = b""
    while len(bytes) < 6: bytes += second.recv(6 - len(bytes))
    second.send(bytes)
    second.close()
"#;

#[test]
fn a_call_does_not_go_on_with_the_connection_that_has_its_number() {
    let Some(up) = up() else { return };
    for policy in ["at_accept", "by_hand"] {
        let mut server = serve(&up.hosts, policy, CLOSES);
        for _ in 0..4 {
            let mut first = connect(&up.hosts, Ip::V4);
            first.write_all(b"x").unwrap();
            let mut second = connect(&up.hosts, Ip::V4);
            server.line_with("accepted");
            drop(first);
            second.write_all(b"secret").unwrap();
            let line = server.line_with("read");
            assert!(!line.contains("secret"), "{policy}: {line}");
            let mut echo = [0; 6];
            second.read_exact(&mut echo).unwrap();
            assert_eq!(&echo, b"secret");
        }
    }
}
