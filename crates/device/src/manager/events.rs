//! What identifiers tell: events, and what becomes of those that the application has not read when an identifier ends, or
//! when its events go elsewhere.

use rdma::session::Reply;
use rdma::session::cm::{CmEvent, Kind};

use super::{Around, Manager, Phase};

/// An event, if it is this identifier's: a request to connect is that of the one that listens.
fn of_id(event: &[u8], id: u32) -> Option<CmEvent> {
    let event = CmEvent::decode(&Reply::decode(event).ok()?)?;
    let whose = if event.kind == Kind::ConnectRequest { event.listener } else { event.id };
    (whose == id).then_some(event)
}

impl Manager {
    pub(super) fn say(&self, around: &mut Around<'_>, id: u32, kind: Kind, error: i32) {
        self.say_with(around, id, kind, error, (0, 0), &[]);
    }

    pub(super) fn say_with(
        &self,
        around: &mut Around<'_>,
        id: u32,
        kind: Kind,
        error: i32,
        (ird, ord): (u16, u16),
        private_data: &[u8],
    ) {
        let Some(of) = self.ids.get(&id) else { return };
        // As the kernel's manager has it: minus the errno.
        let (status, listener) = ((-error) as u32, of.listener);
        let (local, remote) = (of.local, of.remote);
        let event = CmEvent { kind, status, id, listener, ird, ord, local, remote };
        if let Ok(bytes) = event.encode(private_data).encode() {
            around.outlets.say(around.epoll, around.now, of.events, &bytes);
        }
    }

    /// A request that nobody has answered is rejected, a stream without one closed. What the application has not read of it is
    /// told no more; a connection that it was told of is its own, whatever becomes of the one that listens.
    pub(crate) fn destroy(&mut self, around: &mut Around<'_>, id: u32) -> Result<(), i32> {
        let of = self.get(id)?;
        let (was_listening, mut channels) = (of.phase.is_listening(), vec![of.events]);
        // As with the kernel's manager (destroy_cm_id of iwcm.c).
        let _ = self.reject(id, &[]);
        self.ids.remove(&id);
        if was_listening {
            // Its events may have gone elsewhere since a connection came.
            let came = self.ids.values().filter(|of| of.listener == id);
            channels.extend(came.map(|of| of.events));
            channels.sort_unstable();
            channels.dedup();
            self.ids.retain(|_, of| of.listener != id || !matches!(of.phase, Phase::Asked(..)));
        }
        for channel in channels {
            for event in around.outlets.take_back(channel, |event| of_id(event, id).is_some()) {
                if let Some(event) = of_id(&event, id).filter(|event| event.id != id) {
                    let _ = self.reject(event.id, &[]);
                    self.ids.remove(&event.id);
                }
            }
        }
        Ok(())
    }

    /// Events go elsewhere, with those that were not read yet (rdma_migrate_id(3)).
    pub(crate) fn migrate(
        &mut self,
        around: &mut Around<'_>,
        id: u32,
        events: u32,
    ) -> Result<(), i32> {
        let before = std::mem::replace(&mut self.get(id)?.events, events);
        for event in around.outlets.take_back(before, |event| of_id(event, id).is_some()) {
            around.outlets.say(around.epoll, around.now, events, &event);
            let came = of_id(&event, id).and_then(|event| self.ids.get_mut(&event.id));
            came.into_iter().for_each(|of| of.events = events);
        }
        Ok(())
    }
}
