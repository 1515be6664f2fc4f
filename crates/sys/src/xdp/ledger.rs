//! A ledger of the chunks that the kernel has, so that no chunk has two owners.

/// The purpose for which the kernel has a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Lent {
    /// It is not with the kernel: a token or the free list has it.
    No,
    /// To receive into: put into the FILL ring.
    Receive,
    /// To send from: put into the TX ring.
    Transmit,
}

/// One entry per chunk of the pool.
///
/// A token is consumed when its chunk is lent and made again only when the kernel names a chunk
/// that is lent, for the purpose it was lent for. A descriptor that repeats, or names a chunk that
/// the kernel was never given, or lies outside the UMEM, therefore never becomes a second token.
#[derive(Debug)]
pub(super) struct Ledger {
    chunks: Box<[Lent]>,
    chunk_shift: u32,
    lent: usize,
}

/// A range within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) chunk: u32,
    pub(super) offset: u32,
}

impl Ledger {
    /// For `chunks` chunks of `chunk_size` bytes, a power of two.
    pub(super) fn new(chunks: usize, chunk_size: usize) -> Self {
        Self {
            chunks: vec![Lent::No; chunks].into_boxed_slice(),
            chunk_shift: chunk_size.trailing_zeros(),
            lent: 0,
        }
    }

    /// Records that the kernel gets a chunk, and returns the chunk's address in the UMEM.
    pub(super) fn lend(&mut self, place: Place, purpose: Lent) -> u64 {
        self.chunks[place.chunk as usize] = purpose;
        self.lent += 1;
        (u64::from(place.chunk) << self.chunk_shift) | u64::from(place.offset)
    }

    /// Takes back the chunk that holds the `len` bytes at `address`. `None` if it was not lent for
    /// this purpose or the bytes leave the chunk.
    pub(super) fn take_back(&mut self, address: u64, len: u32, purpose: Lent) -> Option<Place> {
        let chunk = usize::try_from(address >> self.chunk_shift).ok()?;
        let offset = (address & ((1 << self.chunk_shift) - 1)) as u32;
        let entry = self.chunks.get_mut(chunk)?;
        if *entry != purpose || u64::from(offset) + u64::from(len) > 1 << self.chunk_shift {
            return None;
        }
        *entry = Lent::No;
        self.lent -= 1;
        Some(Place { chunk: chunk as u32, offset })
    }

    /// Number of chunks that the kernel has.
    pub(super) fn lent(&self) -> usize {
        self.lent
    }

    /// Takes back all chunks, once the kernel has released the whole UMEM.
    pub(super) fn take_back_all(&mut self) -> impl Iterator<Item = u32> {
        self.lent = 0;
        self.chunks.iter_mut().enumerate().filter(|(_, entry)| **entry != Lent::No).map(
            |(chunk, entry)| {
                *entry = Lent::No;
                chunk as u32
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_lent_for_this_purpose_comes_back_and_only_once() {
        let mut ledger = Ledger::new(4, 2048);
        let place = Place { chunk: 2, offset: 0 };
        let address = ledger.lend(place, Lent::Receive);
        assert_eq!(address, 4096);
        assert_eq!(ledger.take_back(address, 60, Lent::Transmit), None);
        assert_eq!(ledger.take_back(2048, 60, Lent::Receive), None);
        let found = ledger.take_back(address + 256, 60, Lent::Receive);
        assert_eq!(found, Some(Place { chunk: 2, offset: 256 }));
        assert_eq!(ledger.take_back(address + 256, 60, Lent::Receive), None);
        assert_eq!(ledger.lent(), 0);
    }

    #[test]
    fn addresses_outside_the_umem_or_across_chunks_are_refused() {
        let mut ledger = Ledger::new(2, 2048);
        ledger.lend(Place { chunk: 1, offset: 0 }, Lent::Receive);
        for (address, len) in [(4096, 1), (u64::MAX, 1), (2048 + 2000, 49), (2048, u32::MAX)] {
            assert_eq!(ledger.take_back(address, len, Lent::Receive), None);
        }
        assert!(ledger.take_back(2048 + 2000, 48, Lent::Receive).is_some());
    }

    #[test]
    fn everything_lent_can_be_taken_back_at_once() {
        let mut ledger = Ledger::new(8, 2048);
        ledger.lend(Place { chunk: 1, offset: 0 }, Lent::Receive);
        ledger.lend(Place { chunk: 5, offset: 64 }, Lent::Transmit);
        assert_eq!(ledger.lent(), 2);
        assert_eq!(ledger.take_back_all().collect::<Vec<_>>(), [1, 5]);
        assert_eq!((ledger.lent(), ledger.take_back_all().count()), (0, 0));
    }
}
