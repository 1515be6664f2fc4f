//! Bytes of the NIC's connections that are in no ring, in memory of NIC and guard alone: what was sent and is not
//! acknowledged, but made room in its send ring, and what was acknowledged and found no room in its receive ring.
//!
//! ```text
//!   1 line                    how many chunks were ever used: the first so many
//!   for each chunk: 4 words   connection (32 bits) | direction; epoch | sequence number; bytes; (spare)
//!   for each chunk: its bytes
//! ```
//!
//! A chunk says by itself whose bytes it has, so that nothing else must be whole when the NIC dies. Bytes are written
//! before their number, and a chunk whose number is 0 is free.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use wire::Seq;

use crate::Epoch;
use crate::ring::atomic::{AtomicU64, Ordering};

/// Bytes of a chunk.
pub const CHUNK: usize = 16 << 10;
const WORD: usize = 8;
const CHUNK_WORDS: usize = CHUNK / WORD;
const HEADER: usize = 4;
/// Words in front of the headers.
const FRONT: usize = 8;

/// Which bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// Sent, or to be sent.
    Sent,
    /// Received.
    Received,
}

/// Whose bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owner {
    /// The place of its mirror record.
    pub place: u32,
    /// Its epoch.
    pub epoch: Epoch,
    /// Which of its bytes.
    pub direction: Direction,
}

/// Words of memory for so many chunks.
pub const fn words(chunks: usize) -> usize {
    FRONT + chunks * (HEADER + CHUNK_WORDS)
}

/// The memory.
#[derive(Clone, Copy, Debug)]
struct Chunks<'a> {
    used: Option<&'a AtomicU64>,
    headers: &'a [AtomicU64],
    data: &'a [AtomicU64],
}

impl<'a> Chunks<'a> {
    fn new(memory: &'a [AtomicU64]) -> Self {
        let (front, rest) = memory.split_at(memory.len().min(FRONT));
        let count = rest.len() / (HEADER + CHUNK_WORDS);
        let (headers, data) = rest.split_at(count * HEADER);
        Chunks { used: front.first(), headers, data }
    }

    fn count(self) -> u32 {
        u32::try_from(self.headers.len() / HEADER).unwrap_or(u32::MAX)
    }

    fn header(self, chunk: u32) -> &'a [AtomicU64] {
        let at = chunk as usize * HEADER;
        &self.headers[at..at + HEADER]
    }

    fn data(self, chunk: u32) -> &'a [AtomicU64] {
        let at = chunk as usize * CHUNK_WORDS;
        &self.data[at..at + CHUNK_WORDS]
    }
}

/// What the NIC keeps of one connection's bytes in one direction, in order.
#[derive(Debug, Default)]
pub struct Log {
    chunks: VecDeque<u32>,
    /// Bytes of the first chunk that are of no use any more.
    passed: u32,
    /// Bytes that are of use.
    len: u32,
}

impl Log {
    /// Bytes that are kept.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The NIC's side.
#[derive(Debug, Default)]
pub struct Spill {
    /// Chunks that were used and are free; the last one back is the next one out.
    free: Vec<u32>,
    /// Chunks that were never used begin here.
    fresh: u32,
    chunks: u32,
}

impl Spill {
    /// With this memory, which is empty.
    pub fn new(memory: &[AtomicU64]) -> Self {
        Spill { free: Vec::new(), fresh: 0, chunks: Chunks::new(memory).count() }
    }

    fn take(&mut self, all: Chunks<'_>) -> Option<u32> {
        if let Some(chunk) = self.free.pop() {
            return Some(chunk);
        }
        let chunk = self.fresh;
        (chunk < self.chunks).then(|| self.fresh += 1)?;
        if let Some(used) = all.used {
            used.store(self.fresh.into(), Ordering::Release);
        }
        Some(chunk)
    }

    /// Bytes that can be added to this log.
    pub fn room(&self, log: &Log) -> usize {
        let left = self.free.len() + (self.chunks - self.fresh) as usize;
        left * CHUNK + free_in_last(log)
    }

