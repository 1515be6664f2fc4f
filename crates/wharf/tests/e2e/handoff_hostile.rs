//! Programs of an ordinary user that do to every descriptor that they share with wharf what they may: others, and wharf's
//! end, notice nothing. The rows of `docs/descriptors.md`.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::SocketAddr as UnixAddress;
use std::process::Command;

use handoff::Cid;
use handoff::session::{MESSAGE_LEN, Message};
use sys::packets::PacketSocket;
use sys::process::Signal;
use testkit::lab::{Program, have, wait_until};
use testkit::missing::lacks;

use crate::control::socket;
use crate::handoff::{THREADS, bytes, connect, echoes, ends, serve, up};
use crate::setup::{HOST, Ip, Plan, Port, Up};

/// What all of them begin with: an ordinary user with a session. The memory's layout is that of the Welcome.
const BEGIN: &str = "
# All of them here: Python may be where that user may not look.
import array, ctypes, encodings.idna, fcntl, os, select, selectors, signal, socket, struct, sys, threading, time
os.setgroups([]); os.setgid(65534); os.setuid(65534)
# Its /proc is its own, as that of a program that was never root.
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
F_SETSIG = 10
address, hello, offer = sys.argv[1], bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3])
def session():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(address)
    s.send(hello)
    data, fds, _, _ = socket.recv_fds(s, 64, 64)
    return s, data, fds
def connection(at='127.0.0.1'):
    l = socket.create_server((at, 0))
    near = socket.create_connection(l.getsockname())
    return near, l.accept()[0]
def blocking(fd):
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
FULL = struct.pack('Q', 2**64 - 2)
";

/// Has every event block, and fills that by which wharf wakes it, so that a write to it waits for ever.
const FULL_EVENTS: &str = "
s, data, (memory, wake, alive, *bells) = session()
for fd in [wake, *bells]: blocking(fd)
os.write(wake, FULL)
near, far = connection()
# Its answer wakes this process.
socket.send_fds(s, [offer], [near.fileno()])
print('done', flush=True)
time.sleep(3600)
";

/// Rings and takes that back at the same time, so that a read of the bell waits for ever if it comes too late.
const EMPTY_BELLS: &str = "
s, data, (memory, wake, alive, *bells) = session()
workers, commands, connections, send, receive = struct.unpack_from('5I', data, 4)
for fd in bells: blocking(fd)
def ring(fd):
    for _ in range(20000): os.write(fd, struct.pack('Q', 1))
    print('done', flush=True)
def drain(fd):
    while True: os.read(fd, 8)
for fd in bells:
    threading.Thread(target=drain, args=(fd,), daemon=True).start()
    threading.Thread(target=ring, args=(fd,)).start()
time.sleep(3600)
";

/// Leaves sockets to be closed that linger for an hour: with each message, in a session's queue, and before any Hello.
const LINGERING: &str = "
def lingering():
    near, far = connection()
    near.setblocking(False)
    try:
        while True: near.send(bytes(65536))
    except BlockingIOError: pass
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 3600))
    return near, far
peers = []
def give(s, message, count=1):
    pairs = [lingering() for _ in range(count)]
    peers.extend(far for near, far in pairs)
    try: socket.send_fds(s, [message], [near.fileno() for near, far in pairs])
    except OSError: pass
    # Who closes it last waits.
    for near, far in pairs: threading.Thread(target=near.close, daemon=True).start()
kept = []
for message in [hello, offer, b'no message', bytes(64)]:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(address)
    give(s, message)
    kept.append(s)
for _ in range(3):
    s, data, fds = session()
    give(s, offer)
    give(s, offer, 2)
    give(s, hello)
    give(s, hello)
    s.close()
# What wharf does not listen to has some in its queue when wharf ends it.
s, data, fds = session()
for _ in range(8): give(s, bytes(3))
control = address[:-len('handoff')] + 'sock'
for request in [b'{\"stats\":true}\\n', b'x' * 70000, b'{']:
    c = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); c.connect(control)
    give(c, request)
    kept.append(c)
print('done', flush=True)
time.sleep(3600)
";

/// Changes what it can of its memory's file, and of the socket and the pipe of its session.
const OTHERS: &str = "
def refused(what, *words):
    try: what(*words)
    except OSError: return
    raise SystemExit('%s was not refused' % what)
