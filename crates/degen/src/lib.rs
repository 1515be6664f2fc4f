//! degen: a WAN between two wires. Packets are delayed, lost, duplicated, corrupted, reordered and limited to
//! a rate, as on a path through the Internet (`rdma-over-ip` section 3, whose delay generator has this name).
//!
//! A [`Degen`] is one direction. Time comes in as a value and randomness as a seed: the same packets at the
//! same times give the same packets at the same times, whenever it is polled. So it runs between real wires
//! and in a simulator's virtual time alike.
//!
//! ```text
//!   arrive ── loss ── duplicate ── mark ── corrupt ── queue and rate ── delay ── reorder ── depart
//! ```
//!
//! Each element is a module of its own and can be used alone. Each draws from its own stream of random
//! numbers, and for each packet by the packet's number: the same packets are lost whatever the jitter, and
//! the same packets are duplicated whatever the loss.
//!
//! Differences to netem:
//!
//! - Nothing bounds the packets that are in flight but the memory that they lie in. `queue_packets`
//!   and `queue_bytes` bound those that wait for the rate; netem's `limit` counts all.
//! - A packet is carried at the rate first and delayed then. The link itself holds one packet, which
//!   does not count as waiting.
//! - Reordered packets come late, behind `reorder_distance` others; netem's come early, without delay.
//! - What is lost is not duplicated, and a copy is not lost: netem's copies go through all of it again.
//! - `gilbert_h` and `gilbert_k` are the probabilities to pass; netem asks for 1-h and 1-k.
//! - The normal and Pareto distributions have their tails; netem's tables end at 4 deviations.
//! - There are no correlations, no loss model of four states and no slots.
//!
//! ```
//! use degen::{Config, Degen, Heap};
//! let config = Config { delay: 5_000_000, ..Config::default() };
//! let mut wan = Degen::new(config, 1);
//! wan.arrive(vec![0; 60], 0, &mut Heap);
//! assert_eq!(wan.next_deadline(), Some(5_000_000));
//! assert!(wan.depart(4_999_999, &mut Heap).is_none());
//! let departure = wan.depart(6_000_000, &mut Heap).unwrap();
//! assert_eq!((departure.packet.len(), departure.due), (60, 5_000_000));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod codel;
mod config;
mod counters;
pub mod delay;
pub mod ecn;
mod hint;
mod invariants;
pub mod keys;
pub mod loss;
pub mod queue;
mod random;
pub mod reorder;
mod schedule;
mod value;

use alloc::vec::Vec;

pub use config::{Config, Discipline, Distribution, Probability};
pub use counters::Counters;
pub use random::Random;
pub use schedule::{Change, Schedule, ScheduleError, Step};
pub use value::ValueError;
pub use wire::Nanos;

use delay::Delay;
use loss::Loss;
use queue::{Left, Queue};
use reorder::{Hold, Reorder};
use schedule::Running;

/// The memory that packets lie in.
pub trait Frames<T> {
    /// The packet's bytes, from the Ethernet header on.
    fn bytes_mut<'a>(&'a mut self, packet: &'a mut T) -> &'a mut [u8];

    /// A copy of the packet; `None` if there is no memory.
    fn copy(&mut self, packet: &T) -> Option<T>;

    /// Takes back the memory of a packet that is dropped.
    fn discard(&mut self, packet: T);
}

/// Packets that own their memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

impl Frames<Vec<u8>> for Heap {
    fn bytes_mut<'a>(&'a mut self, packet: &'a mut Vec<u8>) -> &'a mut [u8] {
        packet
    }

    fn copy(&mut self, packet: &Vec<u8>) -> Option<Vec<u8>> {
        Some(packet.clone())
    }

    fn discard(&mut self, _packet: Vec<u8>) {}
}

/// A packet that has come out at the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departure<T> {
    /// The packet.
    pub packet: T,
    /// When it came out, in nanoseconds: no later than the time that was asked for.
    pub due: Nanos,
}

/// A packet and the place of its random numbers: twice its place among those that arrived, and one more for a
/// copy.
#[derive(Debug)]
struct Numbered<T> {
    packet: T,
    number: u64,
}

/// A packet in flight. Whether it is held back afterwards is decided already.
#[derive(Debug)]
struct Onward<T> {
    packet: T,
    hold: Option<Hold>,
}

