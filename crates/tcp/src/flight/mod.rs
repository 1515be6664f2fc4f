//! What is in flight: one record for each burst that was sent at one time, in order, and a scoreboard of
//! what became of them. Both together are the scoreboard of RFC 6675 section 4 and the transmission
//! times of RFC 8985 section 5.1.
//!
//! The cost of an acknowledgment depends on its blocks and on what they change, not on what is in flight:
//! each step takes the logarithm of the number of records, and there are no more steps than SACK blocks and
//! than ranges that change, where undo is a change as well. What was sent once is in the order of time, so
//! that RACK (RFC 8985) looks only at what it has not decided on yet; Linux keeps a list in that order for it
//! (tcp_rack_detect_loss, tsorted_sent_queue).

mod board;
mod fate;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use board::{Around, Board, Mark, State};
use wire::Seq;

use crate::Nanos;
use crate::options::Block;

/// Counts a step, of which the tests bound the number.
#[inline]
fn step() {
    #[cfg(test)]
    tests::step();
}

/// A run of bytes that was sent at one time, and of which one thing is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) start: Seq,
    pub(crate) end: Seq,
    /// When it was sent last.
    pub(crate) at: Nanos,
    /// Payload bytes of each of its segments: a peer has all of one or none of it.
    pub(crate) size: u16,
    /// The peer's SACK covers it.
    pub(crate) sacked: bool,
    /// It is taken for lost and waits to be retransmitted.
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

    /// Whether it was sent after what was sent at `at` and ends at `end` (RFC 8985 section 5.2,
    /// RACK_sent_after).
    pub(crate) fn sent_after(&self, at: Nanos, end: Seq) -> bool {
        self.at > at || (self.at == at && self.end.after(end))
    }
}

/// What was sent at one time. Segments begin at `start` and at every `size` bytes from there.
#[derive(Clone, Copy, Debug)]
struct Burst {
    at: Nanos,
    start: Seq,
    end: Seq,
    size: u16,
    probe: bool,
    /// It was the last one, and was retransmitted as a whole: it is in the order of time still.
    retransmitted: bool,
    /// SACK covers the whole of it.
    sacked: bool,
}

/// Bursts in order of their sequence numbers and of time, without holes.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    bursts: VecDeque<Burst>,
    /// What is not as it was sent; `None` while nothing is.
    board: Option<Box<Board>>,
    sacked: u32,
    lost: u32,
    /// Bytes that were ever taken for lost, as far as 32 bits count.
    lost_ever: u32,
    /// Bursts that SACK covers as a whole.
    whole: u32,
}

impl Flight {
    pub(crate) fn is_empty(&self) -> bool {
        self.bursts.is_empty()
    }

    /// Bursts, without those that SACK covers.
    pub(crate) fn count(&self) -> usize {
        self.bursts.len() - self.whole as usize
    }

    /// Bursts that take memory.
    pub(crate) fn held(&self) -> usize {
        self.bursts.len()
    }

    /// Bytes that the peer has by SACK.
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes that wait to be retransmitted.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    /// Bytes that were ever taken for lost, each time that they were, as far as 32 bits count.
    pub(crate) fn lost_ever(&self) -> u32 {
        self.lost_ever
    }

    /// So many bytes more are lost.
    fn count_lost(&mut self, bytes: u32) {
        self.lost += bytes;
        self.lost_ever = self.lost_ever.wrapping_add(bytes);
    }

