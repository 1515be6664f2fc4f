//! What other threads and signals do while connect(2) waits, and accept(2). The peer's queue is full as long as that is wanted.

use std::io::{Read, Write};
use std::net::TcpListener;

use super::{Program, Way, connect, is_as_the_kernels, is_as_the_kernels_client, rest};

/// A listener whose queue is full, so that connect(2) waits until somebody is taken out of it, and a thread that connects.
const FULL: &str = "
import fcntl
s = socket.socket()
s.bind(('127.0.0.1', 0))
s.listen(0)
to = s.getsockname()
say(to[1])
first = socket.create_connection(to)
c = socket.socket()
results = []
def connects():
    results.append(tried(c.connect, to))
def begins():
    t = threading.Thread(target=connects)
    t.start()
    # SYN_SENT
    while c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b'\\x02': time.sleep(0.01)
    return t
def ends(*threads):
    s.accept()
    for t in threads: t.join(60)
    say(results, [t.is_alive() for t in threads])
";

fn is_so(script: &str) {
    is_as_the_kernels(&format!("{FULL}{script}"), |_, _| String::new());
}

#[test]
fn a_file_that_another_thread_has_put_in_the_sockets_place_stays() {
    is_so(
        "
fd, t = c.fileno(), begins()
os.dup2(os.open('/dev/null', os.O_RDWR), fd)
ends(t)
say(os.readlink(f'/proc/self/fd/{fd}'))
",
    );
}

#[test]
fn a_socket_that_another_thread_has_closed_stays_closed() {
    is_so(
        "
fd, t = c.fileno(), begins()
os.close(fd)
ends(t)
say(tried(os.fstat, fd))
c.detach()
",
    );
}

#[test]
fn a_socket_that_is_in_a_set_meanwhile_stays_there() {
    is_so(
        "
e = select.epoll()
t = begins()
e.register(c, select.EPOLLIN)
ends(t)
a = s.accept()[0]
for number in range(20):
    a.sendall(b'x')
    # It comes to the program, and to nobody else before.
    time.sleep(0.01)
    if e.poll(60) != [(c.fileno(), select.EPOLLIN)]: break
    say(c.recv(1))
",
    );
}

#[test]
fn threads_that_connect_one_socket_are_all_answered() {
    is_so(
        "
threads = [begins()]
threads.append(threading.Thread(target=connects))
threads[1].start()
# The second waits in connect(2), by its number.
number = {'x86_64': '42', 'aarch64': '203'}[os.uname().machine]
while open(f'/proc/self/task/{threads[1].native_id}/syscall').read().split()[0] != number:
    time.sleep(0.01)
ends(*threads)
a = s.accept()[0]
a.sendall(b'x')
say(c.recv(1), c.getpeername() == to)
",
    );
}

#[test]
fn a_socket_whose_connect_was_interrupted_is_as_it_was() {
    is_so(
        "
def interrupts(*_): raise InterruptedError(errno.EINTR, '')
signal.signal(signal.SIGALRM, interrupts)
signal.setitimer(signal.ITIMER_REAL, 0.2)
say(tried(c.connect, to), fcntl.fcntl(c, fcntl.F_GETFL) & os.O_NONBLOCK)
s.accept()
p = select.poll()
p.register(c, select.POLLOUT)
say(p.poll(60000)[0][1], tried(c.connect, to), tried(c.connect, to))
a = s.accept()[0]
a.sendall(b'x')
say(c.recv(1))
",
    );
}

#[test]
fn a_socket_that_was_refused_connects_again() {
    is_so(
        "
nobody = socket.socket()
nobody.bind(('127.0.0.1', 0))
for _ in range(3): say(tried(c.connect, nobody.getsockname()))
s.accept()
say(tried(c.connect, to), c.getpeername() == to)
",
    );
}

