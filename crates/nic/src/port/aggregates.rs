//! Aggregates that the host's kernel refuses. Some kernels answer `EINVAL` to super-packets of a certain shape, such as
//! those whose last segment is shorter than the others: their segments are handed over one by one, and after a few
//! refusals nothing of that kind is merged any more.

use std::io;
use std::ops::{Deref, DerefMut};

use gso::{MAX_HEADER_LEN, Segmenter};
use lro::Nanos;
use sys::frames::FrameReader;
use wire::{ETHERNET_LEN, EtherType, GsoType, Headers, Network, Transport, VLAN_LEN, VirtioNetHdr};

use super::{Delivered, Delivery, Host, Refused, Traffic};

/// Refusals after which nothing of a kind is merged any more.
const REFUSALS_MAX: u8 = 8;
/// Refusals that are further apart than this do not count together.
const REFUSALS_APART: Nanos = 60_000_000_000;

const EINVAL: i32 = 22;
const EMSGSIZE: i32 = 90;
const EOPNOTSUPP: i32 = 95;

/// What LRO merges, by transport and IP version, and the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AggregateKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
    /// Any other, which is not merged here: it came as a super-packet.
    Other,
}

impl AggregateKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [AggregateKind; 5] = [
        AggregateKind::Tcp4,
        AggregateKind::Tcp6,
        AggregateKind::Udp4,
        AggregateKind::Udp6,
        AggregateKind::Other,
    ];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            AggregateKind::Tcp4 => "tcp4",
            AggregateKind::Tcp6 => "tcp6",
            AggregateKind::Udp4 => "udp4",
            AggregateKind::Udp6 => "udp6",
            AggregateKind::Other => "other",
        }
    }

    /// The kind of a super-packet of which `first` is the beginning.
    fn of_aggregate(vnet: &VirtioNetHdr, first: &[u8]) -> AggregateKind {
        let tagged = |at: usize| -> Option<EtherType> {
            let bytes = first.get(at..at + 2)?.try_into().ok()?;
            Some(EtherType(u16::from_be_bytes(bytes)))
        };
        let behind = (0..3).map(|tags| ETHERNET_LEN - 2 + tags * VLAN_LEN);
        let network = behind.filter_map(tagged).find(|ethertype| !ethertype.is_vlan());
        match (vnet.tunnel, vnet.gso_type, network) {
            (None, GsoType::Tcpv4, _) => AggregateKind::Tcp4,
            (None, GsoType::Tcpv6, _) => AggregateKind::Tcp6,
            (None, GsoType::UdpL4, Some(EtherType::IPV4)) => AggregateKind::Udp4,
            (None, GsoType::UdpL4, Some(EtherType::IPV6)) => AggregateKind::Udp6,
            _ => AggregateKind::Other,
        }
    }

    /// The kind of what a frame may be merged into.
    pub fn of_frame(packet: &[u8]) -> AggregateKind {
        let Ok(headers) = Headers::parse(packet) else { return AggregateKind::Other };
        match (headers.network, headers.transport) {
            (Network::Ipv4 { .. }, Transport::Tcp) => AggregateKind::Tcp4,
            (Network::Ipv6 { .. }, Transport::Tcp) => AggregateKind::Tcp6,
            (Network::Ipv4 { .. }, Transport::Udp) => AggregateKind::Udp4,
            (Network::Ipv6 { .. }, Transport::Udp) => AggregateKind::Udp6,
            _ => AggregateKind::Other,
        }
    }
}

/// Kinds of aggregates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AggregateKinds(u8);

impl AggregateKinds {
    /// None.
    pub const NONE: AggregateKinds = AggregateKinds(0);

    /// Whether this one is among them.
    #[inline]
    pub fn has(self, kind: AggregateKind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    /// One more.
    pub fn insert(&mut self, kind: AggregateKind) {
        self.0 |= 1 << kind as u8;
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of kinds.
    pub fn count(self) -> u64 {
        self.0.count_ones().into()
    }
}

/// Refusals so far, and the kinds that are not merged because of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    counts: [(u8, Nanos); AggregateKind::ALL.len()],
    stopped: AggregateKinds,
}

impl Refusals {
    /// With kinds that are known to be refused.
    pub(crate) fn of(stopped: AggregateKinds) -> Self {
        Refusals { stopped, ..Refusals::default() }
    }

    /// Counts one at `now`. Returns true if the kind is not to be merged from now on, and was until then.
    pub(crate) fn count(&mut self, kind: AggregateKind, now: Nanos) -> bool {
        let (count, last) = &mut self.counts[kind as usize];
        *count =
            if now.saturating_sub(*last) > REFUSALS_APART { 1 } else { count.saturating_add(1) };
        *last = now;
        let stops = *count >= REFUSALS_MAX && !self.stopped.has(kind);
        if stops {
            self.stopped.insert(kind);
        }
        stops
    }

