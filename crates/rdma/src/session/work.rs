//! Entries of work queues.
//!
//! ```text
//!   a send      wr_id | operation, flags, elements, inline bytes | offset | STags | two values | elements, or inline
//!   a receive   wr_id | elements | elements
//! ```
//! An element is two words, as `ibv_sge` has them.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::rdmap::atomic::Operation;
use crate::verbs::Access;
use crate::verbs::work::{Bind, Flags, Sge, Work};

/// Words before the elements of a send.
pub const SEND_HEAD: usize = 6;
/// Words before the elements of a receive.
pub const RECV_HEAD: usize = 2;
const SGE_WORDS: usize = 2;
/// Entries begin at a line, or at a half of one.
const ALIGN: usize = 4;

/// Words of an entry of a send queue.
pub fn send_stride(sges: u8, inline: u32) -> u32 {
    let payload = (usize::from(sges) * SGE_WORDS).max((inline as usize).div_ceil(8));
    (SEND_HEAD + payload).next_multiple_of(ALIGN) as u32
}

/// Words of an entry of a receive queue.
pub fn recv_stride(sges: u8) -> u32 {
    (RECV_HEAD + usize::from(sges) * SGE_WORDS).next_multiple_of(ALIGN) as u32
}

/// How the payload of a send is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// So many elements.
    Sges(u8),
    /// So many bytes, in the entry.
    Inline(u32),
}

/// A send, but its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Send {
    /// What its completion is known by.
    pub wr_id: u64,
    /// What.
    pub work: Work,
    /// How.
    pub flags: Flags,
    /// Its payload.
    pub shape: Shape,
}

const SEND: u8 = 0;
const SEND_INVALIDATE: u8 = 1;
const WRITE: u8 = 2;
const WRITE_IMMEDIATE: u8 = 3;
const READ: u8 = 4;
const FETCH_ADD: u8 = 5;
const COMPARE_SWAP: u8 = 6;
const BIND: u8 = 7;
const INVALIDATE: u8 = 8;

const SIGNALED: u8 = 1;
const SOLICITED: u8 = 2;
const FENCE: u8 = 4;
const LOCAL_FENCE: u8 = 8;
const IS_INLINE: u8 = 16;

impl Flags {
    #[inline]
    fn bits(self) -> u8 {
        let bits = [
            (self.signaled, SIGNALED),
            (self.solicited, SOLICITED),
            (self.fence, FENCE),
            (self.local_fence, LOCAL_FENCE),
        ];
        bits.into_iter().fold(0, |all, (is, bit)| if is { all | bit } else { all })
    }

    #[inline]
    fn from_bits(bits: u8) -> Self {
        Flags {
            signaled: bits & SIGNALED != 0,
            solicited: bits & SOLICITED != 0,
            fence: bits & FENCE != 0,
            local_fence: bits & LOCAL_FENCE != 0,
        }
    }
}

