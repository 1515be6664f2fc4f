//! Ports: where packets enter and leave wharf. A [`Wire`] moves frames of the wire's MTU, a
//! [`Host`] moves super-packets. Both work in batches and never block.

pub mod hardware;
mod host_wire;
pub mod memory;
pub mod packet;
mod patience;
mod refused;
pub mod shared;
pub mod split;
pub mod tap;
pub mod veth;
pub mod xdp;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use gso::{FragmentIds, Kind, Refusal};
use lro::Nanos;
use sys::frames::{Frame, FramePool, FrameReader};
use wire::{ETHERNET_LEN, EtherType, VLAN_LEN, VirtioNetHdr};

use crate::config::GsoHardware;

pub use host_wire::HostWire;
pub use refused::Refused;

/// Frames that may wait to be received, unless more of them pay.
pub(crate) const SHORT_QUEUE: usize = 8192;

/// A frame from the wire, with what the port knows of it.
#[derive(Debug)]
pub struct RxFrame {
    /// The memory it lies in; goes back to the worker's pool.
    pub frame: Frame,
    /// Checksum state, and how to cut it if the wire handed over a super-packet.
    pub vnet: VirtioNetHdr,
    /// Bytes that did not fit into `frame`: [`Wire::overflow`] has them until the next receive.
    pub overflow: u32,
    /// Which of the port's overflow buffers.
    pub slot: u8,
    /// The checksum may be one that the sender left to its card, on a wire that cannot say so (a
    /// veth read by AF_XDP): see [`wire::partial_checksum`].
    pub maybe_partial: bool,
}

/// How far a packet got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// All of it is with the port.
    Done,
    /// The port is full; segments from this one on must be offered again.
    Full {
        /// Segments that are with the port, counted from the first.
        position: usize,
    },
}

/// Packets and bytes that went somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Packets or frames.
    pub frames: u64,
    /// Bytes, Ethernet headers included.
    pub bytes: u64,
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;

    fn sub(self, other: Traffic) -> Traffic {
        Traffic {
            frames: self.frames.saturating_sub(other.frames),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl Traffic {
    /// One more, of `bytes`.
    #[inline]
    pub fn count(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// Several more.
    #[inline]
    pub fn add(&mut self, more: Traffic) {
        self.frames += more.frames;
        self.bytes += more.bytes;
    }
}

/// What a wire takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest IP packet in bytes.
    pub mtu: usize,
    /// Who cuts super-packets, where the port has a choice (`gso.hardware`).
    pub hardware: GsoHardware,
}

impl Limits {
    /// None but what a super-packet says itself.
    pub const NONE: Limits = Limits { mtu: usize::MAX, hardware: GsoHardware::Off };

    /// Whether the frame fits, behind up to two VLAN tags.
    pub fn holds(&self, frame: &[u8]) -> bool {
        let is_tag = |tag: &usize| {
            let at = ETHERNET_LEN - 2 + tag * VLAN_LEN;
            let ethertype = frame.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
            ethertype.is_some_and(|bytes| EtherType(u16::from_be_bytes(bytes)).is_vlan())
        };
        let tags = (0..2).take_while(is_tag).count();
        self.surely_holds(frame.get(tags * VLAN_LEN..).unwrap_or_default())
    }

    /// Whether the frame surely fits: Ethernet and IP are at least so long.
    #[inline]
    pub fn surely_holds(&self, frame: &[u8]) -> bool {
        frame.len() <= self.mtu.saturating_add(ETHERNET_LEN)
    }
}

/// A packet from the host on its way to the wire.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Checksum state, and how to cut it.
    pub vnet: VirtioNetHdr,
    /// From the Ethernet header on.
    pub bytes: &'a mut [u8],
    /// The segment to begin with; those before it are with the port.
    pub position: usize,
    /// IDs of the IP fragments that it becomes, where it has none of its own.
    pub fragment_ids: FragmentIds,
}

impl<'a> Outgoing<'a> {
    /// A complete frame that fits the wire.
    pub fn frame(bytes: &'a mut [u8]) -> Self {
        Outgoing { vnet: VirtioNetHdr::default(), bytes, position: 0, fragment_ids: 0.into() }
    }
}

/// What of a packet is with the port now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transmitted {
    /// Frames and bytes on the wire.
    pub sent: Traffic,
    /// How the packet was cut; `None` if it was not.
    pub kind: Option<Kind>,
    /// The interface was left to cut it.
    pub hardware: bool,
    /// How many of the packet's `fragment_ids` its fragments have.
    pub fragment_ids: u32,
}

