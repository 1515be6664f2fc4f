//! Workers on paper: so many cores behind one line, in virtual time. What a packet costs is given; what comes of it is
//! the queues' and TCP's doing.
//!
//! A flow sends what its congestion window lets it (RFC 5681, with a window per packet), in bursts that take turns on the
//! line. Its packets wait in the ring of the queue that its hash picks. A worker takes batches of them; what it
//! acknowledges goes back at the end of the batch. A stray costs the worker whose queue brings it half of what it costs
//! more, and its owner the other half and what any packet costs.
//!
//! Left out: the CPUs' caches and the memory's rate, beyond what is in the costs that were measured; interrupts and
//! sleep; what hosts do with the data.

mod flow;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ::degen::Random;

use self::flow::Flow;

/// Most segments of a flow that follow each other on the line.
const BURST: u32 = 32;
/// Packets that fit into a queue's ring.
const RING: u32 = 2048;
/// Most packets that a worker takes at once, of its ring and of strays.
const BATCH: u32 = 64;
/// How soon a sender can hear of a loss, in nanoseconds, so that time goes on.
const SOONEST: u64 = 1_000;
/// Bytes of a full segment on the wire, with preamble, FCS and gap between packets, and its payload.
const WIRE_BYTES: f64 = 1_538.0;
pub(super) const PAYLOAD: f64 = 1_448.0;

/// What a packet costs a worker, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Costs {
    /// Where there is one worker.
    pub(super) packet: f64,
    /// More, where there are others.
    pub(super) shared: f64,
    /// More, if it comes by another worker's queue: both workers together.
    pub(super) stray: f64,
}

/// How flows come to queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spread {
    /// Each worker has as many.
    Even,
    /// By a hash (receive side scaling).
    Hashed,
}

/// What is modelled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) workers: usize,
    /// All of them.
    pub(super) flows: usize,
    pub(super) costs: Costs,
    /// Of the flows, that come by another's queue.
    pub(super) strays: f64,
    pub(super) spread: Spread,
    /// Bits per nanosecond; infinite for none.
    pub(super) line: f64,
    /// From a flow's end to the workers and back, in nanoseconds.
    pub(super) round_trip: u64,
    /// Most packets of a flow in flight.
    pub(super) window: u32,
    pub(super) seed: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Outcome {
    /// Packets a second.
    pub(super) rate: f64,
    /// The share of its time that each worker was busy.
    pub(super) busy: Vec<f64>,
    /// The share of the packets that found no room.
    pub(super) dropped: f64,
    /// How long a packet waited for its worker, with what that did for it: 99 % at most, in nanoseconds.
    pub(super) p99_wait: f64,
}

/// Packets of a flow, one behind the other.
#[derive(Clone, Copy, Debug)]
struct Burst {
    flow: usize,
    count: u32,
    /// When the last of them came.
    at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The line is free.
    Line,
    Arrives {
        flow: usize,
        count: u32,
    },
    /// A worker has done its batch.
    Done(usize),
    Acknowledged {
        flow: usize,
        count: u32,
    },
    Lost {
        flow: usize,
        count: u32,
    },
}

#[derive(Debug, Default)]
struct Worker {
    ring: VecDeque<Burst>,
    in_ring: u32,
    strays: VecDeque<Burst>,
    /// What it does now.
    batch: Vec<Burst>,
    passes_on: Vec<Burst>,
    busy: u64,
    is_busy: bool,
}

/// See the module's documentation.
struct Model {
    setup: Setup,
    flows: Vec<Flow>,
    workers: Vec<Worker>,
    /// Flows that have something to send, in turn.
    ready: VecDeque<usize>,
    line_is_busy: bool,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    now: u64,
    counts: Counts,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    sent: u64,
    done: u64,
    dropped: u64,
    waits: Vec<(u64, u32)>,
}

/// Runs it for `warm_up`, and from then on for `duration`, in nanoseconds.
pub(super) fn run(setup: Setup, warm_up: u64, duration: u64) -> Outcome {
    let mut model = Model::new(setup);
    model.until(warm_up);
    let busy: Vec<u64> = model.workers.iter().map(|worker| worker.busy).collect();
    model.counts = Counts::default();
    model.until(warm_up + duration);
    let time = duration as f64;
    let each = model.workers.iter().zip(busy);
    let Counts { done, dropped, waits, .. } = &mut model.counts;
    Outcome {
        rate: *done as f64 / time * 1e9,
        // A batch counts when it begins, so that its end may lie behind the run's.
        busy: each
            .map(|(worker, before)| ((worker.busy - before) as f64 / time).min(1.0))
            .collect(),
        dropped: *dropped as f64 / (*done + *dropped).max(1) as f64,
        p99_wait: percentile(waits, 0.99),
    }
}

/// What so large a share waited at most.
fn percentile(waits: &mut [(u64, u32)], share: f64) -> f64 {
    waits.sort_unstable();
    let all: u64 = waits.iter().map(|(_, count)| u64::from(*count)).sum();
    let mut left = (all as f64 * share) as u64;
    let reaches = |(_, count): &&(u64, u32)| {
        let is_there = left < u64::from(*count);
        left = left.saturating_sub(u64::from(*count));
        is_there
    };
    waits.iter().find(reaches).map_or(0.0, |(wait, _)| *wait as f64)
}

