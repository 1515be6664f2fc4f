//! What a connection's rings and the engine tell each other. Bytes stay where they are: the engine sends from the send ring
//! and stores in the receive ring, and knows how many there are.

use handoff::mirror::Closing;
use handoff::ring::{Hostile, receive, send};
use handoff::session::Area;
use tcp::{Queue, Socket};

use super::connections::Running;
use super::records::{Keeps, Records};
use super::unsent::unsent;

/// What the engine may have that it has not sent, before a send ring is taken to be what limits it.
const UNSENT_LEAST: u32 = 64 << 10;

/// What was exchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    /// Bytes whose place in the send ring is free.
    pub(super) sent: u32,
    /// Bytes that the application may read, and the index of the first of them.
    pub(super) received: u32,
    pub(super) at: u32,
    /// The engine has all that is in the send ring.
    pub(super) is_sent: bool,
    /// How many bytes may wait to be sent is limited since: who waits looks again.
    pub(super) is_limited_anew: bool,
}

/// A connection, as the engine and its rings have it.
pub(super) struct Exchange<'a, 'b> {
    pub(super) running: &'a mut Running,
    pub(super) keeps: &'a mut Keeps,
    pub(super) socket: &'a mut Socket<'b>,
    pub(super) records: &'a mut Records,
}

impl Exchange<'_, '_> {
    /// Tells each what the other has done.
    pub(super) fn run(&mut self, area: &Area<'_>) -> Result<Moved, Hostile> {
        let (mut send, mut receive) = self.rings(area)?;
        send.look()?;
        let read = receive.look()?;
        let moved = self.settle(&mut send, &mut receive, read);
        let is_new = self.running.unsent.is_none();
        let left = self.running.sends(area, &self.socket.standing());
        Ok(Moved { is_limited_anew: left.is_some() && is_new, ..moved })
    }

    /// The same at the end of the rings' epoch: calls that have not taken effect lose.
    pub(super) fn end(&mut self, area: &Area<'_>) -> Result<(), Hostile> {
        let (mut send, mut receive) = self.rings(area)?;
        let unread = receive.len();
        // Both end, whatever is found.
        let flipped = (send.flip(), receive.flip());
        flipped.0.and(flipped.1)?;
        let read = unread - receive.len();
        self.settle(&mut send, &mut receive, read);
        Ok(())
    }

    fn rings<'a>(&self, area: &Area<'a>) -> Result<(send::Nic<'a>, receive::Nic<'a>), Hostile> {
        // Of a layout that was validated there are both.
        let (Ok(send), Ok(receive)) = (area.send(), area.receive()) else {
            return Err(Hostile::Index);
        };
        let running = &self.running;
        let send = send::Nic::resume(send, running.send);
        Ok((send, receive::Nic::resume(receive, running.receive)))
    }

    fn settle(
        &mut self,
        send: &mut send::Nic<'_>,
        receive: &mut receive::Nic<'_>,
        read: u32,
    ) -> Moved {
        let free = self.acknowledged(send);
        let is_sent = self.lend(send);
        if self.running.is_shut && is_sent && self.socket.state().may_send() {
            self.socket.shutdown();
        }
        self.socket.consume(read as usize);
        let put = (self.socket.readable_len() as u32).saturating_sub(receive.len());
        self.grow(send, receive);
        // Before the application sees what was received, and may write over what is acknowledged.
        self.records.commit(self.keeps, &self.socket.standing(), closing(self.running));
        let at = receive.tail();
        send.release(free);
        receive.publish(put);
        if receive.is_empty() && !self.socket.has_holes() {
            receive.begin_anew();
        }
        (self.running.send, self.running.receive) = (send.keep(), receive.keep());
        Moved { sent: free, received: put, at, is_sent, is_limited_anew: false }
    }

    /// Bytes of the ring that the peer has acknowledged since.
    fn acknowledged(&self, send: &send::Nic<'_>) -> u32 {
        let had = self.running.lent.wrapping_sub(send.head());
        had.saturating_sub(self.socket.standing().queued)
    }

    /// Lends the engine what the application has written. Returns whether the engine has all of it.
    fn lend(&mut self, send: &send::Nic<'_>) -> bool {
        let end = send.head().wrapping_add(send.len());
        let more = end.wrapping_sub(self.running.lent);
        if more > 0 && self.socket.lend(more).is_ok() {
            self.running.lent = end;
        }
        self.running.lent == end
    }

    /// Makes a ring larger that is what limits the connection.
    fn grow(&mut self, send: &mut send::Nic<'_>, receive: &mut receive::Nic<'_>) {
        // With what is acknowledged now: it may be all that there is, where the application and the peer wait for each
        // other.
        let used = send.len();
        let standing = self.socket.standing();
        if used > send.size() / 8 * 7 && unsent(&standing) < UNSENT_LEAST.min(used / 4) {
            send.grow();
        }
        // All that the peer was told there is room for stays where it is.
        if self.socket.wants_room() && receive.grow(standing.rcv_edge.0) {
            self.socket.set_room(receive.size());
        }
    }

    /// Bytes of a queue, for a snapshot: so many, from this one on.
    pub(super) fn bytes(
        (area, running): (&Area<'_>, &Running),
        queued: u32,
        (queue, offset, len): (Queue, u32, u32),
    ) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        match queue {
            Queue::Send => {
                let Ok(ring) = area.send() else { return Vec::new() };
                let ring = send::Nic::resume(ring, running.send);
                let acknowledged = running.lent.wrapping_sub(ring.head()).saturating_sub(queued);
                ring.peek(acknowledged + offset, &mut bytes);
            }
            Queue::Receive => {
                let Ok(ring) = area.receive() else { return Vec::new() };
                receive::Nic::resume(ring, running.receive).peek_put(offset, &mut bytes);
            }
        }
        bytes
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
