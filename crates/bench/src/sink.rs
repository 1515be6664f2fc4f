//! The receiver that is measured: the kernel's TCP, and a few threads that read what it receives.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sys::epoll::Epoll;
use sys::netns::Namespace;

use crate::Error;
use crate::random::pattern;

/// How long a connection may take to be opened, and a checked one to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a thread sleeps before it looks whether it is to end, in milliseconds.
const LOOK_EVERY: u16 = 50;
/// Most bytes read from a connection at once.
const MOST: usize = 1 << 20;
/// Receive buffers (`tcp_rmem`: least, at first, most): so large that no window is what limits.
const BUFFERS: &str = "4096 1048576 33554432";

/// What the sink does with the bytes that arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SinkMode {
    /// It is discarded in the kernel (`MSG_TRUNC`), as by `iperf3 --skip-rx-copy`: the copy to an
    /// application costs the same with and without LRO, and is no part of receiving.
    Discard,
    /// It is compared with [`pattern`], the sender's port being the stream.
    Check,
}

/// A listening kernel.
#[derive(Debug)]
pub(crate) struct Listening {
    listener: TcpListener,
    pub(crate) port: u16,
}

impl Listening {
    /// Listens in `namespace`.
    pub(crate) fn new(namespace: &Namespace) -> Result<Self, Error> {
        Self::with_buffers(namespace, BUFFERS)
    }

    /// Listens, with receive buffers of these sizes (`tcp_rmem`).
    pub(crate) fn with_buffers(namespace: &Namespace, buffers: &str) -> Result<Self, Error> {
        Self::bound(namespace, Ipv4Addr::UNSPECIFIED.into(), buffers)
    }

    /// Listens at one address, with receive buffers of these sizes.
    pub(crate) fn bound(
        namespace: &Namespace,
        address: IpAddr,
        buffers: &str,
    ) -> Result<Self, Error> {
        let listen = || -> Result<TcpListener, Error> {
            sys::sysctl::write(&["ipv4", "tcp_rmem"], buffers)?;
            TcpListener::bind((address, 0)).map_err(io("listen"))
        };
        let listener = namespace.run(listen)??;
        let port = listener.local_addr().map_err(io("listen"))?.port();
        listener.set_nonblocking(true).map_err(io("listen"))?;
        Ok(Listening { listener, port })
    }

    /// Waits for so many connections, and accepts them.
    pub(crate) fn accept(&self, connections: usize) -> Result<Vec<(TcpStream, u16)>, Error> {
        let since = Instant::now();
        let mut accepted = Vec::with_capacity(connections);
        while accepted.len() < connections {
            match self.try_accept()? {
                Some(connection) => accepted.push(connection),
                None => {
                    if since.elapsed() > PATIENCE {
                        let what = format!("{} of {connections} came", accepted.len());
                        let cause = io::Error::new(io::ErrorKind::TimedOut, what);
                        return Err(Error::Io { what: "wait for connections", cause });
                    }
                    sys::poll::poll(&[self.listener.as_fd()], Some(10_000_000))
                        .map_err(io("wait for connections"))?;
                }
            }
        }
        Ok(accepted)
    }

    /// Takes a connection that waits, if there is one.
    pub(crate) fn try_accept(&self) -> Result<Option<(TcpStream, u16)>, Error> {
        match self.listener.accept() {
            Ok((stream, peer)) => Ok(Some((stream, peer.port()))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(cause) => Err(Error::Io { what: "accept a connection", cause }),
        }
    }

    /// Where it listens on the receiver's `address`.
    pub(crate) fn at(&self, address: impl Into<IpAddr>) -> SocketAddr {
        (address.into(), self.port).into()
    }
}

/// A thread, and the bytes that it has read.
type Thread = (Arc<AtomicU64>, JoinHandle<Result<(), Error>>);

/// Threads that read what connections receive.
#[derive(Debug)]
pub(crate) struct Sink {
    stop: Arc<AtomicBool>,
    threads: Vec<Thread>,
}

impl Sink {
    /// Spreads the connections over threads, one on each of `cpus`, or one that runs wherever the
    /// kernel sees fit.
    pub(crate) fn start(
        connections: Vec<(TcpStream, u16)>,
        mode: SinkMode,
        cpus: &[usize],
    ) -> Result<Sink, Error> {
        let threads = cpus.len().max(1);
        let mut shares: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
        for (number, connection) in connections.into_iter().enumerate() {
            shares[number % threads].push(connection);
        }
        let mut sink = Sink { stop: Arc::default(), threads: Vec::new() };
        for (number, share) in shares.into_iter().enumerate() {
            let bytes = Arc::new(AtomicU64::new(0));
            let mut taker = Taker {
                stop: Arc::clone(&sink.stop),
                bytes: Arc::clone(&bytes),
                buffer: if mode == SinkMode::Check { vec![0; MOST] } else { Vec::new() },
                open: share.len(),
                streams: share.into_iter().map(|(stream, port)| (stream, port, 0)).collect(),
            };
            let cpu = cpus.get(number).copied();
            let thread = std::thread::Builder::new()
                .name(format!("sink-{number}"))
                .spawn(move || {
                    if let Some(cpu) = cpu {
                        sys::affinity::pin(cpu).map_err(io("pin a thread"))?;
                    }
                    taker.run()
                })
                .map_err(io("start a thread"))?;
            sink.threads.push((bytes, thread));
        }
        Ok(sink)
    }

