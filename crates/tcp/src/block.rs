//! The blocks that the bytes of connections lie in.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Smallest buffer in bytes; all are powers of two, up to the block of a send queue.
pub(crate) const SMALLEST: usize = 2048;
/// Block of what is received: small, as data out of order may be anywhere.
pub(crate) const RECEIVE_BLOCK: usize = 16 << 10;
/// Block of what is sent: a super-packet lies in two of them at most.
pub(crate) const SEND_BLOCK: usize = 64 << 10;

/// Blocks in order.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) all: VecDeque<Option<Box<[u8]>>>,
    /// Those that are there.
    pub(crate) held: usize,
}

impl Blocks {
    /// Blocks that it has a place for.
    pub(crate) fn places(&self) -> usize {
        self.all.capacity()
    }
}
