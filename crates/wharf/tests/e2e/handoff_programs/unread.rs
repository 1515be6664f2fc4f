//! How the peer of a process sees its end: with bytes unread it is a reset, as from the kernel.

use std::io::{ErrorKind, Read, Write};

use sys::process::Signal;

use super::{Stage, connect};

/// Reads what a line says of the bytes behind it, and ends, by itself or not. It says so when all bytes have come.
const ENDS: &str = "
import array, fcntl, os, select, socket, sys, termios
s = socket.create_server(('', 7000))
print('listens', flush=True)
c, _ = s.accept()
c.sendall(b'x')
line = b''
while not line.endswith(b'\\n'): line += c.recv(1)
count, reads, ends = map(int, line.split())
p = select.poll()
p.register(c, select.POLLIN)
unread = array.array('i', [0])
while unread[0] < count:
    p.poll()
    fcntl.ioctl(c, termios.FIONREAD, unread)
left = reads
while left: left -= len(c.recv(left))
print('has all', flush=True)
if ends: os._exit(0)
while True: select.select([], [], [])
";

/// What the peer reads when a process has ended that has read so many of so many bytes.
fn seen(
    stage: &Stage,
    how: (&str, &str),
    reads: usize,
    is_killed: bool,
) -> Result<usize, ErrorKind> {
    const ALL: usize = 5000;
    let (policy, bypass) = how;
    let words = ["python3", "-u", "-c", ENDS];
    let mut run = stage.wharf_run_with(policy, &["--bypass", bypass], &words);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let mut stream = connect(&stage.hosts, 7000);
    stream.read_exact(&mut [0]).unwrap();
    if policy != "none" {
        stage.shows(7000, 1);
    }
    let line = format!("{ALL} {reads} {}\n", u8::from(!is_killed));
    stream.write_all(&[line.as_bytes(), &[1; ALL]].concat()).unwrap();
    server.line_with("has all");
    if is_killed {
        server.signal(Signal::Kill);
    }
    let seen = stream.read(&mut [0]).map_err(|error| error.kind());
    server.wait();
    seen
}

fn ends_as_at_the_kernel(bypass: &str) {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    for is_killed in [false, true] {
        for (reads, expected) in [(0, true), (4999, true), (5000, false)] {
            let expected = if expected { Err(ErrorKind::ConnectionReset) } else { Ok(0) };
            for policy in ["none", "at_accept"] {
                let seen = seen(&stage, (policy, bypass), reads, is_killed);
                assert_eq!(seen, expected, "{policy}, {reads} bytes read, killed: {is_killed}");
            }
        }
    }
}

#[test]
fn a_pair_is_reset() {
    ends_as_at_the_kernel("pair");
}

#[test]
fn a_connection_of_the_librarys_is_reset() {
    ends_as_at_the_kernel("preload");
}
