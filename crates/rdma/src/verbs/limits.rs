//! How much there may be.

/// How much one [`Rnic`](super::Rnic), and with it one process, may have, so that it takes nothing from others. What the
/// peer sends makes none of it grow (RFC 5042).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Protection domains.
    pub pds: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Entries of a completion queue.
    pub cqe: u32,
    /// Shared receive queues.
    pub srqs: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Entries of a work queue.
    pub wr: u32,
    /// Scatter and gather elements of an entry.
    pub sge: u8,
    /// Inline bytes of an entry.
    pub inline: u32,
    /// Bytes of this machine's memory that all queues together take here.
    pub queue_bytes: usize,
    /// Regions and windows together.
    pub regions: usize,
    /// Bytes of all regions together.
    pub registered: u64,
    /// IRD and ORD of a queue pair.
    pub reads: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pds: 1024,
            cqs: 4096,
            cqe: 1 << 20,
            srqs: 1024,
            qps: 4096,
            wr: 1 << 14,
            sge: 16,
            inline: 256,
            queue_bytes: 256 << 20,
            regions: 1 << 16,
            registered: 1 << 40,
            reads: 128,
        }
    }
}

/// The longest message: MO and the size of a read have 32 bits, verbs count by half of that.
pub const MESSAGE_MAX: u32 = 1 << 31;