/// What became of a packet in [pieces](Wire::transmit_pieces).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// All of it is with the port.
    Done,
    /// The port does not take it now. [`Wire::transmit`] is the way, which keeps count of how often it was
    /// offered.
    Full,
    /// It is to be cut first.
    Cut,
}

/// What a wire counts beside what it is given.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WireCounters {
    /// Frames that were queued and that the interface then would not take: it was down, they were over its
    /// MTU, or its queue stayed full. As with a card, they are lost. What the kernel takes and drops later,
    /// in a queueing discipline or a driver, is not known here.
    pub lost: u64,
    /// What [`transmit`](Wire::transmit) or [`send_frame`](Wire::send_frame) had taken, and counted as sent,
    /// of what was lost or refused later.
    pub taken_back: Traffic,
    /// Frames that the port dropped because they were not taken in time.
    pub dropped: u64,
    /// Packets whose header made no sense.
    pub unreadable: u64,
    /// Packets that a host's kernel behind the port did not take, by reason.
    pub refused: [u64; Refused::ALL.len()],
}

/// The side that faces the network.
pub trait Wire {
    /// Moves up to `max` frames that have arrived to the end of `into`.
    ///
    /// # Errors
    /// Only what makes the port useless, such as an interface that is gone.
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()>;

    /// The same, with the time at which the kernel received each frame, at [`sys::clock::now`], from a
    /// port that was opened to know it.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    fn receive_stamped(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<(RxFrame, Option<Nanos>)>,
        max: usize,
    ) -> io::Result<()> {
        let mut received = VecDeque::new();
        self.receive(pool, &mut received, max)?;
        into.extend(received.into_iter().map(|frame| (frame, None)));
        Ok(())
    }

    /// The bytes of a received super-packet that did not fit into its frame.
    fn overflow(&self, _received: &RxFrame) -> &[u8] {
        &[]
    }

    /// What the port is to go by from now on.
    fn configure(&mut self, _limits: Limits) {}

    /// So many frames may wait to be received from now on, where the port has a say in it; [`SHORT_QUEUE`] before.
    fn limit_queue(&mut self, _frames: usize) {}

    /// Queues a packet from the host, cut and with complete checksums. `transmitted` tells what was queued
    /// even if the rest is refused.
    ///
    /// # Errors
    /// What cannot be cut is refused by name.
    fn transmit(
        &mut self,
        pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal>;

    /// Sends a packet that lies in pieces and whose `vnet` is right, where that is cheaper than to cut it
    /// into frames before. `transmitted` tells what was sent.
    fn transmit_pieces(
        &mut self,
        _pool: &mut FramePool,
        _vnet: &VirtioNetHdr,
        _pieces: [&[u8]; 3],
        _put: &mut Transmitted,
    ) -> Whole {
        Whole::Cut
    }

    /// Queues a complete frame that lies in the port's own memory already. A port that need not copy it
    /// has its own way.
    ///
    /// # Errors
    /// The frame, if the port is full.
    fn send_frame(&mut self, pool: &mut FramePool, frame: Frame) -> Result<(), Frame> {
        let mut bytes = pool.bytes(&frame).to_vec();
        let result = self.transmit(pool, Outgoing::frame(&mut bytes), &mut Transmitted::default());
        if let Ok(Transmit::Full { .. }) = result {
            return Err(frame);
        }
        pool.free(frame);
        Ok(())
    }

    /// Makes the kernel take what was queued, and takes back the memory of what it has sent.
    ///
    /// # Errors
    /// Only what makes the port useless.
    fn flush(&mut self, pool: &mut FramePool) -> io::Result<()>;

    /// What to sleep on; `None` if the port cannot wake a thread.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// What to sleep on until there is room, where that is not [`fd`](Self::fd); else `None`.
    fn transmit_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether frames are queued that the kernel has not taken. Then the port is to be written to when
    /// [`fd`](Self::fd), or [`transmit_fd`](Self::transmit_fd), is ready for it, which is by
    /// [`flush`](Self::flush).
    fn is_pending(&mut self) -> bool;

    /// When to try again what [`is_pending`](Self::is_pending) or did not fit, where
    /// [`fd`](Self::fd) does not tell: in so many nanoseconds. `None` if it tells.
    fn retry_after(&self) -> Option<Nanos> {
        None
    }

    /// When the port has something to do by itself, at [`sys::clock::now`]; `None` if never.
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    /// What the port has counted since it was opened. One that publishes counters of its own does so now,
    /// as the worker does.
    fn counters(&mut self) -> WireCounters {
        WireCounters::default()
    }

    /// Most frames that one [`receive`](Self::receive) finds. Fewer mean that no more waited.
    fn burst(&self) -> usize {
        usize::MAX
    }

    /// Gives all memory back; the port is not used afterwards.
    fn close(self, pool: &mut FramePool)
    where
        Self: Sized;
}

