//! The bytes of a ring. What the other side does meanwhile changes what is copied, and nothing else.

use core::fmt;

#[cfg(not(loom))]
use wire::Bytes;

use super::BadSize;
use super::atomic::AtomicU64;
use super::extent::{Classes, Extents};

/// Most bytes of a ring: 1 GB, so that a distance tells forwards from backwards.
const MOST: usize = 1 << 30;
const WORD: usize = 8;

#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    words: &'a [AtomicU64],
    pub(super) classes: Classes,
}

impl fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} bytes)", self.capacity())
    }
}

/// Bytes of a ring that lie one after the other: the words that they are in, of which the first bytes, in the order of
/// memory, are others.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The words.
    pub words: &'a [AtomicU64],
    /// Where it begins, in bytes from the first word.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

impl<'a> Data<'a> {
    /// Twice as much memory as the ring holds: see [`extent`](super::extent).
    pub(super) fn new(words: &'a [AtomicU64]) -> Result<Self, BadSize> {
        let bytes = words.len() * WORD;
        let sensible = bytes.is_power_of_two() && (2 * WORD..=2 * MOST).contains(&bytes);
        let classes = Classes::of((bytes / 2).min(MOST) as u32);
        if sensible { Ok(Data { words, classes }) } else { Err(BadSize) }
    }

    /// In bytes.
    pub(super) fn capacity(self) -> u32 {
        (self.words.len() * WORD / 2) as u32
    }

    /// `len` bytes from `index` on, in pieces, each with where it begins in the memory.
    fn pieces(
        self,
        extents: Extents,
        index: u32,
        len: usize,
    ) -> impl Iterator<Item = (usize, usize)> {
        let mut done = 0;
        core::iter::from_fn(move || {
            if done == len {
                return None;
            }
            let at = index.wrapping_add(done as u32);
            let (extent, most) = extents.of(at);
            let size = self.classes.size(extent.class);
            let within = at.wrapping_sub(extent.from) & (size - 1);
            let count = (len - done).min(most as usize).min((size - within) as usize);
            done += count;
            (count > 0).then_some(((size + within) as usize, count))
        })
    }

    /// Writes bytes from `index` on. Only the ring's producer may do so.
    pub(super) fn write(self, extents: Extents, index: u32, bytes: &[u8]) {
        let mut rest = bytes;
        for (at, count) in self.pieces(extents, index, bytes.len()) {
            let (now, later) = rest.split_at(count);
            super::atomic::store(self.words, at, now);
            rest = later;
        }
    }

    /// Reads bytes from `index` on.
    pub(super) fn read(self, extents: Extents, index: u32, into: &mut [u8]) {
        let mut rest = &mut into[..];
        for (at, count) in self.pieces(extents, index, rest.len()) {
            let (now, later) = rest.split_at_mut(count);
            super::atomic::load(self.words, at, now);
            rest = later;
        }
    }

    /// The same with the words that they are in.
    pub(super) fn places(self, extents: Extents, index: u32, len: u32) -> [Piece<'a>; 2] {
        let mut pieces = self.pieces(extents, index, len as usize);
        [(); 2].map(|()| {
            let (at, len) = pieces.next().unwrap_or_default();
            Piece { words: &self.words[at / WORD..], at: at % WORD, len }
        })
    }

    /// Bytes from `index` on where they lie, as many of `len` as lie in two pieces.
    #[cfg(not(loom))]
    pub(super) fn bytes(self, extents: Extents, index: u32, len: usize) -> [Bytes<'a>; 2] {
        let mut pieces = self.pieces(extents, index, len);
        [(); 2].map(|()| {
            let (at, count) = pieces.next().unwrap_or_default();
            Bytes::of_words(self.words, at, count)
        })
    }
}