s, data, (memory, wake, alive, *bells) = session()
refused(os.ftruncate, memory, 0)
refused(os.ftruncate, memory, 1 << 40)
refused(fcntl.fcntl, memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
refused(os.write, alive, b'x')
refused(lambda: os.open('/proc/self/fd/%d' % alive, os.O_WRONLY))
fcntl.flock(memory, fcntl.LOCK_EX)
os.lseek(memory, 1 << 40, os.SEEK_SET)
os.posix_fallocate(memory, 0, 4096)
for fd in [memory, alive, s.fileno()]: blocking(fd)
for fd in [wake, alive, s.fileno(), *bells]:
    # Signals for what becomes readable: SIGKILL, to wharf.
    try:
        fcntl.fcntl(fd, fcntl.F_SETOWN, int(sys.argv[4]))
        fcntl.fcntl(fd, F_SETSIG, 9)
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC)
    except OSError: pass
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
near, far = connection()
for fd in [wake, alive, memory, *bells]: socket.send_fds(s, [offer], [fd])
socket.send_fds(s, [offer], [near.fileno()])
s.shutdown(socket.SHUT_RD)
print('done', flush=True)
time.sleep(3600)
";

/// Makes calls on its sockets at every instant while their connections move to the NIC and back: it disconnects them, has
/// them listen, connects them elsewhere, changes options and writes. What is in repair mode at the end is printed.
const MOVES: &str = "
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
libc = ctypes.CDLL(None)
def message(kind, detail, number): return offer[:2] + bytes([kind, detail]) + struct.pack('7I', number, *6*[0])
l = socket.create_server(('0.0.0.0', 7001))
s, data, fds = session()
is_over = threading.Event()
def worry(c):
    fd, seed = c.fileno(), c.fileno()
    TCP_QUEUE_SEQ, TCP_REPAIR_QUEUE, TCP_FASTOPEN_CONNECT, SO_PEEK_OFF = 21, 20, 30, 42
    calls = [
        lambda: c.listen(1), lambda: libc.connect(fd, bytes(16), 16), lambda: c.listen(1),
        lambda: c.setsockopt(6, TCP_REPAIR_QUEUE, 2), lambda: c.setsockopt(6, TCP_QUEUE_SEQ, 5),
        lambda: c.setsockopt(6, TCP_FASTOPEN_CONNECT, 1), lambda: blocking(fd),
        lambda: c.setsockopt(1, SO_PEEK_OFF, 3), lambda: c.send(b'x', socket.MSG_DONTWAIT),
        lambda: c.setsockopt(1, socket.SO_LINGER, struct.pack('ii', 1, 3600)),
        lambda: c.shutdown(socket.SHUT_WR),
    ]
    while not is_over.is_set():
        seed = (seed * 1103515245 + 12345) % 2**31
        # Most of them are left alone for a while, so that they come to the NIC.
        for _ in range(seed >> 16 & 1023): pass
        try: calls[(seed >> 8) % len(calls)]()
        except OSError: pass
print('listens', flush=True)
all = [l.accept()[0] for _ in range(24)]
for number, c in enumerate(all):
    socket.send_fds(s, [message(3, 0, number)], [c.fileno()])
    threading.Thread(target=worry, args=(c,), daemon=True).start()
    s.send(message(4, 1, number))
print('done', flush=True)
signal.sigwait({signal.SIGHUP})
is_over.set()
print('repaired', sum(c.getsockopt(6, 19) != 0 for c in all), flush=True)
time.sleep(3600)
";

