//! `TCP_NOTSENT_LOWAT`: what an application knows of which of its bytes were sent.

use std::sync::atomic::Ordering;

use handoff::session::Area;
use tcp::Standing;

use super::connections::{Connection, Connections, Running};
use super::sessions::Session;

impl Running {
    /// Bytes are sent first, or there are more of them: tells the application, if how many of them may wait is limited. How
    /// many do then.
    pub(super) fn sends(&mut self, area: &Area<'_>, standing: &Standing) -> Option<u32> {
        let is_limited = area.unsent_most().load(Ordering::Relaxed) != 0;
        self.unsent = is_limited.then(|| self.publish_sent(area, standing));
        self.unsent
    }

    /// Tells the application which bytes were sent. How many were not.
    pub(super) fn publish_sent(&self, area: &Area<'_>, standing: &Standing) -> u32 {
        let unsent = unsent(standing);
        let sent = self.lent.wrapping_sub(unsent);
        area.sent().store(u64::from(self.tried) << 32 | u64::from(sent), Ordering::Release);
        unsent
    }

    /// The engine has sent what it could of all that it has: what was not sent waits for the peer, the wire, or its time. When
    /// it goes, [`may_write_again`] says whether to tell.
    pub(super) fn has_tried(&mut self, area: &Area<'_>) {
        self.tried = self.lent;
        let sent = area.sent().load(Ordering::Relaxed) as u32;
        area.sent().store(u64::from(self.tried) << 32 | u64::from(sent), Ordering::Release);
    }
}

/// Tells the applications of these connections, which wait for that, that it was tried to send what they have written.
pub(super) fn have_tried(
    all: &mut Connections,
    sessions: &[Option<Session>],
    numbers: impl Iterator<Item = u32>,
) {
    for number in numbers {
        if let Some(Connection { key, engine: Some(running), .. }) = all.get_mut(number)
            && let Some(Some(session)) = sessions.get(key.session as usize)
            && let Some(area) = session.area(key.cid)
        {
            running.has_tried(&area);
            session.wake_waiters(key.cid);
        }
    }
}

/// Whether an application may write, or is told that it may, that could not before as too many bytes were not sent yet: a call
/// may as long as they are fewer than the limit, and poll(2) says so of half as many (`__tcp_stream_memory_free`).
pub(super) fn may_write_again(area: &Area<'_>, before: u32, left: u32) -> bool {
    let most = area.unsent_most().load(Ordering::Relaxed);
    let passes = |most: u64| u64::from(before) >= most && u64::from(left) < most;
    passes(most) || passes(most.div_ceil(2))
}

/// Bytes of the send queue that were not sent yet.
pub(super) fn unsent(standing: &Standing) -> u32 {
    // The FIN has a number, too.
    standing.queued.saturating_sub(standing.snd_nxt - standing.snd_una)
}
