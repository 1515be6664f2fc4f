//! Packets reordering (the paper, section IV.C) of the endpoint profile: ReorderPacket, Insert and
//! UpdateNextSeq.
//!
//! Where this leaves the paper's pseudocode, and why:
//!
//! - Algorithm 1 drops what comes before nextseq. The host would then never see a retransmission
//!   of what it has, and the sender would learn nothing from it (D-SACK, RFC 2883; the duplicate
//!   ACK of RFC 9293 section 3.10.7.4). It is passed on, behind what is held.
//! - Nothing says where nextseq is when packets have been passed on over a hole. Here it follows
//!   them, and [`frontier`](crate::descriptor::Descriptor::frontier) keeps the highest: the late
//!   packet is then old, and those that continue it join again, as a sender's retransmissions do.
//! - `desc.nextseq > pkt.seq` is no order on a circle. A segment that lies more than [`WINDOW`] from
//!   the frontier, on either side, is neither a hole nor a repetition, and the flow starts over
//!   there: so after data went another way, or after half the circle.
//! - Algorithms 1 and 2 look at where packets start, and so deliver bytes twice, or lose them, when
//!   packets overlap without starting together. Here the bytes that came first count, of what is
//!   held, and later ones are trimmed; what cannot be trimmed to one piece goes to the host as it
//!   came, behind all that is held.
//! - Algorithm 2 walks all packets from the head; see [`out_of_order`](crate::out_of_order).
//! - A hole is waited for only where what is missing is late, and not lost, more often than not (see
//!   [`hole`](crate::hole)), and never longer than `hole_timeout`. Then what lies behind it goes to the
//!   host, which sees the hole and asks for its data: the first three segments by themselves, as a
//!   sender waits for three duplicate ACKs before it sends again (RFC 5681 section 3.2), and each
//!   packet makes one.

use wire::{Flags, Seq};

use crate::descriptor::Descriptor;
use crate::filter::{Carried, Segment};
use crate::link::Link;
use crate::out_of_order::{Next, Place};
use crate::predict::Expected;
use crate::timeout::run_deadline;
use crate::{Flush, Lro, Mismatch, Nanos, Pass, Sink, merge};

/// Bytes to either side of the frontier within which a segment is taken for late or early: more
/// than a path of 100 Gb/s carries in a millisecond, and little of the circle.
pub(crate) const WINDOW: u32 = 1 << 24;

/// Holes in one flow, at most: no search may take long because a sender sends every other byte
/// (CVE-2018-5390).
pub(crate) const HOLES_MAX: u32 = 64;

/// What becomes of a segment that has the headers of what its flow holds.
enum Usual {
    /// It continues the run, and perhaps fills the hole in front of the first block.
    Next { fills: bool },
    /// It lies behind a hole. Whether it touches a block there is told.
    Early { place: Place, touches: bool },
}

/// What becomes of a segment that does not continue its flow.
enum Arrival {
    /// After all, it does, with what is left of it.
    InOrder,
    /// It lies behind a hole.
    Early,
    /// All of it came before.
    Old,
    /// It cannot be brought into line.
    StartOver(Mismatch),
}

impl<F, L: Link> Lro<F, L> {
    /// The paper's algorithm 1, for all segments but those that continue a flow without holes.
    /// `same_headers` is whether the segment's headers are known to be as those of what is held.
    #[expect(clippy::too_many_arguments, reason = "a frame, and all that is known of it")]
    #[inline(never)]
    pub(crate) fn reorder_packet(
        &mut self,
        index: u32,
        frame: F,
        bytes: &[u8],
        mut segment: Segment,
        matches: bool,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        let mut place = Place::NONE;
        self.may_begin_anew(index, &segment);
        match self.arrival(index, &mut segment, bytes, matches, &mut place) {
            Arrival::InOrder => {
                self.add(index, frame, bytes, &segment, now, sink);
                if !self.table[index].out_of_order.is_empty() {
                    self.update_next_seq(index, sink);
                }
            }
            Arrival::Early => {
                let flow = &mut self.table[index];
                if !flow.is_holding() {
                    flow.keep_header::<L>(self.config.profile, &segment, bytes);
                }
                let piece = (segment.start, segment.seq, segment.len);
                // One that extends a block has that one's time.
                let until = match self.out_of_order.touches(place, &segment) {
                    true => Nanos::MAX,
                    false => now.saturating_add(self.hole_wait(index, now)),
                };
                self.insert(index, frame, piece, segment.carried, place, (now, until));
                if until <= now {
                    self.give_up_due(index, now, sink);
                } else {
                    self.table.arm(index, until);
                }
            }
            Arrival::Old => self.old(index, frame, &segment, now, sink),
            Arrival::StartOver(why) => {
                self.counters.mismatched[why as usize] += 1;
                self.start_over(index, frame, bytes, &segment, now, sink);
            }
        }
    }