    /// Bytes that were read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.threads.iter().map(|(bytes, _)| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Waits until all connections have ended by themselves; how many bytes came.
    pub(crate) fn wait(mut self) -> Result<u64, Error> {
        let since = Instant::now();
        while !self.threads.iter().all(|(_, thread)| thread.is_finished()) {
            if since.elapsed() > PATIENCE {
                let what = format!("{} bytes had come", self.bytes());
                let cause = io::Error::new(io::ErrorKind::TimedOut, what);
                return Err(Error::Io { what: "wait for the end of all connections", cause });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.end()
    }

    /// Ends the threads and closes the connections; how many bytes came.
    pub(crate) fn stop(mut self) -> Result<u64, Error> {
        self.end()
    }

    fn end(&mut self) -> Result<u64, Error> {
        self.stop.store(true, Ordering::Relaxed);
        let mut result = Ok(0);
        for (bytes, thread) in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| {
                let cause = io::Error::other("a thread panicked");
                Err(Error::Io { what: "receive", cause })
            });
            let bytes = bytes.load(Ordering::Relaxed);
            result = result.and_then(|sum| ended.map(|()| sum + bytes));
        }
        result
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // `stop` and `wait` return the error.
        let _ = self.end();
    }
}

/// One thread's connections: socket, peer's port, and bytes read.
struct Taker {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    streams: Vec<(TcpStream, u16, u64)>,
    open: usize,
    /// Empty if what arrives is discarded.
    buffer: Vec<u8>,
}

impl Taker {
    fn run(&mut self) -> Result<(), Error> {
        let mut epoll = Epoll::new().map_err(io("wait for what arrives"))?;
        for (number, (stream, ..)) in self.streams.iter().enumerate() {
            stream.set_nonblocking(true).map_err(io("receive"))?;
            epoll.add(stream, number as u64).map_err(io("wait for what arrives"))?;
        }
        while self.open > 0 && !self.stop.load(Ordering::Relaxed) {
            epoll.wait(LOOK_EVERY).map_err(io("wait for what arrives"))?;
            for number in epoll.ready() {
                let Some((stream, port, at)) = self.streams.get_mut(number as usize) else {
                    continue;
                };
                let taken = match take(stream, &mut self.buffer) {
                    Ok(0) => {
                        self.open -= 1;
                        epoll.remove(&*stream).map_err(io("receive"))?;
                        0
                    }
                    Ok(taken) => taken,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    Err(cause) => return Err(Error::Io { what: "receive", cause }),
                };
                if !self.buffer.is_empty() {
                    check(&self.buffer[..taken], *port, *at)?;
                }
                *at += taken as u64;
                self.bytes.fetch_add(taken as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Takes what has arrived, into `buffer` if there is one.
fn take(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    if buffer.is_empty() { sys::tcp::discard(stream, MOST) } else { stream.read(buffer) }
}

/// Whether this is what the peer with this port sent from `at` on.
fn check(arrived: &[u8], port: u16, at: u64) -> Result<(), Error> {
    let mut expected = vec![0; arrived.len()];
    pattern(port.into(), at, &mut expected);
    match arrived.iter().zip(&expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(wrong) => Err(Error::Corrupt { port, at: at + wrong as u64 }),
    }
}

/// Says what was done when the system refused.
pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::Io { what, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_was_not_sent_is_found() {
        let mut arrived = [0; 100];
        pattern(10_001, 1 << 33, &mut arrived);
        assert!(check(&arrived, 10_001, 1 << 33).is_ok());
        assert!(check(&arrived, 10_001, (1 << 33) + 1448).is_err());
        assert!(check(&arrived, 10_002, 1 << 33).is_err());
        arrived[70] ^= 1;
        let error = check(&arrived, 10_001, 1 << 33).unwrap_err();
        assert!(matches!(error, Error::Corrupt { port: 10_001, at } if at == (1 << 33) + 70));
    }
}
