//! The thread between two interfaces.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use degen::Nanos;
use sys::frames::{Frame, FramePool};
use sys::packet::BATCH;
use sys::poll::{Interest, PollSet};

use super::directions::Directions;
use super::settings::Direction;
use crate::port::{RxFrame, Wire};

/// To be woken takes less than this, but for one time in a hundred on a machine that is itself virtual:
/// a frame that is due sooner is waited for awake.
const WAKING: Nanos = 40_000;
/// How long the thread may go on without sleep, and how long it then sleeps at least: the kernel gives
/// real time 95 % of a CPU, and no frame is late by much more for it than it takes to be woken.
const AWAKE: Nanos = 150_000;
const REST: Duration = Duration::from_micros(9);
/// How long until it is seen again whether there is memory to receive into.
const RETRY_MEMORY: Nanos = 1_000_000;
/// What takes less than this was no sleep, in nanoseconds.
const SHORTEST: Nanos = 10_000;
/// All queues that AF_XDP serves of two interfaces, and the waker.
const SOURCES: usize = 2 * sys::xdp::QUEUES as usize + 1;
/// The kernel wakes at the time asked for or after.
const PUNCTUAL: Nanos = 1;

/// What the ports counted, a short while ago.
#[derive(Debug, Default)]
pub(super) struct Ports(Mutex<[PortCounters; 2]>);

/// Of one port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortCounters {
    /// Frames that the kernel dropped in front of the port.
    pub(super) dropped: u64,
    /// Frames that the interface would not take.
    pub(super) lost: u64,
}

impl Ports {
    pub(super) fn read(&self) -> [PortCounters; 2] {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, counters: [PortCounters; 2]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    }
}

/// One interface.
#[derive(Debug)]
struct Side<W> {
    /// A port for each of its queues. All that leaves does so by the first.
    wires: Vec<W>,
    /// Received, on the way into degen; empty between turns.
    received: VecDeque<(RxFrame, Option<Nanos>)>,
    /// A frame that has come out and that the interface had no room for.
    waiting: Option<Frame>,
    /// There was no memory to receive into.
    starved: bool,
}

/// The thread's work.
#[derive(Debug)]
pub(super) struct Forwarder<W> {
    directions: Directions,
    /// The first and the second interface.
    sides: [Side<W>; 2],
    /// The memory of all ports, so that no frame is copied.
    pool: FramePool,
    ports: Arc<Ports>,
    /// Whether it looks for frames instead of sleeping until they come or are due.
    awake: bool,
    /// When the thread last slept.
    awake_since: Nanos,
}

impl<W: Wire> Forwarder<W> {
    /// Between the ports of two interfaces, whose memory is `pool`.
    pub(super) fn new(
        directions: Directions,
        wires: [Vec<W>; 2],
        pool: FramePool,
        ports: Arc<Ports>,
        awake: bool,
    ) -> Self {
        let side = |wires: Vec<W>| Side {
            received: VecDeque::with_capacity(BATCH * wires.len()),
            wires,
            waiting: None,
            starved: false,
        };
        Forwarder { directions, sides: wires.map(side), pool, ports, awake, awake_since: 0 }
    }

    /// Carries frames until it is told to stop; in real time, if the caller is to be told first whether
    /// it may be.
    ///
    /// # Errors
    /// A port that has become useless.
    pub(super) fn run(mut self, in_real_time: Option<Sender<io::Result<()>>>) -> io::Result<()> {
        // The default would make every frame up to 50 us late.
        let _ = sys::process::set_timer_slack(PUNCTUAL);
        if let Some(say) = in_real_time {
            // The thread that started it waits for this.
            let _ = say.send(sys::process::run_in_real_time());
        }
        // It stays in real time, and needs no right to.
        let result = crate::threads::run("degen's thread", || self.forward());
        self.publish();
        self.directions.close(&self.pool);
        for wire in self.sides.into_iter().flat_map(|side| side.wires) {
            wire.close(&mut self.pool);
        }
        result
    }

    fn forward(&mut self) -> io::Result<()> {
        while self.directions.goes_on() {
            let mut worked = false;
            for direction in Direction::BOTH {
                worked |= self.receive(direction)?;
                worked |= self.transmit(direction)?;
            }
            if !worked {
                self.sleep()?;
            }
            self.rest();
            if self.directions.publish_sometimes(sys::clock::now()) {
                self.publish_ports();
            }
        }
        Ok(())
    }

