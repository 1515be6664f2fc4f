//! What becomes of what was sent: it is acknowledged by SACK, lost, or retransmitted.

use alloc::vec::Vec;

use wire::Seq;

use super::board::{Mark, State};
use super::{Flight, Sent, segment_size, step};
use crate::Nanos;
use crate::options::Block;

impl Flight {
    /// Marks `block` as received, as far as it covers whole segments: a peer that reports single bytes
    /// must not make a record of each. `delivered` is called for everything that was not marked before.
    pub(crate) fn sack(&mut self, block: Block, mut delivered: impl FnMut(&Sent)) {
        let mut next = block.start;
        while next.before(block.end) {
            let Some(region) = self.region(next) else { break };
            next = region.end;
            let part = self.segments_in(&region, block);
            if region.sacked || part.is_empty() {
                continue;
            }
            if let Some(burst) = self.find_mut(part.start)
                && burst.start == part.start
                && burst.end == part.end
            {
                burst.sacked = true;
                self.whole += 1;
            }
            self.lost -= if region.lost { part.len() } else { 0 };
            self.sacked += part.len();
            let board = self.board();
            let (start, end) = (board.place(part.start), board.place(part.end));
            board.clear(start, end);
            board.put(start, Mark::sacked(end));
            delivered(&Sent { start: part.start, end: part.end, ..region });
        }
    }

    fn find_mut(&mut self, seq: Seq) -> Option<&mut super::Burst> {
        step();
        let index = self.bursts.partition_point(|burst| !burst.end.after(seq));
        self.bursts.get_mut(index)
    }

    /// The peer has discarded what it had reported by SACK (reneging, RFC 2018 section 8). It is lost, as in
    /// Linux (tcp_timeout_mark_lost).
    pub(crate) fn renege(&mut self) {
        if let Some(board) = &mut self.board {
            board.renege();
        }
        for burst in &mut self.bursts {
            burst.sacked = false;
        }
        self.count_lost(self.sacked);
        self.sacked = 0;
        self.whole = 0;
    }

    /// Takes for lost what `is_lost` selects of what is neither received nor lost. It walks everything, so it
    /// is for rare events. Returns the bytes.
    pub(crate) fn mark_lost(&mut self, mut is_lost: impl FnMut(&Sent) -> bool) -> u32 {
        let lost = |region: &Sent| !region.sacked && !region.lost && is_lost(region);
        let regions: Vec<Sent> = self.iter().filter(lost).collect();
        regions.iter().map(|region| self.lose(region)).sum()
    }

    fn lose(&mut self, region: &Sent) -> u32 {
        let size = if region.retransmitted { region.size } else { 0 };
        let board = self.board();
        let (start, end) = (board.place(region.start), board.place(region.end));
        board.clear(start, end);
        board.put(start, Mark { end, at: region.at, size, state: State::Lost });
        self.count_lost(region.len());
        region.len()
    }

    /// Takes the first `bytes` for lost, where SACK does not help.
    pub(crate) fn mark_first_lost(&mut self, bytes: u32) -> u32 {
        match self.first() {
            Some(first) if !first.lost && !first.sacked => {
                let end = first.start + bytes.min(first.len());
                self.lose(&Sent { end, ..first })
            }
            _ => 0,
        }
    }

    /// Takes for lost what was sent `limit` ago or earlier, and before the segment that was sent at `at` and
    /// ends at `end` (RFC 8985 section 6.2, step 5). Returns the bytes, and the last send time of what is
    /// still in the network and was sent before that segment.
    pub(crate) fn lose_before(
        &mut self,
        (at, end): (Nanos, Seq),
        limit: Nanos,
        now: Nanos,
    ) -> (u32, Option<Nanos>) {
        let known = self.lost;
        let is_due = |sent: Nanos| sent.saturating_add(limit) <= now;
        // What was sent once is in the order of time: all that is due lies before one place.
        let before = self.sent_before(at, end);
        step();
        let old = self.bursts.partition_point(|burst| is_due(burst.at));
        let due = match old.checked_sub(1).and_then(|last| self.bursts.get(last)) {
            Some(last) if last.end.before(before) => last.end,
            Some(_) => before,
            None => self.bursts.front().map_or(before, |first| first.start),
        };
        self.lose_up_to(due);
        while let Some((then, start, mark)) = self.board().first_retransmitted() {
            let later = then > at || then == at && mark.end >= self.board().place(end);
            if later || !is_due(then) {
                break;
            }
            self.board().lose_retransmitted(start);
            self.count_lost((mark.end - start) as u32);
        }
        (self.lost - known, self.last_live((at, end), before))
    }

