//! The services of an endpoint: what is done with the bytes of its connections, with whom, and until when.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use iface::Interface;
use lro::Nanos;
use tcp::{ConnectError, Events, FourTuple, Id, Reason, Stack, State};

use super::conversation::{Conversation, Conversations};
use super::counters::ServiceCounters;
use super::pattern::Pattern;
use super::{App, Lender};

/// How long connections may take to end when their time is over.
const LINGER: Nanos = 5_000_000_000;
/// Ports of connections that are opened here: Linux's (`net.ipv4.ip_local_port_range`).
const EPHEMERAL: std::ops::Range<u16> = 32_768..60_999;
/// Connections whose conversations are fetched into the cache at once.
const BATCH: usize = 64;
/// Such batches in a turn. What is left is for the next one: what the first of them send is to leave before, and what
/// arrives meanwhile is not to wait for all of them.
const TURN_BATCHES: usize = 4;
/// Bytes that are echoed at once.
const ECHO: usize = 64 << 10;

/// Whom an endpoint speaks with, and until when.
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

/// Which of several workers that do the same this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share {
    /// Its number, from 0.
    pub(crate) number: u32,
    /// How many there are.
    pub(crate) of: u32,
}

/// What is done with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// What comes is sent back (RFC 862).
    Echo,
    /// What comes is counted, and the count told.
    Sink,
    /// What comes is read, and nothing told (RFC 863).
    Discard,
    /// A [`Pattern`] is sent as fast as it goes; what comes is read (RFC 864 in spirit).
    Source,
}

/// What is to be done with all connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// What is done.
    pub service: Service,
    /// Bytes that a source sends on each connection before it closes; `None` for as many as it can.
    pub bytes: Option<u64>,
    /// Compare what comes with the [`Pattern`].
    pub verify: bool,
}

/// A connection that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The endpoint's end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// How long it was open, in nanoseconds.
    pub nanos: Nanos,
    /// How it ended.
    pub end: Reason,
    /// The first byte that was not that of the pattern, where that was looked at.
    pub mismatch: Option<u64>,
}

/// What is to be done, by which share of the workers.
#[derive(Debug)]
pub(crate) struct Services {
    work: Work,
    role: Role,
    /// How long it is done, in nanoseconds; for ever if `None`.
    run: Option<Nanos>,
    share: Share,
    config: Arc<tcp::Config>,
    pattern: Pattern,
    all: Conversations,
    /// Of the batch at hand; empty between calls.
    events: Vec<(Id, Events)>,
    /// What is on its way back; empty between calls.
    scratch: Box<[u8]>,
    reports: Option<Sender<Report>>,
    /// When it has been done for long enough.
    until: Option<Nanos>,
    /// No more is to be sent.
    is_over: bool,
    counters: ServiceCounters,
}

impl Services {
    /// Does this work on connections with this configuration, and tells of each that is over, if there is a
    /// receiver for that.
    pub(crate) fn new(
        (work, role, run): (Work, Role, Option<Nanos>),
        share: Share,
        config: Arc<tcp::Config>,
        reports: Option<Sender<Report>>,
    ) -> Self {
        Services {
            work,
            role,
            run,
            share,
            config,
            pattern: Pattern::default(),
            all: Conversations::default(),
            events: Vec::with_capacity(BATCH),
            scratch: vec![0; ECHO].into_boxed_slice(),
            reports,
            until: None,
            is_over: false,
            counters: ServiceCounters::default(),
        }
    }

    /// Opens this worker's share of the connections, from ports in order, beginning anywhere (RFC 6056
    /// section 3.3.1). Each worker has ports of its own.
    fn connect(
        &mut self,
        (to, connections): (SocketAddr, u32),
        stack: &mut Stack,
        interface: &Interface,
        may_open: &mut dyn FnMut(&FourTuple) -> bool,
        now: Nanos,
    ) -> io::Result<()> {
        let Some(source) = interface.addresses().source_for(to.ip()) else {
            return Err(io::Error::other(format!(
                "the endpoint has no address to reach {to} from"
            )));
        };
        let Share { number, of } = self.share;
        let ports = u64::from(EPHEMERAL.end - EPHEMERAL.start) / u64::from(of);
        let first = RandomState::new().hash_one(to) % ports;
        let mut offsets = first..first + ports;
        let own = connections / of + u32::from(number < connections % of);
        for _ in 0..own {
            let id = loop {
                let Some(offset) = offsets.next() else {
                    return Err(io::Error::other("there are no ports left"));
                };
                let offset = (offset % ports) as u32 * of + number;
                let port = EPHEMERAL.start + offset as u16;
                let path = FourTuple { local: SocketAddr::new(source, port), remote: to };
                if !may_open(&path) {
                    continue;
                }
                match stack.connect(path, Arc::clone(&self.config), now) {
                    Ok(id) => break id,
                    Err(ConnectError::InUse) => {}
                    Err(error) => return Err(io::Error::other(error)),
                }
            };
            self.opened(id, now);
        }
        self.counters.connections = self.all.len() as u64;
        Ok(())
    }

