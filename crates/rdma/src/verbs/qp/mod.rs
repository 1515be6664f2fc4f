//! Queue pairs: the states of the verbs specification, and the stream that a queue pair has.
//!
//! # States
//! Names are those of `ibv_qp_state`; beside them those of the RDMA Protocol Verbs Specification.
//!
//! | here | RDMAP verbs | posts | stream |
//! |---|---|---|---|
//! | [`Reset`](State::Reset) | Idle | none | none |
//! | [`Init`](State::Init), [`Rtr`](State::Rtr) | Idle | receives | none |
//! | [`Rts`](State::Rts) | RTS | all | both ways |
//! | [`Sqd`](State::Sqd) | Closing | receives; sends are refused | what was posted goes out, then it is closed |
//! | [`Sqe`](State::Sqe) | Terminate | flushed at once | the Terminate message goes out; what comes is discarded |
//! | [`Err`](State::Err) | Error | flushed at once | closed, or about to be |
//!
//! ```text
//!   Reset ─modify─> Init ─modify─> Rtr
//!     ^               └──────┬──────┘
//!     │                    start
//!     │                      v
//!     │                     Rts ───disconnect───> Sqd
//!   modify                   │ an error            │ an error, or the end of the stream
//!     │                      v                     │
//!     └──── Err <──sent──── Sqe <──────────────────┘
//!            ^ the end of the stream, a Terminate of the peer's, modify
//! ```
//!
//! Every way to `Sqe` or `Err` flushes what is posted: see [`status`](crate::status).

mod ahead;
mod close;
mod fail;
mod inbound;
mod outbound;
mod outstanding;
mod parked;
mod post;
mod select;
mod sending;
mod state;
mod stream;
mod tagged;
mod unpark;
mod untagged;

use alloc::boxed::Box;

use super::id::{Cq, Pd, Qp, Srq};
use super::receive_queue::ReceiveQueue;
use super::region::Asker;
use super::send_queue::SendQueue;
use stream::Stream;

pub use close::Close;
pub use outbound::Transmitted;
pub use parked::PARKED_MAX;
pub use state::State;

/// What a queue pair is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpConfig {
    /// Its protection domain.
    pub pd: Pd,
    /// Where sends complete.
    pub send_cq: Cq,
    /// Where receives complete.
    pub receive_cq: Cq,
    /// The shared receive queue, instead of one of its own.
    pub srq: Option<Srq>,
    /// Entries of the send queue.
    pub sends: u32,
    /// Entries of the receive queue.
    pub receives: u32,
    /// Elements of a send.
    pub send_sges: u8,
    /// Elements of a receive.
    pub receive_sges: u8,
    /// Inline bytes of a send.
    pub inline: u32,
    /// All sends are signaled (`sq_sig_all`).
    pub signal_all: bool,
}

impl QpConfig {
    /// Bytes that its queues take.
    pub(crate) fn bytes(&self) -> usize {
        let receives = if self.srq.is_some() { 0 } else { self.receives };
        SendQueue::bytes(self.sends, self.send_sges, self.inline)
            + ReceiveQueue::bytes(receives, self.receive_sges)
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    id: Qp,
    pub(crate) config: QpConfig,
    state: State,
    sq: SendQueue,
    rq: ReceiveQueue,
    stream: Option<Box<Stream>>,
    /// A completion found no room: the queue pair fails as soon as the call at hand is done.
    overrun: bool,
    /// Messages wait for receives that are not posted yet.
    waits: bool,
    /// One waits.
    is_waiting: bool,
}

impl QueuePair {
    pub(crate) fn new(id: Qp, config: QpConfig) -> Self {
        let receives = if config.srq.is_some() { 0 } else { config.receives };
        Self {
            id,
            config,
            state: State::Reset,
            sq: SendQueue::new(config.sends, config.send_sges, config.inline),
            rq: ReceiveQueue::new(receives, config.receive_sges),
            stream: None,
            overrun: false,
            waits: false,
            is_waiting: false,
        }
    }

    /// See [`Rnic::let_wait`](crate::Rnic::let_wait).
    pub(crate) fn let_wait(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// See [`Rnic::awaited`](crate::Rnic::awaited).
    pub(crate) fn awaited(&self) -> (usize, u32) {
        self.stream.as_ref().map_or((0, 0), |stream| {
            let first = stream.oldest_read().map_or(0, |(_, read)| read.received);
            (stream.outstanding.len(), first)
        })
    }

    /// See [`Rnic::is_waiting`](crate::Rnic::is_waiting).
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting && self.takes()
    }

    /// Who asks for memory in this queue pair's name.
    fn asker(&self) -> Asker {
        Asker { pd: self.config.pd, qp: self.id }
    }
}
