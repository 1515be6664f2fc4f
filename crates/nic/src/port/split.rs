//! A wire port that receives by AF_XDP and sends by AF_PACKET: frames come in batches through shared memory, and
//! super-packets go out whole, which no descriptor of AF_XDP can say.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use gso::Refusal;
use lro::Nanos;
use sys::frames::{Frame, FramePool};
use wire::{Bytes, VirtioNetHdr};

use super::packet::PacketWire;
use super::xdp::XdpWire;
use super::{Limits, Outgoing, RxFrame, Transmit, Transmitted, Whole, Wire, WireCounters};

/// One AF_XDP socket that only receives, and one AF_PACKET socket that only sends.
///
/// All that leaves takes the second, so that the packets of a flow stay in order: what AF_XDP sends goes past
/// the queueing discipline in which others may wait. Both use the memory of one pool. AF_PACKET copies what it
/// sends, so its frames are free again when it has taken them; the kernel has those of the UMEM alone.
#[derive(Debug)]
pub struct SplitWire {
    receives: XdpWire,
    sends: PacketWire,
}

impl SplitWire {
    /// Takes both ports of one interface. The second is of a socket that
    /// [only sends](sys::packet::Config::send_only), or what arrives would be received twice.
    pub fn new(receives: XdpWire, sends: PacketWire) -> Self {
        SplitWire { receives, sends }
    }

    /// Whether the driver moves received frames without copying.
    pub fn zero_copy(&self) -> bool {
        self.receives.zero_copy()
    }
}

impl Wire for SplitWire {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        self.receives.receive(pool, into, max)
    }

    fn receive_stamped(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<(RxFrame, Option<Nanos>)>,
        max: usize,
    ) -> io::Result<()> {
        self.receives.receive_stamped(pool, into, max)
    }

    fn overflow(&self, received: &RxFrame) -> &[u8] {
        self.receives.overflow(received)
    }

    fn configure(&mut self, limits: Limits) {
        self.receives.configure(limits);
        self.sends.configure(limits);
    }

    fn limit_queue(&mut self, frames: usize) {
        self.receives.limit_queue(frames);
    }

    fn waiting(&mut self) -> Option<u32> {
        self.receives.waiting()
    }

    fn transmit(
        &mut self,
        pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal> {
        self.sends.transmit(pool, packet, transmitted)
    }

    fn transmit_pieces(
        &mut self,
        pool: &mut FramePool,
        vnet: &VirtioNetHdr,
        pieces: [Bytes<'_>; 3],
        transmitted: &mut Transmitted,
    ) -> Whole {
        self.sends.transmit_pieces(pool, vnet, pieces, transmitted)
    }

    fn send_frame(&mut self, pool: &mut FramePool, frame: Frame) -> Result<(), Frame> {
        self.sends.send_frame(pool, frame)
    }

    /// The AF_XDP socket has nothing queued, and nothing to take back.
    fn flush(&mut self, pool: &mut FramePool) -> io::Result<()> {
        self.sends.flush(pool)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.receives.fd()
    }

    fn transmit_fd(&self) -> Option<BorrowedFd<'_>> {
        self.sends.fd()
    }

    fn is_pending(&mut self) -> bool {
        self.sends.is_pending()
    }

    fn retry_after(&self) -> Option<Nanos> {
        self.sends.retry_after()
    }

    fn counters(&mut self) -> WireCounters {
        // A socket that only sends has dropped nothing, and one that only receives has lost nothing.
        let WireCounters { lost, taken_back, .. } = self.sends.counters();
        WireCounters { lost, taken_back, ..self.receives.counters() }
    }

    fn burst(&self) -> usize {
        self.receives.burst()
    }

    fn give_up(&mut self, pool: &mut FramePool) {
        self.sends.give_up(pool);
    }

    fn close(self, pool: &mut FramePool) {
        self.sends.close(pool);
        self.receives.close(pool);
    }
}