    fn opened(&mut self, id: Id, now: Nanos) {
        self.all.insert(id, Conversation::new(now));
        self.counters.begun += 1;
    }

    fn go_on(&mut self, stack: &mut Stack, id: Id, now: Nanos) {
        let Services { work, pattern, scratch, is_over, counters, .. } = self;
        let Some(conversation) = self.all.get_mut(id) else { return };
        let Some(mut socket) = stack.socket(id, now) else { return };
        let before = (conversation.read, conversation.written);
        let wants_more = match work.service {
            Service::Echo => conversation.echo(&mut socket, scratch),
            Service::Sink | Service::Discard => {
                conversation.read(&mut socket, work.verify.then_some(pattern), counters);
                !socket.is_at_end()
            }
            Service::Source => {
                conversation.read(&mut socket, None, counters);
                conversation.write(&mut socket, pattern, work.bytes)
            }
        };
        counters.bytes_read += conversation.read - before.0;
        counters.bytes_written += conversation.written - before.1;
        if (!wants_more || *is_over) && !conversation.is_shut {
            conversation.is_shut = true;
            socket.shutdown();
        }
        let end = match (socket.end(), socket.state()) {
            (Some(end), _) => Some(end),
            // Both have closed and know it of each other; what is left is the engine's.
            (None, State::TimeWait) if socket.is_at_end() => Some(Reason::Closed),
            _ => None,
        };
        if let Some(end) = end {
            let path = socket.path();
            socket.close();
            self.forget(id, (path.local, path.remote), end, now);
        }
    }

    fn forget(
        &mut self,
        id: Id,
        (local, remote): (SocketAddr, SocketAddr),
        end: Reason,
        now: Nanos,
    ) {
        let Some(conversation) = self.all.remove(id) else { return };
        self.counters.ended += 1;
        self.counters.failed += u64::from(end != Reason::Closed);
        let Conversation { since, read, written, mismatch, .. } = conversation;
        if let Some(reports) = &self.reports {
            let nanos = now.saturating_sub(since);
            // That the receiver is gone is no error.
            let _ = reports.send(Report { local, remote, read, written, nanos, end, mismatch });
        }
    }

    /// The time is over: sources send no more, and nothing more is read by others.
    fn finish(&mut self, stack: &mut Stack, now: Nanos) {
        self.is_over = true;
        let ids: Vec<Id> = self.all.ids();
        for id in ids {
            match self.work.service {
                Service::Source => self.go_on(stack, id, now),
                Service::Echo | Service::Sink | Service::Discard => {
                    self.reset(stack, id, Reason::Closed, now);
                }
            }
        }
    }

    fn reset(&mut self, stack: &mut Stack, id: Id, end: Reason, now: Nanos) {
        let Some(mut socket) = stack.socket(id, now) else { return };
        let path = socket.path();
        socket.abort();
        drop(socket);
        self.forget(id, (path.local, path.remote), end, now);
    }
}

impl Lender for Services {}

impl App for Services {
    fn begin(
        &mut self,
        stack: &mut Stack,
        interface: &Interface,
        may_open: &mut dyn FnMut(&FourTuple) -> bool,
        now: Nanos,
    ) -> io::Result<()> {
        self.until = self.run.map(|run| now + run);
        match self.role {
            Role::Listen { port } => {
                let listening = stack.listen(None, port, Arc::clone(&self.config));
                listening.map(drop).map_err(io::Error::other)
            }
            Role::Connect { to, connections } => {
                self.connect((to, connections), stack, interface, may_open, now)
            }
        }
    }

    fn serve(&mut self, stack: &mut Stack, now: Nanos) -> bool {
        let mut any = false;
        let mut events = std::mem::take(&mut self.events);
        for _ in 0..TURN_BATCHES {
            events.extend(std::iter::from_fn(|| stack.next_event()).take(BATCH));
            events.iter().for_each(|(id, _)| self.all.prefetch(*id));
            any |= !events.is_empty();
            let count = events.len();
            for (id, events) in events.drain(..) {
                if events.any(Events::ACCEPTED) {
                    self.opened(id, now);
                }
                self.go_on(stack, id, now);
            }
            if count < BATCH {
                break;
            }
        }
        self.events = events;
        self.counters.connections = self.all.len() as u64;
        any
    }

    /// When the time is over, connections are given a while to end.
    fn on_time(&mut self, stack: &mut Stack, now: Nanos) {
        if self.until.is_none_or(|until| now < until) {
            return;
        }
        if self.is_over {
            self.abort(stack, now);
        } else {
            self.is_over = true;
            self.until = Some(now + LINGER);
            self.finish(stack, now);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.until
    }

    fn is_done(&self) -> bool {
        let over = self.is_over && matches!(self.role, Role::Listen { .. });
        self.all.len() == 0 && (over || matches!(self.role, Role::Connect { .. }))
    }

    fn abort(&mut self, stack: &mut Stack, now: Nanos) {
        let ids: Vec<Id> = self.all.ids();
        for id in ids {
            self.reset(stack, id, Reason::Aborted, now);
        }
        self.counters.connections = self.all.len() as u64;
    }

    fn counters(&self) -> &ServiceCounters {
        &self.counters
    }
}
