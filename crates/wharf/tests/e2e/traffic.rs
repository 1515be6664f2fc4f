//! Traffic that notices every byte that is lost, changed or moved.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use degen::Random;
use testkit::lab::{Host, PATIENCE, wait_until};

use super::setup::{Hosts, Ip};

/// What is written and read at once.
const BLOCK: usize = 64 << 10;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the client, through LRO, to the server.
    In,
    /// From the server, through GSO, to the client.
    Out,
}

/// A TCP connection from the client to the server: the client's socket and the server's.
pub(crate) fn connect(hosts: &Hosts, ip: Ip) -> (TcpStream, TcpStream) {
    let (listener, address) = listen(&hosts.server, ip.server());
    let client = hosts.client.run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap();
    let server = listener.accept().unwrap().0;
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (client, server)
}

fn listen(host: &Host, ip: IpAddr) -> (TcpListener, SocketAddr) {
    let listener = host.run(|| TcpListener::bind((ip, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Sends so many bytes over a connection of their own; their SHA-256 must arrive unchanged.
pub(crate) fn transfer(hosts: &Hosts, ip: Ip, direction: Direction, length: u64) {
    let load = Load::start(hosts, ip, direction, Some(length));
    let received = load.finish();
    assert_eq!(received, length, "{ip:?} {direction:?}: bytes received");
}

/// A transfer that goes on while the test does other things.
#[derive(Debug)]
pub(crate) struct Load {
    enough: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    sender: JoinHandle<String>,
    receiver: JoinHandle<String>,
}

impl Load {
    /// Starts sending `length` bytes, or for as long as it is not told to finish.
    pub(crate) fn start(hosts: &Hosts, ip: Ip, direction: Direction, length: Option<u64>) -> Load {
        let (client, server) = connect(hosts, ip);
        let (from, to) = match direction {
            Direction::In => (client, server),
            Direction::Out => (server, client),
        };
        let (enough, received) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (Arc::clone(&enough), Arc::clone(&received));
        Load {
            enough,
            received,
            sender: std::thread::spawn(move || send(from, length, &stop)),
            receiver: std::thread::spawn(move || receive(to, &count)),
        }
    }

    /// Waits until more has arrived than had when it was called.
    pub(crate) fn goes_on(&self) {
        let before = self.received.load(Ordering::Relaxed);
        // More than was on its way at that time.
        let more = || self.received.load(Ordering::Relaxed) > before + (8 << 20);
        let done = || more() || self.receiver.is_finished();
        assert!(wait_until(done), "the connection stands still after {before} bytes");
    }

    /// Whether all has been sent and received.
    pub(crate) fn is_done(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Ends it, and compares what was received with what was sent. Returns how many bytes.
    pub(crate) fn finish(self) -> u64 {
        if !self.sender.is_finished() {
            self.enough.store(true, Ordering::Relaxed);
        }
        let (sent, received) = (self.sender.join().unwrap(), self.receiver.join().unwrap());
        assert_eq!(sent, received, "SHA-256 of what was sent and of what arrived");
        self.received.load(Ordering::Relaxed)
    }
}

/// Sends bytes that never repeat themselves, and returns their SHA-256.
fn send(mut to: TcpStream, length: Option<u64>, stop: &AtomicBool) -> String {
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    let (mut random, mut left) = (Random::new(length.unwrap_or(0)), length);
    // A transfer of a given length ends by its length.
    while left.map_or(!stop.load(Ordering::Relaxed), |left| left > 0) {
        random.fill(&mut block);
        let now = left.map_or(BLOCK, |left| BLOCK.min(left as usize));
        to.write_all(&block[..now]).unwrap();
        hash.update(&block[..now]);
        left = left.map(|left| left - now as u64);
    }
    to.shutdown(std::net::Shutdown::Write).unwrap();
    let digest = hash.finish();
    // Until the other side has read to the end: closing before could reset the connection.
    let _ = whole(|| to.read(&mut [0]));
    digest
}

/// Receives to the end, and returns the SHA-256.
fn receive(mut from: TcpStream, count: &AtomicU64) -> String {
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    loop {
        let read = whole(|| from.read(&mut block)).unwrap();
        if read == 0 {
            return hash.finish();
        }
        hash.update(&block[..read]);
        count.fetch_add(read as u64, Ordering::Relaxed);
    }
}

/// Calls again what was interrupted: a socket with a time limit says so instead of going on by
/// itself (signal(7)).
pub(crate) fn whole<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// SHA-256 by `sha256sum`.
struct Sha256(Child);

impl Sha256 {
    fn new() -> Self {
        let mut program = Command::new("sha256sum");
        Self(program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn update(&mut self, bytes: &[u8]) {
        self.0.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn finish(mut self) -> String {
        drop(self.0.stdin.take());
        let mut digest = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut digest).unwrap();
        assert!(self.0.wait().unwrap().success());
        assert_eq!(digest.find(' '), Some(64), "{digest}");
        digest
    }
}

/// Single keystrokes, each echoed before the next is typed, as over `ssh`.
pub(crate) fn keystrokes(hosts: &Hosts, ip: Ip, count: usize) {
    let (mut client, mut server) = connect(hosts, ip);
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let echo = std::thread::spawn(move || {
        let mut key = [0];
        while whole(|| server.read(&mut key)).unwrap() == 1 {
            server.write_all(&key).unwrap();
        }
    });
    for number in 0..count {
        let key = [number as u8];
        client.write_all(&key).unwrap();
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, key, "{ip:?}: keystroke {number}");
    }
    drop(client);
    echo.join().unwrap();
}

/// Datagrams of these sizes, each echoed before the next is sent; those above the MTU cross the
/// wire as fragments.
pub(crate) fn datagrams(hosts: &Hosts, ip: Ip, sizes: &[usize]) {
    let open = |host: &Host, address: IpAddr| {
        let socket = host.run(|| UdpSocket::bind((address, 0))).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let (client, server) = (open(&hosts.client, ip.client()), open(&hosts.server, ip.server()));
    client.connect(server.local_addr().unwrap()).unwrap();
    let (mut there, mut back) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut random = Random::new(1);
    for &size in sizes {
        let mut datagram = vec![0; size];
        random.fill(&mut datagram);
        client.send(&datagram).unwrap();
        let (length, from) = whole(|| server.recv_from(&mut there)).unwrap();
        assert!(there[..length] == datagram, "{ip:?}: a datagram of {size} bytes, received");
        server.send_to(&there[..length], from).unwrap();
        let length = whole(|| client.recv(&mut back)).unwrap();
        assert!(back[..length] == datagram, "{ip:?}: a datagram of {size} bytes, answered");
    }
}

/// A web server on the server, for one request, which is answered with `body`. Returns its URL.
pub(crate) fn serve_once(hosts: &Hosts, ip: Ip, body: Arc<Vec<u8>>) -> (String, JoinHandle<()>) {
    let (listener, address) = listen(&hosts.server, ip.server());
    let server = std::thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
        while !request.ends_with(b"\r\n\r\n") {
            let read = whole(|| client.read(&mut buffer)).unwrap();
            assert!(read > 0, "the request has no end");
            request.extend_from_slice(&buffer[..read]);
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(&body).unwrap();
    });
    (format!("http://{address}/file"), server)
}

/// So many bytes that never repeat themselves.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Random::new(7).fill(&mut bytes);
    bytes
}
