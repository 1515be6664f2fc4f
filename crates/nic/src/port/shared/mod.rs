//! A host port that several workers share: the paper's "DMA load balance".
//!
//! The NPU of "Implementation of TCP Large Receive Offload on Multi-core NPU Platform" (section
//! V.B) has one DMA engine for all packet receiving threads, and it keeps their requests in a stack.
//! A few connections that have data to send then keep the top of the stack busy, and the SYN of
//! another stays below until it times out. The paper's cure is one request queue for each
//! packet receiving thread, and a thread that takes one request at a time from each in turn.
//!
//! Here the engine is a host port with fewer queues than there are workers. A [`Scheduler`] is the
//! host port. [`Order`](crate::config::Order) chooses between round robin and the paper's stack.
//!
//! ```text
//!   worker 0 -- requests --> |           |
//!   worker 1 -- requests --> | scheduler | --> one queue of the host port
//!   worker 2 -- requests --> |           |
//!            <- completions -
//! ```
//!
//! A request takes the packet's frames along and its completion brings them back, so payload is not copied.
//! Where no thread is asleep, a request costs two passes through a bounded channel of std, which neither
//! locks nor allocates, and a few atomic operations: little beside the microseconds of the write. (The order
//! `lifo` takes a lock, as all share its one stack.)
//!
//! Nothing is dropped because a queue is full: a worker whose queue is full does not receive from the wire
//! until it has room, and the wire's own ring drops what exceeds it, and counts it.

mod host;
mod order;
mod request;
mod scheduler;

pub use host::SharedHost;
pub use request::Requests;
#[cfg(test)]
pub(crate) use scheduler::ByHand;
pub use scheduler::Scheduler;