    /// Keeps bytes, which begin with this sequence number: the one behind those that the log has. Returns how many
    /// there was room for.
    pub fn append(
        &mut self,
        memory: &[AtomicU64],
        log: &mut Log,
        owner: Owner,
        seq: Seq,
        bytes: &[u8],
    ) -> usize {
        let all = Chunks::new(memory);
        let mut rest = bytes;
        while !rest.is_empty() {
            let free = free_in_last(log);
            let (chunk, at) = match log.chunks.back() {
                Some(last) if free > 0 => (*last, CHUNK - free),
                _ => {
                    let Some(chunk) = self.take(all) else { break };
                    let header = all.header(chunk);
                    let first = seq + (bytes.len() - rest.len()) as u32;
                    header[0].store(owner.word(), Ordering::Relaxed);
                    header[1].store(join(owner.epoch.0, first.0), Ordering::Relaxed);
                    log.chunks.push_back(chunk);
                    (chunk, 0)
                }
            };
            let (now, later) = rest.split_at(rest.len().min(CHUNK - at));
            write(all.data(chunk), at, now);
            // Behind all that was stored before it.
            all.header(chunk)[2].store((at + now.len()) as u64, Ordering::Release);
            log.len += now.len() as u32;
            rest = later;
        }
        bytes.len() - rest.len()
    }

    /// The first bytes of a log are of no use any more.
    pub fn release(&mut self, memory: &[AtomicU64], log: &mut Log, count: u32) {
        let all = Chunks::new(memory);
        let count = count.min(log.len);
        log.len -= count;
        log.passed += count;
        while log.len == 0 || log.passed as usize >= CHUNK {
            let Some(chunk) = log.chunks.pop_front() else { break };
            all.header(chunk)[2].store(0, Ordering::Release);
            self.free.push(chunk);
            log.passed = log.passed.saturating_sub(CHUNK as u32);
        }
        if log.chunks.is_empty() {
            log.passed = 0;
        }
    }

    /// All bytes of a log are of no use any more.
    pub fn clear(&mut self, memory: &[AtomicU64], log: &mut Log) {
        self.release(memory, log, log.len);
    }
}

/// Bytes that its last chunk has room for.
fn free_in_last(log: &Log) -> usize {
    let used = (log.passed + log.len) as usize;
    log.chunks.len() * CHUNK - used
}

fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

impl Owner {
    fn word(self) -> u64 {
        join(self.place, u32::from(self.direction == Direction::Received))
    }
}

/// Writes bytes of a chunk. Those of a word that are not written stay as they are.
fn write(data: &[AtomicU64], at: usize, mut bytes: &[u8]) {
    let mut at = at;
    while !bytes.is_empty() {
        let (word, within) = (&data[at / WORD], at % WORD);
        let (now, later) = bytes.split_at(bytes.len().min(WORD - within));
        let mut whole = word.load(Ordering::Relaxed).to_le_bytes();
        whole[within..within + now.len()].copy_from_slice(now);
        word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        at += now.len();
        bytes = later;
    }
}

/// Appends so many bytes of a chunk.
fn read(data: &[AtomicU64], mut at: usize, mut count: usize, into: &mut Vec<u8>) {
    while count > 0 {
        let word = data[at / WORD].load(Ordering::Relaxed).to_le_bytes();
        let bytes = &word[at % WORD..];
        let bytes = &bytes[..bytes.len().min(count)];
        into.extend_from_slice(bytes);
        at += bytes.len();
        count -= bytes.len();
    }
}

/// Bytes that a chunk has, for the guard.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Whose they are.
    pub owner: Owner,
    /// The first's sequence number.
    pub seq: Seq,
    /// How many there are.
    pub len: u32,
    data: &'a [AtomicU64],
}

/// What the NIC has left there.
pub fn pieces(memory: &[AtomicU64]) -> impl Iterator<Item = Piece<'_>> {
    let all = Chunks::new(memory);
    let used = all.used.map_or(0, |used| used.load(Ordering::Acquire));
    (0..all.count().min(used as u32)).filter_map(move |chunk| {
        let header = all.header(chunk);
        let len = header[2].load(Ordering::Acquire);
        if !(1..=CHUNK as u64).contains(&len) {
            return None;
        }
        let [whose, first] = [0, 1].map(|at: usize| header[at].load(Ordering::Relaxed));
        let direction = if whose as u32 == 0 { Direction::Sent } else { Direction::Received };
        let epoch = Epoch((first >> 32) as u32);
        let owner = Owner { place: (whose >> 32) as u32, epoch, direction };
        let data = all.data(chunk);
        Some(Piece { owner, seq: Seq(first as u32), len: len as u32, data })
    })
}

/// The bytes from one sequence number up to another, of pieces of one owner. `None` if some are not there.
pub fn gather(pieces: &[Piece<'_>], from: Seq, to: Seq) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut at = from;
    while at != to {
        let holds = |piece: &&Piece<'_>| at - piece.seq < piece.len;
        let piece = pieces.iter().find(holds)?;
        let skip = at - piece.seq;
        let count = (piece.len - skip).min(to - at);
        read(piece.data, skip as usize, count as usize, &mut all);
        at += count;
    }
    Some(all)
}
