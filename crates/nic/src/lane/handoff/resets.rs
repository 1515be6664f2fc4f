//! Connections that their application resets, as it closes them with bytes unread or without lingering. What it has written
//! before is in the send ring; of a connection of the kernel's it has left with the call that wrote it, as far as the peer
//! and the path had room (tcp_push). So the reset goes behind that. What there is no room for is lost, as there.

use handoff::Cid;
use handoff::command::NicControl;
use handoff::ring::command::SLOTS_MAX;
use handoff::ring::receive;
use tcp::Stack;
use wire::Nanos;

use super::rings::Rings;

impl Rings {
    /// A process is gone. What it has closed before ends as it has said; of the others those that `stay` are another process's,
    /// too, and go back. The rest end as in the kernel: `resets` are reset, and of all else what is queued is still sent.
    pub(super) fn orphan(
        &mut self,
        session: u32,
        (resets, stay): (&[Cid], &[Cid]),
        stack: &mut Stack,
        now: Nanos,
    ) {
        self.take_commands_of(session, SLOTS_MAX, stack, now);
        for number in self.all.of_session(session) {
            let cid = self.all.get(number).map(|connection| connection.key.cid);
            if cid.is_some_and(|cid| stay.contains(&cid)) {
                continue;
            }
            let is_reset = cid.is_some_and(|cid| resets.contains(&cid));
            let end = if is_reset { NicControl::Abort } else { NicControl::Close };
            self.apply(number, end, stack, now);
        }
    }

    /// Resets those of whose bytes no more can leave now. To be called when the engine was asked for segments; those that
    /// had no turn yet, as the wire has no room, wait.
    pub(super) fn reset(&mut self, stack: &mut Stack, now: Nanos) {
        if self.resets.is_empty() {
            return;
        }
        let mut left = std::mem::take(&mut self.resets);
        left.retain(|(number, id)| {
            let running = self.all.get(*number).and_then(|one| one.engine.as_ref());
            if running.is_none_or(|running| running.id != *id) {
                // It has gone back, and is closed there.
                return false;
            }
            if stack.connection(*id).is_some_and(|connection| connection.waits_for_turn()) {
                return true;
            }
            if let Some(mut socket) = stack.socket(*id, now) {
                socket.abort();
            }
            self.exchange(*number, stack, now);
            false
        });
        self.resets.append(&mut left);
    }

    /// Whether there are bytes that the application has not read.
    pub(super) fn has_unread(&self, number: u32, stack: &Stack) -> bool {
        let Some(connection) = self.all.get(number) else { return false };
        let Some(running) = &connection.engine else { return false };
        let there = stack.connection(running.id).map_or(0, |engine| engine.readable_len());
        let session = self.sessions.get(connection.key.session as usize).and_then(Option::as_ref);
        let ring = session.and_then(|session| session.area(connection.key.cid)?.receive().ok());
        // The engine has not been told what the application has read of late.
        ring.is_some_and(|ring| {
            let read = receive::Nic::resume(ring, running.receive).look();
            read.is_ok_and(|read| there > read as usize)
        })
    }
}
