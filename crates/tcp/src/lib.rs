//! TCP without IO (RFC 9293): segments, application calls and time in; segments, events and a next
//! deadline out. No clock, no socket, no thread, no random numbers but those of the secret that it is given.
//!
//! ```text
//!                 Stack: all connections of one worker
//!   segment  ──>  table ── Connection ──┬── ready ──────>  poll_transmit: a super-packet
//!   time     ──>  deadlines ────────────┤
//!   socket   ──>  send, receive, close ─┴── eventful ───>  next_event
//!   Snapshot <──  freeze       thaw  <── Snapshot
//! ```
//!
//! A segment runs through the checks of RFC 9293 section 3.10.7 in their order, each in the module
//! that bears its name: `input` (acceptable, reset, SYN), `ack` (what is delivered, the peer's
//! window), `recovery` and `rack` (what is lost), [`congestion`] (how much may be in flight), `data`
//! (text, urgent data, FIN). The commonest segment is recognised by `predict` and needs three cache lines of
//! its connection: two that are hot, and the one with its addresses. `output` decides what is sent, `timers`
//! what happens if nothing arrives.
//!
//! Input may be an aggregate, as LRO makes them: the payload in pieces, and the size of the segments that it
//! was made of. Output is a super-packet, as GSO cuts them. Both save most of the work of a segment.
//!
//! A connection can leave at any instant as a [`Snapshot`], in whatever state, and goes on elsewhere as if
//! nothing had been: the packets that follow are the same. [`repair`] converts to and from what Linux's
//! TCP_REPAIR gives and takes.
//!
//! [`Stack::trace`] records what happens on one connection, for finding out why it behaves as it does: see
//! [`trace`].
//!
//! # What it obeys
//!
//! RFC 9293; 1122 (as far as 9293 keeps it), 2018 and 2883 (SACK, D-SACK), 3042, 3168 (ECN), 3465, 3522 and
//! 3708 (taking back), 4821 and 1191, 8201 (path MTU), 4987 (SYN floods), 5482 (user timeout), 5681 and
//! 6582 (NewReno), 5682 (F-RTO), 5927 (ICMP), 5961 (blind attacks), 6093 (urgent data), 6191, 6298 (RTO),
//! 6528 (sequence numbers), 6675 (scoreboard and pipe), 6928 (initial window), 6937 (PRR), 7323 (timestamps, window scale), 8985
//! (RACK-TLP), 9406 (HyStart++), 9438 (CUBIC).
//!
//! Where Linux, and so the Internet, does otherwise than the RFC, wharf follows Linux:
//!
//! | | RFC | here |
//! |---|---|---|
//! | smallest RTO | 1 s (6298, 2.4) | 200 ms above the smoothed round trip ([`Config::min_rto`]) |
//! | zero-window probe | one byte of new data (9293, 3.8.6.1) | no data, one before SND.UNA: the peer must answer |
//! | Nagle | while anything is unacknowledged (9293, 3.7.4) | while a small segment is (Minshall) |
//! | first acknowledgments | may be delayed | 16 at once, as a sender in slow start waits for them |
//! | segments out of order, with SACK | a duplicate acknowledgment for each (5681, 4.2) | three singly, then one for all that come together |
//! | segment without the timestamp that was agreed to | dropped (7323, 3.2) | taken |
//! | urgent pointer | the urgent byte (1122) | one after it (6093) |
//!
//! # What it does not do, and why
//!
//! - TCP Fast Open (7413): few paths and no kernel default let it through; a snapshot would need its cookie.
//! - AccECN (9768), MPTCP (8684), TCP-AO (5925) and MD5 (2385): later, perhaps.
//! - Data on a SYN is not kept: without Fast Open no peer sends it.
//! - Pacing and BBR: the wire port sends what it gets.
//! - More than 4,096 blocks out of order in a connection: the rest is not kept, and comes again.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod block;
pub mod config;
pub mod congestion;
mod connection;
mod counters;
mod flight;
mod memory;
pub mod options;
mod pool;
mod reassembly;
pub mod repair;
mod ring;
mod rtt;
mod segment;
pub mod snapshot;
mod stack;
mod state;
pub mod trace;

pub use config::{Algorithm, Config, Ecn, Keepalive};
pub use connection::{
    Connection, Events, Info, Lend, ListenerId, Queue, ReceiveError, SendError, Standing,
};
pub use counters::Counters;
pub use memory::Memory;
pub use options::{Block, Options, SackBlocks};
pub use repair::{Lost, Repair, RepairError};
pub use segment::{FourTuple, Segment, Transmit};
pub use snapshot::{Snapshot, SnapshotError};
pub use stack::{
    Change, ConnectError, Due, Id, ListenError, Placement, Socket, Stack, StackConfig, ThawError,
};
pub use state::{Reason, State};
pub use wire::Nanos;
