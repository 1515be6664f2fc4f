//! Clients, which are a kernel's: what they get of a server.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sys::epoll::Epoll;

use super::lab::Lab;
use super::server::Server;
use crate::Error;
use crate::sink::io as doing;

/// Bytes of one read or write.
const CHUNK: usize = 256 << 10;
/// Until windows and buffers have found their sizes.
const WARM_UP: Duration = Duration::from_millis(300);
/// A connection that stands still for so long has failed.
const STALLED: Duration = Duration::from_secs(10);

/// What a client does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Client {
    /// Sends as much as goes.
    Send,
    /// Receives as much as comes.
    Receive,
    /// Sends a byte on each connection whenever one came back.
    PingPong,
    /// Connects, sends a byte, waits until it comes back, and closes.
    Connect,
}

/// Counts, and when to stop.
#[derive(Default)]
struct Tally {
    /// Bytes, round trips or connections.
    done: AtomicU64,
    stop: AtomicBool,
}

impl Tally {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn add(&self, amount: u64) {
        self.done.fetch_add(amount, Ordering::Relaxed);
    }
}

/// How much is done in a second with so many connections: bytes, round trips or connections.
pub(super) fn measure(
    lab: &Lab,
    client: Client,
    connections: u32,
    duration: Duration,
) -> Result<f64, Error> {
    let tally = Arc::new(Tally::default());
    let threads = if client == Client::PingPong { 1 } else { connections };
    let mut running = Vec::new();
    for _ in 0..threads {
        let tally = Arc::clone(&tally);
        running.push(lab.client.spawn(move || {
            let result = work(client, connections, &tally);
            // Others need not go on.
            tally.stop.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        })?);
    }
    let rest = |time: Duration| {
        let end = Instant::now() + time;
        while Instant::now() < end && tally.goes_on() {
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    };
    rest(WARM_UP);
    let (began, before) = (Instant::now(), tally.done.load(Ordering::Relaxed));
    rest(duration);
    let (took, after) = (began.elapsed(), tally.done.load(Ordering::Relaxed));
    tally.stop.store(true, Ordering::Relaxed);
    for thread in running {
        let ended = thread.join().unwrap_or_else(|_| Ok(Err(io::Error::other("a panic"))));
        ended?.map_err(doing("speak with the server"))?;
    }
    if after == before {
        let why = "nothing came through".to_owned();
        return Err(Error::Failed { who: "the server", why });
    }
    Ok((after - before) as f64 / took.as_secs_f64())
}

fn work(client: Client, connections: u32, tally: &Tally) -> io::Result<()> {
    match client {
        Client::Send => send(tally),
        Client::Receive => receive(tally),
        Client::PingPong => ping_pong(connections, tally),
        Client::Connect => connect_again(tally),
    }
}

/// A connection with CUBIC, whatever is usual here.
pub(super) fn connect() -> io::Result<TcpStream> {
    let stream = sys::tcp::connect(Server::at(), "cubic")?;
    stream.set_read_timeout(Some(STALLED))?;
    stream.set_write_timeout(Some(STALLED))?;
    Ok(stream)
}

fn send(tally: &Tally) -> io::Result<()> {
    let mut stream = connect()?;
    let data = vec![0x55; CHUNK];
    while tally.goes_on() {
        tally.add(stream.write(&data)? as u64);
    }
    Ok(())
}

fn receive(tally: &Tally) -> io::Result<()> {
    let mut stream = connect()?;
    let mut buffer = vec![0; CHUNK];
    while tally.goes_on() {
        match stream.read(&mut buffer)? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            len => tally.add(len as u64),
        }
    }
    Ok(())
}

/// One thread, which waits for all connections at once if there are several.
fn ping_pong(connections: u32, tally: &Tally) -> io::Result<()> {
    let mut streams = Vec::new();
    let mut epoll = Epoll::new()?;
    for number in 0..connections {
        let mut stream = connect()?;
        stream.set_nodelay(true)?;
        stream.write_all(&[1])?;
        epoll.add(stream.as_fd(), number.into())?;
        streams.push(stream);
    }
    let mut last = Instant::now();
    while tally.goes_on() {
        if let [stream] = &mut streams[..] {
            back_and_forth(stream, tally)?;
            continue;
        }
        epoll.wait(10)?;
        let mut any = false;
        for number in epoll.ready() {
            back_and_forth(&mut streams[number as usize], tally)?;
            any = true;
        }
        if any {
            last = Instant::now();
        } else if last.elapsed() > STALLED {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
    }
    Ok(())
}

fn back_and_forth(stream: &mut TcpStream, tally: &Tally) -> io::Result<()> {
    stream.read_exact(&mut [0])?;
    tally.add(1);
    stream.write_all(&[1])
}

fn connect_again(tally: &Tally) -> io::Result<()> {
    while tally.goes_on() {
        let mut stream = connect()?;
        stream.set_nodelay(true)?;
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])?;
        tally.add(1);
    }
    Ok(())
}
