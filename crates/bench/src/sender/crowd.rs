//! Several wires in memory, one for each worker of a NIC, with a crowd at their far ends: a few
//! connections that send without end, and many that try to open meanwhile.
//!
//! The connections are spread over the wires as a card spreads them over its queues, and every wire
//! always has a frame for its worker. A connection that may send no more begins again at the first
//! byte that is not acknowledged: however the receiver fares, the load does not let up, as a sum of
//! many senders' does not. Those that open behave as clients do: see [`SYN_TIMEOUT`].
//!
//! What the host sends comes out of one of the wires; it reaches the connection on whichever wire
//! that is.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use gso::Refusal;
use nic::port::{Outgoing, RxFrame, Transmit, Transmitted, Wire};
use sys::frames::FramePool;
use wire::checksum::Sum;
use wire::{Headers, Tcp, Transport};

use super::connection::{Connection, Nanos};
use super::displaced::Displaced;
use super::frame::{self, HEADER};
use super::{FIRST_PORT, LOOK_EVERY, fill, receive_control, received};

/// How long a client waits for an answer to its first SYN before it sends another. It waits twice
/// as long for each that follows (RFC 6298 section 5.5), and gives up after [`SYN_TRIES`]. Clients
/// begin with a second and try seven times (Linux); these are in a hurry.
pub(crate) const SYN_TIMEOUT: Nanos = 200_000_000;
/// SYNs that a client sends at most.
pub(crate) const SYN_TRIES: u32 = 3;

/// Segments that a connection sends before the next has its turn.
const BURST: usize = 16;

/// Who is in the crowd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrowdPlan {
    /// Wires.
    pub(crate) workers: usize,
    /// Connections that send without end.
    pub(crate) heavy: usize,
    /// Connections that try to open meanwhile.
    pub(crate) openers: usize,
    /// Where the host listens.
    pub(crate) port: u16,
}

impl CrowdPlan {
    /// The number of the connection that tries to open from this port.
    pub(crate) fn opener(&self, port: u16) -> Option<usize> {
        usize::from(port).checked_sub(FIRST_PORT as usize + self.heavy)
    }

    /// The port of a connection, those that send counted first.
    fn source(&self, number: usize) -> u16 {
        FIRST_PORT + number as u16
    }

    /// The wire of the connection with this port.
    fn wire(&self, port: u16) -> usize {
        let number = usize::from(port.wrapping_sub(FIRST_PORT));
        number.checked_sub(self.heavy).unwrap_or(number) % self.workers
    }

    fn connection(&self, number: usize) -> Connection {
        let source = self.source(number);
        Connection::new(source, self.port, u64::MAX - 1, Displaced::new(0, 0))
    }
}

/// What the crowd shares with its runner.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The heavy connections may send.
    pub(crate) send: AtomicBool,
    /// The others may open.
    pub(crate) open: AtomicBool,
    /// When each of those sent its first SYN, in nanoseconds by `sys::clock::now`.
    pub(crate) first_syn: Vec<AtomicU64>,
    /// How many of them have given up.
    pub(crate) timed_out: AtomicUsize,
}

/// How far a connection is that tries to open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Opening {
    /// So many SYNs were sent; another is due.
    Tries(u32, Nanos),
    Open,
    TimedOut,
}

#[derive(Debug)]
struct Opener {
    number: usize,
    connection: Connection,
    state: Opening,
}

/// One of the wires; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Crowd {
    plan: CrowdPlan,
    progress: Arc<Progress>,
    heavy: Vec<Connection>,
    openers: Vec<Opener>,
    /// What the host sent to connections of this wire.
    inbox: Receiver<Vec<u8>>,
    /// Of all wires.
    outboxes: Vec<Sender<Vec<u8>>>,
    control: VecDeque<Vec<u8>>,
    /// Whose turn it is, and how many segments are left of it.
    turn: usize,
    left: usize,
    now: Nanos,
    looked: Nanos,
    filler: Option<Sum>,
}

impl Crowd {
    /// All wires, and their progress.
    pub(crate) fn gather(plan: CrowdPlan) -> (Vec<Crowd>, Arc<Progress>) {
        let progress = Arc::new(Progress {
            send: AtomicBool::new(false),
            open: AtomicBool::new(false),
            first_syn: (0..plan.openers).map(|_| AtomicU64::new(0)).collect(),
            timed_out: AtomicUsize::new(0),
        });
        let (outboxes, inboxes): (Vec<_>, Vec<_>) = (0..plan.workers).map(|_| channel()).unzip();
        let wire = |(wire, inbox)| {
            let mine = |count: usize| (wire..count).step_by(plan.workers);
            let opener = |number| Opener {
                number,
                connection: plan.connection(plan.heavy + number),
                state: Opening::Tries(0, 0),
            };
            Crowd {
                plan,
                progress: Arc::clone(&progress),
                heavy: mine(plan.heavy).map(|number| plan.connection(number)).collect(),
                openers: mine(plan.openers).map(opener).collect(),
                inbox,
                outboxes: outboxes.clone(),
                control: VecDeque::new(),
                turn: 0,
                left: BURST,
                now: 0,
                looked: 0,
                filler: None,
            }
        };
        (inboxes.into_iter().enumerate().map(wire).collect(), Arc::clone(&progress))
    }

