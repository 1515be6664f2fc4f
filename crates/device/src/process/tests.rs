//! A session of this process with itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rdma::Handle;
use rdma::ddp::{QUEUE_SEND, Untagged};
use rdma::mpa::{Negotiated, Role};
use rdma::rdmap::Opcode;
use rdma::session::message::QpRequest;
use rdma::session::posts::Posts;
use rdma::session::{Area, Request};
use rdma::verbs::{Limits, Qp, State};
use sys::packets::PacketSocket;
use sys::poll::Interest;
use sys::process_memory::ProcessMemory;
use wire::checksum::Crc32c;

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

/// A queue pair of the session's that has a stream.
fn connected(serving: &mut Serving) -> Qp {
    let pd = ask(serving, &Request::AllocPd(1))[0] as u32;
    connected_in(serving, pd, None)
}

fn ask(serving: &mut Serving, request: &Request<'_>) -> Vec<u64> {
    let reply = serving.process.request(serving.shared.words(), 0, request, Handle(0));
    assert_eq!(reply.errno, 0, "{request:?}");
    reply.words.to_vec()
}

fn connected_in(serving: &mut Serving, pd: u32, srq: Option<u32>) -> Qp {
    let mut ask =
        |request: &Request<'_>| ask(serving, request).first().map_or(0, |word| *word as u32);
    let cq = ask(&Request::CreateCq { context: 1, depth: 4, channel: None });
    let queue = QpRequest {
        context: 1,
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq,
        sends: 1,
        receives: 1,
        send_sges: 1,
        receive_sges: 1,
        inline: 0,
        signal_all: false,
    };
    let qp = Qp::new(ask(&Request::CreateQp(queue)));
    ask(&Request::ModifyQp { qp: qp.0, state: State::Init as u8 });
    let negotiated = Negotiated {
        role: Role::Initiator,
        markers_in: false,
        markers_out: false,
        crc: true,
        ird: 1,
        ord: 1,
        rtr: None,
    };
    serving.process.start(serving.shared.words(), qp, &negotiated, 1448).unwrap();
    qp
}

/// One that is taken to the error state has no stream any more, though the peer reads nothing. What was sent before goes out.
#[test]
fn an_end_at_once_waits_for_no_room() {
    const STREAM: u64 = 1;
    let (mut serving, _theirs) = session();
    let qp = connected(&mut serving);
    let (socket, mut peer) = connection();
    serving.epoll.add(&socket, Token::Stream(STREAM).into()).unwrap();
    let mut stream = Stream::new(Carrier::new(socket), qp, Interest::Read, crate::PEER_TIMEOUT);
    let mut all = 0;
    while stream.has_room() {
        all += 1 << 16;
        stream.send(&[0; 1 << 16], &mut serving.calls).unwrap();
    }
    serving.streams.insert(STREAM, stream);
    serving.carried.insert(qp.0, Carried { stream: STREAM, id: 0 });
    let error = Request::ModifyQp { qp: qp.0, state: State::Err as u8 };
    serving.process.request(serving.shared.words(), 0, &error, Handle(0));
    serving.transmit(0, STREAM).unwrap();
    assert!(serving.carried.is_empty());
    // The peer reads all the same.
    let mut read = 0;
    let mut buffer = vec![0; 1 << 16];
    peer.set_nonblocking(true).unwrap();
    while read < all {
        read += match peer.read(&mut buffer) {
            Ok(0) => panic!("it ends after {read} of {all}"),
            Ok(len) => len,
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                serving.stream_turn(0, STREAM).unwrap();
                0
            }
        };
    }
    serving.stream_turn(0, STREAM).unwrap();
    peer.set_nonblocking(false).unwrap();
    assert_eq!(peer.read(&mut buffer).unwrap(), 0, "and then its end");
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

