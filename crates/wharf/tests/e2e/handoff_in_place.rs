//! A program that writes where the NIC sends from (`wharf_transmit`): what has taken effect is sent, once, and what has not
//! is the program's again, wherever the connection goes in the middle of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sys::process::Signal;
use testkit::lab::{have, wait_until};

use crate::handoff::{connect, serve};
use crate::setup::{Ip, Plan, Port, Up, WIRE, give};

/// Sends bytes as the first line of a connection says: how many, at most how many at a time, at which one it stops in the
/// middle, and how it goes on: at SIGHUP, or when another thread has sent 1,000. What the library refuses goes by send(2). Says
/// how many it has written in place, and whether those that were its own again lay there still.
const LAYS: &str = r#"
import ctypes, errno, select, signal, socket, threading
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
libc = ctypes.CDLL(None, use_errno=True)
class Part(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('len', ctypes.c_size_t)]
WRITE = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(Part))
KEEP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Part))
transmit = libc.wharf_transmit
transmit.restype = ctypes.c_ssize_t
transmit.argtypes = [ctypes.c_int, ctypes.c_size_t, WRITE, KEEP, ctypes.c_void_p]
def serve(c):
    line = b''
    while not line.endswith(b'\n'): line += c.recv(1)
    total, most, stop, how = line.split()
    total, most, stop = int(total), int(most), int(stop)
    stream = (bytes(range(251)) * (total // 251 + 1))[:total]
    at, in_place, calls, kept = 0, 0, 0, None
    def write(context, parts):
        nonlocal calls
        calls += 1
        done = 0
        for part in parts[0], parts[1]:
            some = stream[at + done:at + min(most, done + part.len)]
            ctypes.memmove(part.at, some, len(some))
            done += len(some)
        if at <= stop < at + done:
            print('laid', flush=True)
            if how == b'thread':
                # Behind what is laid, if that is sent, and before it else.
                other = threading.Thread(target=lambda: c.sendall(b'x' * 1000))
                other.start()
                other.join()
            else: signal.sigwait({signal.SIGHUP})
        return done
    def keep(context, parts):
        nonlocal kept
        kept = b''.join(ctypes.string_at(part.at, part.len) for part in (parts[0], parts[1]) if part.len)
    write_, keep_ = WRITE(write), KEEP(keep)
    c.setblocking(False)
    while at < total:
        before, kept = calls, None
        # The second is less than is asked for.
        sent = transmit(c.fileno(), most + 100, write_, keep_, None)
        error = ctypes.get_errno()
        if sent >= 0:
            assert calls == before + 1 and kept is None
            at += sent; in_place += sent
        elif error == errno.EAGAIN:
            assert calls == before
            select.select([], [c], [], 10)
        else:
            assert error == errno.ENOTCONN and (kept is None) == (calls == before)
            if kept is not None:
                print('kept', kept == stream[at:at + len(kept)], flush=True)
            rest = kept or stream[at:at + most]
            while rest:
                try: gone = c.send(rest)
                except BlockingIOError: select.select([], [c], [], 10); continue
                rest = rest[gone:]; at += gone
    print('in place', in_place, flush=True)
    c.close()
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
while True: serve(s.accept()[0])
"#;

fn up() -> Option<Up> {
    if !have(&["python3"]) {
        return None;
    }
    let hosts = Plan::new(Port::Auto).hosts()?;
    // So that the kernel goes on with connections when wharf has ended.
    give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
    let wharf = hosts.wharf_up(&["--take-addresses", "--set", "workers=1"]);
    Some(Up { hosts, wharf })
}

fn stream(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

fn ask(up: &Up, line: &str) -> TcpStream {
    let mut asks = connect(&up.hosts, Ip::V4);
    asks.write_all(format!("{line}\n").as_bytes()).unwrap();
    asks
}

fn read_all(mut from: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn all_is_sent_from_where_it_was_written() {
    let Some(up) = up() else { return };
    let mut server = serve(&up.hosts, "at_accept", LAYS);
    // Rings grow, are full, and wrap; the last reader is slow to begin.
    for (total, most) in [(10, 10), (3_000_000, 1447), (3_000_000, 70_001), (20_000_000, 300_000)] {
        let asks = ask(&up, &format!("{total} {most} -1 -"));
        if total > 3_000_000 {
            std::thread::sleep(Duration::from_millis(300));
        }
        assert!(read_all(&asks) == stream(total), "{total} {most}");
        assert_eq!(server.line_with(""), format!("in place {total}"));
    }
}

/// The connection leaves after it was written, and before that has taken effect.
fn leaves(leave: impl FnOnce(&mut Up)) {
    const STOP: usize = 100_000;
    const TOTAL: usize = 2_000_000;
    let Some(mut up) = up() else { return };
    let mut server = serve(&up.hosts, "at_accept", LAYS);
    let asks = ask(&up, &format!("{TOTAL} 30000 {STOP} -"));
    assert_eq!(server.line_with(""), "laid");
    leave(&mut up);
    server.signal(Signal::HangUp);
    assert_eq!(server.line_with(""), "kept True", "its bytes are there still");
    assert!(read_all(&asks) == stream(TOTAL), "each byte is sent once");
    let told = server.line_with("in place");
    let in_place: usize = told.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((STOP - 30_000..=STOP).contains(&in_place), "{told}");
}

#[test]
fn what_was_laid_when_the_connection_was_moved_is_kept() {
    leaves(|up| {
        let ended = up.hosts.wharf(&["handoff", "--to", "os", "--all"]);
        assert!(ended.status.success(), "{ended}");
    });
}

#[test]
fn what_was_laid_when_wharf_was_stopped_is_kept() {
    leaves(|up| {
        up.wharf.signal(Signal::Interrupt);
        assert!(wait_until(|| !up.wharf.runs()));
    });
}

#[test]
fn what_was_laid_when_wharf_was_killed_is_kept() {
    leaves(|up| {
        up.wharf.signal(Signal::Kill);
        assert!(wait_until(|| !up.wharf.runs()));
    });
}

/// It cannot wait for a thread that does not go on before it does, and has the connection restored: see `lock`.
#[test]
fn what_was_laid_when_another_thread_sent_is_kept() {
    let Some(up) = up() else { return };
    let mut server = serve(&up.hosts, "at_accept", LAYS);
    let asks = ask(&up, "200000 10000 100000 thread");
    assert_eq!(server.line_with(""), "laid");
    assert_eq!(server.line_with(""), "kept True");
    let all = read_all(&asks);
    server.line_with("in place");
    let other = all.windows(1000).position(|bytes| bytes.iter().all(|byte| *byte == b'x')).unwrap();
    let rest = [&all[..other], &all[other + 1000..]].concat();
    assert!(
        rest == stream(200_000),
        "each byte is sent once, and what the other thread sent is in one piece"
    );
}
