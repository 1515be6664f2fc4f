//! What outlives the NIC: a record of each connection, and its bytes that are in no ring, in memory that the guard has,
//! too.
//!
//! What a segment or a ring reveals is committed before: see [`Records::commit`].

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use handoff::mirror::{Closing, Kept, Memory, Moving, Writer};
use handoff::spill::{Direction, Log, Owner, Spill};
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
    /// For so many connections, and as many bytes in no ring, on each side.
    ///
    /// # Errors
    /// What memfd_create and mmap say.
    pub(crate) fn new(connections: u32, bytes: u64) -> std::io::Result<Self> {
        let chunks = usize::try_from(bytes).unwrap_or(usize::MAX) / handoff::spill::CHUNK;
        let words = Memory::words(connections as usize, chunks.max(1));
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

/// What the NIC keeps of one connection, beside its record.
#[derive(Debug, Default)]
pub(super) struct Keeps {
    place: u32,
    /// `None` if there is no record: if the NIC dies, so does the connection.
    record: Option<Kept>,
    /// What is not acknowledged and not in the send ring.
    pub(super) sent: Log,
    /// Bytes of the send ring that the engine has, too.
    pub(super) given: u32,
    /// What is not read and not in the receive ring.
    pub(super) received: Log,
}

impl Keeps {
    pub(super) fn at(place: u32) -> Self {
        Keeps { place, ..Keeps::default() }
    }

    fn owner(&self, epoch: Epoch, direction: Direction) -> Owner {
        Owner { place: self.place, epoch, direction }
    }
}

/// The NIC's side of all of them.
#[derive(Debug)]
pub(super) struct Records {
    mirror: Mirror,
    spill: Spill,
    /// Connections for which there was no room.
    pub(super) unmirrored: u64,
    /// Called before and after each commit.
    #[cfg(test)]
    pub(super) fault: Option<fault::Fault>,
}

impl Records {
    pub(super) fn new(mirror: Mirror) -> Self {
        let spill = Spill::new(mirror.memory().spilled_by_nic());
        Records {
            mirror,
            spill,
            unmirrored: 0,
            #[cfg(test)]
            fault: None,
        }
    }

    /// Goes on with the record that the OS side has begun of a connection, and keeps its queues.
    pub(super) fn begin(&mut self, keeps: &mut Keeps, epoch: Epoch, state: &Repair) {
        let Some(area) = self.mirror.memory().record(keeps.place) else { return };
        keeps.record = Writer::resume(area).and_then(|writer| writer.keep());
        if keeps.record.is_none() {
            self.unmirrored += 1;
            return;
        }
        let (first_sent, first_unread) = first_of(state);
        let both = [
            (Direction::Sent, first_sent, &state.send_queue),
            (Direction::Received, first_unread, &state.recv_queue),
        ];
        for (direction, first, queue) in both {
            if !self.append(keeps, epoch, direction, first, queue) {
                self.give_up(keeps);
                return;
            }
        }
    }

    /// Adds to a log. Returns whether there was room.
    fn append(
        &mut self,
        keeps: &mut Keeps,
        epoch: Epoch,
        direction: Direction,
        seq: Seq,
        bytes: &[u8],
    ) -> bool {
        let owner = keeps.owner(epoch, direction);
        let memory = self.mirror.memory().spilled_by_nic();
        let log = match direction {
            Direction::Sent => &mut keeps.sent,
            Direction::Received => &mut keeps.received,
        };
        self.spill.append(memory, log, owner, seq, bytes) == bytes.len()
    }

    /// Keeps bytes that leave the send ring before they are acknowledged: the first of those that are in it. Returns
    /// whether there was room.
    pub(super) fn keep_sent(
        &mut self,
        keeps: &mut Keeps,
        epoch: Epoch,
        seq: Seq,
        bytes: &[u8],
    ) -> bool {
        let log = &keeps.sent;
        bytes.len() <= self.spill.room(log)
            && self.append(keeps, epoch, Direction::Sent, seq, bytes)
    }

    /// Keeps what has come in order and is not in the receive ring, whose first byte has this sequence number, and to
    /// which nothing is added before the next [`commit`](Self::commit).
    pub(super) fn keep_received(
        &mut self,
        keeps: &mut Keeps,
        epoch: Epoch,
        first: Seq,
        connection: &tcp::Connection,
    ) {
        let unread = connection.readable_len() as u32;
        while keeps.record.is_some() && keeps.received.len() < unread {
            let [piece, _] = connection.unread(keeps.received.len());
            let seq = first + keeps.received.len();
            if !self.append(keeps, epoch, Direction::Received, seq, piece) {
                self.give_up(keeps);
            }
        }
    }

    /// Commits where a connection stands, with the indices of its rings. When this returns, packets that reveal it may
    /// leave; what the peer has acknowledged, or the ring has, may be overwritten.
    pub(super) fn commit(
        &mut self,
        keeps: &mut Keeps,
        standing: &Standing,
        closing: Closing,
        (send_at, receive_at): (u32, u32),
    ) {
        let Some(kept) = keeps.record else { return };
        let Some(area) = self.mirror.memory().record(keeps.place) else { return };
        #[cfg(test)]
        self.fault.iter_mut().for_each(|fault| fault.0());
        let mut writer = Writer::go_on(area, kept);
        let moving = Moving::standing(standing, closing, send_at, receive_at);
        if writer.last() != Some(&moving) {
            writer.commit(&moving);
            keeps.record = writer.keep();
            #[cfg(test)]
            self.fault.iter_mut().for_each(|fault| fault.0());
        }
    }

    /// The first bytes of the logs are of no use any more.
    pub(super) fn release(&mut self, keeps: &mut Keeps, sent: u32, received: u32) {
        let memory = self.mirror.memory().spilled_by_nic();
        self.spill.release(memory, &mut keeps.sent, sent);
        self.spill.release(memory, &mut keeps.received, received);
    }

    /// The connection is not the NIC's any more, and its record somebody else's.
    pub(super) fn forget(&mut self, keeps: &mut Keeps) {
        let memory = self.mirror.memory().spilled_by_nic();
        self.spill.clear(memory, &mut keeps.sent);
        self.spill.clear(memory, &mut keeps.received);
        keeps.record = None;
    }

    /// The connection has ended at the NIC: nothing is to be put back.
    pub(super) fn end(&mut self, keeps: &mut Keeps) {
        if keeps.record.is_some()
            && let Some(area) = self.mirror.memory().record(keeps.place)
        {
            mirror::erase(area);
        }
        self.forget(keeps);
    }

    /// The connection has no record from now on.
    pub(super) fn give_up(&mut self, keeps: &mut Keeps) {
        if keeps.record.is_some() {
            self.unmirrored += 1;
            self.end(keeps);
        }
    }
}

/// Sequence numbers of the first byte that is not acknowledged, and of the first that is not read.
pub(crate) fn first_of(state: &Repair) -> (Seq, Seq) {
    use tcp::State::{CloseWait, Closing, LastAck};
    let back = |seq: Seq, bytes: u32| seq + 0_u32.wrapping_sub(bytes);
    let fin = u32::from(matches!(state.state, CloseWait | Closing | LastAck));
    let sent = back(state.write_seq, state.unacknowledged);
    (sent, back(state.rcv_nxt, fin + state.recv_queue.len() as u32))
}

/// One in so many places is to be free for the next connections, and so many at most; one at least.
const SPARE: usize = 16;
const SPARE_MOST: usize = 64;

/// The OS side's part: the record of a connection that it has taken out of the kernel.
#[derive(Debug)]
pub(crate) struct Beginnings {
    mirror: Mirror,
    spill: Spill,
    free: Vec<u32>,
}

/// What the OS side keeps of a connection until the NIC has it.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    sent: Log,
    received: Log,
}

