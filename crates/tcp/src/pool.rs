//! Where the memory of buffers comes from and goes back to. Some is kept for a while, as it is needed
//! again soon and lies in the cache; what nothing has asked for in a second is given back.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::Nanos;
use crate::block::{Blocks, SEND_BLOCK, SMALLEST};
use crate::config::SECOND;
use crate::memory::Memory;

const CLASSES: usize = (SEND_BLOCK / SMALLEST).trailing_zeros() as usize + 1;
/// Tables of blocks that are kept, and how many places each of them has at most.
const TABLES: usize = 16;
const PLACES: usize = 1024;
/// How long a buffer is kept that nothing asks for.
const PERIOD: Nanos = SECOND;

/// Buffers of one size; the last one back is the next one out, as it is still in the cache.
#[derive(Debug, Default)]
struct Class {
    free: Vec<Box<[u8]>>,
    /// Fewest free buffers since [`Pool::give_back`] was last called: so many were not needed.
    fewest: usize,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) memory: Memory,
    classes: [Class; CLASSES],
    #[allow(clippy::vec_box)] // rings take and give them as they are
    tables: Vec<Box<Blocks>>,
    /// The time, as of the last call.
    pub(crate) now: Nanos,
    /// When free buffers are next given back.
    due: Option<Nanos>,
}

impl Pool {
    fn class(bytes: usize) -> usize {
        (bytes.max(SMALLEST).next_power_of_two() / SMALLEST).trailing_zeros() as usize
    }

    /// A buffer of at least so many bytes.
    pub(crate) fn take(&mut self, bytes: usize) -> Box<[u8]> {
        let at = Pool::class(bytes);
        if let Some(class) = self.classes.get_mut(at)
            && let Some(buffer) = class.free.pop()
        {
            class.fewest = class.fewest.min(class.free.len());
            self.memory.kept -= buffer.len() as u64;
            return buffer;
        }
        vec![0; SMALLEST << at].into_boxed_slice()
    }

    pub(crate) fn give(&mut self, buffer: Box<[u8]>) {
        let bytes = buffer.len() as u64;
        if bytes == 0 || self.memory.kept + bytes > self.memory.most_kept() {
            return;
        }
        if let Some(class) = self.classes.get_mut(Pool::class(buffer.len())) {
            self.memory.kept += bytes;
            class.free.push(buffer);
            self.due = self.due.or(Some(self.now + PERIOD));
        }
    }

    /// An empty table of blocks.
    pub(crate) fn take_table(&mut self) -> Box<Blocks> {
        self.tables.pop().unwrap_or_default()
    }

    /// Takes back one that is empty.
    pub(crate) fn give_table(&mut self, table: Box<Blocks>) {
        if self.tables.len() < TABLES && table.places() <= PLACES {
            self.tables.push(table);
        }
    }

    /// When [`give_back`](Self::give_back) is to be called, if anything is kept.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.due
    }

    /// Frees what nothing has needed for a while.
    pub(crate) fn give_back(&mut self, now: Nanos) {
        self.now = now;
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        for class in &mut self.classes {
            for buffer in class.free.drain(..class.fewest) {
                self.memory.kept -= buffer.len() as u64;
            }
            class.fewest = class.free.len();
            if class.free.is_empty() {
                class.free = Vec::new();
            }
        }
        self.due = (self.memory.kept > 0).then_some(now + PERIOD);
    }
}
