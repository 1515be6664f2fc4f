//! The loop of an endpoint: a batch from the port to the engine, the services, and what the engine has
//! to say back to the port.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use iface::Duplicate;
use lro::Nanos;
use tcp::{ConnectError, FourTuple};

use super::apps::Apps;
use super::give_back::GiveBack;
use super::node::{Node, Sent};
use super::port::Port;
use crate::counters::Published;
use crate::event_loop::{self, EventLoop};

/// Super-packets that are sent before it is looked again what has arrived.
const SEND_BATCH: usize = 64;
/// How long connections may take to end when their time is over.
const LINGER: Nanos = 5_000_000_000;
/// Turns at the end at most: as many as empty an interface's queue.
const LAST_TURNS: usize = 32;
/// Ports of connections that the endpoint opens itself: Linux's (`net.ipv4.ip_local_port_range`).
const EPHEMERAL: std::ops::Range<u16> = 32_768..60_999;

/// Whom the endpoint speaks with, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Serve all that connect to this port, until it is stopped.
    Listen {
        /// TCP port.
        port: u16,
    },
    /// The endpoint opens connections itself, and ends with them.
    Connect {
        /// To where.
        to: SocketAddr,
        /// How many, all at once.
        connections: u32,
    },
}

/// How a worker waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pace {
    /// How long it looks for packets before it sleeps, in nanoseconds.
    pub(super) spin: Nanos,
    /// Most packets of a turn.
    pub(super) batch: usize,
    /// How long the services work, in nanoseconds; for ever if `None`.
    pub(super) run: Option<Nanos>,
}

/// What an endpoint's worker shares with the rest of the process. What it goes by is fixed.
pub(super) type Handle = crate::handle::Handle<(), Published>;

/// See the module's documentation.
pub(super) struct Worker<P> {
    pub(super) port: P,
    pub(super) node: Node,
    pub(super) apps: Apps,
    pub(super) handle: Arc<Handle>,
    pub(super) pace: Pace,
    pub(super) role: Role,
    pub(super) config: Arc<tcp::Config>,
    /// When the services have worked for long enough.
    pub(super) until: Option<Nanos>,
    pub(super) is_over: bool,
    /// The port had no room for what there was to send.
    pub(super) is_full: bool,
    pub(super) give_back: GiveBack,
    /// Told once: that the addresses are in use, or which one is another host's.
    pub(super) ready: Sender<Result<(), Duplicate>>,
}

impl<P: Port> Worker<P> {
    /// Works until told to stop, or until all that was to be done is done.
    ///
    /// # Errors
    /// A port that has become useless, or connections that cannot be opened.
    pub(super) fn run(mut self) -> io::Result<()> {
        self.node.interface.start(sys::clock::now());
        let result = self.settle().and_then(|()| {
            let now = sys::clock::now();
            self.until = self.pace.run.map(|run| now + run);
            self.open(now).and_then(|()| event_loop::run(&mut self))
        });
        let now = sys::clock::now();
        // Those that are about to end in order do.
        let result = result.and_then(|()| self.last_turns(now));
        let Node { stack, counters, .. } = &mut self.node;
        self.apps.abort_all(stack, counters, now);
        let last = result.and_then(|()| self.turn(now).map(drop));
        self.publish_counters();
        self.port.close();
        last
    }

    /// Works until the addresses may be used.
    fn settle(&mut self) -> io::Result<()> {
        while !self.handle.is_stopped() && !self.node.interface.is_settled() {
            let now = sys::clock::now();
            if !self.turn(now)? {
                self.sleep(now)?;
            }
            if let Some(duplicate) = self.node.interface.poll_duplicate() {
                // There is one to be told, or the endpoint is about to be stopped.
                let _ = self.ready.send(Err(duplicate));
                return Err(io::Error::other(duplicate.to_string()));
            }
        }
        let _ = self.ready.send(Ok(()));
        Ok(())
    }

    /// Takes what has arrived already.
    fn last_turns(&mut self, now: Nanos) -> io::Result<()> {
        for _ in 0..LAST_TURNS {
            if !self.turn(now)? {
                break;
            }
        }
        Ok(())
    }

    fn open(&mut self, now: Nanos) -> io::Result<()> {
        match self.role {
            Role::Listen { port } => {
                let listening = self.node.stack.listen(None, port, Arc::clone(&self.config));
                listening.map(drop).map_err(io::Error::other)
            }
            Role::Connect { to, connections } => self.connect(to, connections, now),
        }
    }

