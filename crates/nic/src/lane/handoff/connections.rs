//! The host's connections that the NIC has, by their addresses, by their names in commands, and by the engine's.

use std::collections::{HashMap, VecDeque};

use handoff::machine::NicSide;
use handoff::ring::{receive, send};
use handoff::session::status::Status;
use tcp::{FourTuple, Id};
use wire::{Mac, Nanos, Seq};

use super::figures::Carried;
use super::lent::Splice;
use super::link::{HeldPacket, Key};
use super::records::Keeps;
use crate::steer::Phase;

/// No number of a connection's.
const NONE: u32 = u32::MAX;
/// Connections that are looked at for one that is over, or idle.
const LOOKS: usize = 16;
/// One that nothing was sent or received on for so long can be spared.
const IDLE: Nanos = 1_000_000_000;

/// One connection, from its offer on.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) key: Key,
    pub(super) path: FourTuple,
    /// That of its record, and of its entry in the lookup.
    pub(super) place: u32,
    /// As its entry has it.
    pub(super) phase: Phase,
    /// Where its segments go.
    pub(super) next_hop: Mac,
    pub(super) side: NicSide<HeldPacket>,
    /// While the engine has it.
    pub(super) engine: Option<Running>,
    pub(super) keeps: Keeps,
    /// What the kernel is told when it has the connection back.
    pub(super) told: Vec<HeldPacket>,
    /// When its packets were first held, while they are.
    pub(super) held_since: Nanos,
    /// When its application sent or received last.
    pub(super) active: Nanos,
    /// When it was put in line last.
    queued: Nanos,
}

/// What a connection has while the engine runs it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: Id,
    pub(super) send: send::Kept,
    pub(super) receive: receive::Kept,
    /// Index behind the last byte of the send ring that the engine has been lent.
    pub(super) lent: u32,
    /// Bytes that the engine has not sent first, as its application knows, where those are limited (`TCP_NOTSENT_LOWAT`).
    pub(super) unsent: Option<u32>,
    /// Index behind the last byte that the engine had when it last sent all that it could.
    pub(super) tried: u32,
    /// As the application was told last.
    pub(super) status: Status,
    pub(super) carried: Carried,
    /// The peer has closed its end, in order.
    pub(super) peer_closed: bool,
    /// The application has shut its end for reading down.
    pub(super) is_deaf: bool,
    /// What the application has shut both ends down before.
    pub(super) deaf_from: Option<Seq>,
    /// The number of the last event about data, which the application may not have seen yet.
    pub(super) event: Option<u32>,
    /// It is among those that are to be looked at.
    pub(super) is_due: bool,
    /// The application sends no more once its ring is empty.
    pub(super) is_shut: bool,
    /// The application has closed it, or is gone.
    pub(super) is_closed: bool,
    /// It is to be reset behind what the application has written.
    pub(super) is_reset: bool,
    /// The engine ends it by itself from now on.
    pub(super) is_released: bool,
    /// Where what it receives goes, if its process has lent its ring.
    pub(super) splice: Option<Splice>,
    /// The connection whose ring was lent last so that this one sends what it receives.
    pub(super) spliced_from: Option<u32>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<Option<Connection>>,
    free: Vec<u32>,
    by_path: HashMap<FourTuple, u32>,
    /// By session, and by its number there, which the agent has bounded; [`NONE`] where there is none.
    by_key: Vec<Vec<u32>>,
    /// By place; [`NONE`] where there is none.
    by_place: Vec<u32>,
    /// By the engine's slot.
    by_engine: Vec<u32>,
    /// Those that the engine ends by itself, the oldest first, and some that are gone.
    released: VecDeque<u32>,
    /// Those that the engine runs, in line for being the one that is idle longest, each with the time at which it was
    /// put there; and some that are gone.
    line: VecDeque<(u32, Nanos)>,
}

