//! Connections that move while no byte passes.

use std::io::Write;
use std::time::Duration;

use testkit::lab::wait_until;

use crate::handoff::{EVENTS, THREADS, bytes, connect, echoes, ends, serve, up};
use crate::setup::Ip;

/// Connections that wait for their peer in poll(2) or epoll_wait(2) move when that is asked for.
#[test]
fn idle_connections_go_to_the_nic_by_hand() {
    // With a timeout, Python waits in poll and not in recv.
    let polls = THREADS.replace("def serve(c):", "def serve(c):\n    c.settimeout(60)");
    for script in [EVENTS, &polls] {
        let Some(up) = up() else { return };
        let _server = serve(&up.hosts, "by_hand", script);
        let streams: Vec<_> = (0..40).map(|at| connect(&up.hosts, Ip::BOTH[at % 2])).collect();
        streams.iter().for_each(|stream| echoes(stream, &bytes(10, 1)));
        let all_are = wait_until(|| {
            let ended = up.hosts.wharf(&["handoff", "--to", "nic", "--all"]);
            assert!(ended.status.success(), "{ended}");
            up.all_counted();
            up.counter("handoff", "connections") == 40
        });
        assert!(all_are, "{} moved", up.counter("handoff", "handoffs"));
        streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 2)));
        streams.into_iter().for_each(ends);
        up.nothing_went_wrong();
    }
}

/// Accepts all at once when the first connection says something, and waits for bytes of them, which it echoes.
const AT_ONCE: &str = "
import select, socket, threading
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(128); print('listens', flush=True)
first = s.accept()[0]
first.recv(1)
def serve(c):
    while True:
        d = c.recv(65536)
        if not d: break
        c.sendall(d)
    c.close()
def by_threads(all):
    for c in all: threading.Thread(target=serve, args=(c,), daemon=True).start()
    first.recv(1)
def by_events(all):
    e = select.epoll()
    for fd in all: e.register(fd, select.EPOLLIN)
    while True:
        for fd, _ in e.poll():
            d = all[fd].recv(65536)
            if d: all[fd].sendall(d)
            else: all.pop(fd).close()
all = [s.accept()[0] for _ in range(100)]
";

/// Those that wharf has no time for when they are accepted move when it has, though no call touches them.
#[test]
fn connections_that_are_accepted_at_once_all_go_to_the_nic() {
    for waits in ["by_threads(all)", "by_events({c.fileno(): c for c in all})"] {
        let Some(up) = up() else { return };
        let _server = serve(&up.hosts, "at_accept", &format!("{AT_ONCE}{waits}\n"));
        let mut first = connect(&up.hosts, Ip::V4);
        let streams: Vec<_> = (0..100).map(|at| connect(&up.hosts, Ip::BOTH[at % 2])).collect();
        first.write_all(b"x").unwrap();
        let all_are = wait_until(|| {
            up.all_counted();
            up.counter("handoff", "connections") == 101
        });
        assert!(all_are, "{waits}: {} moved", up.counter("handoff", "handoffs"));
        streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 2)));
        streams.into_iter().for_each(ends);
        up.nothing_went_wrong();
    }
}

/// Waits in a new set each time, and closes it with the connection in it.
const SETS: &str = "
import select, socket
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7000)); s.listen(64); print('listens', flush=True)
c = s.accept()[0]
while True:
    e = select.epoll()
    e.register(c, select.EPOLLIN)
    e.poll()
    e.close()
    d = c.recv(65536)
    if not d: break
    c.sendall(d)
";

/// A thread that waits in a set is woken also where its connection was in another one before, which is closed.
#[test]
fn threads_that_wait_in_a_new_set_each_time_are_woken() {
    let Some(up) = up() else { return };
    let _server = serve(&up.hosts, "at_accept", SETS);
    let stream = connect(&up.hosts, Ip::V4);
    assert!(wait_until(|| up.counter("handoff", "connections") == 1));
    for round in 0..30 {
        // The server waits by then, or finds the bytes there, which is right as well.
        std::thread::sleep(Duration::from_millis(5));
        echoes(&stream, &bytes(1000, round));
    }
    ends(stream);
    up.nothing_went_wrong();
}
