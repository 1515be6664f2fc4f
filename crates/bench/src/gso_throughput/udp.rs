//! Datagrams, as many as go through.
//!
//! Nothing holds back a sender of UDP through a TAP, which takes a datagram off its socket at once and
//! drops it if it has no room. A card does so only when it has sent it, and a full send buffer makes
//! the sender wait. The sender here keeps a send buffer's worth in flight: datagrams are numbered, and
//! when one has arrived, those before it are no longer.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use sys::cgroup::CpuGroup;
use sys::netns::Namespace;

use super::limited::{Cores, LimitedSender, enter};
use super::tcp::join;
use super::{Protocol, SENDER};
use crate::Error;
use crate::random::pattern;
use crate::sink::{SinkMode, io};

/// `send`s in flight: 4 MB, as much as TCP has.
const WINDOW: u64 = 64;
/// When nothing has arrived for so long, all that is in flight is lost. Many of the periods in which a
/// bounded sender has its time.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// The same in a check, which asks whether all arrive, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the receiver sleeps before it looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes that may wait to be received.
const BUFFER: u32 = 32 << 20;
/// `send`s of a check.
const CHECKED: u64 = 100;
/// Bytes of a datagram's number.
const NUMBER: usize = 8;

/// What both ends know.
#[derive(Debug, Default)]
struct Progress {
    stop: AtomicBool,
    /// Datagrams sent.
    sent: AtomicU64,
    /// The number behind the highest that has arrived.
    passed: AtomicU64,
    /// Datagrams and bytes received.
    received: AtomicU64,
    bytes: AtomicU64,
    /// The sender waits for a datagram to arrive.
    waits: AtomicBool,
    /// The sender has ended.
    done: AtomicBool,
}

/// Datagrams in flight.
pub(super) struct Traffic {
    progress: Arc<Progress>,
    sender: JoinHandle<sys::Result<Result<(), Error>>>,
    receiver: JoinHandle<sys::Result<Result<(), Error>>>,
}

impl Traffic {
    pub(super) fn start(
        limited: &LimitedSender,
        protocol: Protocol,
        cores: Cores,
        group: Option<Arc<CpuGroup>>,
        mode: SinkMode,
    ) -> Result<Self, Error> {
        let (from, to, _) = protocol.addresses();
        let bind = |namespace: &Namespace, ip| namespace.run(move || UdpSocket::bind((ip, 0)));
        let near = bind(&limited.sender, from)?.map_err(io("bind a socket"))?;
        let far = bind(&limited.receiver, to)?.map_err(io("bind a socket"))?;
        let to = far.local_addr().map_err(io("bind a socket"))?;
        near.connect(to).map_err(io("bind a socket"))?;
        sys::udp::force_receive_buffer(&far, BUFFER).map_err(io("set a receive buffer"))?;
        far.set_read_timeout(Some(LOOK_EVERY)).map_err(io("set a time-out"))?;
        let (size, at_once) = protocol.datagrams();
        if at_once > 1 {
            sys::udp::set_segment_size(&near, size as u16).map_err(io("set UDP_SEGMENT"))?;
            if mode == SinkMode::Discard {
                sys::udp::set_gro(&far).map_err(io("set UDP_GRO"))?;
            }
        }
        let progress = Arc::new(Progress::default());
        let mut sender = Sender {
            socket: near,
            size,
            data: vec![0; size * at_once],
            progress: Arc::clone(&progress),
            checked: mode == SinkMode::Check,
        };
        let sender = limited.sender.spawn(move || {
            sys::process::set_name(SENDER).map_err(io("name a thread"))?;
            enter(cores.sender, group.as_deref())?;
            sender.run().map_err(io("send"))
        })?;
        let mut receiver = Receiver {
            socket: far,
            size,
            data: vec![0; if mode == SinkMode::Check { size + 1 } else { NUMBER }],
            progress: Arc::clone(&progress),
            sender: sender.thread().clone(),
            half: WINDOW * at_once as u64 / 2,
        };
        let receiver = limited.receiver.spawn(move || {
            sys::process::set_name(super::SINK).map_err(io("name a thread"))?;
            enter(cores.receiver, None)?;
            receiver.run()
        })?;
        Ok(Traffic { progress, sender, receiver })
    }

    /// Bytes received.
    pub(super) fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// Datagrams that have been lost, of how many.
    pub(super) fn lost(&self) -> (u64, u64) {
        let passed = self.progress.passed.load(Ordering::Relaxed);
        (passed.saturating_sub(self.progress.received.load(Ordering::Relaxed)), passed)
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        self.progress.stop.store(true, Ordering::Relaxed);
        self.sender.thread().unpark();
        join(self.sender)?;
        join(self.receiver)
    }

