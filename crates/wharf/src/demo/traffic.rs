//! Built-in clients and servers: many TCP connections as fast as they go, every byte hashed at
//! both ends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bench::hosts::{Lab, SERVER};
use sys::netns::Namespace;
use sys::tcp::set_congestion_control;
use xxhash_rust::xxh3::Xxh3;

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
    lab: &Lab,
    direction: Direction,
    connections: usize,
    duration: Duration,
) -> Result<Moved, Error> {
    let (clients, servers) = connect(lab, connections)?;
    let (senders, receivers) = match direction {
        Direction::Receive => ((&lab.client, clients), (&lab.server, servers)),
        Direction::Send => ((&lab.server, servers), (&lab.client, clients)),
    };
    let start = Arc::new(Barrier::new(2 * connections + 1));
    let receiving = spawn(receivers, &start, |_, stream| receive(stream))?;
    let sending = spawn(senders, &start, move |number, stream| send(number, stream, duration))?;
    start.wait();
    let begun = Instant::now();
    let sent = join(sending)?;
    let received = join(receiving)?;
    let elapsed = begun.elapsed();
    match sent.iter().zip(&received).position(|(sent, received)| sent != received) {
        Some(connection) => Err(Error::Corrupt { connection }),
        None => Ok(Moved { bytes: received.iter().map(|a| a.bytes).sum(), elapsed }),
    }
}

/// Of both ends.
const CONGESTION_CONTROL: &str = "cubic";

/// Opens the connections one by one, so that both ends know which is which.
fn connect(lab: &Lab, connections: usize) -> Result<(Vec<TcpStream>, Vec<TcpStream>), Error> {
    let listener =
        lab.server.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?.map_err(Error::Io)?;
    // The connections that it accepts have it, too.
    let _ = set_congestion_control(&listener, CONGESTION_CONTROL);
    let port = listener.local_addr().map_err(Error::Io)?.port();
    let address = SocketAddr::from((SERVER, port));
    lab.client
        .run(move || -> io::Result<_> {
            let mut clients = Vec::new();
            let mut servers = Vec::new();
            for _ in 0..connections {
                // The same on every machine, where it is to be had: BBR's pacing, the default of
                // some, would be what is measured, and outlives a later change.
                let client = sys::tcp::connect(address, CONGESTION_CONTROL);
                clients.push(client.or_else(|_| TcpStream::connect_timeout(&address, STALLED))?);
                servers.push(listener.accept()?.0);
            }
            for stream in clients.iter().chain(&servers) {
                stream.set_read_timeout(Some(STALLED))?;
                stream.set_write_timeout(Some(STALLED))?;
            }
            Ok((clients, servers))
        })?
        .map_err(Error::Io)
}

type Ends = Vec<JoinHandle<sys::Result<io::Result<Account>>>>;

/// A thread for each connection, in the namespace of its host.
fn spawn<F>(
    (namespace, streams): (&Namespace, Vec<TcpStream>),
    start: &Arc<Barrier>,
    work: F,
) -> Result<Ends, Error>
where
    F: Fn(usize, TcpStream) -> io::Result<Account> + Clone + Send + 'static,
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

fn join(ends: Ends) -> Result<Vec<Account>, Error> {
    ends.into_iter()
        .map(|end| match end.join() {
            Ok(account) => account?.map_err(Error::Traffic),
            Err(_) => Err(Error::Traffic(io::Error::other("a thread panicked"))),
        })
        .collect()
}

fn send(number: usize, mut stream: TcpStream, duration: Duration) -> io::Result<Account> {
    let data = pattern(number as u64, 4 * CHUNK);
    let mut hash = Xxh3::new();
    let mut bytes = 0;
    let begun = Instant::now();
    while begun.elapsed() < duration {
        let at = bytes as usize % (data.len() - CHUNK);
        let sent = stream.write(&data[at..at + CHUNK])?;
        hash.update(&data[at..at + sent]);
        bytes += sent as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(Account { bytes, hash: hash.digest() })
}

fn receive(mut stream: TcpStream) -> io::Result<Account> {
    let mut buffer = vec![0; CHUNK];
    let mut hash = Xxh3::new();
    let mut bytes = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(Account { bytes, hash: hash.digest() }),
            len => {
                hash.update(&buffer[..len]);
                bytes += len as u64;
            }
        }
    }
}

/// Bytes without a period that a lost or repeated segment could hide in (splitmix64).
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    (0..len / 8).flat_map(|_| word().to_le_bytes()).collect()
}
