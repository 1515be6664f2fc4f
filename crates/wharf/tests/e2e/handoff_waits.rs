//! What ends a call that waits, once it has moved bytes: a time-out, or a signal, whatever its handler.

use std::io::{Read, Write};
use std::time::Duration;

use testkit::lab::have;

use crate::handoff::{connect, serve};
use crate::setup::{Ip, Plan, Port};

/// Makes the call that the first line of a connection names, of so many bytes that it cannot end otherwise, and says
/// whether it has given most, some or none of them.
const MAKES: &str = r#"
import ctypes, os, signal, socket, struct, tempfile, threading
MANY = 50_000_000
def begun_again():
    # As with sigaction(2) and SA_RESTART.
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 1, 0.5)
def timed(c, option):
    c.setsockopt(socket.SOL_SOCKET, option, struct.pack('qq', 1, 0))
def sent_for_a_time(c):
    timed(c, socket.SO_SNDTIMEO)
    return c.send(bytes(MANY))
def sent_until_a_signal(c):
    begun_again()
    return c.send(bytes(MANY))
def file_until_a_signal(c):
    begun_again()
    with tempfile.TemporaryFile() as file:
        file.truncate(MANY)
        return os.sendfile(c.fileno(), file.fileno(), 0, MANY)
def messages_until_a_signal(c):
    # The next one does not follow what is half sent.
    begun_again()
    libc = ctypes.CDLL(None, use_errno=True)
    bytes_ = ctypes.create_string_buffer(MANY)
    part = struct.pack('PN', ctypes.addressof(bytes_), MANY)
    vector = ctypes.create_string_buffer(part)
    one = struct.pack('PI4xPNPNi4xI4x', 0, 0, ctypes.addressof(vector), 1, 0, 0, 0, 0)
    all = ctypes.create_string_buffer(one * 2)
    assert libc.sendmmsg(c.fileno(), all, 2, 0) == 1
    return struct.unpack_from('I', all.raw, 56)[0]
def received_for_a_time(c):
    timed(c, socket.SO_RCVTIMEO)
    return len(c.recv(MANY, socket.MSG_WAITALL))
def received_until_a_signal(c):
    begun_again()
    return len(c.recv(MANY, socket.MSG_WAITALL))
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
while True:
    c = s.accept()[0]
    name = b''
    while not name.endswith(b'\n'): name += c.recv(1)
    done = globals()[name.decode().strip()](c)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print('none' if done == 0 else 'some' if done < MANY // 2 else 'most', flush=True)
    c.close()
"#;

const CALLS: [&str; 6] = [
    "sent_for_a_time",
    "sent_until_a_signal",
    "file_until_a_signal",
    "messages_until_a_signal",
    "received_for_a_time",
    "received_until_a_signal",
];

fn calls_end(policy: &str) {
    if !have(&["python3"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let mut server = serve(&up.hosts, policy, MAKES);
    for call in CALLS {
        let mut stream = connect(&up.hosts, Ip::V4);
        // A byte with it: a call that ends sooner than more come has moved some, too.
        stream.write_all(format!("{call}\n.").as_bytes()).unwrap();
        let moves = stream.try_clone().unwrap();
        // As slow as it is, a call that waited for all of it would wait for minutes.
        let slow = std::thread::spawn(move || {
            let mut piece = [0; 50_000];
            loop {
                std::thread::sleep(Duration::from_millis(100));
                let moved = match call.starts_with("received") {
                    true => (&moves).write(&piece),
                    false => (&moves).read(&mut piece),
                };
                if !moved.is_ok_and(|moved| moved > 0) {
                    break;
                }
            }
        });
        assert_eq!(server.line_with(""), "some", "{call}");
        // Or it is over, by the reset that says that not all was read.
        let _ = stream.shutdown(std::net::Shutdown::Both);
        slow.join().unwrap();
    }
}

#[test]
fn calls_at_the_nic_end_with_what_they_have_moved() {
    calls_end("at_accept");
}

#[test]
fn calls_at_the_kernel_end_with_what_they_have_moved() {
    calls_end("by_hand");
}

/// Receives by recv(2) itself: bytes, or an error's name. Signals come meanwhile, with a handler that ends the call, and
/// with one that has it begun again.
const RECEIVES: &str = r#"
import ctypes, errno, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
def received(c, begun_again):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, not begun_again)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, begun_again)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    buffer = ctypes.create_string_buffer(100)
    print('waits', flush=True)
    got = libc.recv(c.fileno(), buffer, 100, 0)
    error = ctypes.get_errno()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return buffer.raw[:got].decode() if got >= 0 else errno.errorcode[error]
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
c = s.accept()[0]
for begun_again in (False, True):
    print(received(c, begun_again), flush=True)
"#;

fn signals_end_calls(policy: &str) {
    if !have(&["python3"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    let mut server = serve(&up.hosts, policy, RECEIVES);
    let mut stream = connect(&up.hosts, Ip::V4);
    assert_eq!(server.line_with(""), "waits");
    assert_eq!(server.line_with(""), "EINTR");
    assert_eq!(server.line_with(""), "waits");
    // Some signals have come by then.
    std::thread::sleep(Duration::from_secs(1));
    stream.write_all(b"bytes").unwrap();
    assert_eq!(server.line_with(""), "bytes");
}

#[test]
fn a_signal_ends_a_call_at_the_nic_unless_it_is_begun_again() {
    signals_end_calls("at_accept");
}

#[test]
fn a_signal_ends_a_call_at_the_kernel_unless_it_is_begun_again() {
    signals_end_calls("by_hand");
}
