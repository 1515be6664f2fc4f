//! Packets as a wire carries them: of its MTU, with complete checksums.

use gso::{Refusal, Segmenter};
use sys::frames::{Frame, FramePool};
use wire::{GsoType, VirtioNetHdr};

use crate::port::RxFrame;

/// Takes apart what ports hand over whole.
#[derive(Debug, Default)]
pub(super) struct Plain {
    /// A super-packet in one piece; what is in it means nothing between calls.
    joined: Vec<u8>,
}

/// What did not become frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Unusable {
    /// Packets that cannot be cut or completed.
    pub(super) refused: u64,
    /// Frames for which there was no memory.
    pub(super) no_memory: u64,
}

impl Plain {
    /// Gives the frames of what was received, `overflow` being what of it did not fit its frame.
    pub(super) fn each(
        &mut self,
        pool: &mut FramePool,
        received: RxFrame,
        overflow: &[u8],
        unusable: &mut Unusable,
        mut give: impl FnMut(&mut FramePool, Frame),
    ) {
        let RxFrame { mut frame, mut vnet, maybe_partial, .. } = received;
        if overflow.is_empty() && vnet.gso_type == GsoType::None {
            let bytes = pool.bytes_mut(&mut frame);
            if maybe_partial && let Some((start, offset)) = wire::partial_checksum(bytes) {
                (vnet.needs_csum, vnet.csum_start, vnet.csum_offset) = (true, start, offset);
            }
            if gso::complete_checksum(bytes, &vnet).is_err() {
                unusable.refused += 1;
                return pool.free(frame);
            }
            return give(pool, frame);
        }
        self.joined.clear();
        self.joined.extend_from_slice(pool.bytes(&frame));
        self.joined.extend_from_slice(overflow);
        pool.free(frame);
        if self.cut(pool, &vnet, unusable, &mut give).is_err() {
            unusable.refused += 1;
        }
    }

    fn cut(
        &mut self,
        pool: &mut FramePool,
        vnet: &VirtioNetHdr,
        unusable: &mut Unusable,
        give: &mut impl FnMut(&mut FramePool, Frame),
    ) -> Result<(), Refusal> {
        // AF_PACKET's header has no words for tunnels.
        let inner = vnet.needs_csum && !wire::is_outermost(&self.joined, vnet.csum_start);
        let tunnel = inner.then(|| wire::vxlan_tunnel(&self.joined, vnet.csum_start)).flatten();
        let vnet = VirtioNetHdr { tunnel: vnet.tunnel.or(tunnel), ..*vnet };
        let mut segments = Segmenter::new(&self.joined, &vnet)?;
        if segments.max_segment_len() > pool.chunk_size() {
            return Err(Refusal::BufferTooSmall);
        }
        while segments.position() < segments.gso_segs() {
            let Some(mut frame) = pool.alloc() else {
                unusable.no_memory += (segments.gso_segs() - segments.position()) as u64;
                return Ok(());
            };
            match segments.next_into(pool.chunk_mut(&mut frame)) {
                Ok(Some(len)) => pool.set_range(&mut frame, 0, len),
                other => {
                    pool.free(frame);
                    return other.map(drop);
                }
            }
            give(pool, frame);
        }
        Ok(())
    }
}
