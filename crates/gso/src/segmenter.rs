//! The walk over a super-packet, segment by segment.

use wire::{
    GsoType, Headers, Ipv4, Ipv6, Network, Sum, Transport, VirtioNetHdr, checksum, protocol,
};

use crate::ip::IpPart;
use crate::tcp::TcpPart;
use crate::udp::{UDP_MAX_SEGMENTS, UdpPart};
use crate::{Refusal, be16, tcp, udp};

/// The most header bytes that a segment may have: Ethernet, two VLAN tags, IPv6 and a TCP header
/// full of options are 122; the rest is room for IPv6 extension headers.
pub const MAX_HEADER_LEN: usize = 256;

/// One segment: its header is in the caller's buffer, its payload in the super-packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// Bytes of the header that was written, from Ethernet to the transport.
    pub header_len: usize,
    /// The payload: `gso_size` bytes, or what is left.
    pub payload: &'a [u8],
}

/// Cuts one super-packet into frames. See the [crate] for an example.
///
/// A payload of at most `gso_size` bytes, none included, is one segment: the packet itself with
/// complete checksums (Linux: "Too small packets are not really GSO ones").
#[derive(Clone, Debug)]
pub struct Segmenter<'a> {
    /// All headers, with the fields that change set to 0.
    template: [u8; MAX_HEADER_LEN],
    header_len: usize,
    payload: &'a [u8],
    gso_size: usize,
    gso_segs: usize,
    next: usize,
    ip: IpPart,
    transport: TransportPart,
}

/// The transport header's part in each segment.
#[derive(Clone, Copy, Debug)]
enum TransportPart {
    Tcp(TcpPart),
    Udp(UdpPart),
}

/// Where one segment lies in the super-packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// Bytes of payload before it.
    pub(crate) offset: usize,
    pub(crate) payload: &'a [u8],
    pub(crate) first: bool,
    pub(crate) last: bool,
}

impl<'a> Segmenter<'a> {
    /// Prepares to cut `packet`, an Ethernet frame, as `hdr` says. `hdr_len` is not looked at: on
    /// forwarded traffic it can be anything. Bytes after the IP packet (Ethernet padding) are no
    /// payload.
    ///
    /// With `NEEDS_CSUM` the checksum field must hold the pseudo-header's sum, length included;
    /// it is believed, as it is right even where a Routing header hides the final destination.
    /// TCP without `NEEDS_CSUM` gets its checksums computed from the addresses.
    pub fn new(packet: &'a [u8], hdr: &VirtioNetHdr) -> Result<Segmenter<'a>, Refusal> {
        match hdr.gso_type {
            GsoType::Tcpv4 | GsoType::Tcpv6 | GsoType::UdpL4 => Self::by_transport(packet, hdr),
            GsoType::Udp => Err(Refusal::Ufo),
            GsoType::None => Err(Refusal::NotSuperPacket),
        }
    }

    /// TCP and USO, whose segments each repeat all headers.
    fn by_transport(packet: &'a [u8], hdr: &VirtioNetHdr) -> Result<Segmenter<'a>, Refusal> {
        if hdr.gso_size == 0 {
            return Err(Refusal::GsoSizeZero);
        }
        let headers = Headers::parse(packet)?;
        check_type(hdr, &headers)?;
        let header_len = headers.payload_at;
        if header_len > MAX_HEADER_LEN {
            return Err(Refusal::HeaderTooLong);
        }
        let pseudo_header = pseudo_header(packet, hdr, &headers)?;

        let mut template = [0; MAX_HEADER_LEN];
        let header = &mut template[..header_len];
        header.copy_from_slice(&packet[..header_len]);
        let ip = IpPart::new(header, &headers).ok_or(Refusal::TypeMismatch)?;
        let payload = &packet[header_len..headers.end];
        let gso_size = usize::from(hdr.gso_size);
        let gso_segs = payload.len().div_ceil(gso_size).max(1);
        let at = headers.transport_at;
        let transport = if hdr.gso_type == GsoType::UdpL4 {
            if gso_segs > UDP_MAX_SEGMENTS {
                return Err(Refusal::TooManySegments);
            }
            let l4_len = headers.end - at;
            TransportPart::Udp(UdpPart::new(header, at, pseudo_header, l4_len)?)
        } else {
            TransportPart::Tcp(TcpPart::new(header, at, pseudo_header))
        };
        Ok(Segmenter { template, header_len, payload, gso_size, gso_segs, next: 0, ip, transport })
    }

    /// All segments carry the IPv4 ID of the super-packet (Linux `SKB_GSO_TCP_FIXEDID`), which
    /// `virtio_net_hdr` cannot say. Without it the ID grows by one per segment.
    #[must_use]
    pub fn fixed_id(mut self) -> Self {
        self.ip.fix_id();
        self
    }

    /// CWR stays on every segment, as Accurate ECN needs it (Linux `SKB_GSO_TCP_ACCECN`), which
    /// `virtio_net_hdr` cannot say. Without it CWR is on the first segment only, whatever
    /// `VIRTIO_NET_HDR_GSO_ECN` is (Linux `tcp_gso_segment`).
    #[must_use]
    pub fn accecn(mut self) -> Self {
        if let TransportPart::Tcp(tcp) = &mut self.transport {
            tcp.keep_cwr();
        }
        self
    }

    /// Segments in the whole super-packet, at least 1.
    #[inline]
    pub fn gso_segs(&self) -> usize {
        self.gso_segs
    }

    /// How many segments came before the next one; what [`skip_to`](Self::skip_to) takes.
    #[inline]
    pub fn position(&self) -> usize {
        self.next
    }

    /// Bytes of the longest frame that will come, Ethernet header included.
    #[inline]
    pub fn max_segment_len(&self) -> usize {
        self.header_len + self.gso_size.min(self.payload.len())
    }

    /// Makes segment `n` (counted from 0) the next one: to go on where a full port stopped.
    #[inline]
    pub fn skip_to(&mut self, n: usize) {
        self.next = n.min(self.gso_segs);
    }

    /// Writes the headers of the next segment, all checksums final, to the start of `header` and
    /// hands out its payload. Bytes of `header` past `header_len` mean nothing.
    #[inline]
    pub fn next_segment(&mut self, header: &mut [u8; MAX_HEADER_LEN]) -> Option<Segment<'a>> {
        let piece = self.piece()?;
        let sum = checksum::sum(piece.payload);
        self.write_header(&mut header[..self.header_len], &piece, sum);
        self.next += 1;
        Some(Segment { header_len: self.header_len, payload: piece.payload })
    }

    /// Writes the next segment, headers and payload, to the start of `out`; gives its length, or
    /// `None` after the last. The payload is copied, and the copy summed.
    ///
    /// # Errors
    /// [`Refusal::BufferTooSmall`]; the segment remains the next one. Ask
    /// [`max_segment_len`](Self::max_segment_len) once, before the first.
    #[inline]
    pub fn next_into(&mut self, out: &mut [u8]) -> Result<Option<usize>, Refusal> {
        let Some(piece) = self.piece() else { return Ok(None) };
        let len = self.header_len + piece.payload.len();
        let out = out.get_mut(..len).ok_or(Refusal::BufferTooSmall)?;
        let (header, payload) = out.split_at_mut(self.header_len);
        let sum = checksum::copy_and_sum(payload, piece.payload);
        self.write_header(header, &piece, sum);
        self.next += 1;
        Ok(Some(len))
    }

    /// The next segment's place.
    #[inline]
    fn piece(&self) -> Option<Piece<'a>> {
        if self.next >= self.gso_segs {
            return None;
        }
        let offset = self.next * self.gso_size;
        let rest = self.payload.get(offset..)?;
        Some(Piece {
            offset,
            payload: &rest[..self.gso_size.min(rest.len())],
            first: self.next == 0,
            last: self.next + 1 == self.gso_segs,
        })
    }