impl Model {
    fn new(setup: Setup) -> Self {
        let mut random = Random::new(setup.seed);
        let workers = setup.workers as u64;
        let flow = |number: usize| {
            let queue = match setup.spread {
                Spread::Even => number % setup.workers,
                Spread::Hashed => random.next_below(workers) as usize,
            };
            let strays =
                workers > 1 && (random.next_below(1 << 32) as f64) < setup.strays * 2_f64.powi(32);
            let away = if strays { 1 + random.next_below(workers - 1) as usize } else { 0 };
            Flow::new(queue, (queue + away) % setup.workers, setup.window)
        };
        let mut model = Model {
            flows: (0..setup.flows).map(flow).collect(),
            workers: (0..setup.workers).map(|_| Worker::default()).collect(),
            ready: (0..setup.flows).collect(),
            line_is_busy: false,
            events: BinaryHeap::new(),
            scheduled: 0,
            now: 0,
            counts: Counts::default(),
            setup,
        };
        model.flows.iter_mut().for_each(|flow| flow.is_ready = true);
        model.use_line();
        model
    }

    fn at(&mut self, time: u64, event: Event) {
        debug_assert!(time >= self.now, "time does not go back");
        self.scheduled += 1;
        self.events.push(Reverse((time, self.scheduled, event)));
    }

    fn until(&mut self, end: u64) {
        while let Some(Reverse((time, ..))) = self.events.peek()
            && *time < end
            && let Some(Reverse((time, _, event))) = self.events.pop()
        {
            self.now = time;
            match event {
                Event::Line => {
                    self.line_is_busy = false;
                    self.use_line();
                }
                Event::Arrives { flow, count } => self.arrives(flow, count),
                Event::Done(worker) => self.ends_batch(worker),
                Event::Acknowledged { flow, count } => {
                    self.flows[flow].acknowledged(count);
                    self.has_room(flow);
                }
                Event::Lost { flow, count } => {
                    self.flows[flow].lost(count, self.now, self.setup.round_trip);
                    self.has_room(flow);
                }
            }
        }
        self.now = end;
    }

    /// A flow may send.
    fn has_room(&mut self, flow: usize) {
        let of = &mut self.flows[flow];
        if of.room() > 0 && !std::mem::replace(&mut of.is_ready, true) {
            self.ready.push_back(flow);
        }
        self.use_line();
    }

    /// The line has the next burst, if there is one and it is free.
    fn use_line(&mut self) {
        while !self.line_is_busy
            && let Some(number) = self.ready.pop_front()
        {
            let flow = &mut self.flows[number];
            let count = flow.room().min(BURST);
            flow.in_flight += count;
            flow.is_ready = flow.room() > 0;
            if flow.is_ready {
                self.ready.push_back(number);
            }
            if count == 0 {
                continue;
            }
            self.counts.sent += u64::from(count);
            let free = self.now + (f64::from(count) * WIRE_BYTES * 8.0 / self.setup.line) as u64;
            self.at(free + self.setup.round_trip / 2, Event::Arrives { flow: number, count });
            if free > self.now {
                self.line_is_busy = true;
                self.at(free, Event::Line);
            }
        }
    }

    fn arrives(&mut self, flow: usize, count: u32) {
        let number = self.flows[flow].queue;
        let worker = &mut self.workers[number];
        let fits = count.min(RING - worker.in_ring);
        if fits > 0 {
            worker.in_ring += fits;
            worker.ring.push_back(Burst { flow, count: fits, at: self.now });
        }
        if fits < count {
            let count = count - fits;
            self.counts.dropped += u64::from(count);
            // What comes behind it tells the sender.
            let told = self.now + self.setup.round_trip.max(SOONEST);
            self.at(told, Event::Lost { flow, count });
        }
        self.begin_batch(number);
    }

    fn begin_batch(&mut self, number: usize) {
        let Setup { costs, workers, .. } = self.setup;
        let each = costs.packet + if workers > 1 { costs.shared } else { 0.0 };
        let worker = &mut self.workers[number];
        if worker.is_busy {
            return;
        }
        let mut cost = 0.0;
        for burst in take(&mut worker.strays, BATCH) {
            cost += f64::from(burst.count) * (each + costs.stray / 2.0);
            worker.batch.push(burst);
        }
        for burst in take(&mut worker.ring, BATCH) {
            worker.in_ring -= burst.count;
            if self.flows[burst.flow].owner == number {
                cost += f64::from(burst.count) * each;
                worker.batch.push(burst);
            } else {
                cost += f64::from(burst.count) * costs.stray / 2.0;
                worker.passes_on.push(burst);
            }
        }
        if worker.batch.is_empty() && worker.passes_on.is_empty() {
            return;
        }
        let time = (cost as u64).max(1);
        worker.is_busy = true;
        worker.busy += time;
        self.at(self.now + time, Event::Done(number));
    }

    fn ends_batch(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        worker.is_busy = false;
        let (batch, passes_on) =
            (std::mem::take(&mut worker.batch), std::mem::take(&mut worker.passes_on));
        for Burst { flow, count, at } in batch {
            self.counts.done += u64::from(count);
            self.counts.waits.push((self.now - at, count));
            self.at(self.now + self.setup.round_trip / 2, Event::Acknowledged { flow, count });
        }
        for burst in passes_on {
            let owner = self.flows[burst.flow].owner;
            self.workers[owner].strays.push_back(burst);
            self.begin_batch(owner);
        }
        self.begin_batch(number);
    }

    /// Packets that are in flight, as the flows have it.
    #[cfg(test)]
    fn in_flight(&self) -> u64 {
        self.flows.iter().map(|flow| u64::from(flow.in_flight)).sum()
    }
}

/// So many packets of a queue's front at most.
fn take(queue: &mut VecDeque<Burst>, most: u32) -> Vec<Burst> {
    let mut left = most;
    let mut taken = Vec::new();
    while left > 0
        && let Some(first) = queue.front_mut()
    {
        let count = first.count.min(left);
        left -= count;
        taken.push(Burst { count, ..*first });
        first.count -= count;
        if first.count == 0 {
            queue.pop_front();
        }
    }
    taken
}
