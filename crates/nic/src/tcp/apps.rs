//! The services of an endpoint: what is done with the bytes of its connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;

use lro::Nanos;
use tcp::{Events, Id, Reason, Socket, Stack, State};

use super::counters::Counters;
use super::pattern::Pattern;

/// Bytes that are echoed at once.
const ECHO: usize = 64 << 10;

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

#[derive(Debug)]
struct Conversation {
    since: Nanos,
    read: u64,
    written: u64,
    mismatch: Option<u64>,
    /// Nothing more will be sent.
    is_shut: bool,
}

impl Conversation {
    fn new(now: Nanos) -> Self {
        Conversation { since: now, read: 0, written: 0, mismatch: None, is_shut: false }
    }
}

/// The conversations of a worker's connections.
#[derive(Debug)]
pub(super) struct Apps {
    work: Work,
    pattern: Pattern,
    all: HashMap<Id, Conversation>,
    /// What is on its way back; empty between calls.
    scratch: Box<[u8]>,
    reports: Option<Sender<Report>>,
    /// No more is to be sent.
    is_over: bool,
}

impl Apps {
    /// Does this work, and tells of each connection that is over, if there is a receiver for that.
    pub(super) fn new(work: Work, reports: Option<Sender<Report>>) -> Self {
        Apps {
            work,
            pattern: Pattern::default(),
            all: HashMap::new(),
            scratch: vec![0; ECHO].into_boxed_slice(),
            reports,
            is_over: false,
        }
    }

    /// A connection that the endpoint opens itself.
    pub(super) fn opened(&mut self, id: Id, counters: &mut Counters, now: Nanos) {
        self.all.insert(id, Conversation::new(now));
        counters.begun += 1;
    }

    /// How many conversations there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Goes on with all connections to which something has happened; returns whether there were any.
    pub(super) fn serve(&mut self, stack: &mut Stack, counters: &mut Counters, now: Nanos) -> bool {
        let mut any = false;
        while let Some((id, events)) = stack.next_event() {
            any = true;
            if events.any(Events::ACCEPTED) {
                self.opened(id, counters, now);
            }
            self.go_on(stack, id, counters, now);
        }
        counters.connections = self.all.len() as u64;
        any
    }

    fn go_on(&mut self, stack: &mut Stack, id: Id, counters: &mut Counters, now: Nanos) {
        let Apps { work, pattern, scratch, is_over, .. } = self;
        let Some(conversation) = self.all.get_mut(&id) else { return };
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
            self.forget(id, (path.local, path.remote), end, counters, now);
        }
    }

    fn forget(
        &mut self,
        id: Id,
        (local, remote): (SocketAddr, SocketAddr),
        end: Reason,
        counters: &mut Counters,
        now: Nanos,
    ) {
        let Some(conversation) = self.all.remove(&id) else { return };
        counters.ended += 1;
        counters.failed += u64::from(end != Reason::Closed);
        let Conversation { since, read, written, mismatch, .. } = conversation;
        if let Some(reports) = &self.reports {
            let nanos = now.saturating_sub(since);
            // That the receiver is gone is no error.
            let _ = reports.send(Report { local, remote, read, written, nanos, end, mismatch });
        }
    }

    /// The time is over: sources send no more, and nothing more is read by others.
    pub(super) fn finish(&mut self, stack: &mut Stack, counters: &mut Counters, now: Nanos) {
        self.is_over = true;
        let ids: Vec<Id> = self.all.keys().copied().collect();
        for id in ids {
            match self.work.service {
                Service::Source => self.go_on(stack, id, counters, now),
                Service::Echo | Service::Sink | Service::Discard => {
                    self.abort(stack, id, Reason::Closed, counters, now);
                }
            }
        }
    }

    /// Resets all that are left: their peers are not to wait for an endpoint that is gone.
    pub(super) fn abort_all(&mut self, stack: &mut Stack, counters: &mut Counters, now: Nanos) {
        let ids: Vec<Id> = self.all.keys().copied().collect();
        for id in ids {
            self.abort(stack, id, Reason::Aborted, counters, now);
        }
        counters.connections = self.all.len() as u64;
    }

    fn abort(
        &mut self,
        stack: &mut Stack,
        id: Id,
        end: Reason,
        counters: &mut Counters,
        now: Nanos,
    ) {
        let Some(mut socket) = stack.socket(id, now) else { return };
        let path = socket.path();
        socket.abort();
        drop(socket);
        self.forget(id, (path.local, path.remote), end, counters, now);
    }
}

impl Conversation {
    /// Sends back what has come; returns whether more is to come, or to go.
    fn echo(&mut self, socket: &mut Socket<'_>, scratch: &mut [u8]) -> bool {
        loop {
            let mut len = 0;
            for piece in socket.readable() {
                let room = &mut scratch[len..];
                let count = piece.len().min(room.len());
                room[..count].copy_from_slice(&piece[..count]);
                len += count;
            }
            if len == 0 && pass_mark(socket) {
                continue;
            }
            if len == 0 {
                return !socket.is_at_end();
            }
            // An error shows again as the connection's end.
            let Ok(taken) = socket.send(&scratch[..len]) else { return true };
            socket.consume(taken);
            self.read += taken as u64;
            self.written += taken as u64;
            if taken < len {
                return true;
            }
        }
    }

    /// Reads all that has come, and compares it with `pattern`.
    fn read(
        &mut self,
        socket: &mut Socket<'_>,
        pattern: Option<&mut Pattern>,
        counters: &mut Counters,
    ) {
        let pattern = pattern.as_deref();
        loop {
            let mut len = 0;
            for piece in socket.readable() {
                let at = self.read + len as u64;
                let mismatch = pattern.and_then(|pattern| pattern.mismatch(at, piece));
                if self.mismatch.is_none() && mismatch.is_some() {
                    self.mismatch = mismatch;
                    counters.mismatches += 1;
                }
                len += piece.len();
            }
            if len == 0 && pass_mark(socket) {
                continue;
            }
            if len == 0 {
                return;
            }
            socket.consume(len);
            self.read += len as u64;
        }
    }

    /// Writes as much of the pattern as the connection takes; returns whether there is more.
    fn write(&mut self, socket: &mut Socket<'_>, pattern: &Pattern, bytes: Option<u64>) -> bool {
        if self.is_shut || !socket.state().may_send() {
            return true;
        }
        loop {
            let left = bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(self.written));
            if left == 0 {
                return false;
            }
            let piece = pattern.at(self.written);
            let piece = &piece[..piece.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            // An error shows again as the connection's end.
            let Ok(taken) = socket.send(piece) else { return true };
            self.written += taken as u64;
            if taken < piece.len() {
                return true;
            }
        }
    }
}

/// Passes over an urgent byte that bars the way to what is behind it: it is no part of the stream. Returns
/// whether there was one.
fn pass_mark(socket: &mut Socket<'_>) -> bool {
    let is_there = socket.readable_len() > 0;
    // An empty read at the mark reads nothing, and goes beyond it.
    is_there && socket.receive(&mut []).is_ok()
}