    /// A burst from an interface into degen; returns whether there was one.
    fn receive(&mut self, direction: Direction) -> io::Result<bool> {
        let side = &mut self.sides[direction as usize];
        for wire in &mut side.wires {
            wire.receive_stamped(&mut self.pool, &mut side.received, BATCH)?;
        }
        let worked = !side.received.is_empty();
        let now = sys::clock::now();
        if let [_, _, ..] = side.wires[..] {
            // Several queues are read one after the other, and frames came as they came.
            side.received.make_contiguous().sort_by_key(|(_, stamp)| stamp.unwrap_or(now));
        }
        for (received, stamp) in side.received.drain(..) {
            // What overflows comes from AF_PACKET, which has a single port for all queues.
            let overflow = side.wires.first().map_or(&[][..], |wire| wire.overflow(&received));
            let at = stamp.map_or(now, |stamp| stamp.min(now));
            self.directions.arrive(direction, &mut self.pool, received, overflow, at);
        }
        side.starved = !worked && self.pool.available() == 0;
        Ok(worked)
    }

    /// What is due, out of the other interface; returns whether there was anything.
    fn transmit(&mut self, direction: Direction) -> io::Result<bool> {
        let Side { wires, waiting, .. } = &mut self.sides[1 - direction as usize];
        let Some(wire) = wires.first_mut() else { return Ok(false) };
        let mut worked = false;
        // Whatever falls due meanwhile is for the next turn.
        let now = sys::clock::now();
        let due = |directions: &mut Directions, pool: &mut FramePool| {
            directions.depart(direction, pool, now)
        };
        while let Some(frame) = waiting.take().or_else(|| due(&mut self.directions, &mut self.pool))
        {
            if let Err(frame) = wire.send_frame(&mut self.pool, frame) {
                *waiting = Some(frame);
                break;
            }
            worked = true;
        }
        wire.flush(&mut self.pool)?;
        Ok(worked)
    }

    /// Lets others have the CPU for a moment every now and then: the kernel would stop a real-time
    /// thread that never sleeps for 50 ms in each second (sched(7), `sched_rt_runtime_us`).
    fn rest(&mut self) {
        if sys::clock::now().saturating_sub(self.awake_since) > AWAKE {
            std::thread::sleep(REST);
            self.awake_since = sys::clock::now();
        }
    }

    /// When the next frame comes out, or something changes. What comes out behind a frame that waits
    /// for its interface has to wait as well.
    fn next_deadline(&self) -> Option<Nanos> {
        let moves = |direction: &Direction| self.sides[1 - *direction as usize].waiting.is_none();
        let moving = Direction::BOTH.into_iter().filter(moves);
        moving.filter_map(|direction| self.directions.next_deadline_of(direction)).min()
    }

    /// Until a frame arrives or is nearly due.
    fn sleep(&mut self) -> io::Result<()> {
        let now = sys::clock::now();
        let due = self.next_deadline().map(|due| due.saturating_sub(now));
        if due.is_some_and(|due| due < WAKING) {
            std::hint::spin_loop();
            return Ok(());
        }
        self.publish();
        let due = if self.awake { Some(0) } else { due.map(|due| due - WAKING) };
        let ports: usize = self.sides.iter().map(|side| side.wires.len()).sum();
        // The set is written anew for each sleep, and few interfaces have so many queues.
        match ports < sys::poll::CAPACITY {
            true => self.wait::<{ sys::poll::CAPACITY }>(due)?,
            false => self.wait::<SOURCES>(due)?,
        }
        // If something was there already, it was no sleep.
        let awake = sys::clock::now();
        if awake.saturating_sub(now) > SHORTEST {
            self.awake_since = awake;
        }
        Ok(())
    }

    /// Until a port or the waker is ready, or for so long; `N` is one more than there are ports at
    /// least.
    fn wait<const N: usize>(&mut self, due: Option<Nanos>) -> io::Result<()> {
        let mut set = PollSet::<N>::empty();
        let waker = set.add(self.directions.handle().waker().as_fd(), Interest::Read)?;
        let mut retry = None;
        for side in &mut self.sides {
            // What cannot be received would wake the thread again at once.
            let memory = side.starved.then_some(RETRY_MEMORY);
            for wire in &mut side.wires {
                let pending = side.waiting.is_some() || wire.is_pending();
                let again = wire.retry_after().filter(|_| pending);
                retry = retry.into_iter().chain(again).chain(memory).min();
                let interest = match (!side.starved, pending && again.is_none()) {
                    (true, true) => Interest::ReadWrite,
                    (true, false) => Interest::Read,
                    (false, true) => Interest::Write,
                    (false, false) => continue,
                };
                if let Some(fd) = wire.fd() {
                    set.add(fd, interest)?;
                }
            }
        }
        set.wait(due.into_iter().chain(retry).min())?;
        if set.readable(waker) {
            self.directions.handle().waker().drain()?;
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.directions.publish();
        self.publish_ports();
    }

    fn publish_ports(&mut self) {
        let [first, second] = &mut self.sides;
        let counters = |side: &mut Side<W>| {
            let each = side.wires.iter_mut().map(W::counters);
            each.fold(PortCounters::default(), |sum, wire| PortCounters {
                dropped: sum.dropped + wire.dropped,
                lost: sum.lost + wire.lost,
            })
        };
        self.ports.publish([counters(first), counters(second)]);
    }
}