fn hostile(up: &Up, script: &str) -> Program {
    let address = socket(&up.hosts.server, HOST).replace(".sock", ".handoff");
    let hex = |message: Message| -> String {
        message.encode().iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let mut python = Command::new("python3");
    python.args(["-u", "-c", &format!("{BEGIN}{script}"), &address]);
    python.args([
        hex(Message::Hello),
        hex(Message::Offer(Cid(0), 0, false)),
        up.wharf.id().to_string(),
    ]);
    up.hosts.server.spawn(&mut python)
}

fn with_root() -> Option<Up> {
    if !sys::process::has_bpf() {
        lacks("root, for other users");
        return None;
    }
    up()
}

/// Another program has its connections on the NIC and back, an operator has answers, and SIGTERM ends wharf.
fn all_goes_on(up: Up) {
    let server = serve(&up.hosts, "at_accept", THREADS);
    let stream = connect(&up.hosts, Ip::V4);
    let is_on = |place: &str| {
        wait_until(|| {
            echoes(&stream, &bytes(1000, 3));
            let listed = up.hosts.wharf(&["connections", "--where", place]);
            assert!(listed.status.success(), "{listed}");
            listed.stdout.contains(&format!(":{}", crate::handoff::PORT))
        })
    };
    assert!(is_on("nic"), "{}", up.hosts.wharf(&["connections"]));
    let back = up.hosts.wharf(&["handoff", "--to", "os", "--all"]);
    assert!(back.status.success(), "{back}");
    assert!(is_on("os"), "{}", up.hosts.wharf(&["connections"]));
    ends(stream);
    drop(server);
    up.wharf.signal(Signal::Terminate);
    let ended = up.wharf.wait();
    assert!(ended.status.success(), "{ended}");
}

/// What these programs do keeps neither wharf nor others from anything.
fn is_harmless(script: &str) {
    if !have(&["python3"]) {
        return;
    }
    let Some(up) = with_root() else { return };
    let mut hostile = hostile(&up, script);
    hostile.line_with("done");
    all_goes_on(up);
}

#[test]
fn events_that_may_block_keep_nobody_waiting() {
    is_harmless(FULL_EVENTS);
}

#[test]
fn bells_that_others_take_keep_no_worker_waiting() {
    is_harmless(EMPTY_BELLS);
}

#[test]
fn sockets_that_linger_keep_nobody_waiting() {
    is_harmless(LINGERING);
}

#[test]
fn files_pipes_and_sockets_of_a_session_are_of_no_use_against_wharf() {
    is_harmless(OTHERS);
}

#[test]
fn what_a_program_does_to_sockets_that_move_leaves_none_in_repair_mode() {
    const CONNECTIONS: usize = 24;
    if !have(&["python3"]) {
        return;
    }
    let Some(up) = with_root() else { return };
    let mut hostile = hostile(&up, MOVES);
    hostile.line_with("listens");
    let to = SocketAddr::new(Ip::V4.server(), 7001);
    let all: Vec<_> =
        (0..CONNECTIONS).map(|_| up.hosts.client.run(|| TcpStream::connect(to)).unwrap()).collect();
    hostile.line_with("done");
    let at_nic = || up.hosts.wharf(&["connections", "--where", "nic"]).stdout.lines().count() - 1;
    let are_back = wait_until(|| {
        let ended = up.hosts.wharf(&["handoff", "--to", "os", "--all"]);
        assert!(ended.status.success(), "{ended}");
        at_nic() == 0
    });
    assert!(are_back, "{}", up.hosts.wharf(&["connections"]));
    hostile.signal(Signal::HangUp);
    assert_eq!(hostile.line_with("repaired"), "repaired 0");
    drop(all);
    all_goes_on(up);
}

/// An ordinary user.
const USER: u32 = 4_242;

#[test]
fn a_user_has_so_many_sessions_and_none_that_says_nothing() {
    if !sys::process::has_bpf() {
        return lacks("root, for other users");
    }
    let words = ["--set", "handoff.sessions_per_uid=2"];
    let Some(up) = Plan::new(Port::Auto).up_with(&words) else { return };
    let path = socket(&up.hosts.server, HOST).replace(".sock", ".handoff");
    let address = UnixAddress::from_pathname(path).unwrap();
    let connect = || PacketSocket::connect(&address).unwrap();
    let as_user = || up.hosts.server.run(|| sys::process::run_as(USER, connect)).unwrap();
    let counter = |name| up.counter("handoff_sessions", name);
    // Whether it has a session, once that is known.
    let has_session = |socket: &PacketSocket| {
        let mut has = None;
        assert!(wait_until(|| {
            has = match socket.receive(&mut [0; MESSAGE_LEN]) {
                Ok(received) => Some(received.len > 0),
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                Err(_) => Some(false),
            };
            has.is_some()
        }));
        has.unwrap()
    };
    let begins = |socket: PacketSocket| {
        // One that is refused may be closed already.
        let _ = socket.send(&Message::Hello.encode(), &[]);
        has_session(&socket).then_some(socket)
    };
    let both = [begins(as_user()).unwrap(), begins(as_user()).unwrap()];
    assert!(begins(as_user()).is_none());
    assert_eq!((counter("open"), counter("refused_user")), (2, 1));
    let roots = [(); 3].map(|()| begins(up.hosts.server.run(connect)).unwrap());
    let [first, _second] = both;
    drop(first);
    assert!(wait_until(|| counter("open") == 4));
    let third = begins(as_user()).unwrap();
    drop(third);
    assert!(wait_until(|| counter("open") == 4));
    // It has a place, and loses it.
    let silent = as_user();
    assert!(!has_session(&silent));
    assert!(wait_until(|| counter("silent") == 1 && counter("open") == 4));
    assert_eq!((counter("refused_user"), counter("refused_all"), counter("broken")), (1, 0, 0));
    drop(roots);
}
