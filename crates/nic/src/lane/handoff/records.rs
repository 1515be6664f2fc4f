//! What outlives the NIC: a record of each connection, in memory that the guard has, too. Its bytes are in its rings.
//!
//! What a segment or a ring reveals is committed before: see [`Records::commit`].

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use handoff::mirror::{Closing, Kept, Memory, Moving, Writer};
use handoff::ring::{BadSize, receive, send};
use handoff::session::Area;
use handoff::{Cid, Epoch, mirror};
use sys::shared::SharedMemory;
use tcp::repair::Repair;
use tcp::{Snapshot, Standing};
use wire::{Nanos, Seq};

/// The memory of NIC and guard.
#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    memory: Arc<SharedMemory>,
    places: usize,
}

impl Mirror {
    /// For so many connections.
    ///
    /// # Errors
    /// What memfd_create and mmap say.
    pub(crate) fn new(connections: u32) -> std::io::Result<Self> {
        let words = Memory::words(connections as usize);
        let memory = SharedMemory::new(c"wharf-mirror", words * size_of::<u64>())?;
        Ok(Mirror { memory: Arc::new(memory), places: connections as usize })
    }

    /// Its parts.
    pub(crate) fn memory(&self) -> Memory<'_> {
        Memory::new(self.words(), self.places)
    }

    /// Its descriptor.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// All of it.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }
}

/// The record of one connection, as the NIC has it.
#[derive(Debug, Default)]
pub(super) struct Keeps {
    place: u32,
    /// `None` before the NIC has the connection, and when that has ended.
    record: Option<Kept>,
}

impl Keeps {
    pub(super) fn at(place: u32) -> Self {
        Keeps { place, record: None }
    }
}

/// The NIC's side of all of them.
#[derive(Debug)]
pub(super) struct Records {
    mirror: Mirror,
    /// Called before and after each commit.
    #[cfg(test)]
    pub(super) fault: Option<fault::Fault>,
}

impl Records {
    pub(super) fn new(mirror: Mirror) -> Self {
        Records {
            mirror,
            #[cfg(test)]
            fault: None,
        }
    }

    /// Goes on with the record that the OS side has begun of a connection. Returns whether there is one.
    pub(super) fn begin(&mut self, keeps: &mut Keeps) -> bool {
        let area = self.mirror.memory().record(keeps.place);
        keeps.record = area.and_then(Writer::resume).and_then(|writer| writer.keep());
        keeps.record.is_some()
    }

    /// Commits where a connection stands. When this returns, packets that reveal it may leave; what the peer has
    /// acknowledged may be overwritten, and what it has sent may be shown.
    // A function of its own in a profile: what this takes of the engine's time is one of our figures.
    #[inline(never)]
    pub(super) fn commit(&mut self, keeps: &mut Keeps, standing: &Standing, closing: Closing) {
        let Some(kept) = keeps.record else { return };
        let Some(area) = self.mirror.memory().record(keeps.place) else { return };
        #[cfg(test)]
        self.fault.iter_mut().for_each(|fault| fault.0());
        let mut writer = Writer::go_on(area, kept);
        let moving = Moving::standing(standing, closing);
        if writer.last() != Some(&moving) {
            writer.commit(&moving);
            keeps.record = writer.keep();
            #[cfg(test)]
            self.fault.iter_mut().for_each(|fault| fault.0());
        }
    }

    /// The connection has ended at the NIC: nothing is to be put back.
    pub(super) fn end(&mut self, keeps: &mut Keeps) {
        if keeps.record.take().is_some()
            && let Some(area) = self.mirror.memory().record(keeps.place)
        {
            mirror::erase(area);
        }
    }
}

/// Sequence numbers of the first byte that is not acknowledged, and of the first that is not read. They are the indices
/// at which the rings begin: index and sequence number are the same throughout.
pub(crate) fn first_of(state: &Repair) -> (Seq, Seq) {
    use tcp::State::{CloseWait, Closing, LastAck};
    let back = |seq: Seq, bytes: u32| seq + 0_u32.wrapping_sub(bytes);
    let fin = u32::from(matches!(state.state, CloseWait | Closing | LastAck));
    let sent = back(state.write_seq, state.unacknowledged);
    (sent, back(state.rcv_nxt, fin + state.recv_queue.len() as u32))
}

/// Bytes that are not read or that the peer may send.
pub(super) fn window_of(state: &Repair) -> u32 {
    state.window.rcv_wnd.saturating_add(state.recv_queue.len() as u32)
}

/// One in so many places is to be free for the next connections, and so many at most; one at least.
const SPARE: usize = 16;
const SPARE_MOST: usize = 64;

/// The OS side's part: the record of a connection that it takes out of the kernel, and its rings.
#[derive(Debug)]
pub(crate) struct Beginnings {
    mirror: Mirror,
    free: Vec<u32>,
}

impl Beginnings {
    pub(crate) fn new(mirror: Mirror) -> Self {
        let free = (0..mirror.memory().places()).rev().collect();
        Beginnings { mirror, free }
    }

    /// A place for a connection's record.
    pub(crate) fn take_place(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Whether so few places are left, and of so many more that are free soon, that one is to be made free before there is
    /// none.
    pub(crate) fn is_short(&self, soon: usize) -> bool {
        self.free.len() + soon < (self.mirror.places / SPARE).clamp(1, SPARE_MOST)
    }

    /// The place is free again.
    pub(crate) fn give_place(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Puts the queues of a connection into its rings, which a worker serves, and writes a record of it, in the state in
    /// which the kernel had it.
    ///
    /// # Errors
    /// If the rings do not hold that much.
    pub(crate) fn write(
        &mut self,
        place: u32,
        (cid, epoch): (Cid, Epoch),
        (worker, rings): (u32, &Area<'_>),
        state: &Repair,
        monotonic: Nanos,
    ) -> Result<(), BadSize> {
        let (sent, unread) = first_of(state);
        let (send, receive) = (rings.send()?, rings.receive()?);
        // Neither is opened if one of them does not do.
        if state.recv_queue.len() > receive.capacity() as usize {
            return Err(BadSize);
        }
        // Before they are open: who writes into them tells this worker.
        rings.worker().store(worker.into(), Ordering::Relaxed);
        send::Nic::open(send, epoch, sent.0, &state.send_queue)?;
        let window = window_of(state);
        receive::Nic::open(receive, epoch, unread.0, &state.recv_queue, window)?;
        if let (Some(area), Ok(snapshot)) =
            (self.mirror.memory().record(place), Snapshot::from_repair(state))
        {
            let agreed = mirror::Agreed::of(&snapshot, cid, epoch, monotonic);
            Writer::begin(area, &agreed).commit(&Moving::of(&snapshot));
        }
        Ok(())
    }

    /// The connection is the kernel's again, or has ended.
    pub(crate) fn erase(&self, place: u32) {
        if let Some(area) = self.mirror.memory().record(place) {
            mirror::erase(area);
        }
    }
}

#[cfg(test)]
pub(super) mod fault {
    /// What a test does before and after a commit.
    pub(in crate::lane::handoff) struct Fault(pub(in crate::lane::handoff) Box<dyn FnMut() + Send>);

    impl std::fmt::Debug for Fault {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Fault")
        }
    }
}
