//! degen: a WAN between two wires. Packets are delayed, lost, doubled, damaged, reordered and slowed
//! down, as on a path through the Internet (`rdma-over-ip` section 3, whose delay generator has this
//! name).
//!
//! A [`Degen`] is one direction. Time comes in as a value and chance as a seed: the same packets at
//! the same times leave the same packets at the same times, whenever it is asked. So it runs between
//! real wires and in a simulator's virtual time alike.
//!
//! ```text
//!   arrive ── loss ── duplicate ── mark ── corrupt ── queue and rate ── delay ── reorder ── depart
//! ```
//!
//! Each element is a module of its own and can be used alone. Each draws from its own stream of
//! random numbers, so the packets lost are the same ones whatever the jitter.
//!
//! ```
//! use degen::{Config, Degen, Heap};
//! let config = Config { delay: 5_000_000, ..Config::default() };
//! let mut way = Degen::new(config, 1);
//! way.arrive(vec![0; 60], 0, &mut Heap);
//! assert_eq!(way.next_deadline(), Some(5_000_000));
//! assert!(way.depart(4_999_999, &mut Heap).is_none());
//! let departure = way.depart(6_000_000, &mut Heap).unwrap();
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

use delay::Delay;
use loss::Loss;
use queue::{Left, Queue};
use reorder::Reorder;
use schedule::Running;

/// Nanoseconds of any clock that does not step back.
pub type Nanos = u64;

/// The memory that packets lie in.
pub trait Frames<T> {
    /// The packet's bytes, from the Ethernet header on.
    fn bytes_mut<'a>(&'a mut self, packet: &'a mut T) -> &'a mut [u8];

    /// Another packet of the same bytes; `None` if there is no memory.
    fn copy(&mut self, packet: &T) -> Option<T>;

    /// The packet goes no further.
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
    /// When it was to come out: at the time asked for, or before.
    pub due: Nanos,
}

/// Packets that are ready whatever the time: they came out at `due`.
type Ready<T> = Option<Departure<T>>;

/// One direction.
#[derive(Debug)]
pub struct Degen<T> {
    config: Config,
    schedule: Running,
    loss: Loss,
    duplicate: Random,
    corrupt: Random,
    mark: Random,
    queue: Queue<T>,
    delay: Delay<T>,
    reorder: Reorder<T>,
    counters: Counters,
    /// When the last packet came by the others that step aside.
    passed_at: Nanos,
    /// The latest time that it knows of.
    now: Nanos,
}

impl<T> Degen<T> {
    /// A direction without packets. Each direction wants a `seed` of its own.
    pub fn new(config: Config, seed: u64) -> Self {
        Degen {
            config,
            schedule: Running::default(),
            loss: Loss::new(seed),
            duplicate: Random::stream(seed, 5),
            corrupt: Random::stream(seed, 6),
            mark: Random::stream(seed, 7),
            queue: Queue::default(),
            delay: Delay::new(seed),
            reorder: Reorder::new(seed),
            counters: Counters::default(),
            passed_at: 0,
            now: 0,
        }
    }

    /// Begins a schedule at `now`, in place of another.
    pub fn begin(&mut self, schedule: Schedule, now: Nanos) {
        self.schedule = Running::begin(schedule, now);
    }

    /// What is in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes what is done to packets from now on. Those under way arrive when they were to.
    pub fn change(&mut self, change: Change) {
        change.apply(&mut self.config);
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets that are neither through nor dropped.
    pub fn held(&self) -> usize {
        self.queue.len() + self.delay.len() + self.reorder.len()
    }

    /// A packet comes in, at `at`. Times that lie before those of earlier packets count as the same.
    pub fn arrive(&mut self, mut packet: T, at: Nanos, frames: &mut impl Frames<T>) {
        self.advance(at, frames);
        let now = self.now;
        self.counters.arrived += 1;
        self.counters.arrived_bytes += frames.bytes_mut(&mut packet).len() as u64;
        if self.loss.loses(&self.config) && !self.mark_instead(&mut packet, frames) {
            self.counters.lost += 1;
            return frames.discard(packet);
        }
        let copy = self.duplicate(&packet, frames);
        for packet in [Some(packet), copy].into_iter().flatten() {
            self.enqueue(packet, now, frames);
        }
        self.advance(now, frames);
    }

    /// The next packet that has come out by `now`; to be asked until there is none.
    pub fn depart(&mut self, now: Nanos, frames: &mut impl Frames<T>) -> Ready<T> {
        let Departure { mut packet, due } = self.come_out(now, frames)?;
        self.counters.departed += 1;
        self.counters.departed_bytes += frames.bytes_mut(&mut packet).len() as u64;
        Some(Departure { packet, due })
    }

    /// When to ask next; `None` if nothing is held and nothing is to change.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let inner = self.queue.next_deadline().into_iter().chain(self.schedule.next_deadline());
        inner.chain(self.delay.next_deadline()).chain(self.reorder.next_deadline()).min()
    }