/// One direction.
#[derive(Debug)]
pub struct Degen<T> {
    config: Config,
    schedule: Running,
    loss: Loss,
    duplicate: Random,
    corrupt: Random,
    corrupted_bit: Random,
    mark: Random,
    queue: Queue<Numbered<T>>,
    delay: Delay<Onward<T>>,
    reorder: Reorder<T>,
    counters: Counters,
    /// Time of the last arrival.
    arrived_at: Nanos,
    /// Time of the last departure.
    departed_at: Nanos,
    /// The latest time of any call: everything due by then is done.
    now: Nanos,
    /// Packets that were taken back, for [`invariants`].
    taken_back: u64,
}

impl<T> Degen<T> {
    /// A direction without packets. Each direction needs a `seed` of its own.
    pub fn new(config: Config, seed: u64) -> Self {
        Degen {
            config,
            schedule: Running::default(),
            loss: Loss::new(seed),
            duplicate: Random::stream(seed, 6),
            corrupt: Random::stream(seed, 7),
            corrupted_bit: Random::stream(seed, 8),
            mark: Random::stream(seed, 9),
            queue: Queue::default(),
            delay: Delay::new(seed),
            reorder: Reorder::new(seed),
            counters: Counters::default(),
            arrived_at: 0,
            departed_at: 0,
            now: 0,
            taken_back: 0,
        }
    }

    /// Begins a schedule at `now`. The one that it replaces is carried out up to the latest time of a call of
    /// [`arrive`](Self::arrive) or [`depart`](Self::depart).
    pub fn begin(&mut self, schedule: Schedule, now: Nanos) {
        self.schedule = Running::begin(schedule, now);
        while self.next_step().is_some() {
            self.step();
        }
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes a setting from the latest time on that [`arrive`](Self::arrive) or [`depart`](Self::depart)
    /// was called with. Packets in flight arrive when they were to.
    pub fn change(&mut self, change: Change) {
        change.apply(&mut self.config);
    }

    /// Counters since the direction was made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets that have arrived, and were neither dropped nor have departed.
    pub fn held(&self) -> usize {
        self.queue.len() + self.delay.len() + self.reorder.len()
    }

    /// A packet arrives at `at`, in nanoseconds. A time before that of an earlier packet counts as the same.
    ///
    /// Where `at` lies before a time that [`depart`](Self::depart) was called with, the packet is delayed
    /// from `at` all the same. But decisions made by then hold: steps of the schedule that were carried out,
    /// drops by CoDel, room in the queue, and departures, behind which the packet departs.
    pub fn arrive(&mut self, mut packet: T, at: Nanos, frames: &mut impl Frames<T>) {
        self.advance(at, frames);
        self.arrived_at = self.arrived_at.max(at);
        let number = self.counters.arrived * 2;
        self.counters.arrived += 1;
        self.counters.arrived_bytes += frames.bytes_mut(&mut packet).len() as u64;
        if self.loss.loses(number, &self.config) && !self.mark_instead(&mut packet, frames) {
            self.counters.lost += 1;
            return frames.discard(packet);
        }
        let copy = self.duplicate(number, &packet, frames);
        self.enqueue(Numbered { packet, number }, frames);
        if let Some(packet) = copy {
            self.enqueue(Numbered { packet, number: number + 1 }, frames);
        }
        self.debug_check();
    }

    /// The next packet that comes out by `now`. To be called until it returns `None`.
    pub fn depart(&mut self, now: Nanos, frames: &mut impl Frames<T>) -> Option<Departure<T>> {
        self.advance(now, frames);
        let (mut packet, due) = self.come_out(now)?;
        self.debug_check_departure(due, now);
        self.departed_at = due;
        self.counters.departed += 1;
        self.counters.departed_bytes += frames.bytes_mut(&mut packet).len() as u64;
        self.debug_check();
        Some(Departure { packet, due })
    }

    /// When to call [`depart`](Self::depart) next; `None` if nothing is held and no step of the schedule is
    /// left.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let inner = self.queue.next_deadline().into_iter().chain(self.schedule.next_deadline());
        inner.chain(self.delay.next_deadline()).chain(self.reorder.next_deadline()).min()
    }

    /// Takes back a packet that is held, whatever the time: for the end of a run.
    pub fn take_back(&mut self) -> Option<T> {
        let queued = self.queue.take().map(|queued| queued.packet);
        let delayed = |delay: &mut Delay<Onward<T>>| delay.take().map(|(onward, _)| onward.packet);
        let taken = queued.or_else(|| delayed(&mut self.delay)).or_else(|| self.reorder.take());
        self.taken_back += u64::from(taken.is_some());
        taken
    }