/// The peer has closed its direction, and reads: what was told to be sent comes.
#[test]
fn the_end_of_the_peers_stream_loses_nothing_that_was_sent() {
    const STREAM: u64 = 1;
    let (mut serving, _theirs) = session();
    let qp = connected(&mut serving);
    let (socket, mut peer) = connection();
    serving.epoll.add(&socket, Token::Stream(STREAM).into()).unwrap();
    let mut stream = Stream::new(Carrier::new(socket), qp, Interest::Read, crate::PEER_TIMEOUT);
    // More than any buffer of the kernel's.
    let all = 32 << 20;
    for _ in 0..32 {
        stream.send(&[7; 1 << 20], &mut serving.calls).unwrap();
    }
    assert!(!stream.has_room());
    serving.streams.insert(STREAM, stream);
    serving.carried.insert(qp.0, Carried { stream: STREAM, id: 0 });
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    serving.epoll.wait(10_000).unwrap();
    serving.stream_turn(0, STREAM).unwrap();
    assert!(serving.carried.is_empty(), "the queue pair has ended");
    // The end of the stream, which can be read for ever, wakes nobody.
    serving.epoll.wait(0).unwrap();
    assert_eq!(serving.epoll.ready().count(), 0);
    let reads = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).unwrap();
        bytes
    });
    while serving.streams.contains_key(&STREAM) {
        serving.epoll.wait(10_000).unwrap();
        serving.stream_turn(0, STREAM).unwrap();
    }
    let bytes = reads.join().unwrap();
    assert!(bytes.len() == all && bytes.iter().all(|byte| *byte == 7), "{} of {all}", bytes.len());
}

#[test]
fn posts_without_pause_keep_the_device_from_nothing() {
    let (mut serving, theirs) = session();
    theirs.send(&Request::Query.encode().unwrap(), &[]).unwrap();
    let mut is_heard = false;
    for _ in 0..=UNLOOKED_MAX {
        Control::new(serving.shared.words()).unwrap().post(0);
        // As in the last part of each turn while the device stays awake.
        serving.look_awake().unwrap();
        is_heard |= serving.epoll.ready().any(|of| Token::from(of) == Token::Socket);
    }
    assert!(is_heard);
}

/// Each part of a turn ends, and what is left is the first of the next.
#[test]
fn a_turn_leaves_the_rest_to_the_next() {
    let (mut serving, _theirs) = session();
    let pairs = [connected(&mut serving), connected(&mut serving), connected(&mut serving)];
    serving.part_max = 0;
    let mut peers = Vec::new();
    for (number, qp) in (1..).zip(pairs) {
        let (socket, mut peer) = connection();
        peer.write_all(&[0; 16]).unwrap();
        let stream = Stream::new(Carrier::new(socket), qp, Interest::Read, crate::PEER_TIMEOUT);
        serving.epoll.add(&stream.carrier, Token::Stream(number).into()).unwrap();
        serving.streams.insert(number, stream);
        serving.carried.insert(qp.0, Carried { stream: number, id: 0 });
        Control::new(serving.shared.words()).unwrap().post(qp.place());
        peers.push(peer);
    }
    assert!(serving.take_posts(0).unwrap());
    assert_eq!(serving.posted, [pairs[1], pairs[2]]);
    // One that is posted to later is behind them.
    Control::new(serving.shared.words()).unwrap().post(pairs[0].place());
    assert!(serving.take_posts(0).unwrap() && serving.take_posts(0).unwrap());
    assert!(serving.posted.is_empty());
    assert!(serving.take_posts(0).unwrap() && !serving.take_posts(0).unwrap());
    // All three are ready: each is put off, and has its turn in the next ones.
    for number in 1..=3 {
        serving.puts_off(number);
        serving.puts_off(number);
    }
    assert_eq!(serving.unfinished, [1, 2, 3]);
    for left in [2, 1, 0] {
        serving.go_on(0).unwrap();
        assert_eq!(serving.unfinished.len(), left);
    }
    // Whatever it is that they have brought, it was read.
    assert_eq!(serving.calls.bytes.0, 48);
}

