//! UDP that notices every datagram that is lost, changed, moved, joined or cut.
//!
//! The sender never has more on its way than every queue between the two sockets holds, so that
//! what is lost was lost by wharf.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use degen::Random;
use sys::ethtool::{Ethtool, Offload};
use testkit::lab::{Host, PATIENCE, wait_until};

use super::setup::{HOST, Hosts, Ip, PEER, Port, WIRE};
use super::traffic::{Direction, whole};

/// Frames on their way at most: the ring of a veth, 256 (VETH_RING_SIZE), is the shortest queue.
const WINDOW: u64 = 200;

/// Frames after which the receiver says how far it is. Less stays unsaid, beside which every write
/// has room, of 128 frames at most: the two never wait for each other.
const ACKNOWLEDGE: u64 = WINDOW / 4;

/// Room for the window in a socket, in bytes of kernel memory: a small frame takes up far more
/// than its length.
const BUFFER: u32 = 8 << 20;

/// The largest payload of a datagram over IPv4: 65,535 less the IP and the UDP header.
pub(crate) const LARGEST_V4: usize = 65_507;
/// The largest over IPv6, whose length does not count the IP header.
pub(crate) const LARGEST_V6: usize = 65_527;

/// What a sender writes.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// `UDP_SEGMENT`: a write of more bytes becomes datagrams of so many, the last of what is left.
    pub(crate) segment: Option<u16>,
    /// Bytes of the writes, each at least 1, one after the other and then again.
    pub(crate) writes: Vec<usize>,
    /// The MTU of the wire.
    pub(crate) mtu: u32,
}

impl Shape {
    /// Lengths of the datagrams of a write.
    pub(crate) fn datagrams(&self, write: usize) -> impl Iterator<Item = usize> + use<> {
        let most = self.segment.map_or(write, usize::from);
        (0..write.div_ceil(most)).map(move |n| most.min(write - n * most))
    }

    /// Frames that a datagram crosses the wire as, or a few more: with the headers of IPv6 and its
    /// fragments.
    fn frames(&self, datagram: usize) -> u64 {
        let room = (self.mtu as usize - 48) / 8 * 8;
        (datagram + 8).div_ceil(room) as u64
    }

    fn frames_of_write(&self, write: usize) -> u64 {
        self.datagrams(write).map(|datagram| self.frames(datagram)).sum()
    }
}

/// Gives each veth queues of its own, of which another test's traffic takes no part: with GRO its
/// packets go by NAPI, not by the queue of the CPU (`netdev_max_backlog`) that all share.
pub(crate) fn quiet(hosts: &Hosts, port: Port) {
    let set = |host: &Host, name| {
        host.run(|| Ethtool::open(name)?.set_offload(Offload::Gro, true)).unwrap();
    };
    set(&hosts.client, PEER);
    set(&hosts.server, WIRE);
    if port == Port::Veth {
        set(&hosts.server, HOST);
    }
}

/// A flow of datagrams, which may go on while the test does other things.
#[derive(Debug)]
pub(crate) struct Datagrams {
    enough: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    /// With its socket: one that is closed answers the last acknowledgments with errors.
    sender: JoinHandle<(UdpSocket, usize)>,
    receiver: JoinHandle<u64>,
}

/// How a receiver takes what has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// One datagram with each call.
    Single,
    /// As many of one size as the kernel has together (`UDP_GRO`).
    Gro,
}

impl Datagrams {
    /// Starts sending at least `length` bytes, or for as long as it is not told to finish.
    pub(crate) fn start(
        hosts: &Hosts,
        ip: Ip,
        direction: Direction,
        shape: &Shape,
        length: Option<u64>,
    ) -> Datagrams {
        Datagrams::start_with(hosts, ip, direction, shape, length, Reader::Single)
    }

