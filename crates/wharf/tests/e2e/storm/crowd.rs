//! Many clients of an echo server at once, in one thread: each sends a stream of its own and compares what comes back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use testkit::lab::PATIENCE;

/// Bytes of a stream that are sent at a time.
const PIECE: usize = 16 << 10;
/// Streams begin at different places of one pattern, and repeat it: a prime number of bytes, so that few losses are of as
/// many. To make and compare bytes one by one takes so long that it would be measured.
const PATTERN: usize = 1_048_573;

/// A client.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    number: u64,
    sent: u64,
    received: u64,
    /// When something came last.
    heard: Instant,
    /// Something has come since [`Crowd::watch`].
    has_heard: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Crowd {
    clients: Vec<Client>,
    /// What each is to send in all.
    target: u64,
    /// The pattern, and its beginning once more.
    pattern: Vec<u8>,
    received: Vec<u8>,
    /// The longest that a client has waited for its next byte.
    pub(crate) longest: Duration,
    /// A client that has waited for too long.
    pub(crate) stuck: Option<SocketAddr>,
    /// Since when first bytes are awaited, and after how long each came.
    watch: Instant,
    firsts: Vec<Duration>,
}

impl Crowd {
    /// Of these connections.
    pub(crate) fn new(streams: Vec<TcpStream>) -> Self {
        let client = |(number, stream): (u64, TcpStream)| {
            stream.set_nonblocking(true).unwrap();
            Client { stream, number, sent: 0, received: 0, heard: Instant::now(), has_heard: false }
        };
        Crowd {
            clients: (0..).zip(streams).map(client).collect(),
            target: 0,
            pattern: (0..(PATTERN + PIECE) as u64).map(|at| byte(at % PATTERN as u64)).collect(),
            received: vec![0; PIECE],
            longest: Duration::ZERO,
            stuck: None,
            watch: Instant::now(),
            firsts: Vec::new(),
        }
    }

    /// Each is to send so many bytes more.
    pub(crate) fn more(&mut self, bytes: u64) {
        let now = Instant::now();
        let done = self.clients.iter_mut().filter(|client| client.received == self.target);
        // The others wait for what they sent before.
        done.for_each(|client| client.heard = now);
        self.target += bytes;
    }

    /// The clients' ends of the connections.
    pub(crate) fn ends(&self) -> impl Iterator<Item = SocketAddr> {
        self.clients.iter().map(|client| client.stream.local_addr().unwrap())
    }

    /// From now on each client's first byte is awaited. What had come before does not count.
    pub(crate) fn watch(&mut self) {
        self.watch = Instant::now();
        self.clients.iter_mut().for_each(|client| client.has_heard = true);
        self.pass();
        self.clients.iter_mut().for_each(|client| client.has_heard = false);
    }

    /// After how long the first bytes came that were awaited so far: half of them, 99 of 100, and all.
    pub(crate) fn firsts(&mut self) -> [Duration; 3] {
        self.firsts.sort_unstable();
        let at = |part: usize| self.firsts.get((self.firsts.len() * part).div_ceil(100).max(1) - 1);
        [50, 99, 100].map(|part| at(part).copied().unwrap_or_default())
    }

    /// Whether each has got back what it was to send.
    pub(crate) fn is_done(&self) -> bool {
        self.clients.iter().all(|client| client.received == self.target)
    }

    /// Whether nine of ten have.
    pub(crate) fn is_nearly_done(&self) -> bool {
        let done = self.clients.iter().filter(|client| client.received == self.target).count();
        done * 10 >= self.clients.len() * 9
    }

    /// Each sends and receives what it can now; returns whether any could.
    ///
    /// # Panics
    /// If other bytes come back, or a connection ends.
    pub(crate) fn pass(&mut self) -> bool {
        let Crowd { clients, target, pattern, received, longest, stuck, watch, firsts } = self;
        let mut any = false;
        for client in clients.iter_mut().filter(|client| client.received < *target) {
            any |= client.send(*target, pattern);
            if client.receive(received, pattern) {
                *longest = (*longest).max(client.heard.elapsed());
                client.heard = Instant::now();
                any = true;
                if !std::mem::replace(&mut client.has_heard, true) {
                    firsts.push(watch.elapsed());
                }
            }
            if client.heard.elapsed() > PATIENCE {
                *stuck = Some(client.stream.local_addr().unwrap());
            }
        }
        any
    }

    /// They end in order.
    pub(crate) fn end(self) {
        for client in &self.clients {
            client.stream.set_nonblocking(false).unwrap();
            client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
            client.stream.shutdown(Shutdown::Write).unwrap();
        }
        for client in self.clients {
            let read = (&client.stream).read(&mut [0; 1]);
            assert!(matches!(read, Ok(0)), "{client:?}: {read:?} at the end");
        }
    }
}

impl Client {
    fn send(&mut self, target: u64, pattern: &[u8]) -> bool {
        let most = PIECE.min((target - self.sent) as usize);
        if most == 0 {
            return false;
        }
        match (&self.stream).write(self.bytes(pattern, self.sent, most)) {
            Ok(sent) => self.sent += sent as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{self:?}: {error}"),
        }
        true
    }

    fn receive(&mut self, got: &mut [u8], pattern: &[u8]) -> bool {
        match (&self.stream).read(got) {
            Ok(0) => panic!("{self:?} was closed"),
            Ok(len) => {
                let (got, expected) = (&got[..len], self.bytes(pattern, self.received, len));
                if got != expected {
                    let differs = (0..len).find(|at| got[*at] != expected[*at]);
                    panic!("{self:?}: another byte came back, at {differs:?} of {len}");
                }
                self.received += len as u64;
                assert!(self.received <= self.sent, "{self:?}: more came than was sent");
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{self:?}: {error}"),
        }
    }

    /// So many bytes of the stream, from `at` on.
    fn bytes<'a>(&self, pattern: &'a [u8], at: u64, len: usize) -> &'a [u8] {
        /// From the place of one stream to that of the next.
        const APART: u64 = 7919;
        let from = ((self.number * APART + at) % PATTERN as u64) as usize;
        &pattern[from..from + len]
    }
}

/// A byte of the pattern.
fn byte(at: u64) -> u8 {
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[1]
}
