//! Bytes between the rings of a connection and the engine. Those of the send ring stay in it until the peer has
//! acknowledged them, so that they outlive the NIC.

use handoff::Epoch;
use handoff::mirror::Closing;
use handoff::ring::{Hostile, receive, send};
use handoff::session::Area;
use tcp::{Socket, Standing};
use wire::Seq;

use super::connections::Running;
use super::records::{Keeps, Records};

/// What the engine may have that it has not sent, before a send ring is taken to be what limits it.
const UNSENT_LEAST: u32 = 64 << 10;

/// What has moved between the rings of a connection and the engine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// Bytes whose place in the send ring is free.
    pub(super) sent: u32,
    /// Bytes that the application may read, and the index of the first of them.
    pub(super) received: u32,
    pub(super) at: u32,
    /// The engine has all that is in the send ring.
    pub(super) is_sent: bool,
}

/// A connection whose bytes move.
pub(super) struct Exchange<'a, 'b> {
    pub(super) running: &'a mut Running,
    pub(super) keeps: &'a mut Keeps,
    pub(super) epoch: Epoch,
    pub(super) socket: &'a mut Socket<'b>,
    pub(super) records: &'a mut Records,
    pub(super) scratch: &'a mut [u8],
}

impl Exchange<'_, '_> {
    /// Moves what there is room for, both ways.
    pub(super) fn run(&mut self, area: &Area<'_>) -> Result<Moved, Hostile> {
        let (Ok(send), Ok(receive)) = (area.send(), area.receive()) else {
            return Ok(Moved::default());
        };
        let mut send = send::Nic::resume(send, self.running.send);
        let mut receive = receive::Nic::resume(receive, self.running.receive);
        let looked = (send.look(), receive.look());
        if let (Err(hostile), _) | (_, Err(hostile)) = looked {
            return Err(hostile);
        }
        let acked = self.acknowledged();
        let (acked_there, acked_here) = (acked.min(self.keeps.sent.len()), acked);
        let mut free = acked_here - acked_there;
        self.keeps.given -= free;
        let is_sent = self.give(&send, free);
        if self.running.is_shut && is_sent && self.socket.state().may_send() {
            self.socket.shutdown();
        }
        free += self.make_room(&send, free);
        if self.socket.readable_len() > receive.room() as usize {
            let first = Seq(receive.tail());
            self.records.keep_received(self.keeps, self.epoch, first, self.socket);
        }
        let put = self.put(&mut receive);
        let there = put.min(self.keeps.received.len());
        let rings = (send.head().wrapping_add(free), receive.tail().wrapping_add(put));
        self.commit(rings);
        self.records.release(self.keeps, acked_there, there);
        let at = receive.tail();
        send.release(free);
        receive.publish(put);
        (self.running.send, self.running.receive) = (send.keep(), receive.keep());
        Ok(Moved { sent: free, received: put, at, is_sent })
    }

    /// Bytes that the peer has acknowledged since.
    fn acknowledged(&self) -> u32 {
        let had = self.keeps.sent.len() + self.keeps.given;
        had.saturating_sub(self.socket.standing().queued)
    }

    /// Gives the engine what it takes of the ring, whose first `free` bytes are acknowledged. Returns whether that is
    /// all.
    fn give(&mut self, ring: &send::Nic<'_>, free: u32) -> bool {
        loop {
            let len = ring.peek(free + self.keeps.given, self.scratch);
            if len == 0 {
                return true;
            }
            let Ok(taken) = self.socket.send(&self.scratch[..len]) else { return false };
            self.keeps.given += taken as u32;
            if taken < len {
                return false;
            }
        }
    }

    /// If the ring is what limits the connection, as when much is in flight on a long path, the first half of it is
    /// kept elsewhere. Returns how many bytes that is.
    fn make_room(&mut self, ring: &send::Nic<'_>, free: u32) -> u32 {
        let used = ring.len() - free;
        let Standing { queued, snd_una, snd_nxt, .. } = self.socket.standing();
        let unsent = queued.saturating_sub(snd_nxt - snd_una);
        let is_full = used > ring.capacity() / 8 * 7;
        if !is_full || self.keeps.given < used || unsent >= UNSENT_LEAST.min(used / 4) {
            return 0;
        }
        let mut moved = 0;
        while moved < used / 2 {
            let most = self.scratch.len().min((used / 2 - moved) as usize);
            let len = ring.peek(free + moved, &mut self.scratch[..most]);
            let seq = Seq(ring.head().wrapping_add(free + moved));
            let bytes = &self.scratch[..len];
            if !self.records.keep_sent(self.keeps, self.epoch, seq, bytes) {
                break;
            }
            moved += len as u32;
        }
        self.keeps.given -= moved;
        moved
    }

    /// Writes what has come into the ring, which does not publish it. Returns how many bytes.
    fn put(&mut self, ring: &mut receive::Nic<'_>) -> u32 {
        let mut put = 0;
        loop {
            let mut len = 0;
            for piece in self.socket.readable() {
                len += ring.put(put + len as u32, piece);
            }
            let is_barred = len == 0 && ring.room() > put && self.socket.readable_len() > 0;
            if is_barred && self.pass_mark() {
                continue;
            }
            if len == 0 {
                return put;
            }
            self.socket.consume(len);
            put += len as u32;
        }
    }

    /// Passes over an urgent byte that bars the way to what is behind it: it is no part of the stream. Sequence numbers
    /// are no indices behind it, so that the connection has no record any more.
    fn pass_mark(&mut self) -> bool {
        self.records.give_up(self.keeps);
        self.socket.is_urgent() && self.socket.receive(&mut []).is_ok()
    }

    fn commit(&mut self, rings: (u32, u32)) {
        let standing = self.socket.standing();
        self.records.commit(self.keeps, &standing, closing(self.running), rings);
    }
}

/// What the application has closed.
pub(super) fn closing(running: &Running) -> Closing {
    match (running.is_closed, running.is_shut) {
        (true, _) => Closing::Closed,
        (false, true) => Closing::Shut,
        (false, false) => Closing::Open,
    }
}
