//! Where connections stand. They never move: memory is added in pieces.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::config::Config;
use crate::connection::{Connection, IN_ORDER};

/// Connections of one piece.
const PIECE: usize = 256;

/// Identifies a connection: its slot, and how many the slot had before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Id {
    slot: u32,
    generation: u32,
}

impl Id {
    /// The connection's place among those of its stack: less than the most that there were at one time. It is
    /// used again when the connection is gone, with another `Id`.
    #[inline]
    pub fn slot(self) -> u32 {
        self.slot
    }

    /// A number of its own for each connection of a stack, small for the first ones.
    pub fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
}

/// Whether there is a connection stands in the connection itself, where its hot state is: an `Option` would
/// keep it in some other cache line.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pieces: Vec<Vec<Connection>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    len: usize,
    /// Settings of vacant places.
    config: Arc<Config>,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, connection: Connection) -> Id {
        self.len += 1;
        if let Some(slot) = self.free.pop() {
            if let Some(place) = self.place(slot) {
                *place = connection;
            }
            return self.id(slot);
        }
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(connection);
        }
        self.generations.push(0);
        self.id(self.generations.len() as u32 - 1)
    }

    #[inline]
    fn place(&mut self, slot: u32) -> Option<&mut Connection> {
        self.pieces.get_mut(slot as usize / PIECE)?.get_mut(slot as usize % PIECE)
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let vacant = Connection::vacant(self.config.clone());
        let connection = core::mem::replace(self.at_mut(slot)?, vacant);
        self.len -= 1;
        self.generations[slot as usize] = self.generations[slot as usize].wrapping_add(1);
        self.free.push(slot);
        Some(connection)
    }

    pub(super) fn id(&self, slot: u32) -> Id {
        Id { slot, generation: self.generations[slot as usize] }
    }

    pub(super) fn get(&self, id: Id) -> Option<&Connection> {
        (self.generations.get(id.slot as usize) == Some(&id.generation)).then_some(())?;
        self.at(id.slot)
    }

    #[inline]
    pub(super) fn at(&self, slot: u32) -> Option<&Connection> {
        let piece = self.pieces.get(slot as usize / PIECE)?;
        piece.get(slot as usize % PIECE).filter(|connection| !connection.hot.bits.vacant())
    }

    /// Starts loading what a segment in order needs of a connection.
    #[inline]
    pub(super) fn fetch(&self, slot: u32) {
        let piece = self.pieces.get(slot as usize / PIECE);
        if let Some(place) = piece.and_then(|piece| piece.get(slot as usize % PIECE)) {
            wire::cache::prefetch_first(place, IN_ORDER);
        }
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.place(slot).filter(|connection| !connection.hot.bits.vacant())
    }

    /// A slot that the stack's own tables name holds a connection.
    #[inline]
    pub(super) fn expect(&self, slot: u32) -> &Connection {
        self.at(slot).expect("the tables name connections that exist")
    }

    /// The same, to change it.
    #[inline]
    pub(super) fn expect_mut(&mut self, slot: u32) -> &mut Connection {
        self.at_mut(slot).expect("the tables name connections that exist")
    }
}
