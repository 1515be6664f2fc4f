//! Ports: where packets enter and leave wharf. A [`Wire`] moves frames of the wire's MTU, a
//! [`Host`] moves super-packets. Both work in batches and never block.

mod aggregates;
pub mod hardware;
mod host_wire;
pub mod memory;
pub mod packet;
mod patience;
mod refused;
pub mod shared;
pub mod spent;
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
use wire::{Bytes, ETHERNET_LEN, EtherType, VLAN_LEN, VirtioNetHdr};

use crate::config::GsoHardware;

pub use aggregates::{AggregateKind, AggregateKinds, Cut, Served};
pub(crate) use aggregates::{CuttingHost, Refusals, is_of_shape};
pub use host_wire::HostWire;
pub use refused::Refused;

/// Frames that may wait to be received, unless more of them pay.
pub(crate) const SHORT_QUEUE: usize = 8192;

/// A received frame, with its metadata.
#[derive(Debug)]
pub struct RxFrame {
    /// The memory that it lies in, which goes back to the worker's pool.
    pub frame: Frame,
    /// Checksum state, and how to cut it if it is a super-packet.
    pub vnet: VirtioNetHdr,
    /// Bytes that did not fit into `frame`: [`Wire::overflow`] has them until the next receive.
    pub overflow: u32,
    /// The port's overflow buffer that has them.
    pub slot: u8,
    /// Whether the sender may have left the checksum to its card, on a wire whose frames have no header for it
    /// (a veth read by AF_XDP): see [`wire::partial_checksum`].
    pub maybe_partial: bool,
}

/// Progress of a packet that is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// The port has taken all of it.
    Done,
    /// The port is full; segments from this one on must be offered again.
    Full {
        /// Segments that the port has taken, counted from the first.
        position: usize,
    },
}

/// Numbers of packets and bytes.
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
    /// Adds one packet of `bytes`.
    #[inline]
    pub fn count(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// Adds others.
    #[inline]
    pub fn add(&mut self, more: Traffic) {
        self.frames += more.frames;
        self.bytes += more.bytes;
    }
}

/// Bounds of a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Largest IP packet in bytes.
    pub mtu: usize,
    /// Which of the two cuts super-packets, interface or wharf, where the port has a choice (`gso.hardware`).
    pub hardware: GsoHardware,
}

impl Limits {
    /// No bound but the sizes in a super-packet's own header.
    pub const NONE: Limits = Limits { mtu: usize::MAX, hardware: GsoHardware::Off };

    /// Whether the frame fits the MTU, behind up to two VLAN tags.
    pub fn holds(&self, frame: &[u8]) -> bool {
        self.surely_holds(frame.get(vlan_tags(frame) * VLAN_LEN..).unwrap_or_default())
    }

    /// Whether the frame certainly fits: Ethernet and IP headers are at least so long.
    #[inline]
    pub fn surely_holds(&self, frame: &[u8]) -> bool {
        frame.len() <= self.mtu.saturating_add(ETHERNET_LEN)
    }
}

/// Returns the number of VLAN tags of a frame: 2 also if it has more.
fn vlan_tags(frame: &[u8]) -> usize {
    let is_tag = |tag: &usize| {
        let at = ETHERNET_LEN - 2 + tag * VLAN_LEN;
        let ethertype = frame.get(at..at + 2).and_then(|bytes| bytes.try_into().ok());
        ethertype.is_some_and(|bytes| EtherType(u16::from_be_bytes(bytes)).is_vlan())
    };
    (0..2).take_while(is_tag).count()
}

/// A packet from the host on its way to the wire.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Checksum state, and how to cut it.
    pub vnet: VirtioNetHdr,
    /// The packet, from the Ethernet header on.
    pub bytes: &'a mut [u8],
    /// The segment to begin with; the port has taken those before it.
    pub position: usize,
    /// IDs for the IP fragments that it becomes, if it has no ID itself.
    pub fragment_ids: FragmentIds,
}

impl<'a> Outgoing<'a> {
    /// A complete frame that fits the wire.
    pub fn frame(bytes: &'a mut [u8]) -> Self {
        Outgoing { vnet: VirtioNetHdr::default(), bytes, position: 0, fragment_ids: 0.into() }
    }
}

