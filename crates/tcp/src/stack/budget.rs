//! The memory of all connections: which of them get how much of it, and which wait for more.

use super::Stack;
use crate::config::Config;
use crate::connection::{Connection, Events, our_shift};
use crate::memory::Memory;
use crate::options::Block;
use crate::snapshot::{QUEUE_MAX, Snapshot};

impl Stack {
    /// The same with a bound, in bytes, for the memory of all connections: data that they hold, and data that
    /// their peers may send within the windows that they were offered. To be called before there is a
    /// connection.
    pub fn with_memory(mut self, limit: u64) -> Self {
        self.pool.memory.limit = limit;
        self
    }

    /// The memory of all connections, in bytes.
    pub fn memory(&self) -> Memory {
        self.pool.memory
    }

    /// Connections that could queue nothing become writable when there is memory again, one at a time.
    pub(super) fn feed(&mut self) {
        while self.pool.memory.has_room_to_send()
            && let Some(slot) = self.starved.pop_front()
        {
            let Some(connection) = self.slots.at_mut(slot) else { continue };
            let starved = connection.hot.bits.starved();
            connection.hot.bits.set_starved(false);
            connection.waits = false;
            if starved && connection.wants_space && connection.send_space() > 0 {
                connection.wants_space = false;
                connection.hot.events.add(Events::WRITABLE);
                self.settle(slot);
                return;
            }
        }
    }

    /// The receive buffer of one more connection, counted if it is smaller than asked for; `None` if
    /// there is no memory for it.
    pub(super) fn first_buffer(&mut self, config: &Config) -> Option<u32> {
        // No more than a snapshot may have.
        let wanted = config.receive_buffer.min(QUEUE_MAX as u32);
        let buffer = self.pool.memory.first_buffer(wanted, our_shift(config))?;
        self.counters.windows_short += u64::from(buffer < wanted);
        Some(buffer)
    }

    /// The receive buffer of a connection that comes from elsewhere; `None` if there is no memory for
    /// what it brings and was promised.
    pub(super) fn buffer_for(&self, snapshot: &Snapshot) -> Option<u32> {
        let receive = &snapshot.receive;
        let offered = u32::try_from(receive.edge.distance(receive.nxt)).unwrap_or(0);
        let promised = receive.queue.len() as u64 + u64::from(offered);
        // The list of blocks doubles as it grows.
        let out_of_order = 2 * receive.out_of_order.len() * size_of::<Block>();
        let shift = snapshot.agreed.window_scale.map_or(0, |(_, ours)| ours);
        self.pool.memory.thawed_buffer(
            receive.buffer,
            promised,
            snapshot.send.queue.len() as u64 + out_of_order as u64,
            shift,
        )
    }

    /// Accounts for a connection that begins.
    pub(super) fn pay_for(&mut self, connection: &mut Connection) {
        connection.promise(&mut self.pool.memory);
        self.pool.memory.tables += connection.out_of_order.memory().0;
        self.pool.memory.connections += 1;
    }

    /// Accounts for a connection that is gone.
    pub(super) fn take_back(&mut self, connection: &mut Connection) {
        connection.hot.send.clear(&mut self.pool);
        connection.hot.receive.clear(&mut self.pool);
        self.pool.memory.promised -= u64::from(connection.promised);
        self.pool.memory.tables -= connection.out_of_order.memory().0;
        self.pool.memory.connections -= 1;
    }

    /// Accounts for a connection that needs less than was set apart for it, or waits for more.
    #[cold]
    pub(super) fn settle_memory(&mut self, slot: u32) {
        let Some(connection) = self.slots.at_mut(slot) else { return };
        if connection.has_spare() {
            connection.promise(&mut self.pool.memory);
        }
        if connection.hot.bits.starved() && !connection.waits {
            connection.waits = true;
            self.wait_for_memory(slot);
        }
    }

    /// The connection waits until there is memory for more of what its application has to send.
    fn wait_for_memory(&mut self, slot: u32) {
        if self.starved.len() > 2 * self.slots.len() + 64 {
            // Some have ended while they waited.
            let slots = &self.slots;
            let waits = |slot| slots.at(slot).is_some_and(|one| one.waits);
            self.starved.retain(|&slot| waits(slot));
        }
        self.starved.push_back(slot);
    }
}