/// A program rings when it has posted a receive that is asked for.
#[test]
fn a_message_that_waits_is_looked_at_when_a_receive_is_posted() {
    const STREAM: u64 = 1;
    let (mut serving, _theirs) = session();
    let qp = connected(&mut serving);
    let (socket, _peer) = connection();
    let mut stream = Stream::new(Carrier::new(socket), qp, Interest::Read, crate::PEER_TIMEOUT);
    // As when a message has found no receive: there is one now.
    stream.waits(5, true, 0, true);
    let until = stream.deadline().unwrap();
    assert!(until > 1_000_000_000, "nothing looks meanwhile");
    serving.streams.insert(STREAM, stream);
    serving.waiting.insert(STREAM);
    serving.carried.insert(qp.0, Carried { stream: STREAM, id: 0 });
    Control::new(serving.shared.words()).unwrap().post(qp.place());
    assert!(serving.take_posts(6).unwrap());
    assert!(serving.streams[&STREAM].reads() && serving.waiting.is_empty());
}

/// A Send of nothing, as a peer sends it first.
fn send() -> Vec<u8> {
    let (last, ulp, queue) = (true, Opcode::Send.control(), QUEUE_SEND);
    let header = Untagged { last, ulp, ulp_word: 0, queue, msn: 1, offset: 0 }.encode();
    let mut fpdu = (header.len() as u16).to_be_bytes().to_vec();
    fpdu.extend(header);
    let crc = Crc32c::new().plus(&fpdu).finish().to_le_bytes();
    fpdu.extend(crc);
    fpdu
}

/// A stream of the queue pair whose peer has sent a message that waits for a receive.
fn waits(serving: &mut Serving, number: u64, qp: Qp) -> TcpStream {
    let (socket, mut peer) = connection();
    serving.epoll.add(&socket, Token::Stream(number).into()).unwrap();
    let stream = Stream::new(Carrier::new(socket), qp, Interest::Read, crate::PEER_TIMEOUT);
    serving.streams.insert(number, stream);
    serving.carried.insert(qp.0, Carried { stream: number, id: 0 });
    serving.process.let_wait(qp, true);
    peer.write_all(&send()).unwrap();
    while !serving.waiting.contains(&number) {
        serving.stream_turn(0, number).unwrap();
    }
    peer
}

/// A shared queue names one queue pair that waits, for which receives ring: it is one that is there.
#[test]
fn receives_are_asked_for_when_one_that_waited_is_gone() {
    for is_destroyed in [true, false] {
        let (mut serving, _theirs) = session();
        let pd = ask(&mut serving, &Request::AllocPd(1))[0] as u32;
        let (context, depth, sges) = (1, 4, 1);
        let of = ask(&mut serving, &Request::CreateSrq { context, pd, depth, sges });
        let srq = Some(of[0] as u32);
        let pairs = [connected_in(&mut serving, pd, srq), connected_in(&mut serving, pd, srq)];
        let _peers = [waits(&mut serving, 1, pairs[0]), waits(&mut serving, 2, pairs[1])];
        let area = Area::decode([of[1], of[2]]).unwrap();
        let wanted =
            |serving: &Serving| Posts::new(area, depth, serving.shared.words()).unwrap().wanted();
        assert_eq!(wanted(&serving), pairs[1].0);
        if is_destroyed {
            ask(&mut serving, &Request::DestroyQp(pairs[1].0));
            serving.hear(0);
        } else {
            serving.stream_is_over(0, 2).unwrap();
        }
        assert_eq!(wanted(&serving), pairs[0].0);
        assert_eq!(serving.waiting.iter().collect::<Vec<_>>(), [&1]);
    }
}

/// Unlike one whose peer has closed: what that has sent is delivered.
#[test]
fn a_stream_that_is_reset_is_over_though_a_message_waits() {
    for is_reset in [true, false] {
        let (mut serving, _theirs) = session();
        let qp = connected(&mut serving);
        let peer = waits(&mut serving, 1, qp);
        if is_reset {
            sys::tcp::reset_when_closed(&peer).unwrap();
        }
        drop(peer);
        serving.epoll.wait(10_000).unwrap();
        serving.stream_turn(0, 1).unwrap();
        assert_eq!(serving.carried.is_empty(), is_reset);
        assert_eq!(serving.waiting.is_empty(), is_reset);
    }
}
