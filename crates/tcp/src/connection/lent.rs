//! Connections whose queues lie with the application, in memory of which nothing is known here.
//!
//! What is to be sent is a number of bytes, and segments say which of them they have. What is received the application
//! stores as it is told, in order or behind a hole, and takes off when it has read it.

use alloc::vec::Vec;

use wire::Seq;

use crate::connection::calls::SendError;
use crate::connection::{Connection, Context};
use crate::options::Block;
use crate::ring::Ring;

/// Which of a connection's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// What is not acknowledged, or not sent yet.
    Send,
    /// What was received and not read, also behind holes.
    Receive,
}

/// Gives the bytes of a queue that lies with the application: so many, from this one on, counted from the first.
pub type Lend<'a> = dyn FnMut(Queue, u32, u32) -> Vec<u8> + 'a;

impl Connection {
    /// Its queues lie with the application, which has memory for so many bytes received.
    pub(crate) fn lend_queues(&mut self, room: u32) {
        self.hot.send = Ring::lent();
        self.hot.receive = Ring::lent();
        self.room = room;
    }

    /// So many bytes more are to be sent.
    pub(crate) fn lend(&mut self, bytes: u32) -> Result<(), SendError> {
        debug_assert!(self.hot.send.is_lent(), "its bytes lie here");
        self.may_queue()?;
        self.hot.send.extend(bytes);
        Ok(())
    }

    /// There is memory for so many bytes received.
    pub(crate) fn set_room(&mut self, bytes: u32) {
        debug_assert!(bytes >= self.room, "{bytes} is less than {}", self.room);
        self.room = bytes;
        self.wants_room = false;
        self.review_room();
    }

    /// The application is to store the bytes of a block, which begin `skip` bytes into the segment's payload.
    #[inline]
    pub(crate) fn place(&mut self, block: Block, skip: u32, context: &mut Context<'_>) {
        debug_assert!(context.placed.is_none(), "a segment is one run of bytes");
        *context.placed = Some((block, skip));
    }

    /// Whether more memory for what is received would let it offer a larger window.
    pub fn wants_room(&self) -> bool {
        self.wants_room
    }

    /// Whether something was received behind a hole.
    pub fn has_holes(&self) -> bool {
        !self.out_of_order.is_empty()
    }

    /// The same end, or the end of what there is memory for.
    pub(crate) fn cut_to_room(&self, end: Seq) -> Seq {
        end.min(self.room_end()).max(self.hot.rcv_nxt)
    }

    /// The end of what there is memory for.
    fn room_end(&self) -> Seq {
        self.read_seq() + self.room
    }

    /// Looks anew whether more was offered than there is memory for. It may be when the connection comes from elsewhere:
    /// the right edge does not move left (RFC 9293, SHLD-14), but what is beyond the memory is not taken, as where a host
    /// is out of it, and the peer sends it again.
    pub(crate) fn review_room(&mut self) {
        let is_tight = self.hot.receive.is_lent() && self.hot.rcv_edge.after(self.room_end());
        self.hot.bits.set_tight(is_tight);
    }

    /// A copy of the send queue.
    pub(crate) fn copy_sent(&self, lend: &mut Lend<'_>) -> Vec<u8> {
        let (ring, len) = (&self.hot.send, self.hot.send.len());
        if ring.is_lent() { lend(Queue::Send, 0, len) } else { ring.copy(0, len) }
    }

    /// A copy of bytes of the receive queue.
    pub(crate) fn copy_received(&self, offset: u32, len: u32, lend: &mut Lend<'_>) -> Vec<u8> {
        let ring = &self.hot.receive;
        if ring.is_lent() { lend(Queue::Receive, offset, len) } else { ring.copy(offset, len) }
    }
}
