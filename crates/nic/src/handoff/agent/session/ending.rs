//! The end of the NIC's part in a connection, or in all connections of a process that ends.

use std::sync::Arc;
use std::time::Instant;

use handoff::Cid;
use handoff::session::status::{Place, Status};

use super::super::common::Common;
use super::{Connection, Session};
use crate::lane::handoff::link::{Key, ToWorker};

impl Session {
    /// The number may have another connection, for which the room of its rings stays, if there is not too much of that.
    pub(super) fn remove(&mut self, cid: Cid, common: &mut Common) {
        let Some(connection) = self.connections.remove(&cid) else { return };
        self.epochs.insert(cid, connection.crossing.epoch());
        // A connection before it may have had more.
        let room = connection.room.max(self.process.room_of(cid));
        let key = Key { session: self.number, cid };
        if !common.rooms.keep(key, room, Instant::now()) {
            self.process.give_back(cid);
        }
    }

    /// The room of a connection that is over goes back: there was no other of its number.
    pub(in super::super) fn give_back(&self, cid: Cid) {
        self.process.give_back(cid);
    }

    /// The number is free if the connection is over, and the application has closed it.
    pub(super) fn free(&mut self, cid: Cid, common: &mut Common) {
        let is_free = |c: &Connection| c.is_closed && c.offered.is_none();
        if !self.connections.get(&cid).is_some_and(is_free) {
            return;
        }
        self.remove(cid, common);
        self.tell(cid, Status::at(Place::Free));
    }

    /// The process has ended.
    pub(in super::super) fn end(&mut self, common: &Common) {
        self.has_ended = true;
        // The kernel closes its descriptors, and resets those that do not linger (tcp_close). The socket says whether the
        // connection does, also while the NIC has that.
        let resets = |connection: &Connection| {
            let offered = connection.offered.as_ref().filter(|_| !connection.is_closed);
            offered.is_some_and(|(offered, _)| sys::tcp::resets_at_close(offered))
        };
        let resets = self.connections.iter().filter(|(_, connection)| resets(connection));
        let resets: Arc<[Cid]> = resets.map(|(cid, _)| *cid).collect();
        let stay = self.connections.iter().filter(|(_, connection)| connection.is_anothers);
        let stay: Arc<[Cid]> = stay.map(|(cid, _)| *cid).collect();
        let session = self.number;
        let end = || ToWorker::End { session, resets: resets.clone(), stay: stay.clone() };
        common.ways.tell_all(end);
    }
}