    /// Where the segment stands. What others brought that are held is trimmed from its ends.
    /// What was handed on is not: the host may have had no room for it (a probe of its zero window
    /// is sent again with more behind it), and then waits for it.
    fn arrival(
        &mut self,
        index: u32,
        segment: &mut Segment,
        bytes: &[u8],
        matches: bool,
        place: &mut Place,
    ) -> Arrival {
        let flow = &self.table[index];
        if !flow.begun || flow.epoch != self.epoch {
            return Arrival::InOrder; // picked up here
        }
        if segment.seq == flow.next_seq && !flow.is_holding() {
            return Arrival::InOrder;
        }
        let ahead = segment.seq.distance(flow.frontier);
        if ahead.unsigned_abs() > WINDOW {
            return Arrival::StartOver(Mismatch::Far);
        }
        let may_join = if matches {
            Ok(())
        } else if flow.is_holding() {
            merge::ask(&self.config, flow, segment, bytes)
        } else {
            merge::not_older(flow, segment)
        };
        if segment.seq != flow.next_seq && !segment.end().after(flow.frontier) {
            return Arrival::Old;
        }
        if let Err(why) = may_join {
            return Arrival::StartOver(why);
        }
        let in_order = segment.seq == flow.next_seq || ahead <= 0;
        if flow.is_within_run(segment.seq) {
            self.counters.trimmed += 1;
            segment.trim_front(flow.next_seq);
        }
        *place = match in_order {
            true => Place::before_all(&flow.out_of_order),
            false => self.out_of_order.find(&flow.out_of_order, segment.seq),
        };
        if let Some(left) = self.out_of_order.get(place.left)
            && segment.seq.before(left.end)
        {
            if !segment.end().after(left.end) {
                return Arrival::Old;
            }
            self.counters.trimmed += 1;
            segment.trim_front(left.end);
        }
        if let Some(right) = self.out_of_order.get(place.right)
            && segment.end().after(right.start)
        {
            if segment.end().after(right.end) || segment.carried.flags.any(Flags::FIN) {
                return Arrival::StartOver(Mismatch::Overlap);
            }
            self.counters.trimmed += 1;
            segment.trim_back(right.start);
        }
        if in_order {
            return Arrival::InOrder;
        }
        if flow.out_of_order.len() >= HOLES_MAX && !self.out_of_order.touches(*place, segment) {
            return Arrival::StartOver(Mismatch::Holes);
        }
        Arrival::Early
    }

    /// How long a hole of the flow is waited for that shows now.
    #[inline(always)]
    fn hole_wait(&mut self, index: u32, now: Nanos) -> Nanos {
        let most = self.config.hole_limit();
        let learnt = self.table[index].holes.wait(most, now, &mut self.counters);
        learnt.max(self.config.min_hole_timeout.min(most))
    }

