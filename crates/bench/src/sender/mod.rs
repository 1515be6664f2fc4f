//! A wire in memory with many TCP senders at its far end, which cost next to nothing: what is
//! measured behind it is the receiver.
//!
//! The senders open their connections like any other and obey the receiver's window, but are
//! otherwise ideal: see [`connection`]. They take turns: each sends a burst of 16 to 64 segments,
//! about what a sender's TSO puts on a wire at once, before the next has its turn. Every frame has
//! correct checksums of its own, so that a receiver that verifies them has work to do. The payload lies in
//! the frames' memory from the start, as if a card had put it there, except in a run that is to
//! prove that every byte arrives where it belongs.

mod connection;
mod crowd;
mod displaced;
mod frame;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use degen::Random;
use gso::Refusal;
use nic::port::{Outgoing, RxFrame, Transmit, Transmitted, Wire};
use sys::frames::{Frame, FramePool};
use wire::checksum::{self, Sum};
use wire::{Headers, Tcp, Transport, VirtioNetHdr};

use crate::random::pattern;
use connection::{Connection, Nanos, Next};
pub(crate) use crowd::{Crowd, CrowdPlan, Progress, SYN_TIMEOUT, SYN_TRIES};
use displaced::Displaced;
use frame::{HEADER, MSS};
pub(crate) use frame::{RECEIVER, RECEIVER_MAC};

/// The senders' ports begin here, so that a port tells which connection it is.
const FIRST_PORT: u16 = 10_000;
/// The most connections there can be.
pub(crate) const MOST: usize = 16_384;
/// Connections that are being opened at a time: fewer than a listener lets wait.
const OPENING: usize = 32;
/// Segments of a turn.
const BURST: std::ops::RangeInclusive<u64> = 16..=64;
/// Where in its chunk a frame lies that is no segment: behind the payload of segments, which stays.
const CONTROL_AT: usize = 1536;
/// How often the senders look for what is lost.
const LOOK_EVERY: Nanos = 5_000_000;

/// What the senders are to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Connections.
    pub(crate) connections: usize,
    /// The port on which the receiver listens.
    pub(crate) port: u16,
    /// Of 100 segments, those that the path displaces.
    pub(crate) reordered: u32,
    /// What the lengths of turns are drawn from.
    pub(crate) seed: u64,
    /// What each connection carries before it ends, byte for byte that of [`pattern`] with the
    /// connection's port as the stream; `None` to go on for ever with payload that is not looked at.
    pub(crate) checked: Option<u64>,
}

/// What the senders share with their runner.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Connections that the receiver has accepted.
    pub(crate) established: AtomicUsize,
    /// The senders may send.
    pub(crate) go: AtomicBool,
    /// Times that a connection found something lost and went back.
    pub(crate) repeated: AtomicU64,
    /// CPU time of the thread that the wire is on, in nanoseconds: the worker's.
    pub(crate) cpu: AtomicU64,
}

/// The wire; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Senders {
    shared: Arc<Shared>,
    plan: Plan,
    connections: Vec<Connection>,
    /// Frames that are no segments: ARP replies, SYNs, bare acknowledgments.
    control: VecDeque<Vec<u8>>,
    opening: usize,
    /// Whose turn it is, and how many segments are left of it.
    turn: usize,
    left: u64,
    /// Memory for the frames to come, on its way into the cache.
    ready: VecDeque<Frame>,
    random: Random,
    now: Nanos,
    looked: Nanos,
    /// The sum of a whole segment's payload, once it lies in every chunk.
    filler: Option<Sum>,
}

impl Senders {
    /// Senders that open their connections at once.
    pub(crate) fn new(plan: Plan, shared: Arc<Shared>) -> Self {
        let connection = |number: usize| {
            let source = FIRST_PORT + number as u16;
            let path = Displaced::new(plan.reordered, source.into());
            Connection::new(source, plan.port, plan.checked.unwrap_or(u64::MAX - 1), path)
        };
        Senders {
            shared,
            plan,
            connections: (0..plan.connections).map(connection).collect(),
            control: VecDeque::new(),
            opening: 0,
            turn: 0,
            left: *BURST.end(),
            ready: VecDeque::new(),
            random: Random::new(plan.seed),
            now: 0,
            looked: 0,
            filler: None,
        }
    }

    /// Opens a few more connections, and tries again what was lost.
    fn look(&mut self) {
        let mut repeated = 0;
        for connection in &mut self.connections {
            if connection.is_stuck(self.now) {
                self.control.extend(connection.try_again(self.now));
            }
            repeated += connection.repeated();
        }
        self.shared.repeated.store(repeated, Ordering::Relaxed);
        self.shared.cpu.store(sys::clock::thread_cpu(), Ordering::Relaxed);
        let closed = self.connections.iter_mut().filter(|connection| connection.is_closed());
        for connection in closed.take(OPENING - self.opening) {
            self.opening += 1;
            self.control.push_back(connection.open(self.now));
        }
    }

