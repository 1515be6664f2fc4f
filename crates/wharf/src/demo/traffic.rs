//! Built-in clients and servers: many TCP connections as fast as they go, every byte hashed at
//! both ends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench::hosts::{Hosts, SERVER};
use degen::Random;
use sys::netns::Namespace;
use sys::tcp::set_congestion_control;
use xxhash_rust::xxh3::Xxh3;

use super::broken::{Broken, Course, Failure, Phase};
use crate::error::Error;

/// Bytes of one `write`, and at most of one `read`.
const CHUNK: usize = 256 << 10;
/// A connection that stands still for so long has failed.
const STALLED: Duration = Duration::from_secs(10);

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// From the client to the server: LRO's work.
    Receive,
    /// From the server to the client: GSO's work.
    Send,
}

impl Direction {
    fn way(self) -> &'static str {
        match self {
            Direction::Receive => "client to server",
            Direction::Send => "server to client",
        }
    }
}

/// What a run moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) elapsed: Duration,
}

/// One end's account of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Account {
    bytes: u64,
    hash: u64,
}

/// Moves bytes over `connections` connections for `duration` and compares what was sent with what
/// arrived.
pub(crate) fn run(
    hosts: &Hosts,
    direction: Direction,
    connections: usize,
    duration: Duration,
) -> Result<Moved, RunError> {
    let ends = connect(hosts, direction, connections, STALLED)?;
    transfer(hosts, direction, ends, duration)
}

/// Why a run has no result.
#[derive(Debug)]
pub(super) enum RunError {
    /// Connections did not get to their end.
    Connections(Failure),
    Other(Error),
}

impl<E: Into<Error>> From<E> for RunError {
    fn from(error: E) -> Self {
        RunError::Other(error.into())
    }
}

/// The clients' ends and the servers'.
type Streams = (Vec<TcpStream>, Vec<TcpStream>);

fn transfer(
    hosts: &Hosts,
    direction: Direction,
    (clients, servers): Streams,
    duration: Duration,
) -> Result<Moved, RunError> {
    let connections = clients.len();
    let (senders, receivers) = match direction {
        Direction::Receive => ((&hosts.client, clients), (&hosts.server, servers)),
        Direction::Send => ((&hosts.server, servers), (&hosts.client, clients)),
    };
    let start = Arc::new(Barrier::new(2 * connections + 1));
    let receiving = spawn(receivers, &start, |_, stream| receive(stream))?;
    let sending = spawn(senders, &start, move |number, stream| send(number, stream, duration))?;
    start.wait();
    let begun = Instant::now();
    let (sent, received) = (join(sending)?, join(receiving)?);
    let elapsed = begun.elapsed();
    let (sent, received) = match (sent, received) {
        (Ok(sent), Ok(received)) => (sent, received),
        (sent, received) => {
            let broken = sent.err().into_iter().chain(received.err()).flatten().collect();
            return Err(failure(direction, connections, broken));
        }
    };
    match sent.iter().zip(&received).position(|(sent, received)| sent != received) {
        Some(connection) => Err(Error::Corrupt { connection }.into()),
        None => Ok(Moved { bytes: received.iter().map(|a| a.bytes).sum(), elapsed }),
    }
}

fn failure(direction: Direction, connections: usize, broken: Vec<(usize, Broken)>) -> RunError {
    let dropped = String::new();
    RunError::Connections(Failure { connections, broken, way: direction.way(), dropped })
}

/// Of both ends.
const CONGESTION_CONTROL: &str = "cubic";

/// Opens the connections one by one, so that both ends know which is which.
fn connect(
    hosts: &Hosts,
    direction: Direction,
    connections: usize,
    stalled: Duration,
) -> Result<Streams, RunError> {
    let listener =
        hosts.server.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?.map_err(Error::Io)?;
    // The connections that it accepts have it, too.
    let _ = set_congestion_control(&listener, CONGESTION_CONTROL);
    let port = listener.local_addr().map_err(Error::Io)?.port();
    let address = SocketAddr::from((SERVER, port));
    hosts
        .client
        .run(move || -> Result<_, (usize, Broken)> {
            let mut clients = Vec::new();
            let mut servers = Vec::new();
            for number in 1..=connections {
                let course = Course::begin(Phase::Opening);
                let broken = |cause| (number, course.broken(cause));
                // The same on every machine, where it is to be had: BBR's pacing, the default of
                // some, would be what is measured, and outlives a later change.
                let client = sys::tcp::connect(address, CONGESTION_CONTROL);
                let client = client.or_else(|_| TcpStream::connect_timeout(&address, stalled));
                let client = client.map_err(broken)?;
                let (server, _) = listener.accept().map_err(broken)?;
                for stream in [&client, &server] {
                    stream.set_read_timeout(Some(stalled)).map_err(broken)?;
                    stream.set_write_timeout(Some(stalled)).map_err(broken)?;
                }
                clients.push(client);
                servers.push(server);
            }
            Ok((clients, servers))
        })?
        .map_err(|broken| failure(direction, connections, vec![broken]))
}