    /// Bytes from the first unacknowledged to the last one sent.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        match (self.bursts.front(), self.bursts.back()) {
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
        let retransmitted = self.iter().filter(|record| record.retransmitted && !record.sacked);
        retransmitted.map(|record| record.len()).sum()
    }

    pub(crate) fn first(&self) -> Option<Sent> {
        self.region(self.bursts.front()?.start)
    }

    pub(crate) fn last(&self) -> Option<Sent> {
        let last = self.bursts.back()?;
        self.region(Seq(last.end.0.wrapping_sub(1)))
    }

    /// All of it, piece by piece.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Sent> {
        let mut next = self.bursts.front().map(|first| first.start);
        core::iter::from_fn(move || {
            let region = self.region(next?)?;
            next = Some(region.end);
            Some(region)
        })
    }

    /// Whether the MTU probe that ends at `end` is in the network, or lost and not retransmitted yet.
    pub(crate) fn is_probing(&self, end: Seq) -> bool {
        let region = self.region(Seq(end.0.wrapping_sub(1)));
        region.is_some_and(|region| region.probe && !region.sacked)
    }

    fn find(&self, seq: Seq) -> Option<&Burst> {
        step();
        let index = self.bursts.partition_point(|burst| !burst.end.after(seq));
        self.bursts.get(index).filter(|burst| !burst.start.after(seq))
    }

    /// The range around `seq` of one state: bytes of one burst, or as many as SACK covers in a row.
    fn region(&self, seq: Seq) -> Option<Sent> {
        let burst = self.find(seq)?;
        let mut region = Sent {
            start: burst.start,
            end: burst.end,
            at: burst.at,
            size: burst.size,
            sacked: false,
            lost: false,
            retransmitted: burst.retransmitted,
            probe: burst.probe,
        };
        let Some(board) = &self.board else { return Some(region) };
        let Around { start, end, mark } = board.around(board.place(seq));
        if mark.is_some_and(|mark| mark.state == State::Sacked) {
            let (start, end) = (board.seq(start), board.seq(end));
            return Some(Sent { start, end, sacked: true, ..region });
        }
        let (first, last) = (board.place(burst.start), board.place(burst.end));
        region.start = board.seq(start.max(first));
        region.end = board.seq(end.min(last));
        if let Some(mark) = mark {
            region.lost = mark.is_lost();
            if mark.size > 0 {
                region.retransmitted = true;
                region.probe = false;
                region.at = mark.at;
                region.size = mark.size;
            }
        }
        Some(region)
    }

    /// The whole segments of `region` that lie in `block`; nothing if there is none.
    fn segments_in(&self, region: &Sent, block: Block) -> Block {
        let size = u32::from(region.size).max(1);
        let origin = match self.find(region.start) {
            Some(burst) if !region.retransmitted => burst.start,
            _ => region.start,
        };
        let start = if block.start.after(region.start) {
            next_segment(origin, block.start, region.size)
        } else {
            region.start
        };
        let end = if block.end.before(region.end) {
            origin + (block.end - origin) / size * size
        } else {
            region.end
        };
        if start.before(end) { Block { start, end } } else { Block { start, end: start } }
    }

    /// Adds what was just sent for the first time.
    #[inline]
    pub(crate) fn push(&mut self, start: Seq, end: Seq, at: Nanos, size: u32, probe: bool) {
        // A clock that goes back must not break the order.
        let at = self.bursts.back().map_or(at, |last| at.max(last.at));
        let size = segment_size(size);
        self.bursts.push_back(Burst {
            at,
            start,
            end,
            size,
            probe,
            retransmitted: false,
            sacked: false,
        });
    }

    /// Adds a record of a snapshot.
    pub(crate) fn restore(&mut self, record: Sent) {
        let before = self.bursts.back().map_or(0, |last| last.at);
        let retransmitted = record.retransmitted && !record.sacked;
        let at = if retransmitted { before } else { record.at };
        self.push(
            record.start,
            record.end,
            at,
            u32::from(record.size),
            record.probe && !retransmitted,
        );
        if record.sacked {
            self.sack(Block { start: record.start, end: record.end }, |_| {});
        } else if retransmitted || record.lost {
            let size = if retransmitted { segment_size(u32::from(record.size)) } else { 0 };
            let state = if record.lost { State::Lost } else { State::Retransmitted };
            self.lost += if record.lost { record.len() } else { 0 };
            let board = self.board();
            let (start, end) = (board.place(record.start), board.place(record.end));
            board.put(start, Mark { end, at: record.at, size, state });
        }
    }

    fn board(&mut self) -> &mut Board {
        let first = self.bursts.front().map_or(Seq(0), |first| first.start);
        self.board.get_or_insert_with(|| Box::new(Board::new(first)))
    }

    /// Gives the records' memory back, if there are none.
    pub(crate) fn shrink(&mut self) {
        if self.bursts.is_empty() {
            *self = Flight::default();
        }
    }

    /// Takes off what lies before `una`. `delivered` is called for what SACK did not have already, cut
    /// to what is acknowledged.
    #[inline]
    pub(crate) fn acknowledge(&mut self, una: Seq, mut delivered: impl FnMut(&Sent)) {
        if self.board.is_none() {
            self.trim(una, None, delivered);
        } else {
            let segment = self.acknowledge_marks(una, &mut delivered);
            self.trim(una, segment, |_| {});
        }
        if self.bursts.is_empty() {
            self.board = None;
            // A transfer that is over needs no memory.
            if self.bursts.capacity() > 64 {
                self.bursts = VecDeque::new();
            }
        }
    }

    /// What is known of what lies before `una`. Returns where segments begin anew behind `una`.
    fn acknowledge_marks(&mut self, una: Seq, delivered: &mut impl FnMut(&Sent)) -> Option<Seq> {
        let mut behind = None;
        let mut next = self.bursts.front().map(|first| first.start);
        while let Some(start) = next.filter(|next| next.before(una)) {
            let Some(mut region) = self.region(start) else { break };
            next = Some(region.end);
            if region.end.after(una) {
                behind = if region.retransmitted { Some(region.end) } else { None };
                self.cut_segment(&region, una);
                region.end = una;
            } else if region.end == una {
                behind = Some(una);
            }
            region.start = start;
            if region.sacked {
                self.sacked -= region.len();
            } else {
                self.lost -= if region.lost { region.len() } else { 0 };
                delivered(&region);
            }
        }
        if let Some(board) = &mut self.board {
            board.acknowledge(una);
            if board.is_empty() {
                self.board = None;
            }
        }
        behind
    }

    /// `una` lies inside of a region: if it was retransmitted, the segments behind begin where they did.
    fn cut_segment(&mut self, region: &Sent, una: Seq) {
        let next = next_segment(region.start, una, region.size);
        if let Some(board) = &mut self.board
            && region.retransmitted
            && next.before(region.end)
        {
            board.cut(board.place(next));
        }
    }

    /// Takes off the bursts before `una`. Of the last one segments go on at `behind`, if that is given,
    /// else where they did: what a peer has of a segment in part it may report as a whole later on.
    fn trim(&mut self, una: Seq, behind: Option<Seq>, mut delivered: impl FnMut(&Sent)) {
        while let Some(first) = self.bursts.front_mut() {
            if !first.start.before(una) {
                break;
            }
            step();
            let whole = !first.end.after(una);
            delivered(&Sent {
                start: first.start,
                end: if whole { first.end } else { una },
                at: first.at,
                size: first.size,
                sacked: false,
                lost: false,
                retransmitted: first.retransmitted,
                probe: first.probe,
            });
            if whole {
                self.whole -= u32::from(first.sacked);
                self.bursts.pop_front();
                continue;
            }
            let next = behind.unwrap_or_else(|| next_segment(first.start, una, first.size));
            let mut rest = *first;
            first.start = una;
            if next.after(una) && next.before(rest.end) {
                first.end = next;
                rest.start = next;
                let part = *first;
                self.bursts.pop_front();
                self.whole += u32::from(rest.sacked);
                self.bursts.push_front(rest);
                self.bursts.push_front(part);
            }
        }
    }
}

/// Where the first segment at `seq` or behind begins, of those of `size` bytes from `start` on.
fn next_segment(start: Seq, seq: Seq, size: u16) -> Seq {
    let size = u32::from(size).max(1);
    start + (seq - start).div_ceil(size) * size
}

fn segment_size(size: u32) -> u16 {
    u16::try_from(size).unwrap_or(u16::MAX).max(1)
}
