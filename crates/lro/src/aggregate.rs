//! What comes out: several segments as one packet.

use wire::VirtioNetHdr;

use crate::arena::{Arena, Chain, Slice};

/// Several segments as one packet: a header to be written first, then the slices in order.
///
/// The header is complete but for the TCP checksum, which holds the folded pseudo-header sum as
/// `NEEDS_CSUM` asks; [`vnet`](Self::vnet) says so and carries `gso_size`.
#[derive(Debug)]
pub struct Aggregate<'a, F> {
    vnet: VirtioNetHdr,
    header: &'a [u8],
    fixed_id: bool,
    chain: Chain,
    held: &'a mut Arena<F>,
}

impl<'a, F> Aggregate<'a, F> {
    pub(crate) fn new(
        vnet: VirtioNetHdr,
        header: &'a [u8],
        fixed_id: bool,
        chain: Chain,
        held: &'a mut Arena<F>,
    ) -> Self {
        Aggregate { vnet, header, fixed_id, chain, held }
    }

    /// The header that tells the host port what this is.
    pub fn vnet(&self) -> VirtioNetHdr {
        self.vnet
    }

    /// Ethernet to TCP options.
    pub fn header(&self) -> &'a [u8] {
        self.header
    }

    /// All segments carried the same IPv4 ID (`SKB_GSO_TCP_FIXEDID` in Linux), which
    /// `virtio_net_hdr` cannot say; a segmenter that restores them needs to know.
    pub fn fixed_id(&self) -> bool {
        self.fixed_id
    }

    /// How many segments are left to take with [`next_slice`](Self::next_slice).
    pub fn segments(&self) -> usize {
        self.chain.len() as usize
    }

    /// The payload of the next segment, with its frame.
    pub fn next_slice(&mut self) -> Option<Slice<F>> {
        self.held.pop(&mut self.chain)
    }
}

/// What the sink did not take is dropped with the aggregate; no place in the arena is lost.
impl<F> Drop for Aggregate<'_, F> {
    fn drop(&mut self) {
        while self.next_slice().is_some() {}
    }
}
