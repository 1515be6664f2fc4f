//! What a lent connection's application is to store: see [`Stack::thaw_lent`].

use wire::Seq;

use super::{Id, Stack};

/// Bytes of a segment that the application is to store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Whose.
    pub id: Id,
    /// Sequence number of the first of them.
    pub seq: Seq,
    /// Bytes of the payload that are in front of it.
    pub skip: u32,
    /// How many.
    pub len: u32,
}

impl Stack {
    /// Where bytes of the segment at hand belong, if it is of a lent connection, which is in this slot.
    #[inline]
    pub(super) fn placement(&mut self, slot: Option<u32>) -> Option<Placement> {
        let (block, skip) = self.placed.take()?;
        let id = self.slots.id(slot?);
        Some(Placement { id, seq: block.start, skip, len: block.len() })
    }
}
