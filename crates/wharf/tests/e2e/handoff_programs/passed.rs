//! Connections that another program gets, by exec(2), or another process, by a message (`SCM_RIGHTS`), with the bytes that are
//! on their way.

use std::io::{Read, Write};
use std::net::Shutdown;

use testkit::lab::wait_until;

use super::{Stage, connect};
use crate::handoff::{bytes, echoes};

/// Echoes so much itself, and has done with the connection what a line says. Whoever has it then says so, and echoes.
const PASSES: &str = "
import os, socket, sys
SERVES = '''
import socket, sys
def serve(c, who):
    c.sendall(who)
    while d := c.recv(65536): c.sendall(d)
    c.close()
if len(sys.argv) > 1: serve(socket.socket(fileno=int(sys.argv[1])), b'program\\\\n')
'''
exec(SERVES)
s = socket.create_server(('', 7000))
near, far = socket.socketpair()
if os.fork() == 0:
    s.close()
    near.close()
    while all := socket.recv_fds(far, 1, 1)[1]: serve(socket.socket(fileno=all[0]), b'process\\n')
    os._exit(0)
far.close()
print('listens', flush=True)
while True:
    c, _ = s.accept()
    left = 300000
    while left:
        d = c.recv(min(left, 65536))
        c.sendall(d)
        left -= len(d)
    line = b''
    while not line.endswith(b'\\n'): line += c.recv(1)
    if line == b'program\\n':
        os.set_inheritable(c.fileno(), True)
        os.execvp('python3', ['python3', '-c', SERVES, str(c.fileno())])
    socket.send_fds(near, [b'x'], [c.fileno()])
    c.close()
";

/// Behind the line come bytes that the first one does not read. `then` looks where the connection is when they have come back.
fn goes_on(bypass: &str, then: impl Fn(&Stage, &str)) {
    let Some(stage) = Stage::new(&["python3"]) else { return };
    let words = ["python3", "-u", "-c", PASSES];
    let mut run = stage.wharf_run_with("at_accept", &["--bypass", bypass], &words);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    for (seed, who) in (0..).zip(["process", "process", "program"]) {
        let mut stream = connect(&stage.hosts, 7000);
        echoes(&stream, &bytes(300_000, seed));
        stage.shows(7000, 1);
        let sent = bytes(3_000_000, seed + 10);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let all = [who.as_bytes(), b"\n", &sent].concat();
                (&stream).write_all(&all).unwrap();
            });
            let mut told = vec![0; who.len() + 1];
            (&stream).read_exact(&mut told).unwrap();
            assert_eq!(told, [who.as_bytes(), b"\n"].concat());
            let mut back = vec![0; sent.len()];
            (&stream).read_exact(&mut back).unwrap();
            assert!(back == sent, "other bytes came back from the {who}");
        });
        then(&stage, who);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "more came than was sent");
    }
}

#[test]
fn a_pair_stays_on_the_nic() {
    goes_on("pair", |stage, _| {
        stage.shows(7000, 1);
        stage.all_stayed();
    });
}

#[test]
fn a_connection_of_the_librarys_goes_back_to_the_kernel() {
    goes_on("preload", |stage, who| {
        let reason = if who == "program" { "exec" } else { "passed" };
        let is_back = || stage.counter("handoff_restored", reason) > 0;
        assert!(wait_until(is_back), "{:?}", stage.counters());
    });
}
