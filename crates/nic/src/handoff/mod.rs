//! TCP connection handoff (`connection-handoff`, EuroSys'06): the host's connections that the NIC runs.
//!
//! ```text
//!   application ── session ──> agent  ── link ──> worker: lane::handoff
//!      |                         |                          ^
//!      |                         v                          |
//!      |                       kernel (TCP_REPAIR)          |
//!      +───────────── rings in shared memory ───────────────+
//! ```
//!
//! The agent is the OS side of `handoff::machine`: it takes connections out of the kernel and puts them back. The NIC
//! side is a lane of each worker's. Both speak by a [`link`], in the paper's commands.

#![allow(dead_code)] // until the agent is there

pub(crate) mod link;