    /// The end of what was sent once before the segment that was sent at `at` and ends at `end`.
    fn sent_before(&self, at: Nanos, end: Seq) -> Seq {
        step();
        let earlier =
            |burst: &super::Burst| burst.at < at || burst.at == at && !burst.end.after(end);
        let count = self.bursts.partition_point(earlier);
        match self.bursts.get(count) {
            // The segment is one of this burst.
            Some(burst) if burst.at == at && burst.start.before(end) => end,
            Some(burst) => burst.start,
            None => self.bursts.back().map_or(end, |last| last.end),
        }
    }

    /// Takes for lost what was sent once, lies before `due`, and is neither received nor lost.
    fn lose_up_to(&mut self, due: Seq) {
        let mut lost = 0;
        let board = self.board();
        let due = board.place(due);
        let mut place = board.judged.max(board.front());
        while place < due {
            let around = board.around(place);
            if around.mark.is_none() {
                let end = around.end.min(due);
                board.put(place, Mark::lost(end));
                lost += (end - place) as u32;
                place = end;
            } else {
                place = around.end;
            }
        }
        board.judged = board.judged.max(due);
        self.count_lost(lost);
    }

    /// The last send time of what is still in the network and was sent before the segment that was sent at
    /// `at` and ends at `end`. What was sent once of that ends at `before`.
    fn last_live(&mut self, (at, end): (Nanos, Seq), before: Seq) -> Option<Nanos> {
        let board = self.board();
        let retransmitted = board.last_retransmitted(at, board.place(end));
        let judged = board.judged.max(board.front());
        let mut place = board.place(before);
        let mut live = None;
        while place > judged {
            let around = board.around(place - 1);
            if around.mark.is_none() {
                live = Some(board.seq(place - 1));
                break;
            }
            place = around.start;
        }
        let once = live.and_then(|seq| self.region(seq)).map(|region| region.at);
        once.max(retransmitted)
    }

    /// Nothing is lost after all.
    pub(crate) fn clear_lost(&mut self) {
        if let Some(board) = &mut self.board {
            board.clear_lost();
        }
        self.lost = 0;
    }

    /// Whether nothing is lost but an MTU probe.
    pub(crate) fn is_probe_lost(&self) -> bool {
        self.next_lost().is_none_or(|first| first.probe && first.len() == self.lost)
    }

    /// The first range to be retransmitted.
    pub(crate) fn next_lost(&self) -> Option<Sent> {
        let board = self.board.as_ref()?;
        let start = board.seq(board.first_lost()?);
        self.region(start)
    }

    /// `len` bytes from `start` on are retransmitted now.
    pub(crate) fn retransmitted(&mut self, start: Seq, len: u32, size: u32, at: Nanos) {
        let (end, size) = (start + len, segment_size(size));
        if self.board.is_none()
            && let Some(last) = self.bursts.back_mut()
            && last.start == start
            && last.end == end
        {
            // A SYN, or a tail probe: it is still the last one, in sequence and in time.
            (last.at, last.size) = (at.max(last.at), size);
            (last.retransmitted, last.probe) = (true, false);
            return;
        }
        let mut next = start;
        while next.before(end) {
            let Some(region) = self.region(next) else { break };
            let part = Sent { start: next, end: region.end.min(end), ..region };
            next = part.end;
            if region.sacked {
                continue;
            }
            self.lost -= if region.lost { part.len() } else { 0 };
            let board = self.board();
            let (from, to) = (board.place(part.start), board.place(part.end));
            board.clear(from, to);
            board.put(from, Mark { end: to, at, size, state: State::Retransmitted });
        }
    }
}
