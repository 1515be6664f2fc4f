//! The program whose calls are counted: these tests' own, started once more under callgrind, with the library and
//! without.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use sys::calls::{self, Call, Event, Set};

use crate::setup::Ip;

/// The test that is the program.
pub(super) const NAME: &str = "costs::program::the_program_whose_calls_are_counted";
/// What callgrind counts.
pub(super) const COUNTED: &str = "*costs::program::counted";
/// How often each call is made.
pub(super) const TIMES: usize = 20;
/// Connections of each kind: one that is used, and those that are closed.
pub(super) const EACH: usize = 1 + TIMES;
pub(super) const PORT: u16 = 7200;
/// Bytes that each peer sends.
pub(super) const SENT: usize = 1000;

/// The calls that are counted, in their order, of each kind of descriptor.
pub(super) const CALLS: [&str; 15] = [
    "read",
    "recv",
    "readv",
    "write",
    "send",
    "poll",
    "poll for a time",
    "select",
    "epoll_wait",
    "epoll_wait for a time",
    "fcntl",
    "ioctl",
    "getsockopt",
    "dup",
    "close",
];

/// What the descriptors are.
pub(super) const KINDS: [&str; 3] =
    ["no connection", "a settled connection", "a connection that rests"];

#[inline(never)]
fn counted(call: &mut dyn FnMut()) {
    (0..TIMES).for_each(|_| call());
}

#[test]
#[ignore = "the others run it, under callgrind"]
fn the_program_whose_calls_are_counted() {
    let address = SocketAddr::new(Ip::V4.server(), PORT);
    let listener = calls::socket(libc::AF_INET).unwrap();
    calls::bind(&listener, address).unwrap();
    calls::listen(&listener, 64).unwrap();
    println!("\nlistens");
    let accept = |_| calls::accept(&listener).unwrap();
    let settled: Vec<OwnedFd> = (0..EACH).map(accept).collect();
    let resting: Vec<OwnedFd> = (0..EACH).map(accept).collect();
    for one in settled.iter().chain(&resting) {
        let mut all = [0; SENT];
        // They are established, and have all that they are sent.
        let flags = libc::MSG_WAITALL | libc::MSG_PEEK;
        assert_eq!(calls::receive(one, &mut all, flags), Ok(SENT));
    }
    for one in &settled {
        assert_eq!(calls::receive(one, &mut [0], libc::MSG_OOB), Err(libc::EINVAL));
    }
    println!("accepted");
    // The peer of the last says when they are back.
    for one in resting.iter().rev() {
        let is_last = std::ptr::eq(one, &resting[EACH - 1]);
        let there = SENT as i32 + i32::from(is_last);
        while calls::ioctl(one, libc::FIONREAD).unwrap() < there {
            // Few are offered at a time: the others have their turn.
            for one in &resting {
                assert_eq!(calls::send(one, b"", 0), Ok(0));
            }
        }
    }
    let (near, far) = UnixStream::pair().unwrap();
    assert_eq!(calls::send(&far, &[1; SENT], 0), Ok(SENT));
    let others = (0..EACH - 1).map(|_| calls::dup(&far).unwrap()).collect();
    count(near.as_fd(), others);
    for mut kind in [settled, resting] {
        let one = kind.remove(0);
        count(one.as_fd(), kind);
    }
    println!("counted");
}

/// Counts the calls on a descriptor, and close(2) of others of its kind.
fn count(of: BorrowedFd<'_>, others: Vec<OwnedFd>) {
    let set = Set::new().unwrap();
    let event = Event { data: 1, events: libc::EPOLLIN as u32 };
    set.control(libc::EPOLL_CTL_ADD, of, event).unwrap();
    let (mut dups, mut others) = (Vec::with_capacity(2 * TIMES), others.into_iter());
    let fds = [(of, libc::POLLIN)];
    let mut into = [0; 1];
    let mut each: [&mut dyn FnMut(); CALLS.len()] = [
        &mut || assert_eq!(calls::read(of, &mut into), Ok(1)),
        &mut || assert_eq!(calls::receive(of, &mut [0], 0), Ok(1)),
        &mut || {
            let mut byte = [0];
            let mut parts = [std::io::IoSliceMut::new(&mut byte)];
            assert_eq!(calls::readv(of, &mut parts), Ok(1));
        },
        &mut || assert_eq!(calls::write(of, b"x"), Ok(1)),
        &mut || assert_eq!(calls::send(of, b"x", 0), Ok(1)),
        &mut || assert_eq!(calls::poll(&fds, 0, Call::Poll).unwrap().0, 1),
        &mut || assert_eq!(calls::poll(&fds, 1000, Call::Poll).unwrap().0, 1),
        &mut || assert_eq!(calls::poll(&fds, 0, Call::Select).unwrap().0, 1),
        &mut || assert_eq!(set.wait(4, 0).unwrap().len(), 1),
        &mut || assert_eq!(set.wait(4, 1000).unwrap().len(), 1),
        &mut || assert!(calls::fcntl(of, libc::F_GETFL, 0).is_ok()),
        &mut || assert!(calls::ioctl(of, libc::FIONREAD).is_ok()),
        &mut || assert!(calls::option(of, libc::SOL_SOCKET, libc::SO_TYPE, 4).is_ok()),
        &mut || dups.push(calls::dup(of).unwrap()),
        &mut || assert_eq!(calls::close(others.next().unwrap()), Ok(0)),
    ];
    for (call, name) in each.iter_mut().zip(CALLS) {
        if name != "close" {
            // The first looks for libc's function.
            call();
        }
        counted(*call);
    }
}
