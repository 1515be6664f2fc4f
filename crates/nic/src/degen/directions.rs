//! Both directions, with frames of one pool.

use std::sync::Arc;

use degen::{Degen, Departure, Frames, Nanos, Random};
use sys::frames::{Frame, FramePool};

use super::handle::Handle;
use super::plain::{Plain, Unusable};
use super::settings::{Direction, Settings, any_seed};
use super::snapshot::{Late, Snapshot};
use crate::event_loop::Publication;
use crate::handle::Seen;
use crate::port::RxFrame;

/// A pool's frames, as degen handles them.
struct Pool<'a>(&'a mut FramePool);

impl Frames<Frame> for Pool<'_> {
    fn bytes_mut<'a>(&'a mut self, packet: &'a mut Frame) -> &'a mut [u8] {
        self.0.bytes_mut(packet)
    }

    fn copy(&mut self, packet: &Frame) -> Option<Frame> {
        self.0.copy(packet)
    }

    fn discard(&mut self, packet: Frame) {
        self.0.free(packet);
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Directions {
    handle: Arc<Handle>,
    seen: Seen,
    degens: [Degen<Frame>; 2],
    plain: Plain,
    unusable: [Unusable; 2],
    late: [Late; 2],
    publication: Publication,
}

impl Directions {
    /// Begins at `now`. The seed, where the settings have none, is any.
    pub(super) fn new(settings: &Settings, handle: Arc<Handle>, now: Nanos) -> Self {
        let seed = settings.seed.unwrap_or_else(any_seed);
        let way = |direction: Direction| {
            let number = direction as usize;
            let seed = Random::stream(seed, number as u64).next();
            let mut way = Degen::new(settings.configs[number].clone(), seed);
            way.begin(settings.schedules[number].clone(), now);
            way
        };
        Directions {
            seen: handle.state(),
            handle,
            degens: Direction::BOTH.map(way),
            plain: Plain::default(),
            unusable: Default::default(),
            late: Default::default(),
            publication: Publication::since(now),
        }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Takes up what was set since, and returns whether to go on.
    pub(super) fn goes_on(&mut self) -> bool {
        self.take_up_changes();
        !self.seen.is_stopped()
    }

    /// Takes up what was set since.
    pub(super) fn take_up_changes(&mut self) {
        if !self.handle.look(&mut self.seen) {
            return;
        }
        for (direction, change) in self.handle.take_changes() {
            self.degens[direction as usize].change(change);
        }
    }

    /// A packet comes in, whole or as a frame.
    pub(super) fn arrive(
        &mut self,
        direction: Direction,
        pool: &mut FramePool,
        received: RxFrame,
        overflow: &[u8],
        at: Nanos,
    ) {
        let way = &mut self.degens[direction as usize];
        let unusable = &mut self.unusable[direction as usize];
        self.plain.each(pool, received, overflow, unusable, |pool, frame| {
            way.arrive(frame, at, &mut Pool(pool));
        });
    }

    /// A frame comes in.
    pub(super) fn arrive_plain(
        &mut self,
        direction: Direction,
        pool: &mut FramePool,
        frame: Frame,
        at: Nanos,
    ) {
        self.degens[direction as usize].arrive(frame, at, &mut Pool(pool));
    }

    /// The next frame that has come out by `now`.
    pub(super) fn depart(
        &mut self,
        direction: Direction,
        pool: &mut FramePool,
        now: Nanos,
    ) -> Option<Frame> {
        let way = &mut self.degens[direction as usize];
        let Departure { packet, due } = way.depart(now, &mut Pool(pool))?;
        if way.config().sets_times() {
            self.late[direction as usize].count(due, now);
        }
        Some(packet)
    }

    /// When the next frame of a direction comes out, or something changes.
    pub(super) fn next_deadline_of(&self, direction: Direction) -> Option<Nanos> {
        self.degens[direction as usize].next_deadline()
    }

    /// Publishes what was counted, if it is time to, and returns whether it was.
    pub(super) fn publish_sometimes(&mut self, now: Nanos) -> bool {
        let due = self.publication.is_due(now);
        if due {
            self.publish();
        }
        due
    }

    /// Publishes what was counted.
    pub(super) fn publish(&self) {
        self.handle.publish(Snapshot {
            configs: [0, 1].map(|way| self.degens[way].config().clone()),
            counters: [0, 1].map(|way| *self.degens[way].counters()),
            held: [0, 1].map(|way| self.degens[way].held() as u64),
            late: self.late,
            refused: self.unusable.map(|unusable| unusable.refused),
            no_memory: self.unusable.map(|unusable| unusable.no_memory),
        });
    }

    /// Gives all memory back.
    pub(super) fn close(&mut self, pool: &FramePool) {
        for way in &mut self.degens {
            while let Some(frame) = way.take_back() {
                pool.free(frame);
            }
        }
    }
}