impl Connections {
    pub(super) fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_path.len()
    }

    /// Adds one. `None` if there is one with these addresses, or this name.
    pub(super) fn insert(
        &mut self,
        key: Key,
        path: FourTuple,
        next_hop: Mac,
        place: u32,
    ) -> Option<u32> {
        if self.by_path.contains_key(&path) || self.by_key(key).is_some() {
            return None;
        }
        let side = NicSide::default();
        let connection = Some(Connection {
            key,
            path,
            place,
            phase: Phase::Moving,
            next_hop,
            side,
            engine: None,
            keeps: Keeps::at(place),
            told: Vec::new(),
            held_since: 0,
            active: 0,
            queued: 0,
        });
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = connection;
                number
            }
            None => {
                self.slots.push(connection);
                self.slots.len() as u32 - 1
            }
        };
        self.by_path.insert(path, number);
        *self.of_key(key) = number;
        let at = place as usize;
        if self.by_place.len() <= at {
            self.by_place.resize(at + 1, NONE);
        }
        self.by_place[at] = number;
        Some(number)
    }

    pub(super) fn remove(&mut self, number: u32) {
        let Some(connection) = self.slots.get_mut(number as usize).and_then(Option::take) else {
            return;
        };
        self.by_path.remove(&connection.path);
        *self.of_key(connection.key) = NONE;
        self.by_place[connection.place as usize] = NONE;
        self.free.push(number);
        // Those of others that are gone do not gather.
        while let Some(number) = self.released.front().copied()
            && self.get(number).is_none()
        {
            self.released.pop_front();
        }
    }

    /// One more than the highest number that there was.
    pub(super) fn numbers(&self) -> u32 {
        self.slots.len() as u32
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Connection> {
        self.slots.get(number as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Connection> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn by_path(&self, path: &FourTuple) -> Option<u32> {
        self.by_path.get(path).copied()
    }

    /// That at a place.
    #[inline]
    pub(super) fn by_place(&self, place: u32) -> Option<u32> {
        self.by_place.get(place as usize).copied().filter(|number| *number != NONE)
    }

    pub(super) fn by_key(&self, key: Key) -> Option<u32> {
        let number = *self.by_key.get(key.session as usize)?.get(key.cid.0 as usize)?;
        (number != NONE).then_some(number)
    }

    /// Where the number of one of this name is.
    fn of_key(&mut self, Key { session, cid }: Key) -> &mut u32 {
        let at = |index: u32| index as usize;
        if self.by_key.len() <= at(session) {
            self.by_key.resize(at(session) + 1, Vec::new());
        }
        let all = &mut self.by_key[at(session)];
        if all.len() <= at(cid.0) {
            all.resize(at(cid.0) + 1, NONE);
        }
        &mut all[at(cid.0)]
    }

    /// That of the engine's.
    #[inline]
    pub(super) fn by_engine(&self, id: Id) -> Option<u32> {
        let number = *self.by_engine.get(id.slot() as usize)?;
        let running = self.get(number)?.engine.as_ref()?;
        (running.id == id).then_some(number)
    }

    /// The engine ends it by itself from now on.
    pub(super) fn release(&mut self, number: u32) {
        self.released.push_back(number);
    }

    /// One that has been in TIME-WAIT for long, as `is_over` tells.
    pub(super) fn oldest_over(&mut self, is_over: impl Fn(Id) -> bool) -> Option<u32> {
        for _ in 0..self.released.len().min(LOOKS) {
            let number = self.released.pop_front()?;
            let running = self.get(number).and_then(|connection| connection.engine.as_ref());
            match running.filter(|running| running.is_released) {
                Some(running) if is_over(running.id) => return Some(number),
                Some(_) => self.released.push_back(number),
                None => {}
            }
        }
        None
    }

    /// How many the engine runs for an application.
    pub(super) fn running(&self) -> u32 {
        let runs = |one: &&Connection| one.engine.as_ref().is_some_and(|it| !it.is_released);
        self.slots.iter().flatten().filter(runs).count() as u32
    }

    /// One that is to go, as there are too many: one that has done nothing since it was looked at, however short that
    /// is, or else the one that was looked at longest ago.
    pub(super) fn spare(&mut self, now: Nanos) -> Option<u32> {
        if let Some(number) = self.idle_for(now, 0) {
            return Some(number);
        }
        for _ in 0..LOOKS {
            let (number, since) = self.line.pop_front()?;
            let found = self.get(number).filter(|one| one.queued == since);
            let runs = |one: &Connection| one.engine.as_ref().is_some_and(|it| !it.is_released);
            if found.is_some_and(runs) {
                self.queue(number, now);
                return Some(number);
            }
        }
        None
    }

    /// About the one that is idle longest, if that is long enough for it to be spared: of those that were looked at
    /// longest ago, the first that has done nothing since.
    pub(super) fn idle_longest(&mut self, now: Nanos) -> Option<u32> {
        self.idle_for(now, IDLE)
    }

    /// The same of those that are idle for so long at least.
    fn idle_for(&mut self, now: Nanos, least: Nanos) -> Option<u32> {
        for _ in 0..LOOKS {
            let (number, since) = self.line.pop_front()?;
            let Some(connection) = self.get_mut(number).filter(|one| one.queued == since) else {
                continue;
            };
            let is_ours = connection.engine.as_ref().is_some_and(|running| !running.is_released);
            if !is_ours {
                continue;
            }
            let was_active = connection.active > since;
            let idle = now.saturating_sub(connection.active);
            if !was_active && idle < least {
                // Those behind it are hardly idle for longer.
                self.line.push_front((number, since));
                return None;
            }
            self.queue(number, now);
            if !was_active {
                return Some(number);
            }
        }
        None
    }

    fn queue(&mut self, number: u32, now: Nanos) {
        if let Some(connection) = self.get_mut(number) {
            connection.queued = now;
            self.line.push_back((number, now));
        }
        if self.line.len() > 2 * self.len() + LOOKS {
            let Connections { slots, line, .. } = self;
            line.retain(|(number, since)| {
                let slot = slots.get(*number as usize).and_then(Option::as_ref);
                slot.is_some_and(|connection| connection.queued == *since)
            });
        }
    }

    /// The engine runs it.
    pub(super) fn begin(&mut self, number: u32, running: Running, now: Nanos) {
        let at = running.id.slot() as usize;
        if self.by_engine.len() <= at {
            self.by_engine.resize(at + 1, u32::MAX);
        }
        self.by_engine[at] = number;
        if let Some(connection) = self.get_mut(number) {
            connection.engine = Some(running);
            connection.active = now;
        }
        self.queue(number, now);
    }

    /// Those of a session.
    pub(super) fn of_session(&self, session: u32) -> Vec<u32> {
        let all = self.by_key.get(session as usize).into_iter().flatten();
        all.copied().filter(|number| *number != NONE).collect()
    }
}