    /// The paper's algorithm 2. What is held already is armed; it has the same headers. If the segment
    /// touches none, `times` are when it came and until when its hole is waited for.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        index: u32,
        frame: F,
        piece: (usize, Seq, u32),
        carried: Carried,
        place: Place,
        times: (Nanos, Nanos),
    ) {
        self.counters.reordered += 1;
        let (of, held) = (&mut self.table[index].out_of_order, &mut self.held);
        self.out_of_order.insert(of, place, held, frame, piece, carried, times);
    }

    /// What becomes of a segment of a flow with holes, or that makes the first, if it has the headers of
    /// what is held and neither repeats nor overlaps anything: nearly all of them. The same as
    /// [`arrival`](Self::arrival), which is asked where this is `None`.
    #[inline(always)]
    fn usual(&self, index: u32, segment: &Expected) -> Option<Usual> {
        let flow = &self.table[index];
        let &Expected { seq, len, .. } = segment;
        let ahead = seq - flow.frontier;
        if ahead == 0 {
            let first = self.out_of_order.first(&flow.out_of_order)?;
            // A run that is not full has room for one more like its largest.
            let is_next = seq == flow.next_seq
                && flow.has_run()
                && len <= u32::from(flow.gso_size)
                && !(seq + len).after(first.start);
            return is_next.then_some(Usual::Next { fills: seq + len == first.start });
        }
        if ahead > WINDOW || flow.epoch != self.epoch || !flow.begun {
            return None;
        }
        let (piece, run) = ((seq, len), (&flow.run, ahead));
        let (place, touches) = self.out_of_order.free_place(&flow.out_of_order, piece, run)?;
        (touches || flow.out_of_order.len() < HOLES_MAX).then_some(Usual::Early { place, touches })
    }

    /// A segment as the flow's others are goes to its place.
    #[inline(always)]
    pub(crate) fn place(
        &mut self,
        index: u32,
        frame: F,
        bytes: &[u8],
        segment: &Expected,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        match self.usual(index, segment) {
            Some(Usual::Next { fills }) => {
                let flow = &mut self.table[index];
                self.held.push_back(&mut flow.run, frame, segment.start, segment.len);
                flow.append(segment.len, &segment.carried);
                if segment.carried.flags.any(Flags::PSH) || merge::is_full(&self.config, flow) {
                    self.complete(index, segment.carried.flags, sink);
                }
                if fills {
                    self.filled(index, sink);
                }
            }
            Some(Usual::Early { place, touches }) => {
                self.early(index, frame, segment, (place, touches), now, sink);
            }
            None => {
                let segment = segment.segment(self.table[index].key);
                self.reorder_packet(index, frame, bytes, segment, true, now, sink);
            }
        }
    }

    /// Takes a segment that lies behind a hole to its place, where it overlaps none. The flow holds
    /// something, and the segment has its headers.
    #[inline(always)]
    fn early(
        &mut self,
        index: u32,
        frame: F,
        segment: &Expected,
        (place, touches): (Place, bool),
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        let piece = (segment.start, segment.seq, segment.len);
        if touches {
            // It extends a block, which has its time.
            let times = (now, Nanos::MAX);
            return self.insert(index, frame, piece, segment.carried, place, times);
        }
        let until = now.saturating_add(self.hole_wait(index, now));
        self.counters.reordered += 1;
        let (of, held) = (&mut self.table[index].out_of_order, &mut self.held);
        self.out_of_order.open(of, place, held, frame, piece, segment.carried, (now, until));
        if until <= now {
            self.give_up_due(index, now, sink);
        } else {
            self.table.arm(index, until);
        }
    }

    /// The run has reached the first block. Joins all of it, if all of it may join.
    #[inline(always)]
    fn absorb_first(&mut self, index: u32, sink: &mut impl Sink<F>) -> bool {
        let flow = &mut self.table[index];
        let Some(block) = self.out_of_order.first(&flow.out_of_order) else { return false };
        if block.start != flow.next_seq || !block.plain {
            return false;
        }
        let (first, last) = self.out_of_order.ends(block);
        if !merge::takes(&self.config, flow, block, first) {
            return false;
        }
        let flags = block.flags;
        flow.absorb(block, first, last);
        self.out_of_order.take_all(&mut flow.out_of_order, &mut self.held, &mut flow.run);
        if flags.any(Flags::PSH) {
            self.complete(index, flags, sink);
        }
        true
    }

    /// A segment in order has filled the hole in front of the first block.
    #[inline(always)]
    fn filled(&mut self, index: u32, sink: &mut impl Sink<F>) {
        let since = self.table[index].since;
        if !self.absorb_first(index, sink) {
            self.update_next_seq(index, sink);
        } else if self.table[index].since != since {
            self.arm_run(index);
        }
    }

    /// A run that has grown by what came before it may have less time left.
    #[inline(always)]
    fn arm_run(&mut self, index: u32) {
        let flow = &self.table[index];
        if flow.has_run() {
            let deadline = run_deadline(&self.config, flow);
            self.table.arm(index, deadline);
        }
    }

    /// The paper's algorithm 3: what the run now reaches joins it, one aggregate after the other.
    fn update_next_seq(&mut self, index: u32, sink: &mut impl Sink<F>) {
        loop {
            if self.absorb_first(index, sink) {
                break; // another block would have been part of this one
            }
            let flow = &mut self.table[index];
            let next = self.out_of_order.next(&flow.out_of_order, flow.next_seq, &self.held);
            let Some(Next { len, mut carried, since }) = next else { break };
            let seq = flow.next_seq;
            if flow.has_run() {
                if carried.flags.any(Flags::CWR) {
                    self.flush_run(index, Flush::Mismatch, sink); // it goes by itself (rule 4)
                    continue;
                }
                if len > u32::from(flow.gso_size) && !merge::fits(&self.config, flow, len) {
                    self.flush_run(index, Flush::Size, sink);
                    continue;
                }
                flow.catch_up(&mut carried);
                flow.append(len, &carried);
                flow.since = flow.since.min(since);
            } else {
                let raised = flow.catch_up(&mut carried);
                flow.begin(flow.next_seq, len, &carried, since);
                if raised {
                    flow.set_raised();
                }
            }
            self.out_of_order.take_next(&mut flow.out_of_order, &mut self.held, &mut flow.run);
            if self.table[index].holes.take_single(seq, len, &mut self.counters) {
                self.flush_run(index, Flush::Hole, sink);
                continue;
            }
            let flow = &self.table[index];
            let asks = carried.flags.any(Flags::PSH.with(Flags::FIN).with(Flags::CWR));
            if asks || merge::is_full(&self.config, flow) {
                self.complete(index, carried.flags, sink);
            }
        }
        self.arm_run(index);
    }

    /// Flushes all blocks, each by itself: the holes stay.
    pub(crate) fn give_up_holes(&mut self, index: u32, why: Flush, sink: &mut impl Sink<F>) {
        while self.give_up_hole(index, why, sink) {}
    }

    /// The same of what has waited for its hole for long enough, and of what lies in front of that.
    pub(crate) fn give_up_due(&mut self, index: u32, now: Nanos, sink: &mut impl Sink<F>) {
        let due = self.out_of_order.due(&self.table[index].out_of_order, now);
        if due == 0 {
            return;
        }
        self.flush_run(index, Flush::Hole, sink);
        for _ in 0..due {
            let most = self.config.hole_limit();
            let flow = &mut self.table[index];
            if let Some(block) = self.out_of_order.first(&flow.out_of_order) {
                let since = self.out_of_order.oldest(&flow.out_of_order).unwrap_or(now);
                let hole = (flow.frontier, block.start);
                let (first, _) = self.out_of_order.ends(block);
                flow.holes.give_up(hole, (since, first), most, now, &mut self.counters);
                flow.holes.begin_singles(block.start);
            }
            self.give_up_hole(index, Flush::Hole, sink);
        }
    }

    /// Flushes the first block; false if there is none.
    fn give_up_hole(&mut self, index: u32, why: Flush, sink: &mut impl Sink<F>) -> bool {
        let flow = &mut self.table[index];
        let Some(block) = self.out_of_order.first(&flow.out_of_order) else { return false };
        self.counters.holes += 1;
        flow.next_seq = block.start;
        self.update_next_seq(index, sink);
        self.flush_run(index, why, sink);
        true
    }

    /// Data that the host has, or that waits for it: the host must see that it came again. Data
    /// that it continues may join it.
    fn old(
        &mut self,
        index: u32,
        frame: F,
        segment: &Segment,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        let most = self.config.hole_limit();
        let end = segment.end();
        let finishes = segment.carried.flags.any(Flags::FIN);
        if self.acknowledges()
            && let Some(timestamps) = segment.carried.timestamps
        {
            self.hosts[index as usize].came_with(timestamps);
        }
        let flow = &mut self.table[index];
        flow.holes.fill(segment, most, now, &mut self.counters);
        flow.send.acknowledged(segment.carried.ack);
        let waits = end.after(flow.frontier);
        // If it fills a hole of the host's, its TSval is TS.Recent from then on (RFC 7323 section
        // 4.3), and what waits would come too late. To raise that would be to trust a number that
        // the host, which knows its window, may not.
        if finishes || waits || flow.is_outdated_by(&segment.carried) {
            self.flush(index, Flush::Order, sink);
        } else {
            self.flush_run(index, Flush::Order, sink);
        }
        if finishes {
            self.table.close(index);
        } else {
            self.table[index].next_seq = end;
        }
        self.pass(frame, Pass::Old, sink);
    }

    /// All that is held goes first, and the flow goes on from here.
    fn start_over(
        &mut self,
        index: u32,
        frame: F,
        bytes: &[u8],
        segment: &Segment,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        self.flush(index, Flush::Mismatch, sink);
        // A FIN in what was held has closed the flow.
        let index = self.find_or_open(segment, sink);
        let flow = &mut self.table[index];
        flow.arrives(now);
        if segment.seq.distance(flow.frontier).unsigned_abs() > WINDOW {
            flow.frontier = segment.seq;
        }
        self.add(index, frame, bytes, segment, now, sink);
    }
}

impl Descriptor {
    /// A packet that was not held takes the flow up to `seq`.
    pub(crate) fn goes_on_at(&mut self, seq: Seq) {
        let ahead = seq.distance(self.frontier);
        self.next_seq = seq;
        if ahead > 0 || ahead.unsigned_abs() > WINDOW {
            self.frontier = seq;
        }
    }
}
