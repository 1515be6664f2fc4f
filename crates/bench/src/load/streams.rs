//! Many TCP connections in one direction, each as fast as it can. A few threads at each end have a share of
//! them, as the event loops of servers do. Of each connection it is known how much arrived, and the
//! longest time in which nothing did.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::epoll::Epoll;
use sys::netns::Namespace;
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
/// Connections that may wait to be accepted: the most that `net.core.somaxconn` lets by default.
const BACKLOG: u32 = 4_096;
/// Of both ends, on every machine: BBR, the default of some, paces.
const CONGESTION_CONTROL: &str = "cubic";

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From the client to the server.
    Receive,
    /// From the server to the client.
    Send,
}

/// What one connection's receiver got while it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
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

/// The connections' ends at the client.
#[derive(Debug)]
pub(crate) struct Clients {
    window: Arc<Window>,
    thread: Option<JoinHandle<sys::Result<Outcome>>>,
}

impl Clients {
    /// Opens the connections, and begins to send or receive over all of them.
    pub(crate) fn start(
        hosts: &Hosts,
        to: SocketAddr,
        direction: Direction,
        connections: usize,
        threads: usize,
    ) -> Result<Clients, Error> {
        let role = match direction {
            Direction::Receive => Role::Sender,
            Direction::Send => Role::Receiver,
        };
        let window = Arc::new(Window::default());
        let thread = {
            let window = Arc::clone(&window);
            hosts.client.spawn(move || {
                // The ends of both hosts may be more than one table can have.
                sys::process::unshare_files()?;
                work(&connect(to, connections)?, threads, role, &window)
            })?
        };
        Ok(Clients { window, thread: Some(thread) })
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Why it could not go on, if that is so.
    pub(crate) fn error(&mut self) -> Option<Error> {
        if self.is_finished() { self.join().err() } else { None }
    }

    /// Ends it. What was received; nothing, if it sent.
    fn join(&mut self) -> Result<Option<Vec<Received>>, Error> {
        self.window.stop.store(true, Ordering::Release);
        let panicked = |_| Ok(Err(io::Error::other("a thread panicked")));
        let client = self.thread.take().map(|thread| thread.join().unwrap_or_else(panicked));
        client.transpose()?.transpose().map_err(io("be a client"))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Those who want the error have joined it.
        let _ = self.join();
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Streams {
    server: Option<Side>,
    clients: Clients,
}

/// What the connections of one host received; nothing, if it sends.
type Outcome = io::Result<Vec<Received>>;
type Side = JoinHandle<Outcome>;

/// What a host does with its ends of the connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Sender,
    Receiver,
}

impl Streams {
    /// Opens the connections, and begins to send over all of them.
    pub(super) fn start(
        hosts: &Hosts,
        direction: Direction,
        connections: usize,
        threads: usize,
    ) -> Result<Streams, Error> {
        let listener = listen(&hosts.server, 0)?;
        let to = SocketAddr::from((SERVER, listener.local_addr().map_err(io("listen"))?.port()));
        Streams::between(hosts, (to, &listener), direction, connections, threads)
    }

    /// The same over connections that are opened to some address, and come to this listener, be it by way of others.
    pub(crate) fn between(
        hosts: &Hosts,
        (to, listener): (SocketAddr, &TcpListener),
        direction: Direction,
        connections: usize,
        threads: usize,
    ) -> Result<Streams, Error> {
        let role = match direction {
            Direction::Receive => Role::Receiver,
            Direction::Send => Role::Sender,
        };
        let clients = Clients::start(hosts, to, direction, connections, threads)?;
        let mut streams = Streams { server: None, clients };
        let Some(accepted) = streams.accept(listener, connections).map_err(io("accept"))? else {
            let cause = streams.join().err();
            return Err(cause.unwrap_or_else(|| io("connect")(io::ErrorKind::UnexpectedEof.into())));
        };
        let window = Arc::clone(&streams.clients.window);
        let server = std::thread::Builder::new().name("server".to_owned());
        let server = server.spawn(move || work(&accepted, threads, role, &window));
        streams.server = Some(server.map_err(io("start a thread"))?);
        Ok(streams)
    }

    /// The server's ends; `None` if the client has given up.
    fn accept(
        &self,
        listener: &TcpListener,
        connections: usize,
    ) -> io::Result<Option<Vec<TcpStream>>> {
        listener.set_nonblocking(true)?;
        let mut accepted = Vec::with_capacity(connections);
        while accepted.len() < connections {
            match listener.accept() {
                Ok((stream, _)) => accepted.push(stream),
                Err(error) if is_for_later(&error) => {
                    if self.clients.is_finished() {
                        return Ok(None);
                    }
                    let wait = Some(u64::from(LOOK_EVERY) * 1_000_000);
                    sys::poll::poll(&[listener.as_fd()], wait)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(accepted))
    }

    /// What arrives counts from now on.
    pub(crate) fn begin(&self, now: u64) {
        self.clients.window.from.store(now, Ordering::Release);
    }

    /// What arrives counts no more. Returns what each connection received.
    pub(crate) fn end(mut self, now: u64) -> Result<Vec<Received>, Error> {
        self.clients.window.to.store(now, Ordering::Release);
        self.join()
    }

    fn join(&mut self) -> Result<Vec<Received>, Error> {
        let received = self.clients.join();
        let panicked = |_| Err(io::Error::other("a thread panicked"));
        let server = self.server.take().map(|thread| thread.join().unwrap_or_else(panicked));
        let mut received = received?.unwrap_or_default();
        received.extend(server.transpose().map_err(io("be a server"))?.unwrap_or_default());
        Ok(received)
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        // `end` returns the error.
        let _ = self.join();
    }
}

/// A listener at a port of a host's, 0 for any, whose connections are as the clients' are.
pub(crate) fn listen(host: &Namespace, port: u16) -> Result<TcpListener, Error> {
    let listener = host.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
    let listener = listener.map_err(io("listen"))?;
    // The client opens them faster than they are accepted at times.
    sys::tcp::set_backlog(&listener, BACKLOG).map_err(io("listen"))?;
    // The connections that it accepts have it, too.
    let _ = set_congestion_control(&listener, CONGESTION_CONTROL);
    Ok(listener)
}

/// The client's ends, opened one after the other.
fn connect(to: SocketAddr, connections: usize) -> io::Result<Vec<TcpStream>> {
    let open = || {
        let stream = sys::tcp::connect(to, CONGESTION_CONTROL);
        stream.or_else(|_| TcpStream::connect_timeout(&to, PATIENCE))
    };
    (0..connections).map(|_| open()).collect()
}

/// One host's work, by so many threads at most, each of which has its share of the connections.
fn work(streams: &[TcpStream], threads: usize, role: Role, window: &Window) -> Outcome {
    streams.iter().try_for_each(|stream| stream.set_nonblocking(true))?;
    let share = streams.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let start = |share| {
            std::thread::Builder::new().spawn_scoped(scope, move || match role {
                Role::Sender => send(share, window).map(|()| Vec::new()),
                Role::Receiver => receive(share, window),
            })
        };
        let threads: Vec<_> = streams.chunks(share).map(start).collect::<io::Result<_>>()?;
        let mut received = Vec::new();
        for thread in threads {
            let ended =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            received.extend(ended?);
        }
        Ok(received)
    })
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
struct End<'a> {
    stream: &'a TcpStream,
    /// When it last received.
    last: u64,
    received: Received,
}

fn receive(streams: &[TcpStream], window: &Window) -> Outcome {
    let mut epoll = Epoll::new()?;
    let mut ends = Vec::with_capacity(streams.len());
    for (stream, number) in streams.iter().zip(0..) {
        epoll.add(stream, number)?;
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

impl End<'_> {
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
