//! Connections that the kernel has no memory for (`tcp_mem` in tcp(7)). They wait, as a connection of the kernel's own does
//! that can neither send nor receive: their packets are held, and their applications' calls.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::lane::handoff::link::Key;

/// How often it is tried again: memory is freed as applications read and peers acknowledge.
pub(super) const AGAIN: Duration = Duration::from_millis(10);
/// How often an operator is told at most.
const TELL: Duration = Duration::from_secs(60);

/// Those that wait, the first first.
#[derive(Debug, Default)]
pub(super) struct NoMemory {
    all: VecDeque<Key>,
    tried: Option<Instant>,
    told: Option<Instant>,
}

impl NoMemory {
    /// One more.
    pub(super) fn add(&mut self, key: Key) {
        self.all.push_back(key);
        if self.told.is_none_or(|told| told.elapsed() > TELL) {
            self.told = Some(Instant::now());
            tracing::warn!(
                "the kernel has no memory for connections that are to go back: they wait (net.ipv4.tcp_mem says \
                 how much it has)"
            );
        }
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that it is to be tried with again now, until there is no memory for one: that one waits again, and the
    /// rest are to be given back.
    pub(super) fn due(&mut self) -> VecDeque<Key> {
        if self.all.is_empty() || self.tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
            return VecDeque::new();
        }
        self.tried = Some(Instant::now());
        std::mem::take(&mut self.all)
    }

    /// These have not been tried: they are before the one that was. The program of that may keep its socket without room.
    pub(super) fn give_back(&mut self, mut rest: VecDeque<Key>) {
        rest.append(&mut self.all);
        self.all = rest;
    }
}
