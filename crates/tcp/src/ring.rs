//! The bytes of a connection: a ring that takes memory for what it holds and gives it back as it is
//! emptied. An idle connection has no buffer.
//!
//! What is small goes round in one buffer. What is larger lies in blocks, and those in between that
//! hold nothing are not there: a byte far behind a hole takes a block, not the way there.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::block::{Blocks, RECEIVE_BLOCK, SEND_BLOCK, SMALLEST};
use crate::pool::Pool;

/// Receive queue.
pub(crate) type ReceiveRing = Ring<RECEIVE_BLOCK>;
/// Send queue: what is to be sent, and what was not acknowledged.
pub(crate) type SendRing = Ring<SEND_BLOCK>;

impl Blocks {
    /// The block at `index`, which is made if it is not there.
    #[inline]
    fn make<const BLOCK: usize>(&mut self, index: usize, pool: &mut Pool) -> &mut [u8] {
        if self.at(index).is_empty() {
            self.add::<BLOCK>(index, pool);
        }
        self.all[index].as_deref_mut().unwrap_or(&mut [])
    }

    #[cold]
    #[inline(never)]
    fn add<const BLOCK: usize>(&mut self, index: usize, pool: &mut Pool) {
        while self.all.len() <= index {
            self.all.push_back(None);
        }
        self.all[index] = Some(pool.take(BLOCK));
        self.held += 1;
        *used::<BLOCK>(pool) += BLOCK as u64;
    }

    /// The block at `index`; nothing if it is not there.
    #[inline]
    fn at(&self, index: usize) -> &[u8] {
        self.all.get(index).and_then(Option::as_deref).unwrap_or(&[])
    }

    fn drop_front<const BLOCK: usize>(&mut self, pool: &mut Pool) {
        let block = self.all.pop_front();
        self.give::<BLOCK>(block, pool);
    }

    fn drop_back<const BLOCK: usize>(&mut self, pool: &mut Pool) {
        let block = self.all.pop_back();
        self.give::<BLOCK>(block, pool);
    }

    fn give<const BLOCK: usize>(&mut self, block: Option<Option<Box<[u8]>>>, pool: &mut Pool) {
        if let Some(Some(block)) = block {
            self.held -= 1;
            *used::<BLOCK>(pool) -= BLOCK as u64;
            pool.give(block);
        }
    }
}

/// The account of the memory that rings with this size of block have.
fn used<const BLOCK: usize>(pool: &mut Pool) -> &mut u64 {
    if BLOCK == SEND_BLOCK { &mut pool.memory.sending } else { &mut pool.memory.received }
}

#[derive(Debug)]
enum Store {
    /// A power of two, no longer than a block.
    Round(Box<[u8]>),
    /// `None` if the bytes lie with the application: here it is only known how many there are. (A variant of its own would
    /// make all rings larger.)
    Blocks(Option<Box<Blocks>>),
}

impl Default for Store {
    fn default() -> Self {
        Store::Round(Box::default())
    }
}

/// A ring of bytes, in blocks of so many.
#[derive(Debug, Default)]
pub(crate) struct Ring<const BLOCK: usize> {
    store: Store,
    /// Where the first byte lies, in the buffer or in the first block.
    head: u32,
    len: u32,
}

const _: () = assert!(size_of::<SendRing>() == 24, "two of them stand among what is hot");

impl<const BLOCK: usize> Ring<BLOCK> {
    /// A ring whose bytes lie with the application.
    pub(crate) fn lent() -> Self {
        Ring { store: Store::Blocks(None), head: 0, len: 0 }
    }