/// A packet that the host sends.
#[derive(Debug)]
pub struct HostPacket<'a> {
    /// Checksum state, and how to cut it.
    pub vnet: VirtioNetHdr,
    /// From the Ethernet header on.
    pub bytes: &'a mut [u8],
}

/// What [`Host::receive`] found.
#[derive(Debug)]
pub enum FromHost<'a> {
    /// One packet.
    Packet(HostPacket<'a>),
    /// The host's header made no sense; the packet is lost and must be counted.
    Unreadable,
    /// Nothing waits.
    Empty,
}

/// A packet for the host, in the memory where it lies.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// Checksum state, and how it may be cut again.
    pub vnet: VirtioNetHdr,
    /// Its first bytes, where they are not those of a frame.
    pub header: &'a [u8],
    /// Frames whose bytes come next.
    pub frames: &'a mut Vec<Frame>,
    /// Its last bytes, in one or two pieces, where they are not those of a frame.
    pub rest: [&'a [u8]; 2],
}

impl Delivery<'_> {
    /// Bytes of the packet, from the Ethernet header on.
    pub fn bytes(&self) -> usize {
        let [first, second] = self.rest;
        let frames = self.frames.iter().map(Frame::len).sum::<usize>();
        self.header.len() + frames + first.len() + second.len()
    }

    /// The packet in order.
    pub(crate) fn slices<'s>(
        &'s self,
        memory: &'s FrameReader,
    ) -> impl Iterator<Item = IoSlice<'s>> {
        let ends = |bytes: &'s [u8]| (!bytes.is_empty()).then(|| IoSlice::new(bytes));
        let frames = self.frames.iter().map(|frame| IoSlice::new(memory.bytes(frame)));
        let rest = self.rest.into_iter().filter_map(ends);
        ends(self.header).into_iter().chain(frames).chain(rest)
    }
}

/// What became of a [`Delivery`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivered {
    /// The host has it.
    Now,
    /// It is queued in front of the port; [`Requests::completed`](shared::Requests::completed)
    /// will tell.
    Later,
}

/// The side that faces the host's kernel.
pub trait Host {
    /// Hands one packet to the host; its frames are of `memory`. Frames that are left in
    /// `packet.frames` are not used any more. A port that needs them for longer takes them out, and
    /// gives them back through its [`requests`](Self::requests).
    ///
    /// # Errors
    /// The kernel's own; see [`Refused`] for what becomes of it.
    fn deliver(&mut self, memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered>;

    /// The queue between the worker and a port that it shares with others; `None` for a port of its
    /// own.
    fn requests(&self) -> Option<&shared::Requests> {
        None
    }

    /// The same, to take completions from.
    fn requests_mut(&mut self) -> Option<&mut shared::Requests> {
        None
    }

    /// Takes one packet from the host; it stays in the port's buffer until the next call.
    ///
    /// # Errors
    /// Only what makes the port useless.
    fn receive(&mut self) -> io::Result<FromHost<'_>>;

    /// The packet that the last [`receive`](Self::receive) gave, once more: for when the wire was
    /// full.
    fn again(&mut self) -> Option<HostPacket<'_>>;

    /// The bytes of the packet that the last [`receive`](Self::receive) gave.
    fn last(&self) -> &[u8];

    /// What to sleep on; `None` if the port cannot wake a thread.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// The host port of a worker that has no host.
#[derive(Debug)]
pub enum NoHost {}

impl Host for NoHost {
    fn deliver(&mut self, _memory: &FrameReader, _packet: Delivery<'_>) -> io::Result<Delivered> {
        match *self {}
    }

    fn receive(&mut self) -> io::Result<FromHost<'_>> {
        match *self {}
    }

    fn again(&mut self) -> Option<HostPacket<'_>> {
        match *self {}
    }

    fn last(&self) -> &[u8] {
        match *self {}
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match *self {}
    }
}

/// Ethernet header and two VLAN tags.
pub(crate) const LINK_HEADER_MAX: usize = ETHERNET_LEN + 2 * VLAN_LEN;

/// The largest packet a host can hand over: 64 KB of IP behind its link header.
pub(crate) const HOST_PACKET_MAX: usize = LINK_HEADER_MAX + 65_536;

/// An empty vector with the memory of `used`, for slices of any lifetime: collecting in place
/// keeps the allocation.
fn reuse<'b>(mut used: Vec<IoSlice<'_>>) -> Vec<IoSlice<'b>> {
    used.clear();
    used.into_iter().map(|_| IoSlice::new(&[])).collect()
}
