//! How a packet is to be cut: the slides' `gso_dispatch` and `gso_functions`.

use wire::{
    Flags, GsoType, Headers, Ipv4, Ipv6, Network, Sum, Tcp, Transport, UdpTunnel, VirtioNetHdr,
    protocol,
};

use crate::datagrams::DatagramsPart;
use crate::fragment::{self, Fragments};
use crate::ip::IpPart;
use crate::piece::MAX_HEADER_LEN;
use crate::sctp::{self, SctpPart};
use crate::segmenter::{Segmenter, TransportPart};
use crate::tcp::TcpPart;
use crate::tunnel::{self, TunnelPart};
use crate::udp::{UDP_MAX_SEGMENTS, UdpPart};
use crate::{FragmentIds, Kind, Refusal, be16, tcp, udp};

impl<'a> Segmenter<'a> {
    /// Prepares to cut `packet`, an Ethernet frame, as `hdr` says. `hdr_len` is not looked at: on
    /// forwarded traffic it can be anything. Bytes after the IP packet (Ethernet padding) are no
    /// payload.
    ///
    /// With `NEEDS_CSUM` the checksum field must hold the pseudo-header's sum, length included;
    /// it is believed, as it is right even where a Routing header hides the final destination.
    /// TCP without `NEEDS_CSUM` gets its checksums computed from the addresses.
    ///
    /// # Errors
    /// What cannot be cut is refused by name. IP fragments (UFO) need an ID, and a packet that is
    /// no super-packet an MTU: see [`with_mtu`](Self::with_mtu).
    pub fn new(packet: &'a [u8], hdr: &VirtioNetHdr) -> Result<Segmenter<'a>, Refusal> {
        match hdr.gso_type {
            GsoType::Tcpv4 | GsoType::Tcpv6 | GsoType::UdpL4 => {
                Self::with_mtu(packet, hdr, usize::MAX, 0)
            }
            GsoType::Udp => Err(Refusal::Ufo),
            GsoType::None => Err(Refusal::NotSuperPacket),
        }
    }

    /// Prepares to cut `packet`, an Ethernet frame, as `hdr` says and so that no IP packet is
    /// longer than `mtu` bytes; with any packet that a host transmits.
    ///
    /// - TCP is cut into segments, of `gso_size` bytes if it is a super-packet, fewer where they
    ///   would not fit.
    /// - SCTP that is too long is dealt out by chunks.
    /// - Of what else is too long IP makes fragments (the slides' GSO_UDP4 and GSO_UDP6), of UFO
    ///   super-packets, and of each datagram of a USO super-packet that is too long. Where the ID is not
    ///   the packet's own they get the first of `fragment_ids`, each datagram of USO the next. These
    ///   must not come again soon between the same hosts, and not be foreseen by others (RFC 7739). It
    ///   is so with all IPv6 packets, with those with DF (RFC 6864 section 4.1), which is cleared, and
    ///   with USO. [`fragment_ids`](Self::fragment_ids) tells how many were used.
    /// - What fits is one frame: the packet with its checksum completed.
    ///
    /// # Errors
    /// What cannot be cut is refused by name.
    pub fn with_mtu(
        packet: &'a [u8],
        hdr: &VirtioNetHdr,
        mtu: usize,
        fragment_ids: impl Into<FragmentIds>,
    ) -> Result<Segmenter<'a>, Refusal> {
        Packet::new(packet, Headers::parse(packet)?, hdr, mtu, fragment_ids.into()).dispatch()
    }

    /// [`with_mtu`](Self::with_mtu) of an IP packet without a link layer, as a TUN hands it over.
    /// The frames have no link layer either.
    ///
    /// # Errors
    /// What cannot be cut is refused by name.
    pub fn of_ip(
        packet: &'a [u8],
        hdr: &VirtioNetHdr,
        mtu: usize,
        fragment_ids: impl Into<FragmentIds>,
    ) -> Result<Segmenter<'a>, Refusal> {
        Packet::new(packet, Headers::parse_ip(packet)?, hdr, mtu, fragment_ids.into()).dispatch()
    }
}