    #[inline]
    fn write_header(&self, header: &mut [u8], piece: &Piece<'_>, payload_sum: Sum) {
        header.copy_from_slice(&self.template[..self.header_len]);
        self.ip.write(header, self.next, self.header_len + piece.payload.len());
        match &self.transport {
            TransportPart::Tcp(tcp) => tcp.write(header, piece, payload_sum),
            TransportPart::Udp(udp) => udp.write(header, piece, payload_sum),
        }
    }
}

/// Is the packet what `gso_type` says?
fn check_type(hdr: &VirtioNetHdr, headers: &Headers) -> Result<(), Refusal> {
    if headers.transport == Transport::Fragment {
        return Err(Refusal::Fragment);
    }
    match (hdr.gso_type, headers.network, headers.transport) {
        (GsoType::Tcpv4, Network::Ipv4 { .. }, Transport::Tcp)
        | (GsoType::Tcpv6, Network::Ipv6 { .. }, Transport::Tcp) => Ok(()),
        // The ECN bit speaks of CWR, which UDP has not; Linux refuses it too.
        (GsoType::UdpL4, _, Transport::Udp) if !hdr.ecn => Ok(()),
        _ => Err(Refusal::TypeMismatch),
    }
}

/// The sum of the pseudo-header, its length left out.
fn pseudo_header(packet: &[u8], hdr: &VirtioNetHdr, headers: &Headers) -> Result<Sum, Refusal> {
    let (number, field) = match headers.transport {
        Transport::Udp => (protocol::UDP, udp::CHECKSUM),
        _ => (protocol::TCP, tcp::CHECKSUM),
    };
    if hdr.needs_csum {
        if usize::from(hdr.csum_start) != headers.transport_at
            || usize::from(hdr.csum_offset) != field
        {
            return Err(Refusal::ChecksumPosition);
        }
        // In one's complement, adding the complement takes the length away again.
        let l4_len = (headers.end - headers.transport_at) as u16;
        let partial = be16(packet, headers.transport_at + field);
        return Ok(Sum::default().plus_word(partial).plus_word(!l4_len));
    }
    if number == protocol::UDP {
        return Err(Refusal::ChecksumNotPartial);
    }
    let ip = &packet[headers.network_at..];
    Ok(match headers.network {
        Network::Ipv4 { .. } => Ipv4::new(ip)?.pseudo_header(0),
        _ => Ipv6::new(ip)?.pseudo_header(number, 0),
    })
}
