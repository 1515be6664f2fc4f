//! The memory of a connection's rings, kept while bytes are read or written where they lie.

use std::sync::atomic::{Ordering, fence};

use super::Connection;
use super::place::AtNic;
use crate::lock::Taken;

/// It is what it is until this is dropped.
pub(super) struct Kept {
    connection: &'static Connection,
    at: AtNic,
    alone: Option<Taken<'static, ()>>,
}

impl Connection {
    /// Keeps the memory of the rings what it is, though the connection may leave: wharf does not take it away, nor does another
    /// connection get it, as its number is not returned before `alone`, which is that of `sending`. `None` if it has left.
    pub(super) fn keep_memory(
        &'static self,
        at: &AtNic,
        alone: Taken<'static, ()>,
    ) -> Option<Kept> {
        if !self.is_at(at) {
            return None;
        }
        at.area.readers().store(1, Ordering::Relaxed);
        // Before it is looked whether the ring's epoch has ended.
        fence(Ordering::SeqCst);
        Some(Kept { connection: self, at: *at, alone: Some(alone) })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.at.area.readers().store(0, Ordering::Release);
        self.alone = None;
        if self.connection.owed.load(Ordering::Acquire) != 0 {
            self.connection.return_owed(self.at.session);
        }
    }
}
