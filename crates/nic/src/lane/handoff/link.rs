//! What agent and workers tell each other: the paper's commands, with what goes with them.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;

use ::tcp::FourTuple;
use ::tcp::Nanos;
use ::tcp::repair::Repair;
use handoff::machine::{ToNic, ToOs};
use handoff::session::{Offsets, Shared};
use handoff::{Cid, Epoch, RestoreReason};
use wire::{Mac, Seq, VirtioNetHdr};

use super::figures::Page;
use crate::handle::Wake;

/// The state of a connection, as the kernel gives and takes it, when that was so, and the bytes that the NIC has carried,
/// both ways, if it comes from there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State(Box<(Repair, Nanos, [u64; 2])>);

impl State {
    /// Of this time.
    pub(crate) fn of(repair: Repair, at: Nanos) -> Self {
        State(Box::new((repair, at, [0; 2])))
    }

    /// The same of a connection that has carried so many bytes at the NIC.
    pub(crate) fn after(repair: Repair, at: Nanos, carried: [u64; 2]) -> Self {
        State(Box::new((repair, at, carried)))
    }

    /// Bytes that it has carried at the NIC, both ways.
    pub(crate) fn carried(&self) -> [u64; 2] {
        self.0.2
    }

    /// SND.NXT.
    pub(crate) fn sent(&self) -> Seq {
        let repair = &self.0.0;
        repair.write_seq + 0_u32.wrapping_sub(repair.unsent)
    }

    /// As the kernel takes it now: its clock has gone on.
    pub(crate) fn at(self, now: Nanos) -> Repair {
        let (mut repair, at) = self.parts();
        repair.age(now.saturating_sub(at));
        repair
    }

    /// As it was, and when that was.
    pub(crate) fn parts(self) -> (Repair, Nanos) {
        let (repair, at, _) = *self.0;
        (repair, at)
    }
}

/// A packet that waits while its connection moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldPacket {
    pub(crate) vnet: VirtioNetHdr,
    /// From the Ethernet header on.
    pub(crate) bytes: Vec<u8>,
}

/// A connection among those of all sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    /// Its session's number.
    pub(crate) session: u32,
    /// Its number in the session.
    pub(crate) cid: Cid,
}

/// A process with a session: its memory, and the ways to wake it and to be woken.
pub(crate) trait Process: Send + Sync + Debug {
    /// How the memory is laid out.
    fn offsets(&self) -> &Offsets;

    /// The memory, in which the process may write at any time.
    fn words(&self) -> &[AtomicU64];

    /// Wakes the threads that wait for several connections.
    fn wake(&self);

    /// Wakes the threads that wait at this word for one connection.
    fn wake_waiters(&self, word: &AtomicU64);

    /// Descriptor that becomes readable, edge by edge, when the process rings for this worker. Nothing reads it: the process
    /// may make a read wait.
    fn doorbell(&self, worker: u32) -> Option<BorrowedFd<'_>>;
}

/// The memory of a process by its parts; `None` if it is not as it was laid out, which is checked when it is made.
#[inline]
pub(crate) fn shared(process: &dyn Process) -> Option<Shared<'_>> {
    Shared::at(process.offsets(), process.words()).ok()
}

/// What the agent tells a worker. A state may be later than the turn in which the worker hears of it.
#[derive(Debug)]
pub(crate) enum ToWorker {
    /// A process has a session of this number.
    Begin { session: u32, process: Arc<dyn Process> },
    /// A connection is offered, which would be of this epoch. Its segments go to this Ethernet address, and its record
    /// is at this place.
    Offer { key: Key, epoch: Epoch, path: FourTuple, next_hop: Mac, place: u32 },
    /// Tells when packets of this connection came last by this worker's queue of the wire.
    Seek { key: Key, path: FourTuple },
    /// Tells when all that came for the host so far is the kernel's, and all that the kernel had sent has left.
    Fence(u64),
    /// The segments of a connection go to this Ethernet address from now on.
    NextHop { key: Key, next_hop: Mac },
    /// More connections are offered than there is room for, by what this names: one goes, if one can be spared.
    MakeRoom { reason: RestoreReason },
    /// Of a connection, in the epoch of this tag.
    Told { key: Key, tag: u16, told: ToNic<HeldPacket, State> },
    /// The process has ended: its connections end as the kernel's would, some by a reset. Others stay until they go back, as
    /// another process has them.
    End { session: u32, resets: Arc<[Cid]>, stay: Arc<[Cid]> },
    /// Somebody asks for the figures of connections, from this number on.
    Figures { from: u32, to: Sender<Page> },
}

impl ToWorker {
    /// Whether it has a state that is later than this, and waits for a turn that is not before it: a connection that
    /// went on before would have a timestamp clock that is ahead of its record's by as much.
    pub(crate) fn is_after(&self, now: Nanos) -> bool {
        matches!(self, ToWorker::Told { told: ToNic::Handoff(state), .. } if state.0.1 > now)
    }
}

/// What a worker tells the agent.
#[derive(Debug)]
pub(crate) enum ToAgent {
    /// Of a connection, in the epoch of this tag.
    Told { key: Key, tag: u16, told: ToOs<State> },
    /// When packets of the connection came last by the worker's queue, if any did.
    Seen { worker: u32, key: Key, last: Option<Nanos> },
    /// It has come to this fence.
    Fenced { worker: u32, fence: u64 },
}

impl ToAgent {
    /// Whether it waits until all that the worker has sent has left: the kernel, which then sends what comes behind it,
    /// may do so by the queue of another worker.
    pub(crate) fn is_behind_sent(&self) -> bool {
        matches!(
            self,
            ToAgent::Fenced { .. } | ToAgent::Told { told: ToOs::Restore(_, Some(_)), .. }
        )
    }
}

/// A way to one that sleeps.
pub(crate) struct Way<T> {
    sender: Sender<T>,
    wake: Arc<dyn Wake>,
}

impl<T> Clone for Way<T> {
    fn clone(&self) -> Self {
        Way { sender: self.sender.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl<T> Debug for Way<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Way")
    }
}

impl<T> Way<T> {
    pub(crate) fn new(sender: Sender<T>, wake: Arc<dyn Wake>) -> Self {
        Way { sender, wake }
    }

    /// Tells. One that has ended hears nothing, and what it had is with the other by then.
    pub(crate) fn tell(&self, what: T) {
        if self.sender.send(what).is_ok() {
            self.wake.wake();
        }
    }
}
