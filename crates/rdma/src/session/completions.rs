//! Completion queues in shared memory, by both sides.
//!
//! An entry says by itself that it is there: its last word has its number, and is stored after the others. So whoever
//! polls an empty queue reads one line that nobody writes.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::Hostile;
use super::area::{Area, HEAD, Parts};

/// Words of an entry.
pub const STRIDE: u32 = 4;
/// Most entries of a queue: an entry's number has 24 bits.
pub const SLOTS_MAX: u32 = 1 << 23;

/// Words of the application's line.
const READ: usize = 0;
const ARMED: usize = 1;

/// What the application waits for, as bits: for a solicited entry, for any.
pub const SOLICITED: u64 = 1;
/// See [`SOLICITED`].
pub const ANY: u64 = 2;

const NUMBER_MASK: u64 = (1 << 24) - 1;
const HAS_IMMEDIATE: u64 = 1 << 24;
const HAS_INVALIDATED: u64 = 1 << 25;
const IS_EARLY: u64 = 1 << 26;

/// An entry (`ibv_wc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// That of the request.
    pub wr_id: u64,
    /// `ibv_wc_status`.
    pub status: u8,
    /// `ibv_wc_opcode`.
    pub opcode: u8,
    /// What the peer has said of it: layer, type and code of a Terminate message.
    pub vendor_err: u16,
    /// Bytes of the message.
    pub len: u32,
    /// Immediate data, as they lie in memory.
    pub immediate: Option<u32>,
    /// The STag that the peer has invalidated.
    pub invalidated: Option<u32>,
    /// The queue pair's number.
    pub qp: u32,
    /// The number of its entry in the work queue; nothing of a shared one.
    pub index: u32,
    /// Of a send: those posted before it complete behind it, so that it says nothing of them.
    pub is_early: bool,
}

impl Entry {
    #[inline]
    fn encode(&self, number: u32) -> [u64; 4] {
        let (value, flag) = match (self.immediate, self.invalidated) {
            (Some(immediate), _) => (immediate, HAS_IMMEDIATE),
            (None, Some(stag)) => (stag, HAS_INVALIDATED),
            (None, None) => (0, 0),
        };
        let last = u64::from(number) & NUMBER_MASK
            | flag
            | if self.is_early { IS_EARLY } else { 0 }
            | u64::from(self.status) << 32
            | u64::from(self.opcode) << 40
            | u64::from(self.vendor_err) << 48;
        [
            self.wr_id,
            u64::from(self.len) | u64::from(value) << 32,
            u64::from(self.qp) | u64::from(self.index) << 32,
            last,
        ]
    }

    #[inline]
    fn decode(words: [u64; 4]) -> Self {
        let [wr_id, second, third, last] = words;
        let value = (second >> 32) as u32;
        Entry {
            wr_id,
            status: (last >> 32) as u8,
            opcode: (last >> 40) as u8,
            vendor_err: (last >> 48) as u16,
            len: second as u32,
            immediate: (last & HAS_IMMEDIATE != 0).then_some(value),
            invalidated: (last & HAS_INVALIDATED != 0).then_some(value),
            qp: third as u32,
            index: (third >> 32) as u32,
            is_early: last & IS_EARLY != 0,
        }
    }
}

/// A completion queue, as its application has it.
#[derive(Debug)]
pub struct Completions<'a> {
    parts: Parts<'a>,
    mask: u32,
    read: u32,
}

impl<'a> Completions<'a> {
    /// An empty queue; `None` if it does not lie within the memory.
    pub fn new(area: Area, memory: &'a [AtomicU64]) -> Option<Self> {
        let parts = area.of(memory).filter(|_| area.stride == STRIDE && area.slots <= SLOTS_MAX)?;
        Some(Completions { parts, mask: area.slots - 1, read: 0 })
    }

    /// The oldest entry, if there is one.
    #[inline]
    pub fn poll(&mut self) -> Option<Entry> {
        let at = (self.read & self.mask) as usize * STRIDE as usize;
        let words = self.parts.entries[at..].first_chunk::<4>()?;
        let last = words[3].load(Ordering::Acquire);
        let number = self.read.wrapping_add(1);
        if (last ^ u64::from(number)) & NUMBER_MASK != 0 {
            return None;
        }
        self.read = number;
        let load = |at: usize| words[at].load(Ordering::Relaxed);
        Some(Entry::decode([load(0), load(1), load(2), last]))
    }

    /// The device may use the places of what was read.
    #[inline]
    pub fn release(&self) {
        self.parts.app[READ].store(self.read.into(), Ordering::Release);
    }

