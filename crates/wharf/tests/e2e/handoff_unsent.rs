//! `TCP_NOTSENT_LOWAT` (tcp(7)): how many bytes a program writes before those that it has written are sent.

use std::io::{Read, Write};

use testkit::lab::have;

use crate::handoff::{connect, serve};
use crate::setup::{Ip, Plan, Port};

/// Writes while poll(2) says that it may, until the peer takes no more, and says how many bytes were not sent then; and
/// what is left when it may again.
const WRITES: &str = r#"
import fcntl, select, socket, struct
TCP_NOTSENT_LOWAT, SIOCOUTQNSD = 25, 0x894B
ALL = 3_000_000
s = socket.socket()
s.bind(('', 7000)); s.listen(64); print('listens', flush=True)
while True:
    c = s.accept()[0]
    how = b''
    while not how.endswith(b'\n'): how += c.recv(1)
    how = int(how)
    if how: c.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, how)
    c.setblocking(False)
    p = select.poll()
    p.register(c, select.POLLOUT)
    left = ALL
    while p.poll(2000): left -= c.send(bytes(1000))
    unsent = struct.unpack('i', fcntl.ioctl(c, SIOCOUTQNSD, bytes(4)))[0]
    print(unsent, flush=True)
    e = select.epoll()
    e.register(c, select.EPOLLOUT | select.EPOLLET)
    while left:
        if not e.poll(60): break
        try:
            while left: left -= c.send(bytes(min(left, 100_000)))
        except BlockingIOError: pass
    c.close()
"#;
const LIMIT: usize = 8000;
/// The system's for all.
const OF_SYSTEM: &str = "/proc/sys/net/ipv4/tcp_notsent_lowat";

fn few_are_unsent(policy: &str, by_system: bool) {
    if !have(&["python3"]) {
        return;
    }
    let Some(up) = Plan::new(Port::Auto).up_with(&["--set", "workers=1"]) else { return };
    if by_system {
        up.hosts.server.run(|| std::fs::write(OF_SYSTEM, LIMIT.to_string())).unwrap();
    }
    let mut server = serve(&up.hosts, policy, WRITES);
    let mut stream = connect(&up.hosts, Ip::V4);
    let limit = if by_system { 0 } else { LIMIT };
    stream.write_all(format!("{limit}\n").as_bytes()).unwrap();
    let unsent: usize = server.line_with("").parse().unwrap();
    // Half of it is what poll(2) goes by, and what was written last came behind it.
    assert!((1..=LIMIT / 2 + 1000).contains(&unsent), "{unsent} bytes are not sent");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all.len() == 3_000_000 && all.iter().all(|byte| *byte == 0), "{} bytes", all.len());
    if policy == "at_accept" {
        up.all_counted();
        assert_eq!(up.counter("handoff", "handoffs"), 1);
    }
}

#[test]
fn few_bytes_are_unsent_at_the_nic() {
    few_are_unsent("at_accept", false);
}

#[test]
fn few_bytes_are_unsent_at_the_nic_as_the_system_says() {
    few_are_unsent("at_accept", true);
}

#[test]
fn few_bytes_are_unsent_at_the_kernel() {
    few_are_unsent("by_hand", false);
}
