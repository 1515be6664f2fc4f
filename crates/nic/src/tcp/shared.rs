//! What an endpoint's worker shares with the rest of the process.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sys::poll::EventFd;

use super::counters::{Counters, PortCounters};
use crate::counters::Entry;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Shared {
    wake: EventFd,
    stop: AtomicBool,
    published: Box<[AtomicU64]>,
}

impl Shared {
    /// With all counters zero.
    ///
    /// # Errors
    /// What `eventfd` says.
    pub(super) fn new() -> io::Result<Self> {
        let published = counters().iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Shared { wake: EventFd::new()?, stop: AtomicBool::new(false), published })
    }

    /// Asks the worker to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        // The one error is a counter about to overflow: then it is signalled already.
        let _ = self.wake.signal();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn wake(&self) -> &EventFd {
        &self.wake
    }

    /// Copies the worker's counters to where readers look. Each is whole; together they may be a packet
    /// apart.
    pub(super) fn publish(&self, entries: impl Iterator<Item = Entry>) {
        for (cell, entry) in self.published.iter().zip(entries) {
            cell.store(entry.value, Ordering::Relaxed);
        }
    }

    /// The counters as last published.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let value = |(entry, cell): (Entry, &AtomicU64)| Entry {
            value: cell.load(Ordering::Relaxed),
            ..entry
        };
        counters().into_iter().zip(&self.published).map(value).collect()
    }
}

/// All counters, none of which has counted anything.
pub(crate) fn counters() -> Vec<Entry> {
    let (own, port, network, engine) =
        <(Counters, PortCounters, iface::Counters, tcp::Counters)>::default();
    own.entries(&port, &network, &engine, &tcp::Memory::default()).collect()
}
