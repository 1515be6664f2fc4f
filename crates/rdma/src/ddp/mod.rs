//! DDP: where the bytes of a message belong (RFC 5041).
//!
//! A segment's header names a tagged buffer, by STag and offset, or a place in a message of an untagged queue, by
//! number. This module has the headers, and what can be wrong with a segment; [`sequence`] has the order of
//! untagged messages. Which buffers there are is the business of [`verbs`](crate::verbs).

mod error;
mod header;
pub mod sequence;

pub use error::{Error, Tagged as TaggedError, Untagged as UntaggedError};
pub use header::{HEADER_MAX, Header, TAGGED_LEN, Tagged, UNTAGGED_LEN, Untagged};

/// The queue of Sends and immediate data (RFC 5040 section 4.2, RFC 7306 section 6).
pub const QUEUE_SEND: u32 = 0;
/// The queue of RDMA Read Requests and Atomic Requests.
pub const QUEUE_READ: u32 = 1;
/// The queue of the Terminate message.
pub const QUEUE_TERMINATE: u32 = 2;
/// The queue of Atomic Responses (RFC 7306 section 5).
pub const QUEUE_ATOMIC: u32 = 3;
/// How many queues there are.
pub const QUEUES: usize = 4;
