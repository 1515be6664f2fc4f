//! The connections that wait for a time, the earliest first. A deadline that moves back is not moved
//! here before it comes: in a transfer that goes well nothing is done.
//!
//! Acknowledgments that are held back come and go with every second segment, and all wait equally long:
//! they stand in line, which costs less than a place in a heap.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::Nanos;
use crate::connection::{Connection, NEVER};

const NOWHERE: u32 = u32::MAX;

/// A binary heap in which every slot stands once at most.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: Vec<(Nanos, u32)>,
    /// Where each slot stands.
    places: Vec<u32>,
    /// Acknowledgments that are held back, in the order of their times.
    acks: VecDeque<(Nanos, u32)>,
}

impl Deadlines {
    /// When the first one is due.
    pub(super) fn next(&self) -> Option<Nanos> {
        let timer = self.heap.first().map(|&(at, _)| at);
        let ack = self.acks.front().map(|&(at, _)| at);
        match (timer, ack) {
            (Some(timer), Some(ack)) => Some(timer.min(ack)),
            (one, other) => one.or(other),
        }
    }

    /// An acknowledgment of `slot` is held back until `at`. Returns whether it stands in line now; if not,
    /// others there wait for longer.
    #[inline]
    pub(super) fn queue_ack(&mut self, slot: u32, at: Nanos) -> bool {
        let fits = self.acks.back().is_none_or(|&(last, _)| last <= at);
        if fits {
            self.acks.push_back((at, slot));
        }
        fits
    }

    /// Removes those at the head of the line that are gone, so that no timer runs for them.
    pub(super) fn forget_acks(&mut self, is_gone: impl Fn(u32) -> bool) {
        while self.acks.front().is_some_and(|&(_, slot)| is_gone(slot)) {
            self.acks.pop_front();
        }
    }

    /// The slot that stands so many places from the head of the line.
    pub(super) fn ack_ahead(&self, places: usize) -> Option<u32> {
        self.acks.get(places).map(|&(_, slot)| slot)
    }

    /// Removes and returns the next in line, if it is due at `now`.
    pub(super) fn due_ack(&mut self, now: Nanos) -> Option<u32> {
        self.acks.front().filter(|&&(at, _)| at <= now)?;
        self.acks.pop_front().map(|(_, slot)| slot)
    }

    /// The first slot, if it is due at `now`.
    pub(super) fn due(&self, now: Nanos) -> Option<u32> {
        self.heap.first().filter(|&&(at, _)| at <= now).map(|&(_, slot)| slot)
    }

    /// Makes `slot` due at `at`, unless it is due earlier already.
    #[inline]
    pub(super) fn at_most(&mut self, slot: u32, at: Nanos) {
        if at == NEVER {
            return;
        }
        match self.places.get(slot as usize).copied() {
            Some(place) if place != NOWHERE => {
                if at < self.heap[place as usize].0 {
                    self.heap[place as usize].0 = at;
                    self.up(place as usize);
                }
            }
            _ => self.insert(slot, at),
        }
    }

    fn insert(&mut self, slot: u32, at: Nanos) {
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, NOWHERE);
        }
        self.heap.push((at, slot));
        self.places[slot as usize] = self.heap.len() as u32 - 1;
        self.up(self.heap.len() - 1);
    }

    /// Takes `slot` out.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(place) = self.places.get(slot as usize).copied().filter(|&at| at != NOWHERE)
        else {
            return;
        };
        let place = place as usize;
        self.places[slot as usize] = NOWHERE;
        self.heap.swap_remove(place);
        if let Some(&(_, moved)) = self.heap.get(place) {
            self.places[moved as usize] = place as u32;
            self.up(place);
            self.down(place);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a].1 as usize] = a as u32;
        self.places[self.heap[b].1 as usize] = b as u32;
    }

    fn up(&mut self, mut at: usize) {
        while at > 0 && self.heap[at].0 < self.heap[(at - 1) / 2].0 {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if child < self.heap.len() && self.heap[child].0 < self.heap[least].0 {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

impl Connection {
    /// Puts its next deadline into the heap.
    pub(super) fn arm(&mut self, slot: u32, deadlines: &mut Deadlines) {
        let deadline = self.retransmit_deadline.min(self.slow_deadline);
        if deadline < self.armed {
            self.armed = deadline;
            deadlines.at_most(slot, deadline);
        }
        self.arm_ack(slot, deadlines);
    }

    /// Puts its delayed acknowledgment into the line.
    #[inline]
    pub(super) fn arm_ack(&mut self, slot: u32, deadlines: &mut Deadlines) {
        let at = self.hot.ack_deadline;
        if at >= self.armed || self.hot.bits.ack_queued() {
            return;
        }
        if deadlines.queue_ack(slot, at) {
            self.hot.bits.set_ack_queued(true);
        } else {
            self.armed = at;
            deadlines.at_most(slot, at);
        }
    }
}
