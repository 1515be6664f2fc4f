//! What is read and written on one connection of a service, and those of all connections.

use lro::Nanos;
use tcp::{Id, Socket};

use super::counters::ServiceCounters;
use super::pattern::Pattern;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) since: Nanos,
    pub(super) read: u64,
    pub(super) written: u64,
    /// The first byte that was not that of the pattern.
    pub(super) mismatch: Option<u64>,
    /// Nothing more will be sent.
    pub(super) is_shut: bool,
}

impl Conversation {
    /// Begins now.
    pub(super) fn new(now: Nanos) -> Self {
        Conversation { since: now, read: 0, written: 0, mismatch: None, is_shut: false }
    }

    /// Sends back what has come; returns whether more is to come, or to go.
    pub(super) fn echo(&mut self, socket: &mut Socket<'_>, scratch: &mut [u8]) -> bool {
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
    pub(super) fn read(
        &mut self,
        socket: &mut Socket<'_>,
        pattern: Option<&mut Pattern>,
        counters: &mut ServiceCounters,
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
    pub(super) fn write(
        &mut self,
        socket: &mut Socket<'_>,
        pattern: &Pattern,
        bytes: Option<u64>,
    ) -> bool {
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

/// Conversations by their connections' slots: one cache miss each, where there are many.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    slots: Vec<Option<(Id, Conversation)>>,
    len: usize,
}

impl Conversations {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Starts loading that of a connection into the cache.
    pub(super) fn prefetch(&self, id: Id) {
        if let Some(slot) = self.slots.get(id.slot() as usize) {
            wire::cache::prefetch(slot);
        }
    }

    /// That of a connection.
    #[inline]
    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Conversation> {
        let (of, conversation) = self.slots.get_mut(id.slot() as usize)?.as_mut()?;
        (*of == id).then_some(conversation)
    }

    /// Puts that of a new connection.
    pub(super) fn insert(&mut self, id: Id, conversation: Conversation) {
        let at = id.slot() as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        let old = self.slots[at].replace((id, conversation));
        self.len += usize::from(old.is_none());
    }

    /// Takes out that of a connection.
    pub(super) fn remove(&mut self, id: Id) -> Option<Conversation> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        let (_, conversation) = slot.take_if(|(of, _)| *of == id)?;
        self.len -= 1;
        Some(conversation)
    }

    /// The connections.
    pub(super) fn ids(&self) -> Vec<Id> {
        self.slots.iter().flatten().map(|(id, _)| *id).collect()
    }
}
