//! Connections that leave as a [`Snapshot`], and come as one.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{ConnectError, EPOCH, Id, Stack, ThawError};
use crate::config::Config;
use crate::connection::{Connection, Key, Lend};
use crate::segment::FourTuple;
use crate::snapshot::Snapshot;
use crate::{Nanos, Reason};

impl Stack {
    /// Removes a connection as a [`Snapshot`]. The peer does not notice, provided that the connection is
    /// thawed before its next segment arrives, or that no segment of it comes here: this stack would answer
    /// with a reset.
    pub fn freeze(&mut self, id: Id, now: Nanos) -> Option<Snapshot> {
        // A lent one that is over, and whose bytes nobody wants.
        self.freeze_lent(id, &mut |_, _, _| Vec::new(), now)
    }

    /// Adds the connection of a snapshot, which goes on where it was frozen.
    ///
    /// # Errors
    /// See [`ThawError`].
    pub fn thaw(
        &mut self,
        snapshot: &Snapshot,
        config: Arc<Config>,
        now: Nanos,
    ) -> Result<Id, ThawError> {
        self.thaw_with(snapshot, config, None, now)
    }

    fn thaw_with(
        &mut self,
        snapshot: &Snapshot,
        config: Arc<Config>,
        room: Option<u32>,
        now: Nanos,
    ) -> Result<Id, ThawError> {
        let now = now + EPOCH;
        snapshot.validate().map_err(ThawError::Snapshot)?;
        let path = FourTuple { local: snapshot.local, remote: snapshot.remote };
        self.check(&path).map_err(ThawError::Connect)?;
        if self.lookup(&Key::new(&path)).is_some() {
            return Err(ThawError::Connect(ConnectError::InUse));
        }
        let Some(buffer) = self.buffer_for(snapshot) else {
            return Err(ThawError::Connect(ConnectError::Memory));
        };
        let mut connection = Connection::thaw(snapshot, config, room, now, &mut self.pool);
        connection.hot.buffer = match room {
            Some(_) => buffer.min(connection.within_room()),
            None => buffer,
        };
        self.counters.thawed += 1;
        Ok(self.insert(connection, now))
    }

    /// The same, but the bytes of both queues lie with the application, which has them already: this stack knows only how
    /// many there are.
    ///
    /// - What the application sends is [lent](crate::Socket::lend), and [`Transmit::lent`](crate::Transmit::lent) says
    ///   how many bytes of it, from `seq` on, are a segment's payload. They stay until the connection's
    ///   [`Standing`](crate::Standing) says that they are acknowledged.
    /// - What is received the application stores as [`receive`](Self::receive) says, also behind holes, and what it has
    ///   read it [takes off](crate::Socket::consume). It has memory for `room` bytes that it has not read, those behind
    ///   holes included; what the peer was offered beyond that is not taken.
    ///
    /// # Errors
    /// See [`ThawError`].
    pub fn thaw_lent(
        &mut self,
        snapshot: &Snapshot,
        config: Arc<Config>,
        room: u32,
        now: Nanos,
    ) -> Result<Id, ThawError> {
        self.thaw_with(snapshot, config, Some(room), now)
    }

    /// The same of a [lent](Self::thaw_lent) connection: `lend` gives the bytes of its queues, from this one on and so many.
    pub fn freeze_lent(&mut self, id: Id, lend: &mut Lend<'_>, now: Nanos) -> Option<Snapshot> {
        let now = now + EPOCH;
        let snapshot = self.slots.get(id)?.snapshot(lend, now)?;
        self.pool.now = now;
        self.trace_end(id.slot(), Reason::Frozen, now);
        self.remove(id.slot())?;
        self.counters.frozen += 1;
        Some(snapshot)
    }
}