/// One packet and what is known of it.
#[derive(Clone, Copy)]
pub(crate) struct Packet<'a> {
    bytes: &'a [u8],
    /// Of the inner packet, if there is a tunnel.
    headers: Headers,
    /// The tunnel, and its headers.
    outer: Option<(Headers, UdpTunnel)>,
    hdr: VirtioNetHdr,
    /// Most bytes of a frame's IP packet.
    mtu: usize,
    fragment_ids: FragmentIds,
}

impl<'a> Packet<'a> {
    pub(crate) fn new(
        bytes: &'a [u8],
        headers: Headers,
        hdr: &VirtioNetHdr,
        mtu: usize,
        fragment_ids: FragmentIds,
    ) -> Packet<'a> {
        Packet { bytes, headers, outer: None, hdr: *hdr, mtu, fragment_ids }
    }

    /// By what is to be made of it.
    pub(crate) fn dispatch(mut self) -> Result<Segmenter<'a>, Refusal> {
        if let Some(tunnel) = self.hdr.tunnel {
            self.outer = Some((self.headers, tunnel));
            self.headers = tunnel::inner(self.bytes, &self.headers, &tunnel)?;
        }
        match (self.hdr.gso_type, self.headers.transport) {
            (GsoType::Tcpv4 | GsoType::Tcpv6, _) => self.tcp(self.hdr.gso_size.into()),
            (GsoType::UdpL4, _) => self.uso(),
            // These are no super-packets that Linux makes.
            _ if self.outer.is_some() => Err(Refusal::UdpTunnel),
            (GsoType::Udp, _) => self.ufo(),
            (GsoType::None, _) if self.fits() => self.whole(),
            // The urgent pointer counts from its own segment's sequence number.
            (GsoType::None, Transport::Tcp) if self.is_urgent() => self.fragments(usize::MAX),
            (GsoType::None, Transport::Tcp) => self.tcp(usize::MAX),
            (GsoType::None, Transport::Other(protocol::SCTP)) => {
                self.sctp()?.map_or_else(|| self.fragments(usize::MAX), Ok)
            }
            (GsoType::None, _) => self.fragments(usize::MAX),
        }
    }

    /// Whether it has TCP's URG flag.
    fn is_urgent(&self) -> bool {
        Tcp::new(&self.bytes[self.headers.transport_at..self.headers.end])
            .is_ok_and(|tcp| tcp.flags().any(Flags::URG))
    }

    /// Whether it is, whole, not longer than the MTU.
    fn fits(&self) -> bool {
        self.headers.end - self.headers.network_at <= self.mtu
    }

    /// Bytes of payload that a frame of this packet's headers has room for.
    fn room(&self) -> usize {
        let outermost = self.outer.map_or(self.headers, |(outer, _)| outer);
        self.mtu.saturating_sub(self.headers.payload_at - outermost.network_at)
    }

    /// TCP, into segments of `gso_size` bytes or what there is room for.
    fn tcp(self, gso_size: usize) -> Result<Segmenter<'a>, Refusal> {
        let kind = match (self.hdr.gso_type, self.headers.network, self.headers.transport) {
            (GsoType::Tcpv4 | GsoType::None, Network::Ipv4 { .. }, Transport::Tcp) => Kind::Tcp4,
            (GsoType::Tcpv6 | GsoType::None, Network::Ipv6 { .. }, Transport::Tcp) => Kind::Tcp6,
            _ => return Err(self.mismatch()),
        };
        if gso_size == 0 {
            return Err(Refusal::GsoSizeZero);
        }
        let gso_size = gso_size.min(self.room());
        if gso_size == 0 {
            return Err(Refusal::OverMtu);
        }
        let pseudo_header = self.pseudo_header(protocol::TCP, tcp::CHECKSUM)?;
        let at = self.headers.transport_at;
        self.segments(kind, gso_size, |header| {
            Ok(TransportPart::Tcp(TcpPart::new(header, at, pseudo_header)))
        })
    }

    /// UDP, into datagrams of `gso_size` bytes. Their size is their sender's to choose: those that are
    /// longer than the MTU become fragments.
    fn uso(self) -> Result<Segmenter<'a>, Refusal> {
        let gso_size = usize::from(self.hdr.gso_size);
        // The ECN bit speaks of CWR, which UDP has not; Linux refuses it too.
        if self.headers.transport != Transport::Udp || self.hdr.ecn {
            return Err(self.mismatch());
        }
        if gso_size == 0 {
            return Err(Refusal::GsoSizeZero);
        }
        if !self.hdr.needs_csum {
            return Err(Refusal::ChecksumNotPartial);
        }
        let pseudo_header = self.pseudo_header(protocol::UDP, udp::CHECKSUM)?;
        let payload_len = self.headers.payload_len();
        if payload_len.div_ceil(gso_size) > UDP_MAX_SEGMENTS {
            return Err(Refusal::TooManySegments);
        }
        let at = self.headers.transport_at;
        let l4_len = self.headers.end - at;
        let udp = |header: &mut [u8]| UdpPart::new(header, at, pseudo_header, l4_len);
        let outermost = self.outer.map_or(self.headers, |(outer, _)| outer);
        let header_len = self.headers.payload_at - outermost.network_at;
        if header_len + gso_size.min(payload_len) <= self.mtu {
            let kind = Kind::by_version(self.headers.network, Kind::Uso4, Kind::Uso6);
            return self.segments(kind, gso_size, |header| Ok(TransportPart::Udp(udp(header)?)));
        }
        if self.outer.is_some() || payload_len == 0 {
            return Err(Refusal::OverMtu);
        }
        let kind = Kind::by_version(self.headers.network, Kind::Frag4, Kind::Frag6);
        let Packet { bytes, headers, mtu, fragment_ids, .. } = self;
        self.segments(kind, gso_size, |header| {
            let sizes = (gso_size, mtu);
            let part = DatagramsPart::new(udp(header)?, bytes, &headers, sizes, fragment_ids)?;
            Ok(TransportPart::Datagrams(part))
        })
    }

    /// One UDP datagram, into IP fragments with `gso_size` bytes each.
    fn ufo(self) -> Result<Segmenter<'a>, Refusal> {
        if self.headers.transport != Transport::Udp || self.hdr.ecn {
            return Err(self.mismatch());
        }
        let size = usize::from(self.hdr.gso_size);
        if size == 0 {
            return Err(Refusal::GsoSizeZero);
        }
        self.check_position(udp::CHECKSUM)?;
        // What fits one fragment is none.
        if self.fits() && self.headers.end - self.headers.transport_at <= size {
            return self.whole();
        }
        self.fragments(size)
    }

    /// SCTP, by chunks; `None` if they cannot be dealt out.
    fn sctp(self) -> Result<Option<Segmenter<'a>>, Refusal> {
        let at = self.headers.transport_at;
        let header_len = at + sctp::HEADER_LEN;
        let room = self.room().saturating_sub(sctp::HEADER_LEN);
        if header_len > MAX_HEADER_LEN || self.headers.end < header_len {
            return Ok(None);
        }
        let mut template = [0; MAX_HEADER_LEN];
        let header = &mut template[..header_len];
        header.copy_from_slice(&self.bytes[..header_len]);
        let ip = IpPart::new(header, &self.headers).ok_or(Refusal::TypeMismatch)?;
        let part = SctpPart::new(header, at, room);
        let payload = &self.bytes[header_len..self.headers.end];
        let kind = Kind::by_version(self.headers.network, Kind::Sctp4, Kind::Sctp6);
        Ok(part.packets(payload).map(|gso_segs| Segmenter {
            template,
            header_len,
            payload,
            gso_size: room,
            gso_segs,
            next: 0,
            offset: 0,
            kind: Some(kind),
            ip,
            transport: TransportPart::Sctp(part),
            tunnel: None,
            settled: false,
        }))
    }

    /// TCP and USO, whose segments each repeat all headers.
    fn segments(
        self,
        kind: Kind,
        gso_size: usize,
        part: impl FnOnce(&mut [u8]) -> Result<TransportPart, Refusal>,
    ) -> Result<Segmenter<'a>, Refusal> {
        let header_len = self.headers.payload_at;
        if header_len > MAX_HEADER_LEN {
            return Err(Refusal::HeaderTooLong);
        }
        let payload = &self.bytes[header_len..self.headers.end];
        // Made where it stays: it is large.
        let mut segmenter = Segmenter {
            template: [0; MAX_HEADER_LEN],
            header_len,
            payload,
            gso_size,
            gso_segs: payload.len().div_ceil(gso_size).max(1),
            next: 0,
            offset: 0,
            kind: Some(kind),
            ip: IpPart::default(),
            transport: TransportPart::None,
            tunnel: None,
            settled: false,
        };
        let header = &mut segmenter.template[..header_len];
        header.copy_from_slice(&self.bytes[..header_len]);
        segmenter.ip = IpPart::new(header, &self.headers).ok_or(Refusal::TypeMismatch)?;
        segmenter.transport = part(header)?;
        if let TransportPart::Datagrams(part) = &segmenter.transport {
            segmenter.gso_segs = part.count();
            return Ok(segmenter);
        }
        if let Some((outer, tunnel)) = self.outer {
            segmenter.tunnel = Some(TunnelPart::new(header, self.bytes, &outer, &tunnel)?);
        }
        segmenter.settle();
        Ok(segmenter)
    }

    /// Into IP fragments with at most `size` bytes each.
    fn fragments(self, size: usize) -> Result<Segmenter<'a>, Refusal> {
        let mut template = [0; MAX_HEADER_LEN];
        let Packet { bytes, headers, hdr, mtu, fragment_ids: ids, .. } = self;
        let cut = fragment::prepare(&mut template, bytes, &headers, &hdr, mtu, size, ids)?;
        let kind = Kind::by_version(headers.network, Kind::Frag4, Kind::Frag6);
        Ok(by_ip(template, cut, Some(kind)))
    }

    /// As it is.
    fn whole(self) -> Result<Segmenter<'a>, Refusal> {
        let mut template = [0; MAX_HEADER_LEN];
        let cut = fragment::whole(&mut template, self.bytes, &self.headers, &self.hdr, self.mtu)?;
        Ok(by_ip(template, cut, None))
    }

    /// Why the packet is not what `gso_type` says. What a tunnel carries `virtio_net_hdr` cannot
    /// describe: it says where one transport begins.
    fn mismatch(&self) -> Refusal {
        let inner = usize::from(self.hdr.csum_start) > self.headers.transport_at;
        match self.headers.transport {
            Transport::Fragment => Refusal::Fragment,
            Transport::Other(protocol::IPIP | protocol::IPV6) => Refusal::IpipTunnel,
            Transport::Other(protocol::GRE) => Refusal::GreTunnel,
            Transport::Udp if self.hdr.needs_csum && inner => Refusal::UdpTunnel,
            _ => Refusal::TypeMismatch,
        }
    }

    /// Checks that the checksum that is left to be completed, if there is one, is that of the transport
    /// that is cut. It lies at `field` of its header.
    fn check_position(&self, field: usize) -> Result<(), Refusal> {
        let (start, offset) = (usize::from(self.hdr.csum_start), self.hdr.csum_offset);
        let at = self.headers.transport_at;
        if !self.hdr.needs_csum || start == at && usize::from(offset) == field {
            return Ok(());
        }
        let udp = self.headers.transport == Transport::Udp;
        let tunnel = udp && start > at && self.outer.is_none();
        Err(if tunnel { Refusal::UdpTunnel } else { Refusal::ChecksumPosition })
    }

    /// The sum of the pseudo-header, its length left out.
    fn pseudo_header(&self, number: u8, field: usize) -> Result<Sum, Refusal> {
        let Packet { bytes, headers, hdr, .. } = self;
        self.check_position(field)?;
        if hdr.needs_csum {
            // In one's complement, adding the complement takes the length away again.
            let l4_len = (headers.end - headers.transport_at) as u16;
            let partial = be16(bytes, headers.transport_at + field);
            return Ok(Sum::default().plus_word(partial).plus_word(!l4_len));
        }
        let ip = &bytes[headers.network_at..];
        Ok(match headers.network {
            Network::Ipv4 { .. } => Ipv4::new(ip)?.pseudo_header(0),
            _ => Ipv6::new(ip)?.pseudo_header(number, 0),
        })
    }
}

/// What IP cuts, or leaves whole.
fn by_ip(template: [u8; MAX_HEADER_LEN], cut: Fragments<'_>, kind: Option<Kind>) -> Segmenter<'_> {
    let Fragments { part, body, size } = cut;
    Segmenter {
        template,
        header_len: part.header_len(false),
        payload: body,
        gso_size: size,
        gso_segs: part.count(body.len(), size),
        next: 0,
        offset: 0,
        kind,
        ip: IpPart::default(),
        transport: TransportPart::Fragment(part),
        tunnel: None,
        settled: false,
    }
}
