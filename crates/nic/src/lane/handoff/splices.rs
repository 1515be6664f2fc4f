//! What the NIC moves between two connections whose rings their process has lent it
//! ([`handoff::ring::splice`]): what one receives the other sends. Rings and engine see it as what the process's own calls
//! would have done; the process hears of neither connection's bytes meanwhile, and is told when it has its ring back with
//! something in it.

use handoff::ring::receive;
use handoff::ring::splice::{Ended, Target};
use handoff::session::Area;
use handoff::{Cid, Epoch};
use tcp::Stack;
use wire::Nanos;

use super::connections::{Connection, Connections, Running};
use super::exchange::Moved;
use super::lent::{BETWEEN, BYTES, Splice, TIME};
use super::link::Key;
use super::rings::{Rings, tell};
use super::sessions::Session;

/// Why it ends.
#[derive(Clone, Copy)]
enum Why {
    TakenBack,
    Over,
    Left,
    Refused,
}

/// Whether the NIC may move bytes to or from a connection.
fn is_open(running: &Running) -> bool {
    !(running.is_released || running.is_shut || running.is_closed)
}

impl Rings {
    fn area(&self, key: Key) -> Option<Area<'_>> {
        self.sessions.get(key.session as usize)?.as_ref().and_then(|session| session.area(key.cid))
    }

    /// The process has lent the receive ring of this connection, and the send ring of that one.
    pub(super) fn begin_splice(&mut self, number: u32, to: Cid, now: Nanos) {
        let Some(key) = self.all.get(number).map(|connection| connection.key) else { return };
        // One that it has lent before, and has taken back.
        self.end_splice(number, Why::TakenBack);
        self.splices.begun += 1;
        let other = self.all.by_key(Key { cid: to, ..key });
        let found = other.and_then(|other| {
            let connection = self.all.get_mut(other)?;
            let epoch = connection.side.epoch();
            let running = connection.engine.as_mut().filter(|running| is_open(running))?;
            running.spliced_from = Some(number);
            Some(Splice { to: other, cid: to, epoch, left: BYTES, since: now })
        });
        let running = self.all.get_mut(number).and_then(|one| one.engine.as_mut());
        let Some(running) = running else { return };
        // In any case there is one to end.
        let none = Splice { to: u32::MAX, cid: to, epoch: Epoch(0), left: 0, since: now };
        running.splice = Some(found.unwrap_or(none));
        match found {
            Some(_) => self.mark(number),
            None => self.end_splice(number, Why::Refused),
        }
    }

    /// Whether its process is told nothing of what it has received, and of room to send, as the NIC has been lent its rings.
    /// What there is to be told of was published before.
    pub(super) fn is_lent(&self, number: u32) -> (bool, bool) {
        let lends = |number: u32| {
            let connection = self.all.get(number)?;
            let running = connection.engine.as_ref()?;
            let splice = running.splice?;
            let area = self.area(connection.key)?;
            let ring = receive::Nic::resume(area.receive().ok()?, running.receive);
            ring.is_lent(splice.cid, area.notes()).then_some(splice.to)
        };
        let running = self.all.get(number).and_then(|one| one.engine.as_ref());
        let from = running.and_then(|running| running.spliced_from);
        (lends(number).is_some(), from.and_then(lends) == Some(number))
    }

    /// Moves what a connection has received to the one that is to send it.
    pub(super) fn splice(&mut self, number: u32, stack: &mut Stack, now: Nanos) {
        let running = self.all.get(number).and_then(|one| one.engine.as_ref());
        let Some(splice) = running.and_then(|running| running.splice) else { return };
        match self.move_bytes(number, &splice, now) {
            Ok((0, _)) => {}
            Ok((moved, is_more)) => {
                self.splices.bytes += u64::from(moved);
                self.splice_left -= moved;
                if let Some(Connection { engine: Some(running), .. }) = self.all.get_mut(number)
                    && let Some(splice) = &mut running.splice
                {
                    splice.left -= moved;
                }
                self.exchange(splice.to, stack, now);
                self.exchange(number, stack, now);
                if is_more {
                    self.mark(number);
                }
            }
            Err(why) => self.end_splice(number, why),
        }
    }

    /// How much was moved, and whether there is more.
    fn move_bytes(&mut self, number: u32, splice: &Splice, now: Nanos) -> Result<(u32, bool), Why> {
        let Rings { all, sessions, between, splice_left, .. } = self;
        let Some((key, running)) = running(all, number) else { return Err(Why::Left) };
        let Some(other) = all.get(splice.to).filter(|other| other.side.epoch() == splice.epoch)
        else {
            return Err(Why::Left);
        };
        let is_same = other.key == Key { cid: splice.cid, ..key };
        let is_there = other.engine.as_ref().is_some_and(is_open);
        if !is_same || !is_there || !is_open(running) {
            return Err(Why::Left);
        }
        if splice.left == 0 || now.saturating_sub(splice.since) >= TIME {
            return Err(Why::Over);
        }
        let session = sessions.get(key.session as usize).and_then(Option::as_ref);
        let area = |cid| session.and_then(|session: &Session| session.area(cid)).ok_or(Why::Left);
        let (from, to) = (area(key.cid)?, area(splice.cid)?);
        let (Ok(source), Ok(ring)) = (from.receive(), to.send()) else { return Err(Why::Left) };
        let source = receive::Nic::resume(source, running.receive);
        let most = splice.left.min(*splice_left);
        let target = Target { cid: splice.cid, ring };
        between.resize(BETWEEN, 0);
        let moved = source.splice(&target, most, (from.notes(), between));
        let moved = moved.map_err(|ended| match ended {
            Ended::TakenBack => Why::TakenBack,
            // Who reads or sends next finds out, if it is so.
            Ended::Hostile => Why::Left,
        })?;
        let is_more = source.unread().is_ok_and(|unread| unread > 0);
        if most == 0 && is_more {
            // In the next turn.
            self.mark(number);
        }
        Ok((moved, is_more))
    }

    /// What a connection has lent is its process's again, and so is what others have lent to it: it leaves the NIC, or ends.
    pub(super) fn leave_splices(&mut self, number: u32) {
        let running = self.all.get(number).and_then(|one| one.engine.as_ref());
        let from = running.and_then(|running| running.spliced_from);
        self.end_splice(number, Why::Left);
        let to = |from: u32| running_of(&self.all, from)?.splice.map(|splice| splice.to);
        if let Some(from) = from.filter(|from| to(*from) == Some(number)) {
            self.end_splice(from, Why::Left);
        }
    }

    /// The process has its ring back, and hears of what is there.
    fn end_splice(&mut self, number: u32, why: Why) {
        let Rings { all, sessions, events, splices, .. } = self;
        let Some(connection) = all.get_mut(number) else { return };
        let (key, epoch) = (connection.key, connection.side.epoch());
        let Some(running) = connection.engine.as_mut() else { return };
        let Some(splice) = running.splice.take() else { return };
        match why {
            Why::TakenBack => splices.taken_back += 1,
            Why::Over => splices.over += 1,
            Why::Left => splices.left += 1,
            Why::Refused => splices.refused += 1,
        }
        // If the process has taken it back, it may have lent it anew.
        let is_lent = !matches!(why, Why::TakenBack);
        if let Some(Some(session)) = sessions.get_mut(key.session as usize).filter(|_| is_lent)
            && let Some(area) = session.area(key.cid)
            && let Ok(ring) = area.receive()
        {
            let nic = receive::Nic::resume(ring, running.receive);
            let was_lent = nic.give_back();
            let received = nic.unread().unwrap_or(0);
            let at = nic.tail().wrapping_sub(received);
            if was_lent && received > 0 {
                let moved = Moved { received, at, ..Moved::default() };
                tell(session, events, running, (key.cid, epoch), &moved, None);
                session.wake_waiters(key.cid);
            }
        }
        if let Some(Connection { engine: Some(other), .. }) = all.get_mut(splice.to)
            && other.spliced_from == Some(number)
        {
            other.spliced_from = None;
        }
    }
}

fn running(all: &Connections, number: u32) -> Option<(Key, &Running)> {
    let connection = all.get(number)?;
    Some((connection.key, connection.engine.as_ref()?))
}

fn running_of(all: &Connections, number: u32) -> Option<&Running> {
    running(all, number).map(|(_, running)| running)
}
