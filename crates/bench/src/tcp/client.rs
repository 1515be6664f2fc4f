//! Clients, which are a kernel's: what they get of a server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sys::epoll::Epoll;

use super::cores;
use super::server::Server;
use super::testbed::Testbed;
use crate::Error;
use crate::sink::io as doing;

/// Bytes of one read or write.
const CHUNK: usize = 256 << 10;
/// Until windows and buffers have found their sizes.
const WARM_UP: Duration = Duration::from_millis(300);
/// A connection that stands still for so long has failed.
const STALLED: Duration = Duration::from_secs(10);

/// How often it is looked whether a client has failed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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

/// What is done on a connection, and when to stop.
#[derive(Clone, Default)]
struct Tally {
    /// Bytes, round trips or connections.
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Tally {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn add(&self, amount: u64) {
        self.done.fetch_add(amount, Ordering::Relaxed);
    }

    /// Sleeps, but not on when a client has failed.
    fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && self.goes_on() {
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

/// What a server was found to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Bytes, round trips or connections in a second.
    pub(super) rate: f64,
    /// CPU time that each of them took, in seconds: of the server, the client and the kernel's threads that
    /// receive.
    pub(super) cpu: f64,
}

/// How much is done with so many connections.
pub(super) fn measure(
    testbed: &Testbed,
    client: Client,
    connections: u32,
    duration: Duration,
) -> Result<Measured, Error> {
    let threads = if client == Client::PingPong { 1 } else { connections };
    let work = |_| move |tally: &Tally| work(client, connections, tally);
    let (outcome, cpu) = run(testbed, (0..threads).map(work), WARM_UP, duration)?;
    let rate: f64 = outcome.iter().sum();
    Ok(Measured { rate, cpu: cpu / rate })
}

/// How many bytes in a second are received of each of these servers.
pub(super) fn receive_of(
    testbed: &Testbed,
    servers: &[SocketAddr],
    warm_up: Duration,
    duration: Duration,
) -> Result<Vec<f64>, Error> {
    let work = |to: &SocketAddr| {
        let to = *to;
        move |tally: &Tally| receive(to, tally)
    };
    Ok(run(testbed, servers.iter().map(work), warm_up, duration)?.0)
}

/// A thread for each of these, what each does in a second, and the CPU time of all in a second.
fn run<F>(
    testbed: &Testbed,
    works: impl Iterator<Item = F>,
    warm_up: Duration,
    duration: Duration,
) -> Result<(Vec<f64>, f64), Error>
where
    F: FnOnce(&Tally) -> io::Result<()> + Send + 'static,
{
    let core = testbed.cores.map(|cores| cores.client);
    let all = Tally::default();
    let (mut threads, mut tallies) = (Vec::new(), Vec::new());
    for work in works {
        let tally = Tally { done: Arc::default(), stop: Arc::clone(&all.stop) };
        tallies.push(tally.clone());
        threads.push(testbed.client.spawn(move || {
            let result = cores::enter(core).and_then(|()| work(&tally));
            // Others need not go on.
            tally.stop.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        })?);
    }
    let read =
        || -> Vec<u64> { tallies.iter().map(|tally| tally.done.load(Ordering::Relaxed)).collect() };
    all.rest(warm_up);
    let poller = sys::process::find(&format!("napi/{}-", testbed.far));
    let (began, cpu_before, before) = (Instant::now(), cpu(poller), read());
    all.rest(duration);
    // A moment may be too short on a busy machine.
    while read() == before && began.elapsed() < STALLED && all.goes_on() {
        all.rest(LOOK_EVERY);
    }
    let (took, cpu_after, after) = (began.elapsed().as_secs_f64(), cpu(poller), read());
    all.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Ok(Err(io::Error::other("a panic"))));
        ended?.map_err(doing("speak with the server"))?;
    }
    let outcome: Vec<f64> =
        before.iter().zip(&after).map(|(before, after)| (after - before) as f64 / took).collect();
    if outcome.iter().sum::<f64>() == 0.0 {
        let why = "nothing came through".to_owned();
        return Err(Error::Failed { system: "the server", why });
    }
    Ok((outcome, (cpu_after - cpu_before) / took))
}

/// CPU time, in seconds, of this process, in which both server and client are, and of what receives for
/// them in the kernel.
fn cpu(poller: Option<u32>) -> f64 {
    let kernel = [sys::process::ksoftirqd_cpu(), poller.and_then(sys::process::process_cpu)];
    let kernel: u64 = kernel.into_iter().flatten().sum();
    (sys::clock::process_cpu() + kernel) as f64 / 1e9
}

fn work(client: Client, connections: u32, tally: &Tally) -> io::Result<()> {
    match client {
        Client::Send => send(tally),
        Client::Receive => receive(Server::at(), tally),
        Client::PingPong => ping_pong(connections, tally),
        Client::Connect => connect_again(tally),
    }
}

/// A connection with CUBIC, not with the default of this machine.
fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = sys::tcp::connect(to, "cubic")?;
    stream.set_read_timeout(Some(STALLED))?;
    stream.set_write_timeout(Some(STALLED))?;
    Ok(stream)
}

fn send(tally: &Tally) -> io::Result<()> {
    let mut stream = connect(Server::at())?;
    let data = vec![0x55; CHUNK];
    while tally.goes_on() {
        tally.add(stream.write(&data)? as u64);
    }
    Ok(())
}

fn receive(to: SocketAddr, tally: &Tally) -> io::Result<()> {
    let mut stream = connect(to)?;
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
        let mut stream = connect(Server::at())?;
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
        let mut stream = connect(Server::at())?;
        stream.set_nodelay(true)?;
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])?;
        tally.add(1);
    }
    Ok(())
}
