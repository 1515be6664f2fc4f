//! A host port on the far end of a veth pair, by AF_PACKET: where there is no `/dev/net/tun`.
//!
//! A veth hands super-packets over whole in both directions, with the same `virtio_net_hdr` as a
//! TAP, so the host sees the same interface with the same offloads.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use sys::frames::{FramePool, FrameReader};
use sys::packet::{BATCH, PacketSocket, Received};
use wire::VirtioNetHdr;

use super::{
    AggregateKinds, Delivered, Delivery, FromHost, HOST_PACKET_MAX, Host, HostPacket, reuse,
};

/// Chunk of the port's own pool in bytes; the rest of longer packets is overflow.
const CHUNK_SIZE: u32 = 2048;
/// Most slices in one `sendmsg` (`UIO_MAXIOV`), the virtio header's not included.
const SLICES_MAX: usize = 1023;

/// The far end of the host's interface.
#[derive(Debug)]
pub struct VethHost {
    socket: PacketSocket,
    pool: FramePool,
    /// Packets of the last system call that were not returned yet.
    batch: VecDeque<Received>,
    /// Kept for its allocation; empty between calls.
    received: Vec<Received>,
    /// The packet that was returned last, in one piece.
    buffer: Box<[u8]>,
    last: Option<(VirtioNetHdr, usize)>,
    /// Emptied after each call, and kept for its allocation.
    slices: Vec<IoSlice<'static>>,
    refuses: AggregateKinds,
}

impl VethHost {
    /// Takes the socket.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn new(socket: PacketSocket) -> io::Result<Self> {
        Ok(VethHost {
            socket,
            pool: FramePool::new(2 * BATCH as u32, CHUNK_SIZE)?,
            batch: VecDeque::with_capacity(BATCH),
            received: Vec::with_capacity(BATCH),
            buffer: vec![0; HOST_PACKET_MAX].into_boxed_slice(),
            last: None,
            slices: Vec::with_capacity(SLICES_MAX),
            refuses: AggregateKinds::NONE,
        })
    }

    /// Joins frame and overflow: a kernel's super-packet is cut from one piece.
    fn join(&mut self, received: Received) -> usize {
        let first = self.pool.bytes(&received.frame);
        let rest = self.socket.overflow(received.slot, received.overflow);
        let len = first.len() + rest.len();
        let fits = len <= self.buffer.len();
        if fits {
            self.buffer[..first.len()].copy_from_slice(first);
            self.buffer[first.len()..len].copy_from_slice(rest);
        }
        self.pool.free(received.frame);
        if fits { len } else { 0 }
    }
}

impl VethHost {
    /// Sets the kinds of aggregates that the kernel was seen to refuse.
    pub fn set_refuses(&mut self, kinds: AggregateKinds) {
        self.refuses = kinds;
    }
}

impl Host for VethHost {
    fn refuses(&self) -> AggregateKinds {
        self.refuses
    }

    fn deliver(&mut self, memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered> {
        let mut slices = reuse(std::mem::take(&mut self.slices));
        slices.extend(packet.slices(memory));
        let result = self.socket.send_slices(&packet.vnet.encode_legacy(), &slices);
        self.slices = reuse(slices);
        result.map(|()| Delivered::Now)
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        self.last = None;
        if self.batch.is_empty() {
            match self.socket.receive(&mut self.pool, &mut self.received, BATCH) {
                // The host took its interface down; it may bring it up again.
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
                other => {
                    other?;
                }
            }
            self.batch.extend(self.received.drain(..));
        }
        let Some(received) = self.batch.pop_front() else {
            return Ok(FromHost::Empty);
        };
        let vnet = VirtioNetHdr::decode_legacy(&received.vnet);
        match (vnet, self.join(received)) {
            (Ok(vnet), len @ 1..) => {
                self.last = Some((vnet, len));
                Ok(self.again().map_or(FromHost::Unreadable, FromHost::Packet))
            }
            _ => Ok(FromHost::Unreadable),
        }
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        let (vnet, len) = self.last?;
        Some(HostPacket { vnet, bytes: &mut self.buffer[..len] })
    }

    fn last(&self) -> &[u8] {
        self.last.map_or(&[], |(_, len)| &self.buffer[..len])
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
