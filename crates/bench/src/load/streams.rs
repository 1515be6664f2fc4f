//! Many TCP connections in one direction, each as fast as it can. A few threads at each end have a share of
//! them, as the event loops of servers do. Of each connection it is known how much arrived, and the
//! longest time in which nothing did.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::epoll::Epoll;
use sys::poll::Interest;
use sys::tcp::set_congestion_control;

use crate::Error;
use crate::hosts::{Hosts, SERVER};
use crate::sink::io;

/// Bytes of one `write`: a connection has its turn, and then the next.
const WRITE: usize = 64 << 10;
/// Bytes of one `read` at most.
const READ: usize = 256 << 10;
/// How long a thread sleeps before it looks whether it is to end, in milliseconds.
const LOOK_EVERY: u16 = 20;
/// How long a connection may take to be opened.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of both ends, on every machine: BBR, the default of some, paces.
const CONGESTION_CONTROL: &str = "cubic";

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// From the client to the server.
    Receive,
    /// From the server to the client.
    Send,
}

/// What one connection's receiver got while it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received {
    pub(super) bytes: u64,
    /// The longest time without a byte, in nanoseconds.
    pub(super) silence: u64,
}

/// The time that is measured, in nanoseconds of the clock; 0 is not yet.
#[derive(Debug, Default)]
struct Window {
    from: AtomicU64,
    to: AtomicU64,
    stop: AtomicBool,
}

impl Window {
    /// The earlier of `now` and its end, and its begin; `None` before it.
    fn at(&self, now: u64) -> Option<(u64, u64)> {
        let (from, to) = (self.from.load(Ordering::Acquire), self.to.load(Ordering::Acquire));
        let now = if to == 0 { now } else { now.min(to) };
        (from != 0 && now >= from).then_some((from, now))
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Streams {
    window: Arc<Window>,
    senders: Vec<JoinHandle<io::Result<()>>>,
    receivers: Vec<JoinHandle<io::Result<Vec<Received>>>>,
}

impl Streams {
    /// Opens the connections, and begins to send over all of them.
    pub(super) fn start(
        hosts: &Hosts,
        direction: Direction,
        connections: usize,
        threads: usize,
    ) -> Result<Streams, Error> {
        let (clients, servers) = connect(hosts, connections)?;
        let (from, to) = match direction {
            Direction::Receive => (clients, servers),
            Direction::Send => (servers, clients),
        };
        let mut streams =
            Streams { window: Arc::default(), senders: Vec::new(), receivers: Vec::new() };
        for share in shares(to, threads) {
            let window = Arc::clone(&streams.window);
            streams.receivers.push(thread("receiver", move || receive(share, &window))?);
        }
        for share in shares(from, threads) {
            let window = Arc::clone(&streams.window);
            streams.senders.push(thread("sender", move || send(&share, &window))?);
        }
        Ok(streams)
    }

    /// What arrives counts from now on.
    pub(super) fn begin(&self, now: u64) {
        self.window.from.store(now, Ordering::Release);
    }

    /// What arrives counts no more. Returns what each connection received.
    pub(super) fn end(mut self, now: u64) -> Result<Vec<Received>, Error> {
        self.window.to.store(now, Ordering::Release);
        self.window.stop.store(true, Ordering::Release);
        let mut all = Vec::new();
        for receiver in self.receivers.drain(..) {
            all.extend(joined(receiver).map_err(io("receive"))?);
        }
        for sender in self.senders.drain(..) {
            joined(sender).map_err(io("send"))?;
        }
        Ok(all)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        // `end` returns the errors.
        self.window.stop.store(true, Ordering::Release);
        self.receivers.drain(..).for_each(|thread| drop(joined(thread)));
        self.senders.drain(..).for_each(|thread| drop(joined(thread)));
    }
}

fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map_err(io("start a thread"))
}

fn joined<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// The connections, dealt to so many threads at most.
fn shares(streams: Vec<TcpStream>, threads: usize) -> Vec<Vec<TcpStream>> {
    let threads = threads.min(streams.len()).max(1);
    let mut shares: Vec<Vec<TcpStream>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, stream) in streams.into_iter().enumerate() {
        shares[number % threads].push(stream);
    }
    shares
}

/// The clients' ends and the servers', opened one after the other.
fn connect(hosts: &Hosts, connections: usize) -> Result<(Vec<TcpStream>, Vec<TcpStream>), Error> {
    let listener = hosts.server.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    let listener = listener.map_err(io("listen"))?;
    // The connections that it accepts have it, too.
    let _ = set_congestion_control(&listener, CONGESTION_CONTROL);
    let to = SocketAddr::from((SERVER, listener.local_addr().map_err(io("listen"))?.port()));
    let open = move || -> io::Result<_> {
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..connections {
            let client = sys::tcp::connect(to, CONGESTION_CONTROL);
            clients.push(client.or_else(|_| TcpStream::connect_timeout(&to, PATIENCE))?);
            servers.push(listener.accept()?.0);
        }
        clients.iter().chain(&servers).try_for_each(|stream| stream.set_nonblocking(true))?;
        Ok((clients, servers))
    };
    hosts.client.run(open)?.map_err(io("open a connection"))
}

fn send(streams: &[TcpStream], window: &Window) -> io::Result<()> {
    let mut epoll = Epoll::new()?;
    for (stream, number) in streams.iter().zip(0..) {
        epoll.add_for(stream, number, Interest::Write)?;
    }
    let data = vec![0x55; WRITE];
    while !window.stop.load(Ordering::Acquire) {
        epoll.wait(LOOK_EVERY)?;
        for number in epoll.ready() {
            let Some(mut stream) = streams.get(number as usize) else { continue };
            match stream.write(&data) {
                Ok(_) => {}
                Err(error) if is_for_later(&error) => {}
                // The receivers may be the first to end.
                Err(_) if window.stop.load(Ordering::Acquire) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// One connection's end, and what it received.
struct End {
    stream: TcpStream,
    /// When it last received.
    last: u64,
    received: Received,
}

fn receive(streams: Vec<TcpStream>, window: &Window) -> io::Result<Vec<Received>> {
    let mut epoll = Epoll::new()?;
    let mut ends = Vec::with_capacity(streams.len());
    for (stream, number) in streams.into_iter().zip(0..) {
        epoll.add(&stream, number)?;
        ends.push(End { stream, last: 0, received: Received::default() });
    }
    let mut buffer = vec![0; READ];
    while !window.stop.load(Ordering::Acquire) {
        epoll.wait(LOOK_EVERY)?;
        for number in epoll.ready() {
            let Some(end) = ends.get_mut(number as usize) else { continue };
            match end.stream.read(&mut buffer) {
                // The senders may be the first to end.
                Ok(0) if window.stop.load(Ordering::Acquire) => break,
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => end.moved(window, bytes as u64),
                Err(error) if is_for_later(&error) => {}
                Err(_) if window.stop.load(Ordering::Acquire) => break,
                Err(error) => return Err(error),
            }
        }
    }
    ends.iter_mut().for_each(|end| end.moved(window, 0));
    Ok(ends.into_iter().map(|end| end.received).collect())
}

impl End {
    /// It received so many bytes, or nothing until the end.
    fn moved(&mut self, window: &Window, bytes: u64) {
        let now = sys::clock::now();
        if let Some((from, now)) = window.at(now) {
            let silent = now.saturating_sub(self.last.max(from));
            self.received.silence = self.received.silence.max(silent);
            self.received.bytes += bytes;
        }
        self.last = now;
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
