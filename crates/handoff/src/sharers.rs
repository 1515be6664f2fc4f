//! Which processes have a connection: fork(2) gives it to the child, too. The NIC runs only what one process has, as two
//! would share its rings.
//!
//! A connection that was there when its process forked has an [`Entry`] in memory that parent and children share. A
//! process leaves the entry when it closes the connection, and is taken out of it when it has ended.

use core::sync::atomic::{AtomicU32, Ordering};

/// Processes that can have one connection. With more it stays with the kernel until these have left it.
pub const PROCESSES: usize = 15;

/// The processes that have one connection. Zeroed memory is a free one, which no connection has.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Entry {
    /// Children that were forked and have not joined it yet.
    coming: AtomicU32,
    /// Their numbers, or 0.
    processes: [AtomicU32; PROCESSES],
}

impl Entry {
    /// One that no connection has.
    pub const fn new() -> Self {
        Entry { coming: AtomicU32::new(0), processes: [const { AtomicU32::new(0) }; PROCESSES] }
    }

    /// Whether no connection has it.
    pub fn is_free(&self) -> bool {
        let nobody = |process: &AtomicU32| process.load(Ordering::Acquire) == 0;
        self.coming.load(Ordering::Acquire) == 0 && self.processes.iter().all(nobody)
    }

    /// A connection of this process takes the entry, if it is free, and a child is expected.
    pub fn take(&self, own: u32, has_ended: impl Fn(u32) -> bool) -> bool {
        let is_taken = self.is_free()
            // Another process may take it: who has changed the count has it.
            && self.coming.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Acquire).is_ok();
        is_taken && self.add(own, has_ended)
    }

    /// The process that has the connection is about to fork. Where the fork fails, the child is expected for ever, and
    /// the connection stays with the kernel.
    pub fn expect(&self) {
        self.coming.fetch_add(1, Ordering::SeqCst);
    }

    /// The fork has failed: no child comes.
    pub fn give_up(&self) {
        self.coming.fetch_sub(1, Ordering::AcqRel);
    }

    /// The child has the connection, too. One that finds no place is expected for ever.
    pub fn join(&self, own: u32, has_ended: impl Fn(u32) -> bool) {
        if self.add(own, has_ended) {
            self.coming.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The process has the connection no more. Returns whether it had it.
    pub fn leave(&self, own: u32) -> bool {
        let has_left = |place: &AtomicU32| {
            place.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        self.processes.iter().any(has_left)
    }

    /// One more process has it. Returns false if there is no place for it.
    pub fn add(&self, process: u32, has_ended: impl Fn(u32) -> bool) -> bool {
        self.evict(has_ended);
        let is_placed = |place: &AtomicU32| {
            place.compare_exchange(0, process, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        self.processes.iter().any(is_placed)
    }

    /// Whether no process but this one has it, or is about to.
    pub fn is_alone(&self, own: u32, has_ended: impl Fn(u32) -> bool) -> bool {
        if self.coming.load(Ordering::SeqCst) != 0 {
            return false;
        }
        self.evict(has_ended);
        self.processes.iter().all(|place| [0, own].contains(&place.load(Ordering::Acquire)))
    }

    /// Takes out the processes that have ended.
    fn evict(&self, has_ended: impl Fn(u32) -> bool) {
        for place in &self.processes {
            let process = place.load(Ordering::Acquire);
            if process != 0 && has_ended(process) {
                // Unless it has left by itself.
                let _ = place.compare_exchange(process, 0, Ordering::AcqRel, Ordering::Acquire);
            }
        }
    }
}

impl Default for Entry {
    fn default() -> Self {
        Entry::new()
    }
}
