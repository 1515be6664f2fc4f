//! Completion queues.

use alloc::collections::VecDeque;

use super::id::Qp;
use crate::rdmap::terminate::Cause;
use crate::status::Status;

/// What a completion is about, by the names of `ibv_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Done {
    /// `IBV_WC_SEND`.
    #[default]
    Send = 0,
    /// `IBV_WC_RDMA_WRITE`.
    Write = 1,
    /// `IBV_WC_RDMA_READ`.
    Read = 2,
    /// `IBV_WC_COMP_SWAP`.
    CompareSwap = 3,
    /// `IBV_WC_FETCH_ADD`.
    FetchAdd = 4,
    /// `IBV_WC_BIND_MW`.
    Bind = 5,
    /// `IBV_WC_LOCAL_INV`.
    LocalInvalidate = 6,
    /// A fast registration (`IB_WC_REG_MR` of the kernel).
    FastRegister = 9,
    /// `IBV_WC_RECV`.
    Receive = 128,
    /// `IBV_WC_RECV_RDMA_WITH_IMM`.
    ReceiveImmediate = 129,
}

/// An entry of a completion queue (`ibv_wc`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// That of the request.
    pub wr_id: u64,
    /// The queue pair.
    pub qp: Qp,
    /// How it ended. If not well, only `wr_id`, `qp` and `cause` say something.
    pub status: Status,
    /// What it was.
    pub done: Done,
    /// Bytes of the message: received, read or written.
    pub len: u32,
    /// The immediate data of a receive.
    pub immediate: Option<[u8; 4]>,
    /// The STag that the peer has invalidated with its Send.
    pub invalidated: Option<u32>,
    /// What the Terminate message said that is about this request (`vendor_err`).
    pub cause: Option<Cause>,
    /// Work that was posted before it completes behind it: what ends the stream is told first.
    pub is_early: bool,
}

/// What the owner of a completion queue waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Armed {
    #[default]
    No,
    Solicited,
    Any,
}

/// Whether an entry could be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Added {
    Quietly,
    /// The owner is to be told: it has armed the queue.
    Told,
    /// There is no room: now.
    Overrun,
    /// There was none before.
    Lost,
}

/// A completion queue. Its depth does not change, whatever a peer sends (RFC 5042).
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    /// And whether each is solicited.
    entries: VecDeque<(Completion, bool)>,
    depth: u32,
    /// Taken and not yet given back: they count as if they were here.
    taken: u32,
    armed: Armed,
    overrun: bool,
    /// Queue pairs that use it, twice if both ways.
    pub(crate) users: u32,
}

impl CompletionQueue {
    /// Bytes that one of this depth takes.
    pub(crate) fn bytes(depth: u32) -> usize {
        depth as usize * size_of::<(Completion, bool)>()
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn new(depth: u32) -> Self {
        Self {
            entries: VecDeque::with_capacity(depth as usize),
            depth,
            taken: 0,
            armed: Armed::No,
            overrun: false,
            users: 0,
        }
    }

    pub(crate) fn add(&mut self, completion: Completion, solicited: bool) -> Added {
        if self.overrun {
            return Added::Lost;
        }
        if self.entries.len() as u32 + self.taken >= self.depth {
            self.overrun = true;
            return Added::Overrun;
        }
        // Verbs: an entry with an error counts as solicited.
        let is_solicited = solicited || completion.status != Status::Success;
        self.entries.push_back((completion, is_solicited));
        let tells = match self.armed {
            Armed::No => false,
            Armed::Solicited => is_solicited,
            Armed::Any => true,
        };
        if !tells {
            return Added::Quietly;
        }
        self.armed = Armed::No;
        Added::Told
    }

    /// Verbs: what is asked for more generally stays asked for.
    pub(crate) fn arm(&mut self, solicited_only: bool) {
        self.armed = match (self.armed, solicited_only) {
            (Armed::Any, _) | (_, false) => Armed::Any,
            (_, true) => Armed::Solicited,
        };
    }

    pub(crate) fn take(&mut self, to: &mut [Completion]) -> usize {
        let (most, mut places) = (to.len(), to.iter_mut());
        self.drain(most, |completion, _| {
            if let Some(place) = places.next() {
                *place = completion;
            }
        })
    }

    /// Takes so many, with whether each is solicited; how many there were.
    pub(crate) fn drain(&mut self, most: usize, mut each: impl FnMut(Completion, bool)) -> usize {
        let count = self.entries.len().min(most);
        self.entries.drain(..count).for_each(|(completion, solicited)| each(completion, solicited));
        self.taken += count as u32;
        count
    }

    /// Entries that were taken are read: there is room for others.
    pub(crate) fn give_back(&mut self, count: u32) {
        self.taken = self.taken.saturating_sub(count);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
