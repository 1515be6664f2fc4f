//! What a process has lent of a connection, as the lane has it, and what was done with it: see [`handoff::ring::splice`].

use handoff::{Cid, Epoch};
use wire::Nanos;

/// Bytes that are moved in a turn, of all connections together: others, and packets, do not wait for more.
pub(super) const TURN: u32 = 256 << 10;
/// Bytes after which the process has its ring back, and so long after it has lent it: it has time-outs of its own, which it
/// counts from what it sees.
pub(super) const BYTES: u32 = 64 << 20;
pub(super) const TIME: Nanos = 250_000_000;
/// Bytes that are copied at once: they are in the first cache then.
pub(super) const BETWEEN: usize = 16 << 10;

/// Where bytes go that a connection receives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Splice {
    /// The connection that sends them, and which it was.
    pub(super) to: u32,
    pub(super) cid: Cid,
    pub(super) epoch: Epoch,
    /// Bytes that are moved at most.
    pub(super) left: u32,
    pub(super) since: Nanos,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpliceCounts {
    /// Rings that were lent, and those of them that were given back at once.
    pub(super) begun: u64,
    pub(super) refused: u64,
    /// Bytes that were moved.
    pub(super) bytes: u64,
    /// How it has ended: by the process; as it had lasted for long; by the other connection.
    pub(super) taken_back: u64,
    pub(super) over: u64,
    pub(super) left: u64,
}
