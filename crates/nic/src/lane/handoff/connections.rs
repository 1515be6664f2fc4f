//! The host's connections that the NIC has, by their addresses, by their names in commands, and by the engine's.

use std::collections::{HashMap, VecDeque};

use handoff::machine::NicSide;
use handoff::ring::{receive, send};
use handoff::session::status::Status;
use tcp::{FourTuple, Id};
use wire::{Mac, Seq};

use super::link::{HeldPacket, Key};
use super::records::Keeps;

/// Connections that are looked at for one that is over.
const LOOKS: usize = 16;

/// One connection, from its offer on.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) key: Key,
    pub(super) path: FourTuple,
    /// Where its segments go.
    pub(super) next_hop: Mac,
    pub(super) side: NicSide<HeldPacket>,
    /// While the engine has it.
    pub(super) engine: Option<Running>,
    pub(super) keeps: Keeps,
    /// What the kernel is told when it has the connection back.
    pub(super) told: Option<HeldPacket>,
    /// SND.NXT when the kernel gave it: what it sent before may still be on its way here.
    pub(super) kernel_sent: Option<Seq>,
}

/// What a connection has while the engine runs it.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) id: Id,
    pub(super) send: send::Kept,
    pub(super) receive: receive::Kept,
    /// As the application was told last.
    pub(super) status: Status,
    /// As it was looked at last.
    pub(super) state: tcp::State,
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
    /// The engine ends it by itself from now on.
    pub(super) is_released: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<Option<Connection>>,
    free: Vec<u32>,
    by_path: HashMap<FourTuple, u32>,
    by_key: HashMap<Key, u32>,
    /// By the engine's slot.
    by_engine: Vec<u32>,
    /// Those that the engine ends by itself, the oldest first, and some that are gone.
    released: VecDeque<u32>,
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
        keeps: Keeps,
    ) -> Option<u32> {
        if self.by_path.contains_key(&path) || self.by_key.contains_key(&key) {
            return None;
        }
        let side = NicSide::default();
        let connection = Some(Connection {
            key,
            path,
            next_hop,
            side,
            engine: None,
            keeps,
            told: None,
            kernel_sent: None,
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
        self.by_key.insert(key, number);
        Some(number)
    }

    pub(super) fn remove(&mut self, number: u32) {
        let Some(connection) = self.slots.get_mut(number as usize).and_then(Option::take) else {
            return;
        };
        self.by_path.remove(&connection.path);
        self.by_key.remove(&connection.key);
        self.free.push(number);
        // Those of others that are gone do not gather.
        while let Some(number) = self.released.front().copied()
            && self.get(number).is_none()
        {
            self.released.pop_front();
        }
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

    pub(super) fn by_key(&self, key: Key) -> Option<u32> {
        self.by_key.get(&key).copied()
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

    /// The engine runs it.
    pub(super) fn begin(&mut self, number: u32, running: Running) {
        let at = running.id.slot() as usize;
        if self.by_engine.len() <= at {
            self.by_engine.resize(at + 1, u32::MAX);
        }
        self.by_engine[at] = number;
        if let Some(connection) = self.get_mut(number) {
            connection.engine = Some(running);
        }
    }

    /// Those of a session.
    pub(super) fn of_session(&self, session: u32) -> Vec<u32> {
        let of = |(key, number): (&Key, &u32)| (key.session == session).then_some(*number);
        self.by_key.iter().filter_map(of).collect()
    }
}
