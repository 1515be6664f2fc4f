//! The out-of-order queue: where its blocks lie, and what SACK reports of them (RFC 2018 section 4, RFC
//! 2883). The bytes themselves stand in the receive ring, behind its end.

use alloc::vec::Vec;

use wire::Seq;

use crate::options::{Block, SackBlocks};

/// Most blocks out of order. A peer that makes more of them wastes our memory: what else comes is not kept.
pub(crate) const OUT_OF_ORDER_MAX: usize = 4096;

/// The out-of-order queue of a connection: its blocks, sorted, disjoint, with holes between them. The peer's
/// FIN is the last sequence number of the last of them, or all of it.
#[derive(Debug, Default)]
pub(crate) struct OutOfOrder {
    blocks: Vec<Block>,
    /// The blocks that grew last, the latest first (RFC 2018 section 4).
    recent: SackBlocks,
}

impl OutOfOrder {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn as_slice(&self) -> &[Block] {
        &self.blocks
    }

    /// In the order of SACK.
    pub(crate) fn recent(&self) -> &SackBlocks {
        &self.recent
    }

    /// Whether there is no room for one more.
    pub(crate) fn is_full(&self) -> bool {
        self.blocks.len() >= OUT_OF_ORDER_MAX
    }

    /// Bytes of memory that it has, and how many more it takes to add a block; little for the first ones.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let bytes = |out_of_order: usize| (out_of_order * size_of::<Block>()) as u64;
        let (len, places) = (self.blocks.len(), self.blocks.capacity());
        (bytes(places), if len < places { 0 } else { bytes(places.max(4)) })
    }

    /// Forgets the later half of the blocks, which the peer may send again. Returns how many those
    /// are, and where the last one ends that is left.
    pub(crate) fn prune(&mut self) -> (usize, Option<Seq>) {
        let kept = self.blocks.len() / 2;
        let pruned = self.blocks.len() - kept;
        self.blocks.truncate(kept);
        self.blocks.shrink_to_fit();
        let mut recent = SackBlocks::default();
        for &block in self.recent.as_slice() {
            if self.blocks.contains(&block) {
                recent.push(block);
            }
        }
        self.recent = recent;
        (pruned, self.blocks.last().map(|last| last.end))
    }

    /// Adds `block`, which touches or overlaps what it may. Returns the first part of it that was there
    /// already, for D-SACK (RFC 2883 section 4).
    pub(crate) fn insert(&mut self, block: Block) -> Option<Block> {
        let from = self.blocks.partition_point(|known| known.end.before(block.start));
        let mut merged = block;
        let mut duplicate = None;
        let mut to = from;
        while let Some(known) = self.blocks.get(to)
            && !known.start.after(block.end)
        {
            let start = known.start.max(block.start);
            let end = known.end.min(block.end);
            if duplicate.is_none() && start.before(end) {
                duplicate = Some(Block { start, end });
            }
            merged.start = merged.start.min(known.start);
            merged.end = merged.end.max(known.end);
            to += 1;
        }
        self.blocks.splice(from..to, [merged]);
        self.touch(merged);
        duplicate
    }

    /// Puts `latest` first, and drops what is part of it.
    fn touch(&mut self, latest: Block) {
        let mut recent = SackBlocks::default();
        recent.push(latest);
        for &block in self.recent.as_slice() {
            if !latest.contains(block) {
                recent.push(block);
            }
        }
        self.recent = recent;
    }

    /// Everything before `next` is in order now; a block that begins there, or before, joins it.
    /// Returns the new next byte.
    pub(crate) fn advance(&mut self, mut next: Seq) -> Seq {
        let mut joined = 0;
        for block in &self.blocks {
            if block.start.after(next) {
                break;
            }
            next = next.max(block.end);
            joined += 1;
        }
        if joined > 0 {
            self.blocks.drain(..joined);
            self.forget_before(next);
            if self.blocks.is_empty() {
                self.blocks = Vec::new();
            }
        }
        next
    }

    fn forget_before(&mut self, next: Seq) {
        let mut recent = SackBlocks::default();
        for &block in self.recent.as_slice() {
            if block.start.after(next) {
                recent.push(block);
            }
        }
        self.recent = recent;
    }

    /// The queue of a snapshot.
    pub(crate) fn restore(&mut self, blocks: Vec<Block>, recent: &[Block]) {
        self.blocks = blocks;
        for &block in recent {
            if self.blocks.contains(&block) {
                self.recent.push(block);
            }
        }
    }
}
