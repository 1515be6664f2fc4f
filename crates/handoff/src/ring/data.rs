//! The bytes of a ring. They are copied as relaxed words: what the other side does meanwhile changes what is
//! copied, and nothing else.

use super::BadSize;
use super::atomic::{AtomicU64, Ordering};

/// Most words of a ring: 2 GB, so that a distance tells forwards from backwards.
const WORDS_MAX: usize = 1 << 28;

const WORD: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Data<'a>(&'a [AtomicU64]);

impl<'a> Data<'a> {
    pub(super) fn new(words: &'a [AtomicU64]) -> Result<Self, BadSize> {
        let sensible = words.len().is_power_of_two() && words.len() <= WORDS_MAX;
        if sensible { Ok(Data(words)) } else { Err(BadSize) }
    }

    /// In bytes.
    pub(super) fn capacity(self) -> u32 {
        (self.0.len() * WORD) as u32
    }

    /// The word of this index, and the place of its byte in it.
    fn word(self, index: u32) -> (&'a AtomicU64, usize) {
        let place = index as usize;
        (&self.0[(place / WORD) & (self.0.len() - 1)], place % WORD)
    }

    /// The words from this index on, where a word begins, up to the end of the ring, but at most so many.
    fn words(self, index: u32, most: usize) -> &'a [AtomicU64] {
        let start = (index as usize / WORD) & (self.0.len() - 1);
        let end = self.0.len().min(start + most);
        &self.0[start..end]
    }

    /// Writes bytes from `index` on, around the end. Only the ring's producer may do so: bytes of a word that are
    /// not written stay as they are.
    pub(super) fn write(self, mut index: u32, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let whole = self.words(index, bytes.len() / WORD);
            let count = if !(index as usize).is_multiple_of(WORD) || whole.is_empty() {
                self.write_part(index, bytes)
            } else {
                for (word, bytes) in whole.iter().zip(bytes.chunks_exact(WORD)) {
                    let value = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
                    word.store(value, Ordering::Relaxed);
                }
                whole.len() * WORD
            };
            index = index.wrapping_add(count as u32);
            bytes = &bytes[count..];
        }
    }

    /// Bytes of one word, of which others stay as they are. Says how many.
    fn write_part(self, index: u32, bytes: &[u8]) -> usize {
        let (word, at) = self.word(index);
        let count = (WORD - at).min(bytes.len());
        let mut whole = word.load(Ordering::Relaxed).to_le_bytes();
        whole[at..at + count].copy_from_slice(&bytes[..count]);
        word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        count
    }

    /// Reads bytes from `index` on, around the end.
    pub(super) fn read(self, mut index: u32, mut into: &mut [u8]) {
        while !into.is_empty() {
            let whole = self.words(index, into.len() / WORD);
            let count = if !(index as usize).is_multiple_of(WORD) || whole.is_empty() {
                self.read_part(index, into)
            } else {
                for (word, bytes) in whole.iter().zip(into.chunks_exact_mut(WORD)) {
                    bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
                }
                whole.len() * WORD
            };
            index = index.wrapping_add(count as u32);
            into = &mut into[count..];
        }
    }

    /// Bytes of one word. Says how many.
    fn read_part(self, index: u32, into: &mut [u8]) -> usize {
        let (word, at) = self.word(index);
        let count = (WORD - at).min(into.len());
        into[..count].copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[at..at + count]);
        count
    }
}
