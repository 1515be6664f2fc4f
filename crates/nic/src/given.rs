//! What is given to the parts of the NIC that others reach: what processes, their memory and guards may say. Tests and fuzz
//! targets share it.

pub(crate) mod application;

/// What a process of an application's writes into the memory that it shares with a worker.
pub use self::application::application;

/// What a process says to the agent.
pub use crate::handoff::agent::given::messages as to_the_agent;

/// What a guard is told.
pub use crate::handoff::guard::given::messages as to_a_guard;