    /// Asks for an event: [`SOLICITED`] or [`ANY`]. What is asked for more generally stays asked for. The caller looks
    /// at the queue once more: entries that are there lead to none.
    pub fn arm(&self, what: u64) {
        self.parts.app[ARMED].fetch_or(what, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// What is asked for is not asked for any more; whether it was.
    pub fn disarm(&self) -> bool {
        self.parts.app[ARMED].swap(0, Ordering::SeqCst) != 0
    }
}

/// What the device knows of a completion queue.
#[derive(Debug)]
pub(super) struct Written {
    area: Area,
    written: u32,
    read: u32,
}

impl Written {
    pub(super) fn new(area: Area) -> Self {
        Written { area, written: 0, read: 0 }
    }

    pub(super) fn area(&self) -> Area {
        self.area
    }

    /// Adds an entry. There is room: the queue's depth counts what was not read.
    #[inline]
    pub(super) fn push(&mut self, memory: &[AtomicU64], entry: &Entry) {
        debug_assert!(self.written.wrapping_sub(self.read) < self.area.slots);
        let at = (self.written & (self.area.slots - 1)) as usize * STRIDE as usize;
        self.written = self.written.wrapping_add(1);
        let words = &memory[self.area.at as usize + HEAD + at..][..STRIDE as usize];
        let [first, second, third, last] = entry.encode(self.written);
        words[0].store(first, Ordering::Relaxed);
        words[1].store(second, Ordering::Relaxed);
        words[2].store(third, Ordering::Relaxed);
        words[3].store(last, Ordering::Release);
    }

    /// How many entries the application has read since it was last looked.
    ///
    /// # Errors
    /// If it has read what was not written.
    #[inline]
    pub(super) fn released(&mut self, memory: &[AtomicU64]) -> Result<u32, Hostile> {
        let read = memory[self.area.at as usize + READ].load(Ordering::Acquire) as u32;
        let released = read.wrapping_sub(self.read);
        if released > self.written.wrapping_sub(self.read) {
            return Err(Hostile);
        }
        self.read = read;
        Ok(released)
    }

    /// Whether the application waits for what was written, of which some is solicited or not. It is asked for once.
    ///
    /// Either the application, which looks once more after it has armed the queue, sees the entries, or this sees that
    /// it is armed: for that both have a fence between.
    #[inline]
    pub(super) fn must_tell(&self, memory: &[AtomicU64], is_solicited: bool) -> bool {
        fence(Ordering::SeqCst);
        let word = &memory[self.area.at as usize + ARMED];
        let armed = word.load(Ordering::Relaxed);
        let waits = armed & ANY != 0 || armed & SOLICITED != 0 && is_solicited;
        waits && word.swap(0, Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn memory() -> Vec<AtomicU64> {
        (0..1024).map(|_| AtomicU64::new(0)).collect()
    }

    const AREA: Area = Area { at: 512, slots: 4, stride: STRIDE };

    fn entry(n: u32) -> Entry {
        let immediate = (n.is_multiple_of(3)).then_some(n);
        let invalidated = (n % 3 == 1).then_some(u32::MAX - n);
        let (status, opcode) = (n as u8 % 24, 128 + n as u8 % 2);
        let (wr_id, vendor_err) = (u64::MAX - u64::from(n), n as u16);
        Entry {
            wr_id,
            status,
            opcode,
            vendor_err,
            len: n,
            immediate,
            invalidated,
            qp: !n,
            index: n,
            is_early: n.is_multiple_of(2),
        }
    }

    #[test]
    fn what_is_written_is_read_in_order() {
        let memory = memory();
        let mut read = Completions::new(AREA, &memory).unwrap();
        let mut written = Written::new(AREA);
        assert_eq!(read.poll(), None);
        let mut next = 0;
        for round in 0..100 {
            let count = round % 5;
            (0..count).for_each(|n| written.push(&memory, &entry(next + n)));
            (0..count).for_each(|n| assert_eq!(read.poll(), Some(entry(next + n))));
            assert_eq!(read.poll(), None);
            assert_eq!(written.released(&memory), Ok(0));
            read.release();
            assert_eq!(written.released(&memory), Ok(count));
            next += count;
        }
    }

    #[test]
    fn what_was_not_written_is_not_read() {
        let memory = memory();
        let mut written = Written::new(AREA);
        written.push(&memory, &entry(1));
        for hostile in [2_u64, 5, u64::from(u32::MAX)] {
            memory[512].store(hostile, Ordering::Relaxed);
            assert_eq!(written.released(&memory), Err(Hostile));
        }
    }

    #[test]
    fn who_waits_is_told_once() {
        let memory = memory();
        let (read, written) = (Completions::new(AREA, &memory).unwrap(), Written::new(AREA));
        assert!(!written.must_tell(&memory, true));
        read.arm(SOLICITED);
        assert!(!written.must_tell(&memory, false));
        assert!(written.must_tell(&memory, true));
        assert!(!written.must_tell(&memory, true));
        read.arm(ANY);
        read.arm(SOLICITED);
        assert!(written.must_tell(&memory, false), "what is asked for more generally stays");
        read.arm(ANY);
        assert!(read.disarm());
        assert!(!written.must_tell(&memory, true));
    }
}
