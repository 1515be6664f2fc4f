//! TCP connection handoff (`connection-handoff`, EuroSys'06): the OS opens connections, the NIC runs them and
//! gives them back. This crate has what of it is no IO: bytes, events and times come in, commands go out.
//!
//! | module | what |
//! |---|---|
//! | [`command`] | the twelve commands of the paper's figures 4 and 5 |
//! | [`machine`] | a connection that changes sides, as both sides see it |
//! | [`mirror`] | what survives the NIC |
//! | [`policy`] | which connections the NIC runs, and how many |
//! | [`ring`] | rings and doorbells in memory that is shared with an application |
//! | [`session`] | that memory as a whole, and the messages beside it |
//! | [`sharers`] | which processes have a connection, after fork(2) |
//!
//! ```
//! use handoff::command::{NicCommand, nic};
//! use handoff::{Cid, Epoch};
//! let send = nic::Send { paddr: 4096, len: 1448, ..nic::Send::new(Cid(7), Epoch(1)) };
//! let bytes = NicCommand::from(send).encode();
//! assert_eq!(NicCommand::decode(bytes), Ok(NicCommand::Send(send)));
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod command;
mod counts;
mod epoch;
pub mod machine;
pub mod mirror;
mod named;
pub mod policy;
mod reason;
pub mod ring;
pub mod session;
pub mod sharers;

pub use counts::Counts;
pub use epoch::{Cid, Epoch};
pub use named::Named;
pub use reason::{Refusal, RefusalCounts, RestoreCounts, RestoreReason};