    /// Waits for the end of a check.
    pub(super) fn finish(self) -> Result<(), Error> {
        let sent = join(self.sender);
        join(self.receiver)?;
        sent?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (received, sent) = (count(&self.progress.received), count(&self.progress.sent));
        if received == sent {
            return Ok(());
        }
        let cause = io::Error::other(format!("{received} of {sent} datagrams arrived"));
        Err(Error::Io { what: "receive", cause })
    }
}

struct Sender {
    socket: UdpSocket,
    size: usize,
    data: Vec<u8>,
    progress: Arc<Progress>,
    checked: bool,
}

impl Sender {
    fn run(&mut self) -> io::Result<()> {
        let progress = Arc::clone(&self.progress);
        let ended = self.send_all(&progress);
        progress.done.store(true, Ordering::Release);
        ended
    }

    fn send_all(&mut self, progress: &Progress) -> io::Result<()> {
        let at_once = (self.data.len() / self.size) as u64;
        let last = if self.checked { CHECKED * at_once } else { u64::MAX };
        let (mut number, mut given_up) = (0, 0);
        while number < last && !progress.stop.load(Ordering::Relaxed) {
            let passed = progress.passed.load(Ordering::Relaxed).max(given_up);
            // One first: while the receiver's address is being resolved only few packets are kept.
            let window = if passed == 0 { 1 } else { WINDOW };
            if number - passed >= window * at_once {
                if !self.wait(passed) {
                    given_up = number;
                }
                continue;
            }
            for datagram in self.data.chunks_exact_mut(self.size) {
                if self.checked {
                    pattern(number, 0, datagram);
                }
                datagram[..NUMBER].copy_from_slice(&number.to_le_bytes());
                number += 1;
            }
            progress.sent.store(number, Ordering::Relaxed);
            match self.socket.send(&self.data) {
                Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits for a while until more than `passed` has passed; returns whether it has.
    fn wait(&self, passed: u64) -> bool {
        let progress = &self.progress;
        progress.waits.store(true, Ordering::SeqCst);
        if progress.passed.load(Ordering::SeqCst) <= passed {
            std::thread::park_timeout(if self.checked { PATIENCE } else { LOST_AFTER });
        }
        progress.waits.store(false, Ordering::Relaxed);
        progress.passed.load(Ordering::Relaxed) > passed
    }
}

struct Receiver {
    socket: UdpSocket,
    size: usize,
    data: Vec<u8>,
    progress: Arc<Progress>,
    sender: Thread,
    /// The sender is woken when so many are in flight.
    half: u64,
}

impl Receiver {
    fn run(&mut self) -> Result<(), Error> {
        let checked = self.data.len() > NUMBER;
        let mut last = Instant::now();
        loop {
            let length = match sys::udp::receive_head(&self.socket, &mut self.data) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ended = self.progress.done.load(Ordering::Acquire);
                    if checked && ended && !self.has_all() && last.elapsed() < PATIENCE {
                        continue;
                    }
                    if ended || self.progress.stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    continue;
                }
                Err(cause) => return Err(Error::Io { what: "receive", cause }),
            };
            last = Instant::now();
            let number = self.data.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            if checked {
                self.check(number, length)?;
            }
            self.count(number, length);
        }
    }

    fn has_all(&self) -> bool {
        let progress = &self.progress;
        progress.received.load(Ordering::Relaxed) >= progress.sent.load(Ordering::Relaxed)
    }

    fn count(&self, number: u64, length: usize) {
        let progress = &self.progress;
        let datagrams = length.div_ceil(self.size) as u64;
        progress.received.fetch_add(datagrams, Ordering::Relaxed);
        progress.bytes.fetch_add(length as u64, Ordering::Relaxed);
        let passed = number + datagrams;
        progress.passed.fetch_max(passed, Ordering::SeqCst);
        let under_way = progress.sent.load(Ordering::Relaxed).saturating_sub(passed);
        if under_way <= self.half && progress.waits.swap(false, Ordering::SeqCst) {
            self.sender.unpark();
        }
    }

    fn check(&self, number: u64, length: usize) -> Result<(), Error> {
        let mut expected = vec![0; self.size];
        pattern(number, 0, &mut expected);
        expected[..NUMBER].copy_from_slice(&number.to_le_bytes());
        if length == self.size && self.data[..length] == expected {
            return Ok(());
        }
        let cause = io::Error::other(format!("datagram {number} is not the one that was sent"));
        Err(Error::Io { what: "receive", cause })
    }
}
