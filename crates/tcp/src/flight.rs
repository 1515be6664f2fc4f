//! What is under way: one record for each burst that was sent at one time. It is scoreboard (RFC 6675
//! section 4) and transmission times (RFC 8985 section 5.1) in one.

use alloc::collections::VecDeque;

use wire::Seq;

use crate::Nanos;
use crate::options::Block;

/// A run of bytes that was sent at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) start: Seq,
    pub(crate) end: Seq,
    /// When it was sent last.
    pub(crate) at: Nanos,
    /// Payload bytes of each of its segments: a peer has all of one or none of it.
    pub(crate) size: u16,
    /// The peer's SACK has it.
    pub(crate) sacked: bool,
    /// It is taken for lost and waits to be sent again.
    pub(crate) lost: bool,
    /// It was sent more than once.
    pub(crate) retransmitted: bool,
    /// It looks for the path's MTU (RFC 4821): its loss is no sign of congestion.
    pub(crate) probe: bool,
}

impl Sent {
    pub(crate) fn len(&self) -> u32 {
        self.end - self.start
    }

    /// The whole segments of it that lie in `block`; nothing if there is none.
    fn segments_in(&self, block: Block) -> Block {
        let size = u32::from(self.size).max(1);
        let start = if block.start.after(self.start) {
            self.start + (block.start - self.start).div_ceil(size) * size
        } else {
            self.start
        };
        let end = if block.end.before(self.end) {
            self.start + (block.end - self.start) / size * size
        } else {
            self.end
        };
        if start.before(end) { Block { start, end } } else { Block { start, end: start } }
    }

    /// Was it sent after what was sent at `at` and ends at `end` (RFC 8985 section 5.2,
    /// RACK_sent_after)?
    pub(crate) fn sent_after(&self, at: Nanos, end: Seq) -> bool {
        self.at > at || (self.at == at && self.end.after(end))
    }
}

/// Records in order of their sequence numbers, without holes.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    records: VecDeque<Sent>,
    sacked: u32,
    lost: u32,
    /// Records that wait to be sent again begin here or later, as an index.
    next_lost: u32,
}