    /// Carries out the schedule and the queue up to `now`.
    fn advance(&mut self, now: Nanos, frames: &mut impl Frames<T>) {
        if now <= self.now {
            return;
        }
        self.now = now;
        while let Some(step) = self.next_step() {
            // What happens at the time of a step meets the new settings.
            if let Some(before) = step.checked_sub(1) {
                self.dequeue(before, frames);
            }
            self.step();
        }
        self.dequeue(self.now, frames);
    }

    /// When the next step of the schedule is due.
    fn next_step(&self) -> Option<Nanos> {
        self.schedule.next_deadline().filter(|at| *at <= self.now)
    }

    fn step(&mut self) {
        self.schedule.step(&mut self.config);
        let quiet = self.queue.next_deadline().unwrap_or(self.now).min(self.now);
        self.schedule.skip(quiet);
    }

    /// Sends what the link takes from the queue by `until`.
    fn dequeue(&mut self, until: Nanos, frames: &mut impl Frames<T>) {
        while let Some(left) = self.queue.pop(until, &self.config) {
            match left {
                Left::Sent { packet, at } => self.go_on(packet, at),
                Left::Drop { packet, len, at } => self.drop_or_mark(packet, len, at, frames),
            }
        }
    }

    fn drop_or_mark(
        &mut self,
        mut numbered: Numbered<T>,
        len: usize,
        at: Nanos,
        frames: &mut impl Frames<T>,
    ) {
        if self.mark_instead(&mut numbered.packet, frames) {
            let at = self.queue.marked(len, at, &self.config);
            self.go_on(numbered, at);
        } else {
            self.counters.codel_dropped += 1;
            frames.discard(numbered.packet);
        }
    }

    /// The link has carried a packet: its delay is drawn, and whether it is held back.
    fn go_on(&mut self, numbered: Numbered<T>, at: Nanos) {
        let Numbered { packet, number } = numbered;
        let hold = self.reorder.picks(number, &self.config);
        self.delay.push(Onward { packet, hold }, number, at, &self.config);
    }

    fn come_out(&mut self, now: Nanos) -> Option<(T, Nanos)> {
        loop {
            // A packet with an old stamp does not depart before one that has departed.
            let not_before = |due: Nanos| due.max(self.departed_at);
            let arrival = self.delay.next_deadline().map(not_before).filter(|due| *due <= now);
            // A packet that has waited for long enough by then goes first.
            if let Some((packet, due)) = self.reorder.pop(arrival.unwrap_or(now)) {
                return Some((packet, due.max(self.departed_at)));
            }
            let due = arrival?;
            let (Onward { packet, hold }, _) = self.delay.take()?;
            match self.reorder.pass(packet, hold, due) {
                Some(packet) => return Some((packet, due)),
                None => self.counters.reordered += 1,
            }
        }
    }

    fn duplicate(&mut self, number: u64, packet: &T, frames: &mut impl Frames<T>) -> Option<T> {
        if !self.duplicate.happens(number, self.config.duplicate) {
            return None;
        }
        let copy = frames.copy(packet);
        match copy {
            Some(_) => self.counters.duplicated += 1,
            None => self.counters.not_duplicated += 1,
        }
        copy
    }

    /// Puts the packet that arrived last, or its copy, into the queue, unless the link takes it at once.
    fn enqueue(&mut self, mut numbered: Numbered<T>, frames: &mut impl Frames<T>) {
        let Numbered { packet, number } = &mut numbered;
        let bytes = frames.bytes_mut(packet);
        let len = bytes.len();
        if self.mark.happens(*number, self.config.mark) && ecn::mark(bytes) {
            self.counters.marked += 1;
        }
        if len > 0 && self.corrupt.happens(*number, self.config.corrupt) {
            turn(bytes, self.corrupted_bit.below(*number, len as u64 * 8));
            self.counters.corrupted += 1;
        }
        if self.queue.passes(len, self.arrived_at, &self.config) {
            return self.go_on(numbered, self.arrived_at);
        }
        match self.queue.push(numbered, len, self.arrived_at, &self.config) {
            Ok(()) => self.dequeue(self.now, frames),
            Err(Numbered { packet, .. }) => {
                self.counters.queue_full += 1;
                frames.discard(packet);
            }
        }
    }

    /// Whether a packet that would be lost is marked instead.
    fn mark_instead(&mut self, packet: &mut T, frames: &mut impl Frames<T>) -> bool {
        let marked = self.config.ecn && ecn::mark(frames.bytes_mut(packet));
        self.counters.marked += u64::from(marked);
        marked
    }
}

/// Inverts one bit.
fn turn(bytes: &mut [u8], bit: u64) {
    bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
}