    /// Takes back a packet that is held, whatever the time; for the end.
    pub fn take_back(&mut self) -> Option<T> {
        let under_way = |delay: &mut Delay<T>| delay.take().map(|(packet, _)| packet);
        let queued = self.queue.take().or_else(|| under_way(&mut self.delay));
        queued.or_else(|| self.reorder.take())
    }

    /// Lets time pass in the schedule and in the queue, whose packets set out.
    fn advance(&mut self, now: Nanos, frames: &mut impl Frames<T>) {
        self.now = self.now.max(now);
        loop {
            let change = self.schedule.next_deadline().filter(|at| *at <= self.now);
            let until = change.unwrap_or(self.now);
            while let Some(left) = self.queue.pop(until, &self.config) {
                self.set_out(left, frames);
            }
            if change.is_none() {
                return;
            }
            self.schedule.step(&mut self.config);
        }
    }

    /// The queue has let go of a packet.
    fn set_out(&mut self, left: Left<T>, frames: &mut impl Frames<T>) {
        match left {
            Left::Sent { packet, at } => self.delay.push(packet, at, &self.config),
            Left::Condemned { mut packet, len, at } => {
                if self.mark_instead(&mut packet, frames) {
                    let at = self.queue.spared(len, at, &self.config);
                    self.delay.push(packet, at, &self.config);
                } else {
                    self.counters.codel_dropped += 1;
                    frames.discard(packet);
                }
            }
        }
    }

    fn come_out(&mut self, now: Nanos, frames: &mut impl Frames<T>) -> Ready<T> {
        self.advance(now, frames);
        loop {
            if let Some(packet) = self.reorder.pop_passed() {
                return Some(Departure { packet, due: self.passed_at });
            }
            let arrival = self.delay.next_deadline().filter(|due| *due <= now);
            // Whoever has waited long enough by then goes first.
            if let Some((packet, due)) = self.reorder.pop_waited(arrival.unwrap_or(now)) {
                return Some(Departure { packet, due });
            }
            let (packet, due) = self.delay.pop(now)?;
            self.passed_at = due;
            match self.reorder.pass(packet, due, &self.config) {
                Some(packet) => return Some(Departure { packet, due }),
                None => self.counters.reordered += 1,
            }
        }
    }

    fn duplicate(&mut self, packet: &T, frames: &mut impl Frames<T>) -> Option<T> {
        if !self.duplicate.happens(self.config.duplicate) {
            return None;
        }
        let copy = frames.copy(packet);
        match copy {
            Some(_) => self.counters.duplicated += 1,
            None => self.counters.not_duplicated += 1,
        }
        copy
    }

    fn enqueue(&mut self, mut packet: T, now: Nanos, frames: &mut impl Frames<T>) {
        let corrupt = self.corrupt.happens(self.config.corrupt);
        let bit = self.corrupt.next();
        let mark = self.mark.happens(self.config.mark);
        let bytes = frames.bytes_mut(&mut packet);
        let len = bytes.len();
        if mark && ecn::mark(bytes) {
            self.counters.marked += 1;
        }
        if corrupt && len > 0 {
            turn(bytes, bit);
            self.counters.corrupted += 1;
        }
        if let Err(packet) = self.queue.push(packet, len, now, &self.config) {
            self.counters.queue_full += 1;
            frames.discard(packet);
        }
    }

    /// Is a packet that would be lost marked instead?
    fn mark_instead(&mut self, packet: &mut T, frames: &mut impl Frames<T>) -> bool {
        let marked = self.config.ecn && ecn::mark(frames.bytes_mut(packet));
        self.counters.marked += u64::from(marked);
        marked
    }
}

/// Turns one bit, which `random` chooses.
fn turn(bytes: &mut [u8], random: u64) {
    let bits = bytes.len() as u64 * 8;
    let bit = ((u128::from(random) * u128::from(bits)) >> 64) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
}
