//! A session of this process with itself.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rdma::verbs::{Limits, Qp};
use sys::packets::PacketSocket;
use sys::poll::Interest;
use sys::process_memory::ProcessMemory;

use super::*;
use crate::carrier::Carrier;
use crate::stats::Registry;

fn session() -> (Serving, PacketSocket) {
    let (socket, theirs) = PacketSocket::pair().unwrap();
    let memory = ProcessMemory::new(ProcessMemory::own().unwrap()).unwrap();
    let served = Registry::default().add(0, 1).unwrap();
    let limits = Limits { queue_bytes: 1 << 20, ..Limits::default() };
    let terms = Terms { limits, ..Terms::default() };
    let pidfd: Option<OwnedFd> = sys::process::pidfd_open(std::process::id()).ok();
    (Serving::begin(socket, pidfd, memory, terms, served).unwrap(), theirs)
}

/// A connection of this process with itself, of which the first end does not block.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    (socket, peer)
}

/// What a stream is told of by its descriptor is no reason for one more turn than it has.
#[test]
fn a_stream_with_more_than_a_turn_holds_has_one_more() {
    const STREAM: u64 = 1;
    let (mut serving, _theirs) = session();
    // What there is room for at the kernel is several turns.
    serving.buffer = vec![0; 256];
    let (socket, mut peer) = connection();
    let mut stream =
        Stream::new(Carrier::new(socket), Qp::new(1), Interest::Read, crate::PEER_TIMEOUT);
    // What comes is nobody's any more.
    stream.qp = None;
    serving.streams.insert(STREAM, stream);
    let all = 16 * TURN_MAX * serving.buffer.len();
    peer.write_all(&vec![0; all]).unwrap();
    while serving.calls.bytes.0 < all as u64 {
        let before = serving.calls.bytes.0;
        serving.go_on(0).unwrap();
        serving.stream_turn(0, STREAM).unwrap();
        serving.stream_turn(0, STREAM).unwrap();
        assert!(serving.unfinished.len() <= 1, "{:?}", serving.unfinished);
        let turns = (serving.calls.bytes.0 - before).div_ceil((all / 16) as u64);
        assert!(turns <= 3, "{turns}");
    }
}

#[test]
fn a_session_that_has_ended_waits_for_room_alone() {
    const STREAM: u64 = 1;
    let (mut serving, theirs) = session();
    let (socket, mut peer) = connection();
    serving.epoll.add(&socket, Token::Stream(STREAM).into()).unwrap();
    let mut stream =
        Stream::new(Carrier::new(socket), Qp::new(1), Interest::Read, crate::PEER_TIMEOUT);
    // More than the kernel has room for, and something to read.
    while stream.has_room() {
        stream.send(&[0; 1 << 16], &mut serving.calls).unwrap();
    }
    serving.streams.insert(STREAM, stream);
    peer.write_all(b"unread").unwrap();
    drop(theirs);
    serving.epoll.wait(1_000).unwrap();
    assert!(serving.epoll.ready().count() > 0);
    serving.leave(sys::clock::now());
    assert_eq!(serving.streams.len(), 1);
    serving.epoll.wait(0).unwrap();
    assert_eq!(serving.epoll.ready().count(), 0);
}

/// As where the user has no room for another (`fs.epoll.max_user_watches`).
#[test]
fn a_stream_that_cannot_be_registered_is_later() {
    const STREAM: u64 = 1;
    let (mut serving, _theirs) = session();
    let (socket, _peer) = connection();
    // epoll takes no files, and so none of these either.
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let carrier = Carrier::new(OwnedFd::from(file).into());
    let mut stream = Stream::new(carrier, Qp::new(1), Interest::Read, crate::PEER_TIMEOUT);
    (stream.qp, stream.interest) = (None, None);
    serving.streams.insert(STREAM, stream);
    serving.transmit(7, STREAM).unwrap();
    let stream = serving.streams.get_mut(&STREAM).unwrap();
    assert!(stream.interest.is_none());
    let due = stream.deadline().unwrap();
    assert!(due > 7 && !stream.is_to_register(due - 1));
    stream.carrier = Carrier::new(socket);
    assert_eq!(serving.deadline(), Some(due));
    serving.expire(due).unwrap();
    let stream = &serving.streams[&STREAM];
    assert_eq!((stream.interest, stream.deadline()), (Some(Interest::Read), None));
}
