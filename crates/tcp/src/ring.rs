//! The bytes of a connection: a ring that grows with what it holds, and the pool that its memory comes
//! from and goes back to. An idle connection has no buffer.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Smallest buffer in bytes; all are powers of two.
const SMALLEST: usize = 4096;
const CLASSES: usize = 19;
/// Most bytes that the pool keeps for later, in each size.
const KEPT: usize = 4 << 20;

/// Buffers that nobody uses, by size; the last one back is the next one out, as it is still in the
/// cache.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: [Vec<Box<[u8]>>; CLASSES],
}

impl Pool {
    fn class(bytes: usize) -> usize {
        (bytes.max(SMALLEST).next_power_of_two() / SMALLEST).trailing_zeros() as usize
    }

    fn take(&mut self, bytes: usize) -> Box<[u8]> {
        let class = Pool::class(bytes);
        let kept = self.free.get_mut(class).and_then(Vec::pop);
        kept.unwrap_or_else(|| vec![0; SMALLEST << class].into_boxed_slice())
    }

    fn give(&mut self, buffer: Box<[u8]>) {
        if buffer.is_empty() {
            return;
        }
        let bytes = buffer.len();
        if let Some(free) = self.free.get_mut(Pool::class(bytes))
            && (free.len() + 1) * bytes <= KEPT
        {
            free.push(buffer);
        }
    }
}

/// A ring of bytes.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    buffer: Box<[u8]>,
    head: u32,
    len: u32,
}

impl Ring {
    /// Bytes in order.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Is it empty?
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes room for `total` bytes from the first one on; what lies behind the end stays.
    #[inline]
    fn reserve(&mut self, total: usize, pool: &mut Pool) {
        if total > self.buffer.len() {
            self.grow(total, pool);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, total: usize, pool: &mut Pool) {
        let mut larger = pool.take(total);
        let (before, after) = self.buffer.split_at(self.head as usize);
        larger[..after.len()].copy_from_slice(after);
        larger[after.len()..after.len() + before.len()].copy_from_slice(before);
        self.head = 0;
        pool.give(core::mem::replace(&mut self.buffer, larger));
    }

    /// Writes `bytes` at `offset` from the first byte, perhaps beyond the end, which stays where it is.
    #[inline]
    pub(crate) fn write_at(&mut self, offset: u32, bytes: &[u8], pool: &mut Pool) {
        self.reserve(offset as usize + bytes.len(), pool);
        let at = (self.head as usize + offset as usize) & (self.buffer.len() - 1);
        let first = bytes.len().min(self.buffer.len() - at);
        self.buffer[at..at + first].copy_from_slice(&bytes[..first]);
        if first < bytes.len() {
            self.buffer[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        }
    }

    /// What was written behind the end belongs to it now.
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

    /// `len` bytes from `offset` on, which may lie behind the end if they were written.
    #[inline]
    pub(crate) fn slices(&self, offset: u32, len: u32) -> [&[u8]; 2] {
        if len == 0 {
            return [&[], &[]];
        }
        let at = (self.head as usize + offset as usize) & (self.buffer.len() - 1);
        let first = (len as usize).min(self.buffer.len() - at);
        [&self.buffer[at..at + first], &self.buffer[..len as usize - first]]
    }

    /// Takes `bytes` off the front. A ring that holds nothing gives its memory back, unless
    /// `keep`: something lies behind its end.
    #[inline]
    pub(crate) fn consume(&mut self, bytes: u32, keep: bool, pool: &mut Pool) {
        let bytes = bytes.min(self.len);
        self.len -= bytes;
        if self.len == 0 && !keep {
            self.clear(pool);
        } else if bytes > 0 {
            self.head = (self.head + bytes) & (self.buffer.len() as u32 - 1);
        }
    }

    /// Drops what it holds and gives the memory back.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.len = 0;
        self.head = 0;
        pool.give(core::mem::take(&mut self.buffer));
    }

    /// Moves up to `into.len()` bytes from the front.
    pub(crate) fn copy_out(&self, into: &mut [u8]) -> u32 {
        let len = self.len.min(u32::try_from(into.len()).unwrap_or(u32::MAX));
        let [first, second] = self.slices(0, len);
        into[..first.len()].copy_from_slice(first);
        into[first.len()..len as usize].copy_from_slice(second);
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_a_queue(steps in proptest::collection::vec((any::<bool>(), 0usize..6000), 1..60)) {
            let (mut ring, mut pool) = (Ring::default(), Pool::default());
            let mut model: VecDeque<u8> = VecDeque::new();
            let mut next = 0u8;
            for (push, count) in steps {
                if push {
                    let bytes: Vec<u8> = (0..count).map(|_| { next = next.wrapping_add(7); next }).collect();
                    ring.push(&bytes, &mut pool);
                    model.extend(&bytes);
                } else {
                    let count = count.min(model.len());
                    let [a, b] = ring.slices(0, count as u32);
                    let taken: Vec<u8> = model.drain(..count).collect();
                    prop_assert_eq!([a, b].concat(), taken);
                    ring.consume(count as u32, false, &mut pool);
                }
                prop_assert_eq!(ring.len() as usize, model.len());
            }
        }
    }

    #[test]
    fn what_lies_behind_the_end_survives_growth() {
        let (mut ring, mut pool) = (Ring::default(), Pool::default());
        ring.push(&[1; 4000], &mut pool);
        ring.consume(3000, false, &mut pool);
        ring.write_at(2000, &[2; 1500], &mut pool);
        ring.write_at(9000, &[3; 10], &mut pool);
        ring.push(&[4; 1000], &mut pool);
        ring.extend(1500);
        assert_eq!(ring.slices(2000, 1500).concat(), [2; 1500]);
        assert_eq!(ring.slices(9000, 10).concat(), [3; 10]);
    }
}
