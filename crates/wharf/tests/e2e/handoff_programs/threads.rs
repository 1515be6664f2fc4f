//! Threads that are cancelled in their calls.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::lab::wait_until;

use super::{Stage, connect};
use crate::handoff::{bytes, echoes};

const PORT: u16 = 7000;
const CALLS: [&str; 20] = [
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmsg",
    "recv_all",
    "recv_some",
    "write",
    "send",
    "send_some",
    "sendmsg",
    "poll",
    "poll_some",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "splice",
    "splice_full",
    "splice_out",
];
/// How a thread lets itself be cancelled.
const KINDS: [&str; 2] = ["deferred", "asynchronous"];

/// Where the connections are when threads are cancelled.
#[derive(Clone, Copy, PartialEq)]
enum Where {
    Nic,
    Kernel,
    /// At the kernel, as they have come back.
    Back,
}

/// A connection of each call and kind.
fn all(stage: &Stage) -> Vec<(TcpStream, &'static str, &'static str)> {
    let each = CALLS.into_iter().flat_map(|call| KINDS.map(|kind| (call, kind)));
    each.map(|(call, kind)| (connect(&stage.hosts, PORT), call, kind)).collect()
}

fn are_cancelled(at: Where) {
    let Some(stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.build("cancelled.c", &["gcc", "-O1", "-pthread"], &[]);
    let policy = if at == Where::Kernel { "by_hand" } else { "at_accept" };
    let mut run = stage.wharf_run(policy, &[&program]);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    let mut all = all(&stage);
    // So that each has read.
    all.iter_mut().for_each(|(stream, ..)| stream.write_all(b" ").unwrap());
    if at != Where::Kernel {
        stage.shows(PORT, all.len());
    }
    if at == Where::Back {
        let ended = stage.hosts.wharf(&["handoff", "--to", "os", "--all"]);
        assert!(ended.status.success(), "{ended}");
        assert!(wait_until(|| stage.on_nic(PORT) == 0), "{:?}", stage.counters());
    }
    for (stream, call, kind) in &mut all {
        stream.write_all(format!("{call} {kind}\n").as_bytes()).unwrap();
    }
    // Before that nothing is read, so that what is sent does not find room.
    for _ in &all {
        server.line_with("");
    }
    for (number, (mut stream, call, kind)) in (0..).zip(all) {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while line.last() != Some(&b'\n') {
            stream.read_exact(&mut byte).unwrap();
            line.extend((byte[0] != b'.').then_some(byte[0]));
        }
        assert_eq!(line, format!("{call} cancelled\n").as_bytes(), "{kind}");
        echoes(&stream, &bytes(100_000, number));
    }
    assert!(server.runs(), "{}", server.wait());
}

#[test]
fn threads_are_cancelled_in_calls_at_the_nic() {
    are_cancelled(Where::Nic);
}

#[test]
fn threads_are_cancelled_in_calls_at_the_kernel() {
    are_cancelled(Where::Kernel);
}

#[test]
fn threads_are_cancelled_in_calls_of_connections_that_came_back() {
    are_cancelled(Where::Back);
}