fn both(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Send {
    /// As the first words of an entry. Work that goes by no queue of an application's (fast registration) is none of
    /// these.
    #[inline]
    pub fn encode(&self) -> [u64; SEND_HEAD] {
        let (code, [offset, stags, first, second]) = match self.work {
            Work::Send { invalidate: None } => (SEND, [0; 4]),
            Work::Send { invalidate: Some(stag) } => (SEND_INVALIDATE, [0, stag.into(), 0, 0]),
            Work::Write { stag, offset } => (WRITE, [offset, stag.into(), 0, 0]),
            Work::WriteImmediate { stag, offset, immediate } => {
                (WRITE_IMMEDIATE, [offset, both(stag, u32::from_ne_bytes(immediate)), 0, 0])
            }
            Work::Read { stag, offset } => (READ, [offset, stag.into(), 0, 0]),
            Work::Atomic { stag, offset, operation } => match operation {
                Operation::FetchAdd { add, .. } => (FETCH_ADD, [offset, stag.into(), add, 0]),
                Operation::CompareSwap { compare, swap, .. } => {
                    (COMPARE_SWAP, [offset, stag.into(), compare, swap])
                }
            },
            Work::Bind(Bind { window, region, offset, len, access }) => {
                (BIND, [offset, both(window, region), len, access.bits().into()])
            }
            Work::LocalInvalidate { stag } => (INVALIDATE, [0, stag.into(), 0, 0]),
            // No code, so that the device refuses it.
            Work::FastRegister(_) => (u8::MAX, [0; 4]),
        };
        let (sges, inline, kind) = match self.shape {
            Shape::Sges(sges) => (sges, 0, 0),
            Shape::Inline(bytes) => (0, bytes, IS_INLINE),
        };
        let how = u32::from_le_bytes([code, self.flags.bits() | kind, sges, 0]);
        [self.wr_id, both(how, inline), offset, stags, first, second]
    }

    /// From the first words of an entry; `None` if they are none.
    #[inline]
    pub fn decode(words: [u64; SEND_HEAD]) -> Option<Self> {
        let [wr_id, how, offset, stags, first, second] = words;
        let [code, flags, sges, _] = (how as u32).to_le_bytes();
        let (stag, other) = (stags as u32, (stags >> 32) as u32);
        let work = match code {
            SEND => Work::Send { invalidate: None },
            SEND_INVALIDATE => Work::Send { invalidate: Some(stag) },
            WRITE => Work::Write { stag, offset },
            WRITE_IMMEDIATE => {
                Work::WriteImmediate { stag, offset, immediate: other.to_ne_bytes() }
            }
            READ => Work::Read { stag, offset },
            FETCH_ADD => Work::Atomic { stag, offset, operation: Operation::fetch_add(first) },
            COMPARE_SWAP => {
                Work::Atomic { stag, offset, operation: Operation::compare_swap(first, second) }
            }
            BIND => {
                let access = Access::from_bits(u32::try_from(second).ok()?).ok()?;
                Work::Bind(Bind { window: stag, region: other, offset, len: first, access })
            }
            INVALIDATE => Work::LocalInvalidate { stag },
            _ => return None,
        };
        let shape = match flags & IS_INLINE {
            0 => Shape::Sges(sges),
            _ => Shape::Inline((how >> 32) as u32),
        };
        Some(Send { wr_id, work, flags: Flags::from_bits(flags), shape })
    }
}

/// Whether the second word of a send says [`Flags::signaled`].
#[inline]
pub(super) fn is_signaled(word: u64) -> bool {
    let [_, flags, ..] = word.to_le_bytes();
    flags & SIGNALED != 0
}

/// Writes elements behind the head of an entry, as far as there is room.
#[inline]
pub fn write_sges(entry: &[AtomicU64], head: usize, sges: impl Iterator<Item = Sge>) {
    for (words, sge) in entry[head..].chunks_exact(SGE_WORDS).zip(sges) {
        words[0].store(sge.addr, Ordering::Relaxed);
        words[1].store(both(sge.len, sge.lkey), Ordering::Relaxed);
    }
}

/// Copies so many elements from behind the head of an entry; `false` if there is no room for so many.
#[inline]
pub(super) fn read_sges(
    entry: &[AtomicU64],
    head: usize,
    count: u8,
    into: &mut alloc::vec::Vec<Sge>,
) -> bool {
    into.clear();
    let Some(words) = entry.get(head..head + usize::from(count) * SGE_WORDS) else { return false };
    into.extend(words.chunks_exact(SGE_WORDS).map(|words| {
        let second = words[1].load(Ordering::Relaxed);
        let (len, lkey) = (second as u32, (second >> 32) as u32);
        Sge { addr: words[0].load(Ordering::Relaxed), len, lkey }
    }));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn all() -> Vec<Work> {
        let (stag, offset) = (0xdead_beef, u64::MAX - 5);
        let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE);
        alloc::vec![
            Work::Send { invalidate: None },
            Work::Send { invalidate: Some(stag) },
            Work::Write { stag, offset },
            Work::WriteImmediate { stag, offset, immediate: [1, 2, 3, 4] },
            Work::Read { stag, offset },
            Work::Atomic { stag, offset, operation: Operation::fetch_add(u64::MAX) },
            Work::Atomic { stag, offset, operation: Operation::compare_swap(7, 1 << 63) },
            Work::Bind(Bind { window: stag, region: 9, offset, len: 1 << 40, access }),
            Work::LocalInvalidate { stag },
        ]
    }

    #[test]
    fn what_is_posted_is_what_is_taken() {
        for work in all() {
            for bits in 0..16 {
                for shape in [Shape::Sges(0), Shape::Sges(16), Shape::Inline(0), Shape::Inline(256)]
                {
                    let flags = Flags::from_bits(bits);
                    let send = Send { wr_id: 1 << 63 | 5, work, flags, shape };
                    assert_eq!(Send::decode(send.encode()), Some(send));
                    assert_eq!(is_signaled(send.encode()[1]), flags.signaled);
                }
            }
        }
    }

    #[test]
    fn elements_are_as_they_were() {
        let entry: Vec<AtomicU64> = (0..12).map(|_| AtomicU64::new(0)).collect();
        let sges: Vec<Sge> =
            (0..3).map(|n| Sge { addr: u64::MAX - n, len: u32::MAX, lkey: n as u32 }).collect();
        write_sges(&entry, SEND_HEAD, sges.iter().copied());
        let mut into = Vec::new();
        assert!(read_sges(&entry, SEND_HEAD, 3, &mut into));
        assert_eq!(into, sges);
        assert!(!read_sges(&entry, SEND_HEAD, 4, &mut into), "there is no room for so many");
        // One line, two, and what `max_inline_data` of 236 takes.
        assert_eq!([send_stride(1, 16), send_stride(2, 0), send_stride(1, 236)], [8, 12, 36]);
        assert_eq!([recv_stride(1), recv_stride(4)], [4, 12]);
    }
}
