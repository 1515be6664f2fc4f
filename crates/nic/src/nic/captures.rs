//! Captures of what passes a NIC's wire while it runs.

use std::sync::{Arc, Mutex, PoisonError};

use super::Nic;
use crate::capture::live::{Capture, Captures};
use crate::capture::{Captured, Wanted};
use crate::worker::Handle;

/// Captures at a time.
const MOST: usize = 4;

/// The captures that are under way.
#[derive(Clone, Debug)]
pub(crate) struct Registry(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    workers: Vec<Arc<Handle>>,
    all: Mutex<Vec<Arc<Capture>>>,
}

impl Registry {
    pub(super) fn new(workers: Vec<Arc<Handle>>) -> Self {
        Registry(Arc::new(Shared { workers, all: Mutex::default() }))
    }

    /// Changes which there are, and tells the workers.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Arc<Capture>>) -> T) -> T {
        let mut all = self.0.all.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut all);
        let captures = Captures::new(&all);
        self.0.workers.iter().for_each(|worker| worker.set_captures(&captures));
        result
    }
}

/// A capture that is under way until this is dropped.
#[derive(Debug)]
pub struct Capturing {
    registry: Registry,
    captured: Captured,
}

impl Capturing {
    /// Ends it: what was captured before can still be read.
    pub fn stop(&self) {
        let own = self.captured.capture();
        self.registry.change(|all| all.retain(|capture| !Arc::ptr_eq(capture, own)));
    }

    /// The packets.
    pub fn captured(&self) -> &Captured {
        &self.captured
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Nic {
    /// Captures what passes the wire from now on; `None` if so many capture already that nobody else may.
    pub fn capture(&self, wanted: Wanted) -> Option<Capturing> {
        let (capture, captured) = Capture::new(wanted);
        let begun = self.captures.change(|all| {
            let has_room = all.len() < MOST;
            all.extend(has_room.then_some(capture));
            has_room
        });
        begun.then(|| Capturing { registry: self.captures.clone(), captured })
    }
}
