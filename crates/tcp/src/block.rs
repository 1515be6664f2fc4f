//! Blocks of memory, which hold the bytes of send and receive queues.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Smallest buffer in bytes; all sizes are powers of two, up to the block of a send queue.
pub(crate) const SMALLEST: usize = 2048;
/// Bytes of a block of a receive queue: few, as data out of order may lie anywhere in the window.
pub(crate) const RECEIVE_BLOCK: usize = 16 << 10;
/// Bytes of a block of a send queue: a super-packet lies in two of them at most.
pub(crate) const SEND_BLOCK: usize = 64 << 10;

/// Blocks of one ring, in order.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) all: VecDeque<Option<Box<[u8]>>>,
    /// Blocks that are allocated.
    pub(crate) held: usize,
}

impl Blocks {
    /// Number of blocks that there is a place for, allocated or not.
    pub(crate) fn places(&self) -> usize {
        self.all.capacity()
    }
}