type Ends = Vec<JoinHandle<sys::Result<Result<Account, Broken>>>>;

/// A thread for each connection, in the namespace of its host.
fn spawn<F>(
    (namespace, streams): (&Namespace, Vec<TcpStream>),
    start: &Arc<Barrier>,
    work: F,
) -> Result<Ends, Error>
where
    F: Fn(usize, TcpStream) -> Result<Account, Broken> + Clone + Send + 'static,
{
    let thread = |(number, stream)| {
        let (start, work) = (Arc::clone(start), work.clone());
        namespace.spawn(move || {
            start.wait();
            work(number, stream)
        })
    };
    Ok(streams.into_iter().enumerate().map(thread).collect::<sys::Result<_>>()?)
}

/// Of all ends, or those that broke off.
type Accounts = Result<Vec<Account>, Vec<(usize, Broken)>>;

/// What each end moved; or which broke off, from 1, after all have ended.
fn join(ends: Ends) -> Result<Accounts, Error> {
    let (mut accounts, mut broken) = (Vec::new(), Vec::new());
    for (number, end) in (1..).zip(ends) {
        match end.join() {
            Ok(ended) => match ended? {
                Ok(account) => accounts.push(account),
                Err(why) => broken.push((number, why)),
            },
            Err(_) => return Err(Error::Io(io::Error::other("a thread of the demo panicked"))),
        }
    }
    Ok(if broken.is_empty() { Ok(accounts) } else { Err(broken) })
}

fn send(number: usize, mut stream: TcpStream, duration: Duration) -> Result<Account, Broken> {
    let data = pattern(number as u64, 4 * CHUNK);
    let mut hash = Xxh3::new();
    let mut course = Course::begin(Phase::Sending);
    let begun = Instant::now();
    while begun.elapsed() < duration {
        let at = course.bytes() as usize % (data.len() - CHUNK);
        let sent = stream.write(&data[at..at + CHUNK]).map_err(|cause| course.broken(cause))?;
        hash.update(&data[at..at + sent]);
        course.moved(sent);
    }
    stream.shutdown(Shutdown::Write).map_err(|cause| course.broken(cause))?;
    Ok(Account { bytes: course.bytes(), hash: hash.digest() })
}

fn receive(mut stream: TcpStream) -> Result<Account, Broken> {
    let mut buffer = vec![0; CHUNK];
    let mut hash = Xxh3::new();
    let mut course = Course::begin(Phase::Receiving);
    loop {
        match stream.read(&mut buffer).map_err(|cause| course.broken(cause))? {
            0 => return Ok(Account { bytes: course.bytes(), hash: hash.digest() }),
            len => {
                hash.update(&buffer[..len]);
                course.moved(len);
            }
        }
    }
}

/// Bytes without a period that a lost or repeated segment could hide in.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(seed).fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that never sends.
    #[test]
    fn an_end_that_stands_still_says_for_how_long() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        peer.write_all(b"12345").unwrap();
        let broken = receive(stream).unwrap_err().to_string();
        assert!(broken.starts_with("stood still for "), "{broken}");
        assert!(!broken.contains(" 0.0 s"), "{broken}");
        assert!(broken.ends_with(" s while receiving, after 5 B"), "{broken}");
    }

    /// The wire is cut when all are open, so all stand still, at both ends.
    #[test]
    fn a_run_that_stands_still_names_a_connection_the_phase_and_the_drops() {
        let hosts = match Hosts::new() {
            Ok(hosts) => hosts,
            Err(error) => return testkit::missing::lacks(format!("root: {error}")),
        };
        hosts.bare_kernel().unwrap();
        let direction = Direction::Receive;
        let ends = connect(&hosts, direction, 3, Duration::from_millis(500)).unwrap();
        let cut = || sys::interface::set_down("wire0");
        hosts.server.run(cut).unwrap().unwrap();
        let before = super::super::Drops::read(&hosts, None);
        let error = transfer(&hosts, direction, ends, Duration::from_secs(60)).unwrap_err();
        let text = super::super::with_drops(error, &hosts, None, &before).to_string();
        let (which, rest) = text.split_once(" of 3 of the demo, client to server, ").unwrap();
        assert!(["connection 1", "connection 2", "connection 3"].contains(&which), "{text}");
        assert!(rest.starts_with("stood still for "), "{text}");
        assert!(rest.contains(" s while sending, after ") || rest.contains("receiving"), "{text}");
        assert!(rest.contains("(2 more did not end either); "), "{text}");
        assert!(rest.contains("dropped") && !text.contains("temporarily"), "{text}");
    }
}
