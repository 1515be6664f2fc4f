//! One bound for the memory of all connections of a stack: what it is spent on, and which connections get
//! more.
//!
//! A window that was offered is a promise (RFC 9293 section 3.8.6): what comes within it, in order, is
//! taken. So a window is paid for when it is offered, not when it is used, and nothing that a peer sends
//! later takes more. What is short shrinks new offers first, then the data that an application may
//! queue, then the memory of out-of-order queues, and then SYNs are refused; never what was promised.

use crate::block::{RECEIVE_BLOCK, SEND_BLOCK, SMALLEST};

/// Default bound in bytes.
const LIMIT: u64 = 4 << 30;
/// Bytes of send queue that every connection may have while any memory is left.
const LEAST_TO_SEND: u64 = 4 << 10;
/// The smallest window that is worth a connection: two full segments.
pub(crate) const LEAST_WINDOW: u32 = 3_584;
/// A connection's share is TIMES the free memory divided by the connections, with SEATS more that may yet
/// come.
const SEATS: u64 = 16;
const TIMES: u64 = 4;
/// Most bytes of free buffers that are kept.
const KEPT: u64 = 16 << 20;
/// A window that has grown shrinks no further than this: below, it would save nothing.
const WORTH_SHRINKING: u32 = 2 * RECEIVE_BLOCK as u32;

/// Memory of all connections of a stack, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// How much there may be.
    pub limit: u64,
    /// Held by data that waits to be sent or acknowledged.
    pub sending: u64,
    /// Set apart for what peers may send within the windows that they were offered, with what has come
    /// and was not read.
    pub promised: u64,
    /// How much of that is in use.
    pub received: u64,
    /// Lists of the blocks in out-of-order queues.
    pub tables: u64,
    /// Free buffers that are kept for later; part of the limit.
    pub kept: u64,
    pub(crate) connections: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new(LIMIT)
    }
}

impl Memory {
    pub(crate) const fn new(limit: u64) -> Self {
        Memory { limit, sending: 0, promised: 0, received: 0, tables: 0, kept: 0, connections: 0 }
    }

    /// Most bytes of buffers to keep for later.
    pub(crate) fn most_kept(&self) -> u64 {
        KEPT.min(self.limit / 16)
    }

    /// What was allocated, without the tables.
    pub fn held(&self) -> u64 {
        self.sending + self.received + self.kept
    }

    /// What is neither used nor promised nor kept.
    pub fn free(&self) -> u64 {
        let spent = self.sending + self.promised + self.tables + self.most_kept();
        self.limit.saturating_sub(spent)
    }

    /// Most that one connection may have for its window, or for its send queue. With many that want more it
    /// leaves a fifth free, and the last quarter of the limit is for new connections and for what SACK needs.
    fn share(&self) -> u64 {
        let free = self.free().saturating_sub(self.limit / 4);
        free.saturating_mul(TIMES) / (self.connections + SEATS)
    }

    /// Whether windows shrink.
    fn is_short(&self) -> bool {
        self.free() < self.limit / 4
    }

    /// The receive buffer of a new connection that is to have `wanted`, perhaps a smaller one; `None` if
    /// there is no memory for one more connection.
    pub(crate) fn first_buffer(&self, wanted: u32, shift: u8) -> Option<u32> {
        let share = self.share();
        if promise(wanted, shift) <= share {
            return Some(wanted);
        }
        if self.free() < self.limit / 8 {
            return None;
        }
        Some(buffer_within(share, shift).max(LEAST_WINDOW).min(wanted))
    }

    /// The receive buffer of a connection that has `buffer`, keeps up, and is to have `wanted`.
    pub(crate) fn larger_buffer(&self, buffer: u32, wanted: u32, shift: u8) -> u32 {
        let share = self.share();
        if promise(wanted, shift) <= share {
            return wanted;
        }
        buffer_within(share, shift).clamp(buffer, wanted)
    }