/// What the port has taken of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Transmitted {
    /// Frames and bytes on the wire.
    pub sent: Traffic,
    /// How the packet was cut; `None` if it was not.
    pub kind: Option<Kind>,
    /// Whether the interface is to cut it.
    pub hardware: bool,
    /// Number of `fragment_ids` that its fragments have.
    pub fragment_ids: u32,
}

/// Result of sending a packet in [pieces](Wire::transmit_pieces).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// The port has taken all of it.
    Done,
    /// The port is full. The packet is to be sent by [`Wire::transmit`], which counts how often it was
    /// offered.
    Full,
    /// The packet has to be cut first.
    Cut,
}

/// Counters of a wire beside those of packets given to it and received from it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WireCounters {
    /// Frames that were queued and that the interface then refused: it was down, they exceeded its MTU, or
    /// its queue stayed full. As on a card, they are lost. Packets that the kernel accepts and drops later,
    /// in a queueing discipline or a driver, are not counted here.
    pub lost: u64,
    /// Frames that [`transmit`](Wire::transmit) or [`send_frame`](Wire::send_frame) had taken, and counted as
    /// sent, and that were lost or refused later.
    pub taken_back: Traffic,
    /// Received frames that the port dropped because they were not taken in time.
    pub dropped: u64,
    /// Packets whose `virtio_net_hdr` is invalid.
    pub unreadable: u64,
    /// Packets that a host's kernel behind the port refused, by reason.
    pub refused: [u64; Refused::ALL.len()],
}

/// A port that faces the network.
pub trait Wire {
    /// Moves up to `max` frames that have arrived to the end of `into`.
    ///
    /// # Errors
    /// Only errors after which the port is useless, such as that its interface is gone.
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()>;

    /// The same, with the time at which the kernel received each frame, on [`sys::clock::now`]'s clock, for a
    /// port that was opened with time stamps.
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

    /// Sets the wire's bounds from now on.
    fn configure(&mut self, _limits: Limits) {}

    /// Bounds the frames that wait to be received from now on, where the port can; it begins with a short queue
    /// (8,192 frames).
    fn limit_queue(&mut self, _frames: usize) {}

    /// How many frames wait to be received, where the port can tell.
    fn waiting(&mut self) -> Option<u32> {
        None
    }

    /// Queues a packet from the host, cut and with complete checksums. `transmitted` counts what was queued,
    /// also if the rest is refused.
    ///
    /// # Errors
    /// Why the packet cannot be cut.
    fn transmit(
        &mut self,
        pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, Refusal>;

    /// Sends a packet that lies in pieces and whose `vnet` is right, where that is cheaper than to cut it
    /// into frames first. `transmitted` counts what was sent.
    fn transmit_pieces(
        &mut self,
        _pool: &mut FramePool,
        _vnet: &VirtioNetHdr,
        _pieces: [Bytes<'_>; 3],
        _put: &mut Transmitted,
    ) -> Whole {
        Whole::Cut
    }

    /// Queues a complete frame that lies in the port's own memory already. Ports that can send it without a
    /// copy override this.
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

    /// Has the kernel send what was queued, and takes back the memory of frames that it has sent.
    ///
    /// # Errors
    /// Only errors after which the port is useless.
    fn flush(&mut self, pool: &mut FramePool) -> io::Result<()>;

    /// Descriptor to poll for received frames; `None` if there is none.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Descriptor to poll for room, where that is not [`fd`](Self::fd); else `None`.
    fn transmit_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether frames are queued that the kernel has not taken. Then [`flush`](Self::flush) is to be called
    /// when [`fd`](Self::fd), or [`transmit_fd`](Self::transmit_fd), is writable.
    fn is_pending(&mut self) -> bool;

    /// Nanoseconds after which to try again what [is pending](Self::is_pending) or did not fit, where
    /// [`fd`](Self::fd) does not signal it; `None` where it does.
    fn retry_after(&self) -> Option<Nanos> {
        None
    }

    /// When the port has something to do by itself, on [`sys::clock::now`]'s clock; `None` if never.
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }

    /// Counters since the port was opened. A port that publishes counters of its own does so now, as the
    /// worker does.
    fn counters(&mut self) -> WireCounters {
        WireCounters::default()
    }

    /// Most frames that one [`receive`](Self::receive) returns. If it returns fewer, no more were waiting.
    fn burst(&self) -> usize {
        usize::MAX
    }

    /// The end is near: what is queued and the kernel does not take now is lost, and counted so.
    fn give_up(&mut self, _pool: &mut FramePool) {}

    /// Gives all memory back to `pool` and closes the port.
    fn close(self, pool: &mut FramePool)
    where
        Self: Sized;
}

/// A packet from the host.
#[derive(Debug)]
pub struct HostPacket<'a> {
    /// Checksum state, and how to cut it.
    pub vnet: VirtioNetHdr,
    /// The packet, from the Ethernet header on.
    pub bytes: &'a mut [u8],
}

