//! Receive queues, shared or a queue pair's own.

use alloc::vec;
use alloc::vec::Vec;

use super::Error;
use super::work::{RecvRequest, Sge};

/// Receives that are posted.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    entries: Vec<Entry>,
    /// `most` for each entry.
    sges: Vec<Sge>,
    most: usize,
    head: u32,
    len: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    wr_id: u64,
    sges: u8,
}

impl ReceiveQueue {
    /// Bytes that one of this depth takes.
    pub(crate) fn bytes(depth: u32, most: u8) -> usize {
        depth as usize * (size_of::<Entry>() + usize::from(most) * size_of::<Sge>())
    }

    /// Bytes that this one takes.
    pub(crate) fn own_bytes(&self) -> usize {
        Self::bytes(self.entries.len() as u32, self.most as u8)
    }

    pub(crate) fn new(depth: u32, most: u8) -> Self {
        let most = usize::from(most);
        Self {
            entries: vec![Entry::default(); depth as usize],
            sges: vec![Sge::default(); depth as usize * most],
            most,
            head: 0,
            len: 0,
        }
    }

    pub(crate) fn post(&mut self, request: &RecvRequest<'_>) -> Result<(), Error> {
        self.accepts(request)?;
        if self.len as usize == self.entries.len() {
            return Err(Error::Full);
        }
        let at = (self.head + self.len) as usize % self.entries.len();
        self.entries[at] = Entry { wr_id: request.wr_id, sges: request.sges.len() as u8 };
        let first = at * self.most;
        self.sges[first..first + request.sges.len()].copy_from_slice(request.sges);
        self.len += 1;
        Ok(())
    }

    /// Whether the request is one that this queue could take.
    pub(crate) fn accepts(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        let bytes: u64 = request.sges.iter().map(|sge| u64::from(sge.len)).sum();
        if request.sges.len() > self.most || bytes > u64::from(u32::MAX) {
            return Err(Error::Invalid);
        }
        Ok(())
    }

    /// The oldest receive: its number, and its elements into `sges`.
    pub(crate) fn take(&mut self, sges: &mut Vec<Sge>) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let at = self.head as usize;
        let entry = self.entries[at];
        let first = at * self.most;
        sges.clear();
        sges.extend_from_slice(&self.sges[first..first + usize::from(entry.sges)]);
        self.head = (self.head + 1) % self.entries.len() as u32;
        self.len -= 1;
        Some(entry.wr_id)
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}

/// A receive queue that queue pairs share.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(crate) queue: ReceiveQueue,
    pub(crate) pd: super::Pd,
    /// Below so many receives the owner is told, once. Zero: not at all.
    limit: u32,
    /// Queue pairs that use it.
    pub(crate) users: u32,
}

impl SharedQueue {
    pub(crate) fn new(pd: super::Pd, depth: u32, most: u8) -> Self {
        Self { queue: ReceiveQueue::new(depth, most), pd, limit: 0, users: 0 }
    }

    /// Arms the limit; it may be reached already, which is told at the next receive.
    pub(crate) fn arm(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// As [`ReceiveQueue::take`], and whether the limit is reached by it.
    pub(crate) fn take(&mut self, sges: &mut Vec<Sge>) -> Option<(u64, bool)> {
        let wr_id = self.queue.take(sges)?;
        let reached = self.queue.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        Some((wr_id, reached))
    }
}
