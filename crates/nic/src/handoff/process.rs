//! A process with a session, as wharf has it: the memory that both map, and the eventfds by which they wake each
//! other.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use handoff::session::{Layout, Offsets};
use sys::shared::SharedMemory;
use sys::shared_event::{SharedEvent, prepare};

use crate::lane::handoff::link::{Process, shared};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct SharedProcess {
    offsets: Offsets,
    memory: SharedMemory,
    /// The process waits for it.
    wake: SharedEvent,
    /// Open for writing as long as somebody may put the process's connections back: wharf, or its guard.
    alive: PipeWriter,
    /// The other end, which the process has. `None` in a guard.
    seen: Option<PipeReader>,
    /// For each worker: it waits for it.
    doorbells: Vec<SharedEvent>,
}

impl SharedProcess {
    /// Makes memory of this layout for a process of this user.
    ///
    /// # Errors
    /// `InvalidInput` for a layout that no memory has; what memfd_create, eventfd, pipe and [`prepare`] say.
    pub(super) fn new(layout: Layout, user: u32) -> io::Result<Self> {
        let offsets = layout.offsets().map_err(|_| io::ErrorKind::InvalidInput)?;
        // Without it the process could never be woken.
        prepare()?;
        let event = |_| SharedEvent::new(user);
        let doorbells = (0..layout.workers).map(event).collect::<Result<_, _>>()?;
        let (seen, alive) = io::pipe()?;
        Ok(SharedProcess {
            offsets,
            memory: SharedMemory::new(c"wharf-handoff", layout.bytes())?,
            wake: SharedEvent::new(user)?,
            alive,
            seen: Some(seen),
            doorbells,
        })
    }

    /// The memory that another wharf has made, and what wakes its process: nothing is rung.
    ///
    /// # Errors
    /// `InvalidInput` if the memory is too small for the layout.
    pub(super) fn of_another(
        layout: Layout,
        memory: SharedMemory,
        wake: SharedEvent,
        alive: PipeWriter,
    ) -> io::Result<Self> {
        // Now, as it may be needed when there is nothing left to make it of.
        if let Err(error) = prepare() {
            tracing::warn!("a guard cannot wake programs: {error} (fs.aio-max-nr)");
        }
        let offsets = layout.offsets().ok().filter(|_| memory.words().len() >= layout.words());
        let offsets = offsets.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(SharedProcess { offsets, memory, wake, alive, seen: None, doorbells: Vec::new() })
    }

    /// What a guard is given: the memory, what wakes the process, and what stays open while there is a guard.
    pub(super) fn kept(&self) -> [BorrowedFd<'_>; 3] {
        [self.memory.as_fd(), self.wake.as_fd(), self.alive.as_fd()]
    }

    /// What the process is given: the memory, what it waits for, what hangs up when nobody is left who could put its
    /// connections back, and what it rings.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let first = [self.memory.as_fd(), self.wake.as_fd()];
        let seen = self.seen.as_ref().map(AsFd::as_fd);
        let bells = self.doorbells.iter().map(AsFd::as_fd);
        first.into_iter().chain(seen).chain(bells).collect()
    }

    /// Bytes that the rings of a connection take, as far as it is known: the process may say so as it likes.
    pub(super) fn room_of(&self, cid: handoff::Cid) -> usize {
        let area = shared(self).and_then(|shared| shared.area(cid));
        let rings = area.into_iter().flat_map(|area| [area.send(), area.receive()]);
        rings.flatten().map(|ring| ring.used()).sum()
    }

    /// The room that the rings of a connection take goes back to the operating system, unless the process is reading it
    /// where it lies: then it stays the process's until the connection's number is used anew.
    pub(super) fn give_back(&self, cid: handoff::Cid) {
        // Behind the end of the epoch; before its beginning the process says that it reads.
        fence(Ordering::SeqCst);
        let area = shared(self).and_then(|shared| shared.area(cid));
        if area.is_some_and(|area| area.readers().load(Ordering::Relaxed) != 0) {
            return;
        }
        let (offset, bytes) = self.offsets.layout().data_of(cid);
        if let Err(error) = self.memory.give_back(offset, bytes) {
            tracing::debug!("the memory of rings stays taken: {error}");
        }
    }
}

impl Process for SharedProcess {
    fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    fn wake(&self) {
        if let Err(error) = self.wake.signal() {
            tracing::debug!("a process is not woken: {error}");
        }
    }

    fn wake_waiters(&self, word: &AtomicU64) {
        sys::futex::wake_all(word);
    }

    fn doorbell(&self, worker: u32) -> Option<BorrowedFd<'_>> {
        self.doorbells.get(worker as usize).map(AsFd::as_fd)
    }
}
