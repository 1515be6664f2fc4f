//! Flushing (the paper's packets reconstruction, section IV.D): when, and of what.

use crate::filter::Segment;
use crate::link::Link;
use crate::timeout::run_deadline;
use crate::{Aggregate, Flush, Lro, Nanos, Pass, Profile, Sink, merge};
use wire::Flags;

impl<F, L: Link> Lro<F, L> {
    /// Flushes what has timed out at `now`: runs of flows that have been idle for too long, and
    /// whatever has been held for `max_timeout`, or has waited for its hole for long enough.
    pub fn expire(&mut self, now: Nanos, sink: &mut impl Sink<F>) {
        while let Some(index) = self.table.next_due(now) {
            let flow = &self.table[index];
            if self.out_of_order.due(&flow.out_of_order, now) > 0 {
                self.give_up_due(index, now, sink);
            } else if flow.has_run() && now >= run_deadline(&self.config, flow) {
                let full_time = now >= self.latest(flow.since);
                let why = if full_time { Flush::Deadline } else { Flush::Timeout };
                self.flush_run(index, why, sink);
            }
            self.rearm(index);
        }
        self.debug_check();
    }

    /// Nothing more waits on the wire for now: flushes what a PSH has completed.
    ///
    /// A sender sets PSH on the last segment of each burst. While more segments wait behind it,
    /// some of the same flow perhaps, a flush costs merging and gains no time, as the host is
    /// busy; so an aggregate that a PSH completed stays open until the caller has caught up with
    /// the wire, or its deadline. With nothing waiting this is at once.
    pub fn burst_ends(&mut self, sink: &mut impl Sink<F>) {
        while let Some(index) = self.table.first_pushed() {
            self.flush_run(index, Flush::Psh, sink);
        }
        self.debug_check();
    }

    /// The caller has nothing to do and will sleep: flushes all runs, since waiting for more
    /// costs time and saves none. What lies behind holes stays until
    /// [`next_deadline`](Self::next_deadline), or until they are filled.
    pub fn idle(&mut self, sink: &mut impl Sink<F>) {
        for slot in self.table.occupied() {
            let mut next = self.table.first_in(slot);
            while let Some(index) = next {
                next = self.table.after(index);
                self.flush_run(index, Flush::Idle, sink);
            }
        }
        self.debug_check();
    }

    /// Flushes everything held.
    pub fn flush_all(&mut self, sink: &mut impl Sink<F>) {
        while let Some(index) = self.table.first_armed() {
            self.flush(index, Flush::Idle, sink);
        }
        self.debug_check_empty();
    }

    /// Flows that hold something. A look at 256 slots, not for each packet.
    pub fn holding_flows(&self) -> usize {
        self.table.timed_flows()
    }

