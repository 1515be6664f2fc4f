//! The application, which has both ways to its connection, and one that writes what it likes.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handoff::command::{NicCommand, OsCommand, nic};
use handoff::machine::Where;
use handoff::ring::command::{Consumer, Kept, Producer};
use handoff::ring::{receive, send};
use handoff::session::status::Status;
use handoff::session::{Layout, Offsets, Shared};

use super::super::link::Process;
use super::world::{CID, World};

/// Of so many workers.
pub(super) fn layout(workers: usize) -> Layout {
    let workers = workers as u32;
    Layout { workers, commands: 64, connections: 2, send: 256 << 10, receive: 128 << 10 }
}

/// A process's memory, and whether it was woken.
#[derive(Debug)]
pub(super) struct Memory {
    offsets: Offsets,
    pub(super) words: Vec<AtomicU64>,
    woken: AtomicU64,
}

impl Memory {
    pub(super) fn new(workers: usize) -> Arc<Self> {
        let layout = layout(workers);
        let words = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Memory { offsets: layout.offsets().unwrap(), words, woken: AtomicU64::new(0) })
    }

    pub(super) fn shared(&self) -> Shared<'_> {
        Shared::at(&self.offsets, &self.words).unwrap()
    }
}

impl Process for Memory {
    fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::Relaxed);
    }

    fn wake_waiters(&self, _word: &AtomicU64) {}

    fn doorbell(&self, _worker: u32) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Byte `at` of a stream.
fn pattern(at: usize) -> u8 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// One direction of the connection, at both ends.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) sent: usize,
    pub(super) received: usize,
}

impl Stream {
    pub(super) fn next(&self, most: usize, total: usize) -> Vec<u8> {
        (self.sent..total.min(self.sent + most)).map(pattern).collect()
    }

    pub(super) fn take(&mut self, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, pattern(self.received + at), "byte {}", self.received + at);
        }
        self.received += bytes.len();
    }
}

/// What it knows of its rings of commands, by worker.
pub(super) type Rings = Vec<(Kept, Kept)>;

impl World {
    pub(super) fn status(&self) -> Status {
        let area = self.memory.shared().area(CID).unwrap();
        Status::decode(area.status().load(Ordering::Acquire))
    }

    /// The application writes: where the connection is, if it may.
    pub(super) fn write(&mut self, most: usize, total: usize) {
        let bytes = self.out.next(most, total);
        self.out.sent += self.write_bytes(&bytes);
    }

    /// How many of these it has written.
    pub(super) fn write_bytes(&mut self, bytes: &[u8]) -> usize {
        let memory = Arc::clone(&self.memory);
        let area = memory.shared().area(CID).unwrap();
        match send::App::new(area.send().unwrap()).send(bytes) {
            Ok(0) => 0,
            Ok(count) => {
                let epoch = self.crossing.epoch();
                let send = nic::Send { len: count, ..nic::Send::new(CID, epoch) };
                self.command(send.into());
                count as usize
            }
            Err(_) => {
                let is_there = self.is_dead || self.crossing.place() != Where::HandingOff;
                let id = self.kernel_id.filter(|_| is_there);
                id.map_or(0, |id| self.kernel.send(id, bytes, self.now))
            }
        }
    }

    /// The application reads.
    pub(super) fn read(&mut self, most: usize) {
        let bytes = self.read_bytes(most);
        self.back.take(&bytes);
    }

    /// What it has read.
    pub(super) fn read_bytes(&mut self, most: usize) -> Vec<u8> {
        let memory = Arc::clone(&self.memory);
        let area = memory.shared().area(CID).unwrap();
        let mut bytes = vec![0; most];
        match receive::App::new(area.receive().unwrap()).recv(&mut bytes) {
            Ok(0) => Vec::new(),
            Ok(count) => {
                let epoch = self.crossing.epoch();
                let recvd = nic::Recvd { len: count, ..nic::Recvd::new(CID, epoch) };
                self.command(recvd.into());
                bytes.truncate(count as usize);
                bytes
            }
            Err(_) => {
                let id = self.kernel_id;
                id.map_or(Vec::new(), |id| self.kernel.recv(id, most, self.now))
            }
        }
    }

    /// Tells the worker that has the connection, as the memory says.
    pub(super) fn command(&mut self, command: NicCommand) {
        let shared = self.memory.shared();
        let worker = shared.area(CID).unwrap().worker().load(Ordering::Relaxed) as u32;
        let (commands, events) = &mut self.rings[worker as usize];
        let mut ring = Producer::resume(shared.to_nic(worker).unwrap(), *commands);
        ring.push(command.encode()).unwrap();
        *commands = ring.keep();
        let mut ring = Consumer::resume(shared.to_app(worker).unwrap(), *events);
        while let Some(event) = ring.pop().unwrap() {
            OsCommand::decode(event).unwrap();
        }
        *events = ring.keep();
    }

    /// The hostile process writes anywhere: mostly into words that mean something.
    pub(super) fn scribble(&mut self) {
        let Some(memory) = self.hostile.clone() else { return };
        let Layout { send, receive, .. } = memory.offsets.layout();
        let words = memory.words.len() - (send + receive) as usize * 2 * 2 / 8;
        for _ in 0..self.choice() % 4 {
            let at = (self.choice() * 256 + self.choice()) % words;
            let word = &memory.words[at];
            match self.choice() % 4 {
                0 => word.store(self.choice() as u64, Ordering::Relaxed),
                1 => _ = word.fetch_add(self.choice() as u64 % 9, Ordering::Relaxed),
                2 => _ = word.fetch_xor(1 << (self.choice() % 64), Ordering::Relaxed),
                _ => word.store(u64::MAX - self.choice() as u64, Ordering::Relaxed),
            }
        }
    }
}