    /// Kinds that are not merged.
    #[inline]
    pub(crate) fn stopped(&self) -> AggregateKinds {
        self.stopped
    }
}

/// Segments of an aggregate that the host's kernel had refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Kind of the aggregate.
    pub kind: AggregateKind,
    /// Segments that the kernel has taken.
    pub taken: Traffic,
    /// Segments that it has refused, too.
    pub refused: u64,
}

/// A host port that hands over the segments of an aggregate which the kernel refuses.
#[derive(Debug)]
pub(crate) struct CuttingHost<H> {
    host: H,
    refusals: Refusals,
    /// Memory for an aggregate in one piece.
    whole: Vec<u8>,
}

impl<H: Host> CuttingHost<H> {
    /// In front of `host`.
    pub(crate) fn new(host: H) -> Self {
        let refusals = Refusals::of(host.refuses());
        CuttingHost { host, refusals, whole: Vec::new() }
    }

    /// Delivers one packet, or its segments if the kernel refuses it for its form.
    ///
    /// # Errors
    /// As [`Host::deliver`].
    pub(crate) fn deliver(
        &mut self,
        memory: &FrameReader,
        packet: Delivery<'_>,
    ) -> io::Result<Delivered> {
        let vnet = packet.vnet;
        if vnet.gso_type == GsoType::None {
            return self.host.deliver(memory, packet);
        }
        if !self.refusals.stopped().is_empty() {
            let first = packet.slices(memory).next();
            let kind = AggregateKind::of_aggregate(&vnet, first.as_deref().unwrap_or_default());
            if self.refusals.stopped().has(kind) {
                self.join(memory, &packet);
                if let Some(cut) = self.cut(memory, &vnet, kind) {
                    return Ok(Delivered::Cut(cut));
                }
            }
        }
        let Delivery { header, frames, rest, .. } = packet;
        let again = Delivery { vnet, header, frames: &mut *frames, rest };
        let error = match self.host.deliver(memory, again) {
            Err(error) if is_of_shape(&error) => error,
            other => return other,
        };
        self.join(memory, &Delivery { vnet, header, frames, rest });
        let kind = AggregateKind::of_aggregate(&vnet, &self.whole);
        match self.cut(memory, &vnet, kind) {
            Some(cut) => {
                if self.refusals.count(kind, sys::clock::now()) {
                    let kind = kind.name();
                    tracing::warn!(
                        "the host's kernel refuses aggregates ({kind}): they are no longer merged"
                    );
                }
                Ok(Delivered::Cut(cut))
            }
            None => Err(error),
        }
    }

    /// Copies the packet to one piece.
    #[cold]
    fn join(&mut self, memory: &FrameReader, packet: &Delivery<'_>) {
        self.whole.clear();
        packet.slices(memory).for_each(|slice| self.whole.extend_from_slice(&slice));
    }

    /// Delivers the segments of the packet that was joined. Returns `None` if the kernel takes none of them: then it does not
    /// refuse the aggregate for being one.
    #[cold]
    fn cut(
        &mut self,
        memory: &FrameReader,
        vnet: &VirtioNetHdr,
        kind: AggregateKind,
    ) -> Option<Cut> {
        let CuttingHost { host, whole, .. } = self;
        let mut segments = Segmenter::new(whole, vnet).ok()?;
        let mut cut = Cut { kind, taken: Traffic::default(), refused: 0 };
        let mut header = [0; MAX_HEADER_LEN];
        while let Some(segment) = segments.next_segment(&mut header) {
            let packet = Delivery {
                vnet: VirtioNetHdr::default(),
                header: &header[..segment.header_len],
                frames: &mut Vec::new(),
                rest: [segment.payload, &[]],
            };
            let bytes = packet.bytes();
            match host.deliver(memory, packet) {
                Ok(_) => cut.taken.count(bytes),
                Err(_) => cut.refused += 1,
            }
        }
        (cut.taken.frames > 0).then_some(cut)
    }
}

/// Whether the kernel refuses the packet for its shape. Other errors are those of the interface.
pub(crate) fn is_of_shape(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EINVAL | EMSGSIZE | EOPNOTSUPP))
}

/// What is read from the host.
impl<H> Deref for CuttingHost<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.host
    }
}

impl<H> DerefMut for CuttingHost<H> {
    fn deref_mut(&mut self) -> &mut H {
        &mut self.host
    }
}

/// Packets that the host's kernel has taken of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// The packet, or its segments.
    pub taken: Traffic,
    /// The segments, if the kernel had refused the packet.
    pub cut: Option<Cut>,
}

impl Served {
    /// Of a packet of so many bytes.
    pub(crate) fn of(delivered: io::Result<Delivered>, bytes: usize) -> Result<Served, Refused> {
        match delivered {
            Ok(Delivered::Cut(cut)) => Ok(Served { taken: cut.taken, cut: Some(cut) }),
            Ok(Delivered::Now | Delivered::Later) => {
                let mut taken = Traffic::default();
                taken.count(bytes);
                Ok(Served { taken, cut: None })
            }
            Err(error) => Err(Refused::from_error(&error)),
        }
    }
}
