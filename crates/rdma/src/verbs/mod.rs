//! Verbs: queue pairs, memory regions and completion queues (RDMA Protocol Verbs Specification 1.0).
//!
//! | module | what |
//! |---|---|
//! | [`rnic`] | the objects of one process |
//! | [`region`] | regions, windows, and whether an access is granted |
//! | `stags` | how an STag finds its region |
//! | [`work`] | what is posted |
//! | `send_queue`, `receive_queue` | where it waits |
//! | [`cq`] | where it completes |
//! | [`qp`] | queue pairs and their streams |
//! | [`event`] | what happens by itself |

pub mod access;
pub mod cq;
pub mod error;
pub mod event;
pub mod id;
pub mod limits;
pub mod qp;
mod receive_queue;
pub mod region;
pub mod rnic;
mod scratch;
mod send_queue;
mod shared;
mod stags;
pub mod work;

pub use access::Access;
pub use cq::{Completion, Done};
pub use error::Error;
pub use event::Event;
pub use id::{Cq, Pd, Qp, Srq};
pub use limits::{Limits, MESSAGE_MAX};
pub use qp::{Close, PARKED_MAX, QpConfig, State, Transmitted};
pub use region::{Registration, WindowKind};
pub use rnic::Rnic;
pub use work::{Bind, FastRegister, Flags, Payload, RecvRequest, SendRequest, Sge, Work};