/// Connects 1,500 times, by libc's function, with a signal that comes at some time meanwhile and has the call made again
/// (`SA_RESTART`). No call is to show it.
const SIGNALS: &str = "
to = ('127.0.0.1', int(heard()))
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
libc = ctypes.CDLL(None, use_errno=True)
name = struct.pack('=H', socket.AF_INET) + struct.pack('!H', to[1]) + socket.inet_aton(to[0]) + bytes(8)
results = {}
for number in range(1500):
    c = socket.socket()
    c.setblocking(is_waiting)
    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 250))
    failed = libc.connect(c.fileno(), name, len(name))
    result = errno.errorcode[ctypes.get_errno()] if failed else '0'
    # One that does not wait may yet find the connection made.
    if not is_waiting and result == '0': result = 'EINPROGRESS'
    signal.setitimer(signal.ITIMER_REAL, 0)
    results[result] = results.get(result, 0) + 1
    c.setblocking(True)
    c.sendall(b'x')
    c.recv(1)
    c.close()
say(results)
";

fn signals_are_not_seen(is_waiting: &str) {
    let [kernels, pairs] = [Way::Kernel, Way::Pairs].map(|way| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut program = Program::start(way, &format!("is_waiting = {is_waiting}\n{SIGNALS}"));
        program.tell(&listener.local_addr().unwrap().port().to_string());
        for _ in 0..1500 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        }
        program.end()
    });
    assert_eq!(kernels, pairs);
}

#[test]
fn a_connect_that_is_made_again_by_a_signal_has_its_first_result() {
    signals_are_not_seen("True");
}

#[test]
fn a_connect_that_does_not_wait_has_its_first_result_too() {
    signals_are_not_seen("False");
}

#[test]
fn a_connection_whose_accept_a_signal_has_ended_is_heard_of() {
    // No call is made again by itself, and no other connection comes before this one is served.
    let script = "
signal.signal(signal.SIGALRM, lambda *_: None)
libc = ctypes.CDLL(None, use_errno=True)
s = listens()
s.setblocking(False)
e = select.epoll()
e.register(s, select.EPOLLIN)
served = turn = 0
while served < 500:
    e.poll()
    turn += 1
    # Every other time, so that there is an end.
    if turn % 2: signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + turn * 7 % 200))
    fd = libc.accept4(s.fileno(), None, None, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if fd < 0: continue
    c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
    c.sendall(c.recv(1))
    c.close()
    served += 1
say(served)
";
    is_as_the_kernels(script, |_, to| {
        for _ in 0..500 {
            let mut stream = connect(to);
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        String::new()
    });
}

#[test]
fn a_connect_that_did_not_wait_is_told_of_the_connection_once() {
    let script = "
to = ('127.0.0.1', int(heard()))
c = socket.socket()
c.setblocking(False)
say(tried(c.connect, to) in (None, 'EINPROGRESS'))
p = select.poll()
p.register(c, select.POLLOUT)
say(p.poll()[0][1], c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
for _ in range(3): say(tried(c.connect, to))
";
    is_as_the_kernels_client(script, |stream| rest(&stream));
}

#[test]
fn an_error_that_is_asked_for_is_not_lost_with_a_signal() {
    let script = "
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
libc = ctypes.CDLL(None, use_errno=True)
nobody = socket.socket()
nobody.bind(('127.0.0.1', 0))
say(nobody.getsockname()[1])
told = 0
p = select.poll()
for number in range(1000):
    c = socket.socket()
    c.setblocking(False)
    c.connect_ex(nobody.getsockname())
    p.register(c, select.POLLOUT)
    p.poll()
    p.unregister(c)
    error, room = ctypes.c_int(0), ctypes.c_int(4)
    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 100))
    libc.getsockopt(c.fileno(), socket.SOL_SOCKET, socket.SO_ERROR, ctypes.byref(error), ctypes.byref(room))
    signal.setitimer(signal.ITIMER_REAL, 0)
    told += error.value == errno.ECONNREFUSED
    c.close()
say(told)
";
    is_as_the_kernels(script, |_, _| String::new());
}
