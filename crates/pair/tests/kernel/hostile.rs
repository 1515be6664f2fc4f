//! Programs that call with what makes no sense, and programs that die in the middle of it.

use std::io::{Read, Write};
use std::net::Shutdown;

use super::{Program, Way, connect, is_as_the_kernels};

#[test]
fn arguments_that_make_no_sense_are_what_the_kernel_makes_of_them() {
    let script = "
s = listens()
s.setblocking(False)
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    numbers = [ctypes.c_void_p(a) if isinstance(a, int) and a > 1 << 31 else a for a in arguments]
    got = getattr(libc, name)(*numbers)
    return errno.errorcode[ctypes.get_errno()] if got < 0 else 'ok'
room, length = ctypes.create_string_buffer(256), ctypes.c_int(256)
at, len_at = ctypes.addressof(room), ctypes.addressof(length)
BAD = 0xdead00000000
while True:
    try: c, _ = s.accept()
    except BlockingIOError: continue
    break
for fd in (c.fileno(), 0, -1, 999999, s.fileno()):
    for name in ('getsockname', 'getpeername'):
        length.value = 256
        say(call(name, fd, at, len_at), length.value, call(name, fd, BAD, len_at), call(name, fd, at, BAD))
        for value in (-1, 0, 3):
            length.value = value
            say(call(name, fd, at, len_at), length.value)
    for level, option in ((1, 4), (6, 1), (6, 11), (0, 1), (1, 13)):
        for value in (-1, 0, 2, 256):
            length.value = value
            say(fd, level, option, call('getsockopt', fd, level, option, at, len_at), length.value)
        length.value = 256
        say(call('getsockopt', fd, level, option, BAD, len_at), call('getsockopt', fd, level, option, at, BAD))
    for level, option in ((6, 1), (0, 1), (1, 13)):
        say([call('setsockopt', fd, level, option, at, n) for n in (-1, 0, 2, 4)])
        say(call('setsockopt', fd, level, option, BAD, 4))
# What is wrong in two ways is told by either.
length.value = 256
say(call('getsockopt', c.fileno(), 77, 77, at, len_at), call('setsockopt', c.fileno(), 77, 77, at, 4))
t = socket.socket()
for n in (-1, 0, 1, 2, 15, 129, 1 << 30): say(n, call('connect', t.fileno(), at, n))
say(call('connect', t.fileno(), BAD, 16), call('connect', -1, at, 16), call('connect', 0, at, 16))
say(call('accept4', s.fileno(), 0, 0, 1 << 20), call('accept4', c.fileno(), 0, 0, 0), call('accept', 0, 0, 0))
say(call('accept', s.fileno(), 0, 0), call('accept4', s.fileno(), BAD, len_at, 0))
say(all_of(c))
";
    is_as_the_kernels(script, |_, to| {
        connect(to).write_all(b"text").unwrap();
        String::new()
    });
}

/// Threads that call with random numbers, and processes that are killed while they do.
const RANDOM: &str = "
import random
s = listens()
def hostile(seed):
    r = random.Random(seed)
    libc = ctypes.CDLL(None)
    room = ctypes.create_string_buffer(4096)
    at = ctypes.addressof(room)
    words = [0, 1, 2, 6, 16, 128, 0x7fffffff, 0xffffffff, 1 << 63, at, at + 8, at + 4090, 0xdead0000]
    own = socket.socket()
    own.bind(('127.0.0.1', 0)); own.listen(8); own.setblocking(r.random() < 0.5)
    port = own.getsockname()[1]
    peers = []
    def word():
        return r.choice(words) if r.random() < 0.8 else r.getrandbits(64)
    def go():
        for _ in range(1500):
            number = r.choice([288, 43, 42, 55, 54, 51, 52, 3, 32, 0])
            if number in (288, 43) and r.random() < 0.7:
                p = socket.socket(); p.setblocking(False); p.connect_ex(('127.0.0.1', port)); peers.append(p)
                if len(peers) > 20: peers.pop(0)
            for i in range(0, 4096, 8):
                if r.random() < 0.01: room[i:i + 8] = struct.pack('Q', word() & (1 << 64) - 1)
            fd = r.choice([own.fileno(), r.randrange(3, 30)])
            if fd == s.fileno() or number == 3 and fd == own.fileno(): continue
            arguments = [ctypes.c_ulong(word()) for _ in range(4)]
            if number == 0: arguments[1:] = [ctypes.c_ulong(at), ctypes.c_ulong(0)]
            libc.syscall(number, ctypes.c_long(fd), *arguments)
    all = [threading.Thread(target=go, daemon=True) for _ in range(3)]
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    for t in all: t.start()
    for t in all: t.join(2)
    os.kill(os.getpid(), signal.SIGKILL)
children = []
for seed in range(6):
    pid = os.fork()
    if pid == 0: hostile(seed)
    children.append(pid)
served = 0
while served < 50:
    c = s.accept()[0]
    c.sendall(all_of(c))
    c.close()
    served += 1
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
say('served', served)
";

#[test]
fn others_are_served_beside_a_hostile_program() {
    let mut program = Program::start(Way::Pairs, RANDOM);
    let to = program.address();
    for number in 0..50_u8 {
        let mut stream = connect(to);
        stream.write_all(&vec![number; 10_000]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got, vec![number; 10_000]);
    }
    assert_eq!(program.end(), "served 50\n");
}

#[test]
fn a_program_that_is_killed_leaves_nothing() {
    let script = "
s = listens()
def waits():
    while True: s.accept()[0].recv(1)
for _ in range(4): threading.Thread(target=waits, daemon=True).start()
time.sleep(60)
";
    for _ in 0..5 {
        let mut program = Program::start(Way::Pairs, script);
        let to = program.address();
        let open: Vec<_> = (0..3).map(|_| connect(to)).collect();
        program.child.kill().unwrap();
        program.child.wait().unwrap();
        program.is_left();
        for stream in open {
            // The end, or a reset, and no silence.
            assert!(!matches!((&stream).read(&mut [0]), Ok(1..)));
        }
    }
}