    /// Opens connections from ports in order, beginning anywhere (RFC 6056 section 3.3.1).
    fn connect(&mut self, to: SocketAddr, connections: u32, now: Nanos) -> io::Result<()> {
        let Some(source) = self.node.interface.addresses().source_for(to.ip()) else {
            return Err(io::Error::other(format!(
                "the endpoint has no address to reach {to} from"
            )));
        };
        let ports = u64::from(EPHEMERAL.end - EPHEMERAL.start);
        let first = RandomState::new().hash_one(to) % ports;
        let mut offsets = first..first + ports;
        for _ in 0..connections {
            let id = loop {
                let Some(offset) = offsets.next() else {
                    return Err(io::Error::other("there are no ports left"));
                };
                let port = EPHEMERAL.start + (offset % ports) as u16;
                let path = FourTuple { local: SocketAddr::new(source, port), remote: to };
                match self.node.stack.connect(path, Arc::clone(&self.config), now) {
                    Ok(id) => break id,
                    Err(ConnectError::InUse) => {}
                    Err(error) => return Err(io::Error::other(error)),
                }
            };
            self.apps.opened(id, &mut self.node.counters, now);
        }
        Ok(())
    }

    /// Whether the endpoint has nothing more to do.
    fn is_done(&self) -> bool {
        let over = self.is_over && matches!(self.role, Role::Listen { .. });
        self.apps.len() == 0 && (over || matches!(self.role, Role::Connect { .. }))
    }

    /// When the time is over, connections are given a while to end.
    fn end_in_time(&mut self, now: Nanos) {
        if self.until.is_none_or(|until| now < until) {
            return;
        }
        let Node { stack, counters, .. } = &mut self.node;
        if self.is_over {
            self.apps.abort_all(stack, counters, now);
        } else {
            self.is_over = true;
            self.until = Some(now + LINGER);
            self.apps.finish(stack, counters, now);
        }
    }

    fn publish_counters(&mut self) {
        let port = self.port.counters();
        let Node { interface, stack, counters, .. } = &self.node;
        let (network, memory) = (interface.counters(), stack.memory());
        let entries = counters.entries(&port, &network, stack.counters(), &memory);
        self.handle.published().publish(entries);
    }

    /// The memory of connections that are gone goes back to the operating system.
    fn give_back(&mut self, now: Nanos) {
        if self.give_back.is_time(self.node.stack.memory().held(), now) {
            sys::allocator::give_back();
        }
    }
}

impl<P: Port> EventLoop for Worker<P> {
    fn goes_on(&mut self) -> bool {
        !self.handle.is_stopped() && !self.is_done()
    }

    fn turn(&mut self, now: Nanos) -> io::Result<bool> {
        let Worker { port, node, apps, .. } = self;
        let received = port.receive(self.pace.batch, now, |packet| node.receive(packet, now))?;
        node.on_time(now);
        let served = apps.serve(&mut node.stack, &mut node.counters, now);
        let sent = node.transmit(port, now, SEND_BATCH);
        self.is_full = sent == Sent::Full;
        port.flush()?;
        self.end_in_time(now);
        Ok(received > 0 || served || sent == Sent::Some)
    }

    fn spin(&self) -> Nanos {
        self.pace.spin
    }

    /// Sleeps in the kernel until the port or the control thread has something, or something is due.
    fn sleep(&mut self, now: Nanos) -> io::Result<()> {
        let Worker { port, node, .. } = self;
        let before = node.counters.segments_in.frames;
        port.idle(now, |packet| node.receive(packet, now));
        if node.counters.segments_in.frames > before {
            return Ok(());
        }
        node.counters.sleeps += 1;
        self.publish(now);
        let deadlines = [self.node.next_deadline(), self.port.next_deadline(), self.until];
        let due = deadlines.into_iter().chain([self.give_back.due()]).flatten().min();
        let (port, retry) = self.port.wait(self.is_full);
        let due = due.map(|due| due.saturating_sub(sys::clock::now()));
        self.handle.sleep(port, due.into_iter().chain(retry).min())
    }

    fn publish(&mut self, now: Nanos) {
        self.publish_counters();
        self.give_back(now);
    }
}
