//! The RDMA device `wharf0`: it serves verbs to processes of one user, over TCP of the kernel's or of a `wharf up`, as an
//! ordinary user.
//!
//! ```text
//!   process: libwharf_rdma.so ── messages, queues in shared memory ──> a thread of the device for each process
//!      |                                                                 | rdma::session::Process
//!      |  registered memory <── /proc/PID/mem, opened by the process ──  | memory
//!      |                                                                 | streams ── carriers: TCP
//!      |  events            <── socket pairs ──────────────────────────  | outlet
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`server`] | the Unix socket, who may connect, and the threads |
//! | `process` | one process: the loop of its thread |
//! | `memory` | its registered memory |
//! | `stream` | the stream of a queue pair |
//! | `silence` | how long its peer has answered nothing |
//! | `carrier` | the connection that carries it |
//! | `manager` | the connection manager: identifiers, connection set-up |
//! | `outlet` | where events are read |
//! | `identity` | its EUI-64 |
//! | `terms` | limits, and what connections are asked for |
//! | `token` | what the loop waits for |
//! | [`stats`] | what `wharf rdma stats` shows |
//!
//! Each process has a thread, which owns all that concerns it and sleeps in the kernel when there is nothing to do; where
//! work has come soon lately, it looks for some 0.1 ms before, and lets others run meanwhile. A process that makes the
//! device wait for a page of its memory makes only its own thread wait. Threads share whose turn it is at
//! atomic operations, which nobody keeps for longer than others wait for it, and the copies of counters that they publish
//! before they sleep.
//!
//! The device reads and writes registered memory itself, so that what a peer does to it needs no time of the
//! application's. The descriptor it does that by stands for the address space: after execve(2) or the end of the process
//! nothing is placed any more, whoever has its id then. Memory of a file that the process has sent is read and written by
//! that, until the session ends, which it does with both.
#![forbid(unsafe_code)]

mod carrier;
mod identity;
mod manager;
mod memory;
mod outlet;
mod process;
pub mod server;
mod silence;
pub mod stats;
mod stream;
mod terms;
mod token;

pub use server::{Device, ServeError};

/// How long a peer may answer nothing before its connection ends, if nothing else is said.
pub const PEER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// The device's name.
pub const NAME: &str = "wharf0";