    /// Opens the heavy connections, and the others when it is time.
    fn look(&mut self) {
        for connection in &mut self.heavy {
            if connection.is_closed() {
                self.control.push_back(connection.open(self.now));
            } else if connection.is_stuck(self.now) {
                self.control.extend(connection.try_again(self.now));
            }
        }
        if self.progress.open.load(Ordering::Relaxed) {
            for opener in &mut self.openers {
                self.control.extend(opener.look(self.now, &self.progress));
            }
        }
    }

    /// Segments of the heavy connections in turn, as many as are asked for.
    fn send(&mut self, pool: &mut FramePool, into: &mut VecDeque<RxFrame>, max: usize) {
        let Some(filler) = self.filler else { return };
        let mut passed = 0;
        while into.len() < max && passed <= self.heavy.len() && !self.heavy.is_empty() {
            let connection = &mut self.heavy[self.turn];
            connection.freshen(self.now);
            while self.left > 0 && into.len() < max {
                let Some(mut frame) = pool.alloc() else { return };
                let Some(next) = connection.next(self.now) else {
                    pool.free(frame);
                    self.control.extend(connection.try_again(self.now));
                    passed += 1;
                    break;
                };
                self.left -= 1;
                pool.set_range(&mut frame, 0, HEADER + next.segment.len);
                connection.template().write(pool.bytes_mut(&mut frame), next.segment, filler);
                into.push_back(received(frame));
            }
            if into.len() < max {
                self.turn = (self.turn + 1) % self.heavy.len();
                self.left = BURST;
            }
        }
    }

    /// A packet of the host's for a connection of this wire.
    fn take(&mut self, packet: &[u8]) {
        let Some((port, tcp)) = parse(packet) else { return };
        let number = usize::from(port.wrapping_sub(FIRST_PORT));
        if let Some(opener) = self.plan.opener(port) {
            let opener = self.openers.get_mut(opener / self.plan.workers);
            self.control.extend(opener.and_then(|opener| opener.receive(tcp, self.now)));
        } else if let Some(connection) = self.heavy.get_mut(number / self.plan.workers)
            && connection.receive(tcp, self.now)
        {
            self.control.push_back(connection.acknowledge(self.now));
        }
    }
}

impl Opener {
    /// The SYN that is due, if one is.
    fn look(&mut self, now: Nanos, progress: &Progress) -> Option<Vec<u8>> {
        let Opening::Tries(tries, due) = self.state else { return None };
        if now < due {
            return None;
        }
        if tries == SYN_TRIES {
            self.state = Opening::TimedOut;
            progress.timed_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.state = Opening::Tries(tries + 1, now + (SYN_TIMEOUT << tries));
        if tries > 0 {
            return self.connection.try_again(now);
        }
        progress.first_syn[self.number].store(now, Ordering::Relaxed);
        Some(self.connection.open(now))
    }

    /// The acknowledgment of the host's SYN, if it came in time.
    fn receive(&mut self, tcp: Tcp<&[u8]>, now: Nanos) -> Option<Vec<u8>> {
        let Opening::Tries(..) = self.state else { return None };
        self.connection.receive(tcp, now).then(|| {
            self.state = Opening::Open;
            self.connection.acknowledge(now)
        })
    }
}

/// A TCP packet, and the port that it is for.
fn parse(packet: &[u8]) -> Option<(u16, Tcp<&[u8]>)> {
    let headers = Headers::parse(packet).ok()?;
    if headers.transport != Transport::Tcp {
        return None;
    }
    let tcp = Tcp::new(&packet[headers.transport_at..headers.end]).ok()?;
    Some((tcp.destination(), tcp))
}

impl Wire for Crowd {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        self.filler.get_or_insert_with(|| fill(pool));
        self.now = sys::clock::now();
        while let Ok(packet) = self.inbox.try_recv() {
            self.take(&packet);
        }
        if self.now - self.looked > LOOK_EVERY {
            self.looked = self.now;
            self.look();
        }
        receive_control(&mut self.control, pool, into, max);
        if self.progress.send.load(Ordering::Relaxed) {
            self.send(pool, into, max);
        }
        Ok(())
    }

    fn transmit(
        &mut self,
        _pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        let packet = packet.bytes;
        transmitted.sent.count(packet.len());
        if let Some(reply) = frame::arp_reply(packet) {
            self.control.push_back(reply);
        } else if let Some((port, _)) = parse(packet) {
            // A wire that is closed needs nothing more.
            let _ = self.outboxes[self.plan.wire(port)].send(packet.to_vec());
        }
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

    fn close(self, _pool: &mut FramePool) {}
}
