//! A host port on one queue of a TAP with `virtio_net_hdr`.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use sys::frames::FrameReader;
use sys::tap::TapQueue;
use wire::{VNET_LEN, VirtioNetHdr};

use super::{
    AggregateKinds, Delivered, Delivery, FromHost, HOST_PACKET_MAX, Host, HostPacket, reuse, spent,
};

/// Most slices in one `writev` (`IOV_MAX`), the virtio header's included.
const SLICES_MAX: usize = 1024;

const EIO: i32 = 5;
const EINVAL: i32 = 22;

/// One queue of a TAP, with the buffer that the host's packets are read into.
#[derive(Debug)]
pub struct TapHost {
    queue: TapQueue,
    buffer: Box<[u8]>,
    /// The last packet read: its header and its length.
    last: Option<(VirtioNetHdr, usize)>,
    /// Emptied after each call, and kept for its allocation.
    slices: Vec<IoSlice<'static>>,
    refuses: AggregateKinds,
}

impl TapHost {
    /// Takes the queue.
    pub fn new(queue: TapQueue) -> Self {
        TapHost {
            queue,
            buffer: vec![0; VNET_LEN + HOST_PACKET_MAX].into_boxed_slice(),
            last: None,
            slices: Vec::with_capacity(SLICES_MAX),
            refuses: AggregateKinds::NONE,
        }
    }

    /// Another port on the same queue, so that one thread can read while another writes.
    ///
    /// # Errors
    /// The error of `dup`.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.queue.try_clone().map(TapHost::new)
    }
}

impl TapHost {
    /// Sets the kinds of aggregates that the kernel was seen to refuse.
    pub fn set_refuses(&mut self, kinds: AggregateKinds) {
        self.refuses = kinds;
    }
}

impl Host for TapHost {
    fn refuses(&self) -> AggregateKinds {
        self.refuses
    }

    /// One `writev`: the header, then the payloads where they lie.
    fn deliver(&mut self, memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered> {
        let header = packet.vnet.encode();
        let mut slices = reuse(std::mem::take(&mut self.slices));
        slices.push(IoSlice::new(&header));
        slices.extend(packet.slices(memory));
        let result = spent::timed(|| self.queue.writev(&slices));
        self.slices = reuse(slices);
        result.map(|()| Delivered::Now)
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        self.last = None;
        let len = match spent::timed(|| self.queue.read(&mut self.buffer)) {
            Ok(Some(len)) => len,
            Ok(None) => return Ok(FromHost::Empty),
            // A packet that the kernel could not describe is skipped (docs/kernel-rules.md, rule 13).
            Err(error) if matches!(error.raw_os_error(), Some(EIO | EINVAL)) => {
                return Ok(FromHost::Unreadable);
            }
            Err(error) => return Err(error),
        };
        let header: Option<&[u8; VNET_LEN]> = self.buffer.first_chunk();
        match header.map(VirtioNetHdr::decode) {
            Some(Ok(vnet)) if len >= VNET_LEN => {
                self.last = Some((vnet, len));
                Ok(self.again().map_or(FromHost::Unreadable, FromHost::Packet))
            }
            _ => Ok(FromHost::Unreadable),
        }
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        let (vnet, len) = self.last?;
        Some(HostPacket { vnet, bytes: &mut self.buffer[VNET_LEN..len] })
    }

    fn last(&self) -> &[u8] {
        self.last.map_or(&[], |(_, len)| &self.buffer[VNET_LEN..len])
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }
}