    /// The receive buffer of a connection that had `buffer` elsewhere, with so many bytes promised, and so
    /// many to send; `None` if there is no memory for it.
    pub(crate) fn thawed_buffer(
        &self,
        buffer: u32,
        promised: u64,
        to_send: u64,
        shift: u8,
    ) -> Option<u32> {
        let brought = footprint(promised);
        let more = |buffer: u32| promise(buffer, shift).saturating_sub(brought);
        let buffer = if promise(buffer, shift) <= self.share() {
            buffer
        } else {
            buffer.min(buffer_within(self.share(), shift).max(LEAST_WINDOW))
        };
        let all = brought + more(buffer) + to_send + 2 * SEND_BLOCK as u64;
        (all <= self.free()).then_some(buffer)
    }

    /// What is left of a receive buffer when memory is short: connections that began later have less.
    pub(crate) fn smaller_buffer(&self, buffer: u32, first: u32) -> u32 {
        let least = first.max(WORTH_SHRINKING);
        if self.is_short() && buffer > least { (buffer / 2).max(least) } else { buffer }
    }

    /// Bytes of buffers that a connection that has `capacity` may add for data to send.
    #[inline]
    pub(crate) fn room_to_send(&self, capacity: u64) -> u64 {
        self.share().max(LEAST_TO_SEND).saturating_sub(capacity).min(self.free())
    }

    /// Whether there is memory for a larger out-of-order queue.
    pub(crate) fn has_room_for_table(&self, bytes: u64) -> bool {
        self.free() >= self.limit / 8 && bytes <= self.free() / (self.connections + SEATS)
    }

    /// Whether there is enough for a connection that has nothing to send yet.
    pub(crate) fn has_room_to_send(&self) -> bool {
        self.free() >= LEAST_TO_SEND
    }

    /// Whether so many half-open connections, each with this buffer, may be remembered. Their SYNs may be
    /// forged: they get an eighth.
    pub(crate) fn may_remember(&self, half_open: u32, buffer: u32, shift: u8) -> bool {
        u64::from(half_open) * promise(buffer, shift) <= self.limit / 8
    }
}

/// Memory that bytes take which a window of `buffer` allows, however they come: what is offered creeps
/// over it by an eighth at most (see `offer_window`).
pub(crate) fn promise(buffer: u32, shift: u8) -> u64 {
    footprint(u64::from(buffer) + u64::from(slack(buffer, shift)))
}

/// How far a window may be rounded up beyond the buffer.
#[inline]
pub(crate) fn slack(buffer: u32, shift: u8) -> u32 {
    (buffer / 8).max(1 << shift)
}

/// Memory that a ring has for `bytes`, wherever they lie in it.
pub(crate) fn footprint(bytes: u64) -> u64 {
    let block = RECEIVE_BLOCK as u64;
    match bytes {
        0 => 0,
        _ if bytes <= block => bytes.next_power_of_two().max(SMALLEST as u64),
        // Part of a block at each end, and a table of the blocks.
        _ => (bytes / block + 2) * block + bytes / 512,
    }
}

/// The largest buffer of which the promise takes no more than `memory`.
fn buffer_within(memory: u64, shift: u8) -> u32 {
    let block = RECEIVE_BLOCK as u64;
    let bytes = if memory >= 3 * block {
        ((memory - 2 * block) / 513 * 512).max(block)
    } else if memory >= block {
        block
    } else {
        // The largest power of two.
        (memory / 2 + 1).next_power_of_two().min(memory)
    };
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_sub(8);
    (bytes / 9 * 8).min(bytes.saturating_sub(1 << shift))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_buffer_keeps_to_its_share(memory in 4_096u64..1 << 33, shift in 0u8..15) {
            let buffer = buffer_within(memory, shift);
            prop_assert!(buffer == 0 || promise(buffer, shift) <= memory);
        }

        #[test]
        fn offers_end_before_the_memory_does(limit in 1u64 << 20..1 << 34, wanted in 2_048u32..1 << 23) {
            let mut memory = Memory::new(limit);
            let mut last = u32::MAX;
            while let Some(buffer) = memory.first_buffer(wanted, 7) {
                prop_assert!(buffer <= last, "a later one gets more");
                last = buffer;
                memory.promised += promise(buffer, 7);
                memory.connections += 1;
                prop_assert!(memory.promised <= limit);
                if memory.connections > 20_000 {
                    break;
                }
            }
            prop_assert!(memory.connections > 0, "nothing for the first one");
        }
    }
}
