//! How work ends: the codes of completions.
//!
//! Numbers and names are those of `ibv_wc_status`. What leads to which, as the RDMA Protocol Verbs Specification
//! and Linux siw have it where they do not contradict each other:
//!
//! | what happened | here | the peer |
//! |---|---|---|
//! | memory of a send or read is not registered, of another PD, or over its end | [`LocalProtection`](Status::LocalProtection); Terminate 0x0/0x0/0x00 | all work is flushed |
//! | memory of a receive is so | [`LocalProtection`](Status::LocalProtection); Terminate 0x1/0x0/0x00 | flushed |
//! | a Send is longer than the receive it meets | [`LocalLength`](Status::LocalLength); Terminate 0x1/0x2/0x05 | [`RemoteInvalidRequest`](Status::RemoteInvalidRequest) if the Send is not complete, else flushed |
//! | a Send meets no receive, and may not wait for one | Terminate 0x1/0x2/0x02, `QpFatal` | as above |
//! | a write's STag, key, PD or bounds are wrong | Terminate 0x1/0x1/code, `QpAccessError` | [`RemoteAccess`](Status::RemoteAccess) if the write is not complete, else flushed |
//! | a write's region does not grant it | Terminate 0x0/0x1/0x02, `QpAccessError` | as above |
//! | a read or an atomic is not granted | Terminate 0x0/0x1/code, `QpAccessError` | [`RemoteAccess`](Status::RemoteAccess) |
//! | an atomic is not aligned to eight bytes | Terminate 0x0/0x2/0x07 | [`RemoteInvalidRequest`](Status::RemoteInvalidRequest) |
//! | more reads and atomics than IRD | Terminate 0x1/0x2/0x02 | [`RemoteInvalidRequest`](Status::RemoteInvalidRequest) |
//! | the STag of a Send with Invalidate cannot be invalidated | the receive is [`RemoteInvalidRequest`](Status::RemoteInvalidRequest); Terminate 0x0/0x1/0x09 | flushed |
//! | a local invalidation, a bind or a fast registration is refused | [`MemoryWindowBind`](Status::MemoryWindowBind); Terminate 0x0/0x0/0x00 | flushed |
//! | the response of a read is not what was asked for | [`BadResponse`](Status::BadResponse); Terminate 0x1/0x1/code | flushed |
//! | ORD is zero and a read is posted | [`LocalOperation`](Status::LocalOperation) | flushed |
//! | a completion queue is full | the entry is lost, `CqError`, its queue pairs fail as they add to it | flushed |
//! | a shared receive queue falls below its limit | `SrqLimit`, once | nothing |
//! | the stream ends, by either side | all work is [`Flushed`](Status::Flushed) | the same |
//!
//! Sends and writes complete when the stream has taken them, not when the peer has them (RFC 5040 section 5.5):
//! "if it is not complete" is said above of those that are still queued when the Terminate comes.
//!
//! After the first error come, in this order: the completion of the work that failed; that of all other sends, in
//! the order in which they were posted; that of all receives. Work that had been done before ends as
//! [`Success`](Status::Success), all other as [`Flushed`](Status::Flushed).

/// How a piece of work has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Status {
    /// It is done.
    #[default]
    Success = 0,
    /// The message is longer than the receive.
    LocalLength = 1,
    /// The queue pair cannot do this.
    LocalOperation = 2,
    /// Local memory is not registered for it.
    LocalProtection = 4,
    /// It was not done: the queue pair is in error.
    Flushed = 5,
    /// The window cannot be bound, or the STag cannot be changed.
    MemoryWindowBind = 6,
    /// The peer's message is none.
    BadResponse = 7,
    /// The peer did not take the message.
    RemoteInvalidRequest = 9,
    /// The peer's memory is not granted.
    RemoteAccess = 10,
    /// The peer cannot go on.
    RemoteOperation = 11,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 10] = {
        use Status::*;
        [
            Success,
            LocalLength,
            LocalOperation,
            LocalProtection,
            Flushed,
            MemoryWindowBind,
            BadResponse,
            RemoteInvalidRequest,
            RemoteAccess,
            RemoteOperation,
        ]
    };

    /// Its number in `ibv_wc_status`.
    pub fn number(self) -> u8 {
        self as u8
    }
}
