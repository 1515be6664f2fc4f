//! What a process asks about its connections, by messages or, where their queue had no room, in the memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use handoff::machine::OsEvent;
use handoff::session::Request;
use handoff::session::status::{Place, Status};
use handoff::{Cid, RestoreReason};

use super::super::common::Common;
use super::super::crossing::Event;
use super::Session;
use crate::lane::handoff::link::{Key, shared};

impl Session {
    /// Does what the process asks of one connection.
    pub(super) fn request(&mut self, cid: Cid, request: Request, common: &mut Common) {
        match (request, self.connections.get_mut(&cid)) {
            (Request::Restore(reason), connection) => {
                let connection = connection.into_iter();
                connection.for_each(|one| one.is_anothers |= is_for_another(reason));
                self.handle(cid, Event::Os(OsEvent::WantBack(reason)), common);
            }
            // The worker hears of it by the ring.
            (Request::Close, Some(connection)) => {
                connection.is_closed = true;
                self.free(cid, common);
            }
            // It has gone back meanwhile: nothing is left but its number.
            (Request::Close, None) => self.tell(cid, Status::at(Place::Free)),
        }
    }

    /// The process wants all its connections back.
    pub(super) fn request_all(&mut self, reason: RestoreReason, common: &mut Common) {
        for connection in self.connections.values_mut() {
            connection.is_anothers |= is_for_another(reason);
        }
        self.want_back(reason, common);
    }

    /// Wants all connections back, each once.
    pub(in crate::handoff::agent) fn want_back(
        &mut self,
        reason: RestoreReason,
        common: &mut Common,
    ) {
        for (cid, connection) in &mut self.connections {
            let is_here = connection.offered.is_some() && !connection.goes_back;
            if is_here && !std::mem::replace(&mut connection.is_wanted, true) {
                common.wanted.push_back((Key { session: self.number, cid: *cid }, reason));
            }
        }
    }

    /// Does what the process has asked for while there was no room in the queue of messages, all of which have been read.
    pub(super) fn take_unheard(&mut self, common: &mut Common) {
        let process = Arc::clone(&self.process);
        let Some(shared) = shared(&*process) else { return };
        let unheard = shared.unheard().load(Ordering::Acquire);
        if std::mem::replace(&mut self.unheard, unheard) == unheard {
            return;
        }
        let all = shared.wants_all_back().swap(0, Ordering::AcqRel);
        if let Some(reason) = u8::try_from(all).ok().and_then(RestoreReason::from_code) {
            self.request_all(reason, common);
        }
        for cid in (0..shared.layout().connections).map(Cid) {
            let Some(area) = shared.area(cid) else { continue };
            for request in area.requests().take() {
                self.request(cid, request, common);
            }
        }
    }
}

/// Whether the process wants a connection back so that another one can have it.
fn is_for_another(reason: RestoreReason) -> bool {
    matches!(reason, RestoreReason::Fork | RestoreReason::Exec | RestoreReason::Passed)
}
