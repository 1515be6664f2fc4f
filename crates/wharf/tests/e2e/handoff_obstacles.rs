//! What a program has asked of a socket that the NIC would not do: the connection stays with the kernel, lives on there,
//! and `wharf connections` and the counters name the reason.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::lab::{have, wait_until};
use testkit::missing::kernel_lacks;

use crate::handoff::{bytes, connect, echoes, ends, library, serve};
use crate::setup::{Ip, Plan, Port, wharf};

/// Asks of a connection what its first line names, says whether the kernel does it, and is an echo server then.
const ASKS: &str = r"
import ctypes, socket, struct, threading
kept = []
def mark(c): c.setsockopt(socket.SOL_SOCKET, 36, 7)
def bound_elsewhere(c): c.setsockopt(socket.SOL_SOCKET, 25, b'host0\0')
def socket_filter(c):
    kept.append(ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0xffffffff)))
    c.setsockopt(socket.SOL_SOCKET, 26, struct.pack('HxxxxxxQ', 1, ctypes.addressof(kept[-1])))
def ip_options(c): c.setsockopt(socket.IPPROTO_IP, 4, b'\1\1\1\1')
def peek_offset(c): c.setsockopt(socket.SOL_SOCKET, 42, 0)
def options(c): c.setsockopt(socket.SOL_SOCKET, 29, 1)
def priority(c): c.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 3)
def receive_buffer(c): c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
def pacing(c): c.setsockopt(socket.SOL_SOCKET, 47, 1_000_000_000)
def type_of_service(c): c.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)
def least_hops(c): c.setsockopt(socket.IPPROTO_IP, 21, 1)
def ktls(c): c.setsockopt(socket.IPPROTO_TCP, 31, b'tls')
def md5(c):
    # A key for somebody else (struct tcp_md5sig).
    to = struct.pack('HH4s120x', socket.AF_INET, 0, socket.inet_aton('192.0.2.1'))
    c.setsockopt(socket.IPPROTO_TCP, 14, to + struct.pack('BBHI80s', 0, 0, 3, 0, b'key'))
def serve(c):
    name = b''
    while not name.endswith(b'\n'): name += c.recv(1)
    try:
        globals()[name.decode().strip()](c)
        c.sendall(b'y')
    except OSError: c.sendall(b'n')
    while True:
        d = c.recv(65536)
        if not d: return c.close()
        c.sendall(d)
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";

/// What is asked, and the reason.
const REASONS: [(&str, &str); 13] = [
    ("mark", "mark"),
    ("bound_elsewhere", "bound_elsewhere"),
    ("socket_filter", "socket_filter"),
    ("ip_options", "ip_options"),
    ("peek_offset", "peek_offset"),
    ("options", "options"),
    ("priority", "options"),
    ("receive_buffer", "options"),
    ("pacing", "options"),
    ("type_of_service", "options"),
    ("least_hops", "options"),
    ("ktls", "ktls"),
    ("md5", "md5"),
];