    /// Segments, until none of the connections may send.
    fn receive_segments(&mut self, pool: &mut FramePool, into: &mut VecDeque<RxFrame>, max: usize) {
        while self.ready.len() < max
            && let Some(frame) = pool.alloc()
        {
            pool.prefetch(&frame);
            self.ready.push_back(frame);
        }
        let mut passed = 0;
        while into.len() < max && passed < self.connections.len() {
            let connection = &mut self.connections[self.turn];
            connection.freshen(self.now);
            while (self.left > 0 || connection.has_late()) && into.len() < max {
                if self.ready.is_empty() {
                    return;
                }
                let next = match self.left {
                    0 => connection.next_late(),
                    _ => connection.next(self.now),
                };
                let Some(next) = next else {
                    self.left = 0;
                    passed += 1;
                    break;
                };
                let Some(mut frame) = self.ready.pop_front() else { return };
                passed = 0;
                self.left = self.left.saturating_sub(1);
                pool.set_range(&mut frame, 0, HEADER + next.segment.len);
                let bytes = pool.bytes_mut(&mut frame);
                let payload = match self.filler {
                    Some(filler) => filler,
                    None => patterned(FIRST_PORT + self.turn as u16, next, bytes),
                };
                connection.template().write(bytes, next.segment, payload);
                into.push_back(received(frame));
            }
            if self.left == 0 && !self.connections[self.turn].has_late() {
                self.turn = (self.turn + 1) % self.connections.len();
                let (least, most) = (*BURST.start(), *BURST.end());
                self.left = least + self.random.next_below(most - least + 1);
            }
        }
    }

    /// A packet of the receiver's.
    fn take(&mut self, packet: &[u8]) {
        if let Some(reply) = frame::arp_reply(packet) {
            self.control.push_back(reply);
            return;
        }
        let Ok(headers) = Headers::parse(packet) else { return };
        if headers.transport != Transport::Tcp {
            return;
        }
        let Ok(tcp) = Tcp::new(&packet[headers.transport_at..headers.end]) else { return };
        let number = usize::from(tcp.destination().wrapping_sub(FIRST_PORT));
        let Some(connection) = self.connections.get_mut(number) else { return };
        let was_opening = connection.is_opening();
        if connection.receive(tcp, self.now) && was_opening {
            self.opening -= 1;
            self.control.push_back(connection.acknowledge(self.now));
            self.shared.established.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Puts a segment's payload into all chunks, where it stays: nothing else writes to them. Its sum.
fn fill(pool: &mut FramePool) -> Sum {
    let mut payload = [0; MSS];
    pattern(0, 0, &mut payload);
    let mut frames: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
    for frame in &mut frames {
        pool.set_range(frame, HEADER, MSS);
        pool.bytes_mut(frame).copy_from_slice(&payload);
    }
    frames.into_iter().rev().for_each(|frame| pool.free(frame));
    checksum::sum(&payload)
}

/// The frames that are no segments.
fn receive_control(
    control: &mut VecDeque<Vec<u8>>,
    pool: &mut FramePool,
    into: &mut VecDeque<RxFrame>,
    max: usize,
) {
    while into.len() < max
        && !control.is_empty()
        && let Some(mut frame) = pool.alloc()
        && let Some(bytes) = control.pop_front()
    {
        pool.set_range(&mut frame, CONTROL_AT, bytes.len());
        pool.bytes_mut(&mut frame).copy_from_slice(&bytes);
        into.push_back(received(frame));
    }
}

/// Writes a segment's part of the stream behind its header; the sum.
fn patterned(stream: u16, next: Next, frame: &mut [u8]) -> Sum {
    let payload = &mut frame[HEADER..];
    pattern(stream.into(), next.offset, payload);
    checksum::sum(payload)
}

/// A frame as a wire hands it over that knows nothing of its checksums.
fn received(frame: Frame) -> RxFrame {
    let vnet = VirtioNetHdr::default();
    RxFrame { frame, vnet, overflow: 0, slot: 0, maybe_partial: false }
}

impl Wire for Senders {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        if self.filler.is_none() && self.plan.checked.is_none() {
            self.filler = Some(fill(pool));
        }
        self.now = sys::clock::now();
        if self.now - self.looked > LOOK_EVERY {
            self.looked = self.now;
            self.look();
        }
        receive_control(&mut self.control, pool, into, max);
        if self.shared.go.load(Ordering::Relaxed) {
            self.receive_segments(pool, into, max);
        }
        Ok(())
    }

    fn transmit(
        &mut self,
        _pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        transmitted.sent.count(packet.bytes.len());
        self.take(packet.bytes);
        Ok(Transmit::Done)
    }

    fn flush(&mut self, _pool: &mut FramePool) -> io::Result<()> {
        Ok(())
    }

    /// None: the worker sleeps until the host answers, or for [`retry_after`](Wire::retry_after).
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_pending(&mut self) -> bool {
        true
    }

    fn retry_after(&self) -> Option<Nanos> {
        Some(LOOK_EVERY)
    }

    fn close(self, pool: &mut FramePool) {
        self.ready.into_iter().for_each(|frame| pool.free(frame));
    }
}