    /// The same, received so.
    pub(crate) fn start_with(
        hosts: &Hosts,
        ip: Ip,
        direction: Direction,
        shape: &Shape,
        length: Option<u64>,
        reader: Reader,
    ) -> Datagrams {
        let (client, server) = connect(hosts, ip);
        let (from, to) = match direction {
            Direction::In => (client, server),
            Direction::Out => (server, client),
        };
        if reader == Reader::Gro {
            // Else the kernel's GRO on the wire joins before wharf does: it looks for the socket.
            let (host, name) = match direction {
                Direction::In => (&hosts.server, HOST),
                Direction::Out => (&hosts.client, PEER),
            };
            let index = host.run(|| sys::interface::index(name)).unwrap();
            sys::udp::bind_to_interface(&to, index).unwrap();
        }
        let (enough, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (Arc::clone(&enough), Arc::clone(&received));
        let (sent, expected) = (shape.clone(), shape.clone());
        Datagrams {
            enough,
            received,
            sender: std::thread::spawn(move || {
                let sent = send(&from, &sent, length, &stop);
                (from, sent)
            }),
            receiver: std::thread::spawn(move || receive(&to, reader, &expected, &count)),
        }
    }

    /// Waits until more has arrived than had when it was called.
    pub(crate) fn goes_on(&self) {
        let before = self.received.load(Ordering::Relaxed);
        let more = || self.received.load(Ordering::Relaxed) > before + (1 << 20);
        let done = || more() || self.receiver.is_finished();
        assert!(wait_until(done), "the datagrams stand still after {before} bytes");
    }

    /// Ends it; all that was sent must have arrived. Returns how many writes it was.
    pub(crate) fn finish(self) -> usize {
        self.finish_joined().0
    }

    /// The same, and how many datagrams the receiver was given with one before them.
    pub(crate) fn finish_joined(self) -> (usize, u64) {
        self.enough.store(true, Ordering::Relaxed);
        // What the receiver has to say of a loss explains why the sender waits in vain.
        let joined = self.receiver.join().unwrap();
        (self.sender.join().unwrap().1, joined)
    }
}

/// Sends at least so many bytes; returns how many writes it was.
fn send(from: &UdpSocket, shape: &Shape, length: Option<u64>, stop: &AtomicBool) -> usize {
    if let Some(segment) = shape.segment {
        sys::udp::set_segment_size(from, segment).unwrap();
    }
    let (mut payload, mut sent, mut writes) = (Payload::new(), 0, 0);
    let (mut frames, mut acknowledged) = (0, 0);
    for &write in shape.writes.iter().cycle() {
        if length.map_or_else(|| stop.load(Ordering::Relaxed), |length| sent >= length) {
            break;
        }
        frames += shape.frames_of_write(write);
        while frames > acknowledged + WINDOW {
            let mut answer = [0; 8];
            let length = whole(|| from.recv(&mut answer)).unwrap();
            assert_eq!(length, answer.len(), "an acknowledgment");
            acknowledged = u64::from_be_bytes(answer);
        }
        let length = whole(|| from.send(payload.next(write))).unwrap();
        assert_eq!(length, write, "bytes of a datagram that the kernel took");
        (sent, writes) = (sent + write as u64, writes + 1);
    }
    // An empty one is the end.
    from.send(&[]).unwrap();
    writes
}

/// Receives to the end. What comes must be what was sent, datagram by datagram, in order. Returns how
/// many came with one before them.
fn receive(to: &UdpSocket, reader: Reader, shape: &Shape, count: &AtomicU64) -> u64 {
    let mut incoming = Incoming::new(to, reader);
    let mut payload = Payload::new();
    let (mut number, mut frames, mut acknowledged) = (0, 0, 0);
    for &write in shape.writes.iter().cycle() {
        let mut rest = payload.next(write);
        for datagram in shape.datagrams(write) {
            let received = match incoming.next() {
                Ok(received) => received,
                Err(why) => panic!("datagram {number} does not come: {why}"),
            };
            // All of the last write has come.
            if received.is_empty() && rest.len() == write {
                return incoming.joined;
            }
            let expected = rest.split_off(..datagram).unwrap();
            compare(number, received, expected);
            count.fetch_add(received.len() as u64, Ordering::Relaxed);
            (number, frames) = (number + 1, frames + shape.frames(datagram));
            if frames >= acknowledged + ACKNOWLEDGE {
                acknowledged = frames;
                to.send(&u64::to_be_bytes(frames)).unwrap();
            }
        }
    }
    incoming.joined
}

/// Datagrams one by one, however the socket gives them.
struct Incoming<'a> {
    socket: &'a UdpSocket,
    reader: Reader,
    buffer: Vec<u8>,
    /// What was received and not looked at yet.
    rest: Range<usize>,
    /// Bytes of each datagram of it but the last.
    size: usize,
    /// Datagrams that came with one before them.
    joined: u64,
}

impl<'a> Incoming<'a> {
    fn new(socket: &'a UdpSocket, reader: Reader) -> Self {
        if reader == Reader::Gro {
            sys::udp::set_gro(socket).unwrap();
        }
        Incoming { socket, reader, buffer: vec![0; 1 << 16], rest: 0..0, size: 0, joined: 0 }
    }

    fn next(&mut self) -> io::Result<&[u8]> {
        if self.rest.is_empty() {
            let (length, size) = match self.reader {
                Reader::Single => (whole(|| self.socket.recv(&mut self.buffer))?, None),
                Reader::Gro => whole(|| sys::udp::receive_joined(self.socket, &mut self.buffer))?,
            };
            assert_ne!(size, Some(0), "the size of the datagrams");
            (self.rest, self.size) = (0..length, size.unwrap_or(length));
        } else {
            self.joined += 1;
        }
        let next = self.rest.start..self.rest.end.min(self.rest.start + self.size);
        self.rest.start = next.end;
        Ok(&self.buffer[next])
    }
}

fn compare(number: u64, received: &[u8], expected: &[u8]) {
    let (lengths, same) = ((received.len(), expected.len()), received == expected);
    if !same {
        // From the first byte on: another datagram. Later: this one, changed.
        let at =
            received.iter().zip(expected).position(|(received, expected)| received != expected);
        panic!("datagram {number}: (received, expected) bytes {lengths:?}; differs at {at:?}");
    }
}

/// Bytes that never repeat themselves.
struct Payload {
    random: Random,
    block: Vec<u8>,
}

impl Payload {
    fn new() -> Payload {
        Payload { random: Random::new(0), block: Vec::new() }
    }

    /// The next so many.
    fn next(&mut self, length: usize) -> &[u8] {
        self.block.resize(length, 0);
        self.random.fill(&mut self.block);
        &self.block
    }
}

/// The client's socket and the server's, which have heard from each other: a kernel keeps only a
/// few packets for a neighbour whose address it does not know yet (`unres_qlen_bytes`).
fn connect(hosts: &Hosts, ip: Ip) -> (UdpSocket, UdpSocket) {
    let (client, server) = (open(&hosts.client, ip.client()), open(&hosts.server, ip.server()));
    client.connect(server.local_addr().unwrap()).unwrap();
    server.connect(client.local_addr().unwrap()).unwrap();
    for (from, to) in [(&client, &server), (&server, &client)] {
        from.send(b"hello").unwrap();
        assert_eq!(whole(|| to.recv(&mut [0; 8])).unwrap(), 5);
    }
    (client, server)
}

fn open(host: &Host, address: IpAddr) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((address, 0))).unwrap();
    sys::udp::force_receive_buffer(&socket, BUFFER).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}