/// Result of [`Host::receive`].
#[derive(Debug)]
pub enum FromHost<'a> {
    /// One packet.
    Packet(HostPacket<'a>),
    /// The packet's `virtio_net_hdr` is invalid; the packet is lost and must be counted.
    Unreadable,
    /// No packet is waiting.
    Empty,
}

/// A packet for the host, in the memory where it lies.
#[derive(Debug)]
pub struct Delivery<'a> {
    /// Checksum state, and how it may be cut again.
    pub vnet: VirtioNetHdr,
    /// Its first bytes, where they do not lie in a frame.
    pub header: &'a [u8],
    /// Frames whose bytes come next.
    pub frames: &'a mut Vec<Frame>,
    /// Its last bytes, in one or two pieces, where they do not lie in a frame.
    pub rest: [&'a [u8]; 2],
}

impl Delivery<'_> {
    /// Bytes of the packet, from the Ethernet header on.
    pub fn bytes(&self) -> usize {
        let [first, second] = self.rest;
        let frames = self.frames.iter().map(Frame::len).sum::<usize>();
        self.header.len() + frames + first.len() + second.len()
    }

    /// The slices of the packet, in order.
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

/// Progress of a [`Delivery`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivered {
    /// The host has accepted it.
    Now,
    /// It is queued in front of the port; [`Requests::completed`](shared::Requests::completed) will return
    /// the result.
    Later,
    /// It was an aggregate that the host's kernel refuses: its segments were handed over one by one.
    Cut(Cut),
}

/// A port that faces the host's kernel.
pub trait Host {
    /// Delivers one packet, whose frames are of `memory`, to the host. Frames that are left in
    /// `packet.frames` are no longer used. A port that needs them for longer takes them out, and gives them
    /// back through its [`requests`](Self::requests).
    ///
    /// # Errors
    /// The kernel's error; [`Refused`] is its meaning.
    fn deliver(&mut self, memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered>;

    /// Kinds of aggregates that the host's kernel was seen to refuse when the port was opened.
    fn refuses(&self) -> AggregateKinds {
        AggregateKinds::NONE
    }

    /// The queue between the worker and a port that it shares with others; `None` for a port of its
    /// own.
    fn requests(&self) -> Option<&shared::Requests> {
        None
    }

    /// The same, to take completions.
    fn requests_mut(&mut self) -> Option<&mut shared::Requests> {
        None
    }

    /// Receives one packet from the host; it stays in the port's buffer until the next call.
    ///
    /// # Errors
    /// Only errors after which the port is useless.
    fn receive(&mut self) -> io::Result<FromHost<'_>>;

    /// The packet that the last [`receive`](Self::receive) returned, once more: for when the wire was full.
    fn again(&mut self) -> Option<HostPacket<'_>>;

    /// The bytes of the packet that the last [`receive`](Self::receive) returned.
    fn last(&self) -> &[u8];

    /// Descriptor to poll for packets; `None` if there is none.
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

/// A slice of these bytes: a copy, if others may change them.
pub(crate) fn slice<'s>(bytes: Bytes<'s>, copy: &'s mut Vec<u8>) -> &'s [u8] {
    bytes.as_slice().unwrap_or_else(|| {
        copy.resize(bytes.len(), 0);
        bytes.copy_to(copy);
        copy
    })
}

/// An empty vector with the memory of `used`, for slices of any lifetime: collecting in place
/// keeps the allocation.
fn reuse<'b>(mut used: Vec<IoSlice<'_>>) -> Vec<IoSlice<'b>> {
    used.clear();
    used.into_iter().map(|_| IoSlice::new(&[])).collect()
}
