//! A peer that does not read keeps a program from writing, and gets all when it reads.

use std::io::{Read, Write};

use super::{Stage, connect};

/// More than all buffers on the way have room for: those of the sockets (tcp_rmem and tcp_wmem of tcp(7)), the rings
/// (`handoff.buffer`), and the pair.
const MOST: usize = 64 << 20;
const ALL: usize = MOST + (16 << 20);

/// Writes what a file has, by calls that do not wait, until there has been no room for a while. It says how much that was,
/// and writes the rest when there is room.
const WRITES: &str = "
import select, socket, sys
all = open('file0', 'rb').read()
s = socket.create_server(('', 7000))
print('listens', flush=True)
c, _ = s.accept()
c.sendall(b'x')
assert c.recv(1) == b'y'
c.setblocking(False)
p = select.poll()
p.register(c, select.POLLOUT)
at = 0
def write(most):
    global at
    while at < len(all) and p.poll(most):
        try: at += c.send(all[at:at + 65536])
        except BlockingIOError: pass
write(1000)
print('wrote', at, flush=True)
write(None)
c.close()
";

fn waits(bypass: &str) {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let all = super::files(&stage.folder.0, &[ALL]);
    let words = ["python3", "-u", "-c", WRITES];
    let mut run = stage.wharf_run_with("at_accept", &["--bypass", bypass], &words);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let mut stream = connect(&stage.hosts, 7000);
    stream.read_exact(&mut [0]).unwrap();
    stage.shows(7000, 1);
    stream.write_all(b"y").unwrap();
    let line = server.line_with("wrote ");
    let count: usize = line.trim_start_matches("wrote ").parse().unwrap();
    assert!(count < MOST, "{count} bytes were taken");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got == all[0].1, "{} of {ALL} bytes, or others", got.len());
    stage.all_stayed();
}

#[test]
fn who_writes_to_a_pair_waits_for_the_peer() {
    waits("pair");
}

#[test]
fn who_writes_by_the_library_waits_for_the_peer() {
    waits("preload");
}