#[test]
fn what_is_set_on_a_socket_keeps_its_connection_with_the_kernel() {
    if !have(&["python3"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let _server = serve(&up.hosts, "by_hand", ASKS);
    for (what, reason) in REASONS {
        let mut stream = connect(&up.hosts, Ip::V4);
        stream.write_all(format!("{what}\n").as_bytes()).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        if answer != *b"y" {
            kernel_lacks(format!("what makes a socket's connection refused as {reason}"));
            ends(stream);
            continue;
        }
        let before = up.counter("handoff_refused", reason);
        let is_refused = wait_until(|| {
            let ended = up.hosts.wharf(&["handoff", "--to", "nic", "--all"]);
            assert!(ended.status.success(), "{ended}");
            echoes(&stream, &bytes(100, 1));
            up.counter("handoff_refused", reason) > before
        });
        let refused: Vec<_> = up.group("handoff_refused").filter(|(_, n)| *n > 0).collect();
        assert!(is_refused, "{what}: {refused:?}");
        let listed = up.hosts.wharf(&["connections", "--json"]);
        assert!(listed.stdout.contains(&format!(r#""refused":"{reason}""#)), "{reason}: {listed}");
        assert_eq!(up.counter("handoff", "connections"), 0, "{reason}");
        echoes(&stream, &bytes(100_000, 2));
        ends(stream);
    }
    up.nothing_went_wrong();
}

/// An echo server of MPTCP's.
const MPTCP: &str = r"
import socket, threading
def serve(c):
    while True:
        d = c.recv(65536)
        if not d: return c.close()
        c.sendall(d)
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";

/// A client of MPTCP's, which sends and receives until it is told to end.
const MPTCP_CLIENT: &str = r"
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
s.connect((sys.argv[1], 7000)); print('connected', flush=True)
sent, rounds = bytes(range(200)), 0
while not select.select([s], [], [], 0.02)[0]:
    s.sendall(sent)
    back = s.recv(200, socket.MSG_WAITALL)
    assert back == sent, back
    rounds += 1
    print(f'{rounds} rounds', flush=True)
";

#[test]
fn a_connection_of_mptcp_stays_with_the_kernel() {
    if !have(&["python3"]) {
        return;
    }
    if std::fs::read("/proc/sys/net/mptcp/enabled").is_err() {
        return kernel_lacks("MPTCP");
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let _server = serve(&up.hosts, "by_hand", MPTCP);
    let to_nic = || {
        let ended = up.hosts.wharf(&["handoff", "--to", "nic", "--all"]);
        assert!(ended.status.success(), "{ended}");
    };
    let mut client = Command::new("python3");
    client.args(["-u", "-c", MPTCP_CLIENT, &Ip::V4.server().to_string()]);
    let mut client = up.hosts.client.spawn(&mut client);
    client.line_with("rounds");
    let is_refused = wait_until(|| {
        to_nic();
        client.line_with("rounds");
        up.counter("handoff_refused", "mptcp") > 0
    });
    assert!(
        is_refused,
        "{:?}",
        up.group("handoff_refused").filter(|(_, n)| *n > 0).collect::<Vec<_>>()
    );
    assert_eq!(up.counter("handoff", "connections"), 0);
    client.line_with("rounds");
    drop(client);

    // One whose peer knows nothing of MPTCP is plain TCP.
    let stream = connect(&up.hosts, Ip::V4);
    echoes(&stream, &bytes(100, 1));
    let is_there = wait_until(|| {
        to_nic();
        echoes(&stream, &bytes(100, 2));
        up.counter("handoff", "handoffs") == 1
    });
    assert!(is_there, "it stays with the kernel");
    echoes(&stream, &bytes(100_000, 3));
    ends(stream);
    up.nothing_went_wrong();
}

/// A program with a connection over loopback of a network namespace of its own.
const ELSEWHERE: &str = r"
import ctypes, fcntl, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x40000000) == 0, ctypes.get_errno()
s = socket.create_server(('', 7000))
# Loopback is up (SIOCSIFFLAGS).
fcntl.ioctl(s, 0x8914, struct.pack('16sH14x', b'lo', 1))
c = socket.create_connection(('127.0.0.1', 7000))
d, _ = s.accept()
print('listens', flush=True)
while True:
    c.sendall(b'there')
    assert d.recv(5, socket.MSG_WAITALL) == b'there'
    d.sendall(b'and back')
    assert c.recv(8, socket.MSG_WAITALL) == b'and back'
    print('round', flush=True)
";

#[test]
fn a_connection_of_another_namespace_stays_with_the_kernel() {
    if !have(&["python3"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let mut program = serve(&up.hosts, "at_accept", ELSEWHERE);
    let is_refused = wait_until(|| {
        program.line_with("round");
        up.all_counted();
        up.counter("handoff_refused", "namespace") > 0
    });
    assert!(
        is_refused,
        "{:?}",
        up.group("handoff_refused").filter(|(_, n)| *n > 0).collect::<Vec<_>>()
    );
    (0..100).for_each(|_| drop(program.line_with("round")));
    up.nothing_went_wrong();
}

/// An echo server in the control group `GROUP`, to which it has attached a program that lets all packets pass.
const GROUPED: &str = r"
import ctypes, os, platform, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, *words):
    attr = ctypes.create_string_buffer(struct.pack(*words))
    number = {'x86_64': 321, 'aarch64': 280}[platform.machine()]
    got = libc.syscall(number, command, attr, len(attr) - 1)
    if got < 0: raise OSError(ctypes.get_errno(), 'bpf')
    return got
group = os.environ['GROUP']
open(group + '/cgroup.procs', 'w').write(str(os.getpid()))
s = socket.create_server(('', 7000)); s.listen(64)
print('listens', flush=True)
try:
    # r0 = 1; exit (BPF_PROG_LOAD, BPF_PROG_TYPE_CGROUP_SKB, for BPF_CGROUP_INET_EGRESS).
    code = ctypes.create_string_buffer(struct.pack('=BBhiBBhi', 0xb7, 0, 0, 1, 0x95, 0, 0, 0))
    name = ctypes.create_string_buffer(b'GPL')
    at = ctypes.addressof
    program = bpf(5, '=IIQQIIQII16sII', 8, 2, at(code), at(name), 0, 0, 0, 0, 0, b'', 0, 1)
    bpf(8, '=IIII', os.open(group, os.O_RDONLY), program, 1, 0)
    print('attached', flush=True)
except OSError as error: print('lacks', error, flush=True)
def serve(c):
    while True:
        d = c.recv(65536)
        if not d: return c.close()
        c.sendall(d)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
";

/// A control group of version 2, which ends with its programs once no process is in it.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let is_tree = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
        let tree = mounts.lines().find(is_tree)?.split(' ').nth(1)?;
        let path = Path::new(tree).join(format!("wharf-test-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Group(path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_until(|| fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_program_of_the_control_group_keeps_connections_with_the_kernel() {
    if !have(&["python3"]) {
        return;
    }
    let Some(group) = Group::new() else {
        return kernel_lacks("control groups of version 2, or the right to make one");
    };
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let mut run = wharf();
    run.env("WHARF_LIBRARY", library()).env("GROUP", &group.0);
    run.args(["run", "--policy", "at_accept", "--", "python3", "-u", "-c", GROUPED]);
    let mut program = up.hosts.server.spawn(&mut run);
    program.line_with("listens");
    if !program.line_with("").contains("attached") {
        return kernel_lacks("BPF programs at control groups");
    }
    let stream = connect(&up.hosts, Ip::V4);
    let is_refused = wait_until(|| {
        echoes(&stream, &bytes(10_000, 1));
        up.counter("handoff_refused", "cgroup_bpf") > 0
    });
    assert!(is_refused, "{}", up.hosts.wharf(&["connections"]));
    echoes(&stream, &bytes(300_000, 2));
    ends(stream);
    up.nothing_went_wrong();
}