    /// When [`expire`](Self::expire) is to be called next, at the latest; `None` while nothing is
    /// held.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.table.next_armed()
    }

    /// Held memory is bounded: one of the flows whose time is nearest goes first.
    #[cold]
    pub(crate) fn make_room(&mut self, sink: &mut impl Sink<F>) {
        if let Some(index) = self.table.first_armed() {
            self.flush(index, Flush::Memory, sink);
        }
    }

    /// Adds a segment in order to the run, or begins one with it.
    #[inline]
    pub(crate) fn add(
        &mut self,
        index: u32,
        frame: F,
        bytes: &[u8],
        segment: &Segment,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        let flow = &mut self.table[index];
        if flow.has_run() && segment.seq == flow.next_seq {
            if merge::fits(&self.config, flow, segment.len) {
                self.held.push_back(&mut flow.run, frame, segment.start, segment.len);
                flow.append(segment.len, &segment.carried);
                return self.complete(index, segment.carried.flags, sink);
            }
            self.flush_run(index, Flush::Size, sink);
        } else {
            self.flush_run(index, Flush::Order, sink);
        }
        self.begin(index, frame, bytes, segment, now, sink);
    }

    pub(crate) fn begin(
        &mut self,
        index: u32,
        frame: F,
        bytes: &[u8],
        segment: &Segment,
        now: Nanos,
        sink: &mut impl Sink<F>,
    ) {
        let endpoint = self.config.profile == Profile::Endpoint;
        let flow = &mut self.table[index];
        // The host may not believe its TSval (PAWS): what joined it would be lost with it, or make it
        // look right.
        let alone = endpoint && merge::not_older(flow, segment).is_err();
        if !flow.begun || flow.epoch != self.epoch {
            flow.frontier = segment.seq;
            flow.epoch = self.epoch;
            flow.send.lose_sight();
        }
        flow.keep_header::<L>(self.config.profile, segment, bytes);
        self.held.push_back(&mut flow.run, frame, segment.start, segment.len);
        flow.begin(segment.seq, segment.len, &segment.carried, now);
        let deadline = run_deadline(&self.config, flow);
        let single = flow.holes.take_single(segment.seq, segment.len, &mut self.counters);
        self.table.arm(index, deadline);
        if alone {
            self.flush_run(index, Flush::Mismatch, sink);
        } else if single {
            self.flush_run(index, Flush::Hole, sink);
        } else {
            self.complete(index, segment.carried.flags, sink);
        }
    }

    /// Flushes a run that a segment with these flags completes, or notes that a PSH did.
    #[inline]
    pub(crate) fn complete(&mut self, index: u32, flags: Flags, sink: &mut impl Sink<F>) {
        let flow = &mut self.table[index];
        let completed = match flow.key.udp {
            true => merge::completes_datagrams(&self.config, flow),
            false => merge::completes(&self.config, flow, flags),
        };
        if let Some(why) = completed {
            self.flush_run(index, why, sink);
        } else if flow.key.udp || merge::pushes(&self.config, flags) {
            self.table.push(index);
        }
    }

    /// Hands on all that a flow holds.
    pub(crate) fn flush(&mut self, index: u32, why: Flush, sink: &mut impl Sink<F>) {
        self.flush_run(index, why, sink);
        self.give_up_holes(index, why, sink);
    }

    /// Hands on a flow's run: one frame as it came, or several as an aggregate.
    pub(crate) fn flush_run(&mut self, index: u32, why: Flush, sink: &mut impl Sink<F>) {
        let flow = &mut self.table[index];
        if !flow.has_run() {
            return;
        }
        self.counters.flushed[why as usize] += 1;
        let mut run = flow.take_run();
        flow.send.acknowledged(flow.last.ack);
        self.table.unpush(index);
        let flow = &mut self.table[index];
        if run.len() == 1 && !flow.is_raised() {
            if let Some(slice) = self.held.pop(&mut run) {
                self.counters.passed[Pass::Alone.index()] += 1;
                sink.pass(slice.frame, Pass::Alone);
            }
        } else {
            self.counters.aggregates += 1;
            self.counters.merged += u64::from(run.len());
            self.counters.aggregate_bytes += u64::from(flow.payload_len());
            let fixed_id = flow.fixed_id();
            let (header, vnet) = flow.reconstruct(run.len());
            sink.aggregate(Aggregate::new(vnet, header, fixed_id, run, &mut self.held));
        }
        let flow = &self.table[index];
        let finished = flow.is_finished();
        if flow.out_of_order.is_empty() {
            self.table.disarm(index);
        }
        if finished {
            self.give_up_holes(index, why, sink);
            self.table.close(index);
        }
    }

    /// The latest time for what arrived at `since`.
    fn latest(&self, since: Nanos) -> Nanos {
        since.saturating_add(self.config.max_timeout)
    }

    /// Sets the time at which to look at a flow again.
    pub(crate) fn rearm(&mut self, index: u32) {
        let flow = &self.table[index];
        let hole = self.out_of_order.earliest(&flow.out_of_order);
        let run = flow.has_run().then(|| run_deadline(&self.config, flow));
        if let Some(deadline) = hole.into_iter().chain(run).min() {
            self.table.arm(index, deadline);
        }
    }
}
