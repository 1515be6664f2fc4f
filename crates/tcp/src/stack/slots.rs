//! Where connections stand. They never move: memory is added in pieces.

use alloc::vec::Vec;

use crate::connection::Connection;

/// Connections of one piece.
const PIECE: usize = 256;

/// A connection's name: its slot, and the how-manieth there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Id {
    slot: u32,
    generation: u32,
}

impl Id {
    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.slot
    }

    /// A number of its own for each connection of a stack, small for the first ones.
    pub fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    pieces: Vec<Vec<Option<Connection>>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    len: usize,
}

impl Slots {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, connection: Connection) -> Id {
        self.len += 1;
        if let Some(slot) = self.free.pop() {
            if let Some(place) = self.place(slot) {
                *place = Some(connection);
            }
            return self.id(slot);
        }
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        if let Some(piece) = self.pieces.last_mut() {
            piece.push(Some(connection));
        }
        self.generations.push(0);
        self.id(self.generations.len() as u32 - 1)
    }

    fn place(&mut self, slot: u32) -> Option<&mut Option<Connection>> {
        self.pieces.get_mut(slot as usize / PIECE)?.get_mut(slot as usize % PIECE)
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let connection = self.place(slot)?.take()?;
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
        self.pieces.get(slot as usize / PIECE)?.get(slot as usize % PIECE)?.as_ref()
    }

    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.place(slot)?.as_mut()
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