impl Beginnings {
    pub(crate) fn new(mirror: Mirror) -> Self {
        let spill = Spill::new(mirror.memory().spilled_by_os());
        let free = (0..mirror.memory().places()).rev().collect();
        Beginnings { mirror, spill, free }
    }

    /// A place for a connection's record.
    pub(crate) fn take_place(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Whether so few places are left that one is to be made free before there is none.
    pub(crate) fn is_short(&self) -> bool {
        self.free.len() < (self.mirror.places / SPARE).clamp(1, SPARE_MOST)
    }

    /// The place is free again.
    pub(crate) fn give_place(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Writes a record of a connection in the state in which the kernel had it. If there is no room for its queues,
    /// there is none.
    pub(crate) fn write(
        &mut self,
        place: u32,
        (cid, epoch): (Cid, Epoch),
        state: &Repair,
        monotonic: Nanos,
    ) -> Beginning {
        let mut beginning = Beginning::default();
        let memory = self.mirror.memory();
        let (Some(area), Ok(snapshot)) = (memory.record(place), Snapshot::from_repair(state))
        else {
            return beginning;
        };
        let agreed = mirror::Agreed::of(&snapshot, cid, epoch, monotonic);
        let mut writer = Writer::begin(area, &agreed);
        let (first_sent, first_unread) = first_of(state);
        let spilled = memory.spilled_by_os();
        let both = [
            (Direction::Sent, &mut beginning.sent, first_sent, &state.send_queue),
            (Direction::Received, &mut beginning.received, first_unread, &state.recv_queue),
        ];
        let mut fits = true;
        for (direction, log, first, queue) in both {
            let owner = Owner { place, epoch, direction };
            fits &= self.spill.append(spilled, log, owner, first, queue) == queue.len();
        }
        if fits {
            let (send_at, receive_at) = rings_of(state);
            writer.commit(&Moving::of(&snapshot, send_at, receive_at));
        } else {
            writer.end();
            self.clear(&mut beginning);
        }
        beginning
    }

    /// The NIC has kept the queues itself, or the kernel has them again.
    pub(crate) fn clear(&mut self, beginning: &mut Beginning) {
        let spilled = self.mirror.memory().spilled_by_os();
        self.spill.clear(spilled, &mut beginning.sent);
        self.spill.clear(spilled, &mut beginning.received);
    }

    /// The connection is the kernel's again, or has ended.
    pub(crate) fn erase(&self, place: u32) {
        if let Some(area) = self.mirror.memory().record(place) {
            mirror::erase(area);
        }
    }
}

/// The indices of the first bytes of the rings: the sequence numbers of what comes behind the queues, and of the first
/// byte that is not read. Index and sequence number are the same throughout.
pub(super) fn rings_of(state: &Repair) -> (u32, u32) {
    let (sent, unread) = first_of(state);
    ((sent + state.send_queue.len() as u32).0, unread.0)
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
