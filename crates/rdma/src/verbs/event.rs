//! What happens by itself.

use super::id::{Cq, Qp, Srq};
use crate::rdmap::terminate::Cause;

/// Something that the owner of the objects is to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A completion queue that was armed has an entry: its completion channel is to be told.
    Completion(Cq),
    /// A completion queue has overrun (`IBV_EVENT_CQ_ERR`).
    CqError(Cq),
    /// A shared receive queue is below its limit (`IBV_EVENT_SRQ_LIMIT_REACHED`).
    SrqLimit(Srq),
    /// The peer's first message has come at the side that was connected to.
    Established(Qp),
    /// The peer has reached for memory that is not granted (`IBV_EVENT_QP_ACCESS_ERR`).
    QpAccessError(Qp, Cause),
    /// The queue pair cannot go on (`IBV_EVENT_QP_FATAL`).
    QpFatal(Qp, Cause),
    /// The peer has ended the stream by a Terminate message.
    Terminated(Qp, Cause),
    /// The stream is over: the peer has closed it, or it was lost. Told once for each stream.
    Disconnected(Qp),
    /// No receive of a queue pair with a shared queue is left to complete (`IBV_EVENT_QP_LAST_WQE_REACHED`).
    LastWqe(Qp),
}
