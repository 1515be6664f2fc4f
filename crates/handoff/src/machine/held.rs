//! Packets that wait while their connection moves.

use alloc::collections::VecDeque;

use super::SideCounts;

/// Most packets that a side holds for one connection.
pub const HELD_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Held<P>(VecDeque<P>);

impl<P> Default for Held<P> {
    fn default() -> Self {
        Held(VecDeque::new())
    }
}

impl<P> Held<P> {
    pub(super) fn push(&mut self, packet: P, counts: &mut SideCounts) {
        if self.0.len() >= HELD_MAX {
            counts.held_full += 1;
            return;
        }
        counts.held += 1;
        self.0.push_back(packet);
    }

    pub(super) fn pop(&mut self) -> Option<P> {
        self.0.pop_front()
    }

    pub(super) fn abandon(&mut self, counts: &mut SideCounts) {
        counts.abandoned += self.0.len() as u64;
        self.0.clear();
    }
}
