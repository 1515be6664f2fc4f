//! What a connection does where the memory of the stack is short: it queues less of what its application
//! sends, and keeps less of what came out of order. What is in order, within the window, is always taken.

use crate::connection::{Connection, Context};
use crate::options::Block;

/// Memory of its out-of-order queue that every connection may have.
const OUT_OF_ORDER_FREE: u64 = 512;

impl Connection {
    /// A connection that begins with less than it asked for.
    pub(crate) fn begin_with(&mut self, buffer: u32) {
        if buffer != self.hot.buffer {
            self.hot.buffer = buffer;
            self.offer_first();
        }
    }

    /// How many of `wanted` bytes the application may queue. If not all, [`Events::WRITABLE`](crate::Events)
    /// follows when there is more memory.
    #[inline]
    pub(crate) fn memory_for(&mut self, wanted: usize, context: &mut Context<'_>) -> usize {
        let more = context.pool.memory.room_to_send(self.hot.send.capacity());
        if more > 2 * wanted as u64 + (128 << 10) {
            return wanted;
        }
        let room = usize::try_from(self.hot.send.room(more)).unwrap_or(usize::MAX);
        if room < wanted {
            context.counters.writes_short += 1;
            // Where something is queued, its acknowledgment makes the connection writable again.
            self.hot.bits.set_starved(room == 0 && self.hot.send.is_empty());
        }
        wanted.min(room)
    }

    /// Whether one more block out of order may be remembered. Its bytes lie within the window, which is
    /// paid for; that there are many of them is not. Where memory is short the later half goes, as in
    /// tcp_prune_ofo_queue in Linux: SACK is advisory (RFC 2018 section 8), and the peer sends it again.
    pub(crate) fn has_room_for(&mut self, block: Block, context: &mut Context<'_>) -> bool {
        if self.out_of_order.is_full() {
            context.counters.ofo_full += 1;
            return false;
        }
        let (bytes, more) = self.out_of_order.memory();
        let memory = &mut context.pool.memory;
        if more == 0 || bytes + more <= OUT_OF_ORDER_FREE || memory.has_room_for_table(more) {
            return true;
        }
        let (pruned, last) = self.out_of_order.prune();
        context.counters.pruned += pruned as u64;
        self.count_out_of_order(bytes, context);
        let end = last.map_or(0, |last| last - self.hot.rcv_nxt);
        self.hot.receive.cut(self.hot.receive.len() + end, context.pool);
        // A block beyond those that are left would be pruned next.
        let fits = last.is_some_and(|last| !block.start.after(last));
        context.counters.pruned += u64::from(!fits);
        fits
    }

    /// Accounts for the out-of-order queue, which had `before` bytes of memory.
    #[inline]
    pub(crate) fn count_out_of_order(&mut self, before: u64, context: &mut Context<'_>) {
        let tables = &mut context.pool.memory.tables;
        *tables = *tables + self.out_of_order.memory().0 - before;
    }
}
