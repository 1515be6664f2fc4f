//! One TCP connection with a sender that always has data.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::cgroup::CpuGroup;

use super::limited::{Cores, LimitedSender, enter};
use super::{Protocol, SENDER};
use crate::Error;
use crate::random::pattern;
use crate::sink::{Listening, Sink, SinkMode, io};

/// Bytes of one `write`.
const CHUNK: usize = 256 << 10;
/// Receive buffers (`tcp_rmem`): a window of a few hundred microseconds of the fastest wire here. What
/// is larger leaves the caches, and what is sent overflows queues.
const BUFFERS: &str = "4096 1048576 4194304";
/// A connection that stands still for so long has failed.
const STALLED: Duration = Duration::from_secs(10);
/// What a check carries: many super-packets, and a short segment at the end.
const CHECKED: u64 = (3 << 20) + 1_001;

/// A connection in progress.
pub(super) struct Traffic {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<sys::Result<Result<(), Error>>>,
    sink: Sink,
}

impl Traffic {
    pub(super) fn start(
        limited: &LimitedSender,
        protocol: Protocol,
        cores: Cores,
        group: Option<Arc<CpuGroup>>,
        mode: SinkMode,
    ) -> Result<Self, Error> {
        let (_, address, _) = protocol.addresses();
        let listening = Listening::bound(&limited.receiver, address, BUFFERS)?;
        let to = listening.at(address);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let sender = limited.sender.spawn(move || {
            sys::process::set_name(SENDER).map_err(io("name a thread"))?;
            enter(cores.sender, group.as_deref())?;
            match mode {
                SinkMode::Discard => send(to, &stopped).map_err(io("send")),
                SinkMode::Check => send_checked(to).map_err(io("send")),
            }
        })?;
        let sink = Sink::start(listening.accept(1)?, mode, &[cores.receiver])?;
        Ok(Traffic { stop, sender, sink })
    }

    /// Bytes received.
    pub(super) fn bytes(&self) -> u64 {
        self.sink.bytes()
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = join(self.sender);
        self.sink.stop()?;
        sent
    }

    /// Waits for the end of a checked connection.
    pub(super) fn finish(self) -> Result<(), Error> {
        let arrived = self.sink.wait()?;
        join(self.sender)?;
        if arrived == CHECKED {
            return Ok(());
        }
        let cause = io::Error::other(format!("{arrived} of {CHECKED} bytes arrived"));
        Err(Error::Io { what: "receive", cause })
    }
}

/// The outcome of a thread.
pub(super) fn join<T>(thread: JoinHandle<sys::Result<Result<T, Error>>>) -> Result<T, Error> {
    let panicked = |_| Ok(Err(io("send")(io::Error::other("a thread panicked"))));
    thread.join().unwrap_or_else(panicked)?
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    // The same on every machine: BBR's pacing, the default of some, would be what is measured.
    let stream = sys::tcp::connect(to, "cubic").or_else(|_| sys::tcp::connect(to, "reno"))?;
    stream.set_write_timeout(Some(STALLED))?;
    Ok(stream)
}

fn send(to: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = connect(to)?;
    let data = vec![0x55; CHUNK];
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(&data)?;
    }
    Ok(())
}

/// Sends what [`Taking::Check`] expects of the sender's port.
fn send_checked(to: SocketAddr) -> io::Result<()> {
    let mut stream = connect(to)?;
    let port = stream.local_addr()?.port();
    let mut data = vec![0; CHUNK];
    let mut at = 0;
    while at < CHECKED {
        let len = (CHECKED - at).min(CHUNK as u64) as usize;
        pattern(port.into(), at, &mut data[..len]);
        stream.write_all(&data[..len])?;
        at += len as u64;
    }
    Ok(())
}