    /// Whether its bytes lie with the application: what is written is for the application to store, and nothing can be
    /// read here.
    #[inline]
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.store, Store::Blocks(None))
    }

    /// Bytes in order.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether it is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that it has.
    pub(crate) fn capacity(&self) -> u64 {
        let bytes = match &self.store {
            Store::Round(buffer) => buffer.len(),
            Store::Blocks(Some(blocks)) => blocks.held * BLOCK,
            Store::Blocks(None) => 0,
        };
        bytes as u64
    }

    /// How many bytes can be added with so much more memory.
    pub(crate) fn room(&self, more: u64) -> u64 {
        let block = BLOCK as u64;
        let most = self.capacity() + more;
        let bytes = match &self.store {
            Store::Blocks(Some(blocks)) => {
                let end = blocks.all.len() as u64 * block - u64::from(self.head);
                end + more / block * block
            }
            Store::Round(_) if most >= block => most / block * block,
            Store::Round(buffer) => {
                let larger = (most / 2 + 1).next_power_of_two();
                let fits = larger <= most && larger >= SMALLEST as u64;
                if fits { larger } else { buffer.len() as u64 }
            }
            Store::Blocks(None) => u64::MAX,
        };
        bytes.saturating_sub(u64::from(self.len))
    }

    /// Makes the buffer larger, for `total` bytes.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, total: usize, pool: &mut Pool) {
        let mut larger = pool.take(total);
        self.unwind(&mut larger);
        *used::<BLOCK>(pool) += larger.len() as u64;
        if let Store::Round(old) = core::mem::replace(&mut self.store, Store::Round(larger)) {
            *used::<BLOCK>(pool) -= old.len() as u64;
            pool.give(old);
        }
        self.head = 0;
    }

    /// The bytes of the one buffer, in order.
    fn unwind(&self, into: &mut [u8]) {
        if let Store::Round(buffer) = &self.store {
            let (before, after) = buffer.split_at(self.head as usize);
            into[..after.len()].copy_from_slice(after);
            into[after.len()..buffer.len()].copy_from_slice(before);
        }
    }

    /// Moves the bytes of the one buffer into blocks.
    #[cold]
    #[inline(never)]
    fn spread(&mut self, pool: &mut Pool) {
        let mut blocks = pool.take_table();
        if self.capacity() > 0 {
            self.unwind(blocks.make::<BLOCK>(0, pool));
        }
        if let Store::Round(old) = core::mem::replace(&mut self.store, Store::Blocks(Some(blocks)))
        {
            *used::<BLOCK>(pool) -= old.len() as u64;
            pool.give(old);
        }
        self.head = 0;
    }

    /// Writes `bytes` at `offset` from the first byte, perhaps beyond the end, which stays where it is.
    #[inline]
    pub(crate) fn write_at(&mut self, offset: u32, bytes: &[u8], pool: &mut Pool) {
        let total = offset as usize + bytes.len();
        if let Store::Round(buffer) = &self.store
            && total > buffer.len()
        {
            if total > BLOCK {
                self.spread(pool);
            } else {
                self.grow(total, pool);
            }
        }
        let mut at = self.head as usize + offset as usize;
        match &mut self.store {
            Store::Round(buffer) => {
                at &= buffer.len() - 1;
                let first = bytes.len().min(buffer.len() - at);
                buffer[at..at + first].copy_from_slice(&bytes[..first]);
                if first < bytes.len() {
                    buffer[..bytes.len() - first].copy_from_slice(&bytes[first..]);
                }
            }
            Store::Blocks(Some(blocks)) => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let block = blocks.make::<BLOCK>(at / BLOCK, pool);
                    let (piece, others) = rest.split_at(rest.len().min(BLOCK - at % BLOCK));
                    block[at % BLOCK..at % BLOCK + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                    rest = others;
                }
            }
            Store::Blocks(None) => {}
        }
    }

    /// Moves the end behind `bytes` that were written beyond it.
    #[inline]
    pub(crate) fn extend(&mut self, bytes: u32) {
        self.len += bytes;
    }

    /// Adds `bytes` at the end.
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8], pool: &mut Pool) {
        if !bytes.is_empty() {
            self.write_at(self.len, bytes, pool);
            self.len += bytes.len() as u32;
        }
    }

    /// `len` bytes from `offset` on, which may lie behind the end if they were written; only as many of
    /// them as lie in two pieces. That is all if they are no more than a block.
    #[inline]
    pub(crate) fn slices(&self, offset: u32, len: u32) -> [&[u8]; 2] {
        if len == 0 {
            return [&[], &[]];
        }
        let (at, len) = (self.head as usize + offset as usize, len as usize);
        match &self.store {
            Store::Round(buffer) => {
                let at = at & (buffer.len() - 1);
                let first = len.min(buffer.len() - at);
                [&buffer[at..at + first], &buffer[..len - first]]
            }
            Store::Blocks(Some(blocks)) => {
                let (index, at) = (at / BLOCK, at % BLOCK);
                let first = len.min(BLOCK - at);
                let second = (len - first).min(BLOCK);
                let next = if second > 0 { blocks.at(index + 1) } else { &[] };
                [&blocks.at(index)[at..at + first], &next[..second]]
            }
            Store::Blocks(None) => [&[], &[]],
        }
    }

    /// All of them, in pieces.
    pub(crate) fn pieces(&self, mut offset: u32, len: u32) -> impl Iterator<Item = &[u8]> {
        let end = offset + len;
        core::iter::from_fn(move || {
            let pieces = self.slices(offset, end - offset);
            let got = pieces[0].len() + pieces[1].len();
            offset += got as u32;
            (got > 0).then_some(pieces)
        })
        .flatten()
    }

    /// A copy of them.
    pub(crate) fn copy(&self, offset: u32, len: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len as usize);
        for piece in self.pieces(offset, len) {
            bytes.extend_from_slice(piece);
        }
        bytes
    }

    /// Takes `bytes` off the front. A ring that holds nothing gives its memory back, unless
    /// `keep`: something lies behind its end.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: u32, keep: bool, pool: &mut Pool) {
        let bytes = bytes.min(self.len);
        self.len -= bytes;
        if self.len == 0 && !keep {
            self.clear(pool);
            return;
        }
        if bytes == 0 {
            return;
        }
        self.head += bytes;
        match &mut self.store {
            Store::Blocks(None) => self.head = 0,
            Store::Round(buffer) => self.head &= buffer.len() as u32 - 1,
            Store::Blocks(Some(blocks)) => {
                while self.head >= BLOCK as u32 {
                    self.head -= BLOCK as u32;
                    blocks.drop_front::<BLOCK>(pool);
                }
            }
        }
    }

    /// Gives the memory of what lies behind the end back, from `offset` on, as far as it is whole blocks.
    pub(crate) fn cut(&mut self, offset: u32, pool: &mut Pool) {
        if let Store::Blocks(Some(blocks)) = &mut self.store {
            let needed = (self.head as usize + offset as usize).div_ceil(BLOCK);
            while blocks.all.len() > needed {
                blocks.drop_back::<BLOCK>(pool);
            }
        }
    }

    /// Drops what it holds and gives the memory back.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.len = 0;
        self.head = 0;
        match core::mem::take(&mut self.store) {
            Store::Blocks(None) => self.store = Store::Blocks(None),
            Store::Round(buffer) => {
                *used::<BLOCK>(pool) -= buffer.len() as u64;
                pool.give(buffer);
            }
            Store::Blocks(Some(mut blocks)) => {
                while !blocks.all.is_empty() {
                    blocks.drop_back::<BLOCK>(pool);
                }
                pool.give_table(blocks);
            }
        }
    }

    /// Moves up to `into.len()` bytes from the front.
    pub(crate) fn copy_out(&self, into: &mut [u8]) -> u32 {
        let len = self.len.min(u32::try_from(into.len()).unwrap_or(u32::MAX));
        let mut rest = into;
        for piece in self.pieces(0, len) {
            let (to, others) = rest.split_at_mut(piece.len());
            to.copy_from_slice(piece);
            rest = others;
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn is_a_queue<const BLOCK: usize>(steps: Vec<(bool, usize)>) -> Result<(), TestCaseError> {
        let (mut ring, mut pool) = (Ring::<BLOCK>::default(), Pool::default());
        let mut model: VecDeque<u8> = VecDeque::new();
        let mut next = 0u8;
        for (push, count) in steps {
            if push {
                let bytes: Vec<u8> = (0..count)
                    .map(|_| {
                        next = next.wrapping_add(7);
                        next
                    })
                    .collect();
                ring.push(&bytes, &mut pool);
                model.extend(&bytes);
            } else {
                let count = count.min(model.len());
                let taken: Vec<u8> = model.drain(..count).collect();
                prop_assert_eq!(&ring.copy(0, count as u32), &taken);
                let [a, b] = ring.slices(0, count as u32);
                prop_assert!(count > BLOCK || a.len() + b.len() == count);
                let mut out = alloc::vec![0; count];
                prop_assert_eq!(ring.copy_out(&mut out) as usize, count);
                prop_assert_eq!(out, taken);
                ring.consume(count as u32, false, &mut pool);
            }
            prop_assert_eq!(ring.len() as usize, model.len());
            let counted = pool.memory.sending + pool.memory.received;
            prop_assert_eq!(counted, ring.capacity());
            let most = crate::memory::footprint(model.len() as u64).max(2 * BLOCK as u64);
            prop_assert!(BLOCK == SEND_BLOCK || ring.capacity() <= most);
            prop_assert!(!model.is_empty() || ring.capacity() == 0);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_ring_is_first_in_first_out(
            steps in proptest::collection::vec((any::<bool>(), 0usize..6_000), 1..60),
            large in proptest::collection::vec((any::<bool>(), 0usize..200_000), 1..20),
        ) {
            is_a_queue::<RECEIVE_BLOCK>(steps.clone())?;
            is_a_queue::<SEND_BLOCK>(steps)?;
            is_a_queue::<RECEIVE_BLOCK>(large.clone())?;
            is_a_queue::<SEND_BLOCK>(large)?;
        }

        /// What `room` promises fits into so much more memory, and uses it as well as can be.
        #[test]
        fn room_is_what_fits(
            held in 0usize..300_000,
            taken in 0usize..200_000,
            more in 0u64..400_000,
        ) {
            let (mut ring, mut pool) = (SendRing::default(), Pool::default());
            ring.push(&alloc::vec![1; held], &mut pool);
            ring.consume(taken.min(held) as u32, false, &mut pool);
            let before = ring.capacity();
            let room = ring.room(more);
            ring.push(&alloc::vec![2; room as usize], &mut pool);
            prop_assert!(ring.capacity() <= before + more, "{room} took {}", ring.capacity() - before);
            prop_assert!(more < 2 * SEND_BLOCK as u64 || room >= more - SEND_BLOCK as u64);
        }
    }

    #[test]
    fn what_lies_behind_the_end_survives_growth() {
        let (mut ring, mut pool) = (ReceiveRing::default(), Pool::default());
        ring.push(&[1; 4000], &mut pool);
        ring.consume(3000, false, &mut pool);
        ring.write_at(2000, &[2; 1500], &mut pool);
        ring.write_at(9000, &[3; 10], &mut pool);
        ring.write_at(900_000, &[5; 40_000], &mut pool);
        ring.push(&[4; 1000], &mut pool);
        ring.extend(1500);
        assert_eq!(ring.copy(2000, 1500), [2; 1500]);
        assert_eq!(ring.copy(9000, 10), [3; 10]);
        assert_eq!(ring.copy(900_000, 40_000), [5; 40_000]);
    }

    #[test]
    fn a_byte_far_away_takes_a_block() {
        let (mut ring, mut pool) = (ReceiveRing::default(), Pool::default());
        ring.push(&[1; 100], &mut pool);
        ring.write_at(4 << 20, &[2], &mut pool);
        assert_eq!(ring.capacity(), 2 * RECEIVE_BLOCK as u64);
        ring.cut(100, &mut pool);
        assert_eq!(ring.capacity(), RECEIVE_BLOCK as u64);
        assert_eq!(ring.copy(0, 100), [1; 100]);
    }
}