impl Flight {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Records.
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    /// Bytes that the peer has by SACK.
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes that wait to be sent again.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    /// Bytes from the first unacknowledged to the last one sent.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        match (self.records.front(), self.records.back()) {
            (Some(first), Some(last)) => last.end - first.start,
            _ => 0,
        }
    }

    /// Bytes believed to be in the network (RFC 6675 section 4, pipe; RFC 8985 needs no more).
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        self.outstanding() - self.sacked - self.lost
    }

    /// Bytes sent more than once that the peer does not have by SACK.
    pub(crate) fn retransmitted_len(&self) -> u32 {
        let again = self.records.iter().filter(|record| record.retransmitted && !record.sacked);
        again.map(Sent::len).sum()
    }

    pub(crate) fn first(&self) -> Option<&Sent> {
        self.records.front()
    }

    pub(crate) fn last(&self) -> Option<&Sent> {
        self.records.back()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.records.iter()
    }

    /// Adds what was just sent for the first time.
    #[inline]
    pub(crate) fn push(&mut self, start: Seq, end: Seq, at: Nanos, size: u32, probe: bool) {
        self.records.push_back(Sent {
            start,
            end,
            at,
            size: u16::try_from(size).unwrap_or(u16::MAX).max(1),
            sacked: false,
            lost: false,
            retransmitted: false,
            probe,
        });
    }

    /// Adds a record as it was, for a thawed connection.
    pub(crate) fn restore(&mut self, record: Sent) {
        if record.sacked {
            self.sacked += record.len();
        } else if record.lost {
            self.lost += record.len();
        }
        self.records.push_back(record);
    }

    /// Takes off what lies before `una`. `delivered` is called for what SACK did not have already, cut
    /// to what is acknowledged.
    #[inline]
    pub(crate) fn acknowledge(&mut self, una: Seq, mut delivered: impl FnMut(&Sent)) {
        while let Some(first) = self.records.front_mut() {
            if !first.start.before(una) {
                break;
            }
            let mut part = *first;
            let whole = !first.end.after(una);
            if !whole {
                part.end = una;
                first.start = una;
            }
            if part.sacked {
                self.sacked -= part.len();
            } else {
                self.lost -= if part.lost { part.len() } else { 0 };
                delivered(&part);
            }
            if whole {
                self.records.pop_front();
                self.next_lost = self.next_lost.saturating_sub(1);
            }
        }
        if self.records.is_empty() {
            self.next_lost = 0;
            // A transfer that is over needs no memory.
            if self.records.capacity() > 64 {
                self.records = VecDeque::new();
            }
        }
    }

    /// Gives the records' memory back, if there are none.
    pub(crate) fn shrink(&mut self) {
        if self.records.is_empty() {
            self.records = VecDeque::new();
        }
    }

    fn find(&self, seq: Seq) -> usize {
        self.records.partition_point(|record| !record.end.after(seq))
    }

    /// Cuts the record around `seq` in two there.
    fn split(&mut self, seq: Seq) {
        let index = self.find(seq);
        if let Some(record) = self.records.get_mut(index)
            && record.start.before(seq)
        {
            let mut rest = *record;
            rest.start = seq;
            record.end = seq;
            self.records.insert(index + 1, rest);
            if self.next_lost as usize > index {
                self.next_lost += 1;
            }
        }
    }

    /// Marks `block` as received, as far as it covers whole segments: a peer that reports single bytes
    /// must not make a record of each. `delivered` is called for every record that was not marked before.
    pub(crate) fn sack(&mut self, block: Block, mut delivered: impl FnMut(&Sent)) {
        let mut index = self.find(block.start);
        while let Some(record) = self.records.get(index).copied() {
            if !record.start.before(block.end) {
                break;
            }
            let part = record.segments_in(block);
            if record.sacked || part.is_empty() {
                index += 1;
                continue;
            }
            self.split(part.end);
            if record.start != part.start {
                self.split(part.start);
                index += 1;
            }
            if let Some(part) = self.mark_sacked(index) {
                delivered(&part);
            }
            index = self.join_sacked(index) + 1;
        }
    }

    fn mark_sacked(&mut self, index: usize) -> Option<Sent> {
        let record = self.records.get_mut(index)?;
        record.sacked = true;
        let part = *record;
        if part.lost {
            record.lost = false;
            self.lost -= part.len();
        }
        self.sacked += part.len();
        Some(part)
    }

    /// Neighbours that are both received become one: what is walked is the holes. Returns where it is.
    fn join_sacked(&mut self, mut index: usize) -> usize {
        if index > 0 && self.records.get(index - 1).is_some_and(|before| before.sacked) {
            self.join(index - 1);
            index -= 1;
        }
        if self.records.get(index + 1).is_some_and(|after| after.sacked) {
            self.join(index);
        }
        index
    }

    /// Joins a record and the next one.
    fn join(&mut self, index: usize) {
        let Some(next) = self.records.remove(index + 1) else { return };
        if let Some(record) = self.records.get_mut(index) {
            record.end = next.end;
        }
        if self.next_lost as usize > index + 1 {
            self.next_lost -= 1;
        }
    }

    /// Forgets what SACK said: a peer may throw it away (RFC 2018 section 8).
    pub(crate) fn renege(&mut self) {
        for record in &mut self.records {
            record.sacked = false;
        }
        self.sacked = 0;
    }

    /// Takes for lost all records of which `is_lost` says so, and that are neither received nor lost.
    /// Returns the bytes.
    pub(crate) fn mark_lost(&mut self, mut is_lost: impl FnMut(&Sent) -> bool) -> u32 {
        let mut bytes = 0;
        for (index, record) in self.records.iter_mut().enumerate() {
            if record.sacked || record.lost || !is_lost(record) {
                continue;
            }
            record.lost = true;
            bytes += record.len();
            self.next_lost = self.next_lost.min(index as u32);
        }
        self.lost += bytes;
        bytes
    }

    /// Takes the first `bytes` for lost, where SACK does not help.
    pub(crate) fn mark_first_lost(&mut self, bytes: u32) -> u32 {
        let Some(first) = self.records.front() else { return 0 };
        let (start, end) = (first.start, first.start + bytes.min(first.len()));
        self.split(end);
        self.mark_lost(|record| record.start == start)
    }

    /// Nothing is lost after all.
    pub(crate) fn clear_lost(&mut self) {
        for record in &mut self.records {
            record.lost = false;
        }
        self.lost = 0;
        self.next_lost = 0;
    }

    /// Is nothing lost but an MTU probe?
    pub(crate) fn is_probe_lost(&self) -> bool {
        self.records.iter().filter(|record| record.lost).all(|record| record.probe)
    }

    /// The next record to be sent again.
    pub(crate) fn next_lost(&mut self) -> Option<Sent> {
        if self.lost == 0 {
            return None;
        }
        let from = self.next_lost as usize;
        let found = self.records.iter().skip(from).position(|record| record.lost);
        // Marks before the place would be a mistake of this module; looking again costs little.
        let index = match found {
            Some(ahead) => from + ahead,
            None => self.records.iter().position(|record| record.lost)?,
        };
        self.next_lost = index as u32;
        self.records.get(index).copied()
    }

    /// `len` bytes from `start` on are sent again now.
    pub(crate) fn retransmitted(&mut self, start: Seq, len: u32, size: u32, at: Nanos) {
        self.split(start);
        self.split(start + len);
        let index = self.find(start);
        if let Some(record) = self.records.get_mut(index) {
            if record.lost {
                record.lost = false;
                self.lost -= record.len();
            }
            record.retransmitted = true;
            record.size = u16::try_from(size).unwrap_or(u16::MAX).max(1);
            record.probe = false;
            record.at = at;
        }
    }
}
