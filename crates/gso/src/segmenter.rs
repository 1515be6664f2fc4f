//! The walk over a super-packet, segment by segment.

use wire::checksum;

use crate::datagrams::DatagramsPart;
use crate::fragment::FragmentPart;
use crate::ip::IpPart;
use crate::piece::{MAX_HEADER_LEN, Piece};
use crate::sctp::SctpPart;
use crate::tcp::TcpPart;
use crate::tunnel::TunnelPart;
use crate::udp::UdpPart;
use crate::{Kind, Refusal};

/// Bytes that hold most headers: Ethernet, a VLAN tag, IPv6 and TCP with timestamps are 90.
const SHORT: usize = 96;
const CACHE_LINE: usize = 64;

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
    pub(crate) template: [u8; MAX_HEADER_LEN],
    /// Bytes of header that every frame has.
    pub(crate) header_len: usize,
    /// What is cut.
    pub(crate) payload: &'a [u8],
    /// Most bytes of it in each frame.
    pub(crate) gso_size: usize,
    pub(crate) gso_segs: usize,
    pub(crate) next: usize,
    /// Where the next frame begins in the payload.
    pub(crate) offset: usize,
    pub(crate) kind: Option<Kind>,
    pub(crate) ip: IpPart,
    pub(crate) transport: TransportPart,
    pub(crate) tunnel: Option<TunnelPart>,
    /// The template has what full segments in the middle have in common.
    pub(crate) settled: bool,
}

/// The transport header's part in each segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TransportPart {
    /// Not known yet.
    None,
    Tcp(TcpPart),
    Udp(UdpPart),
    Sctp(SctpPart),
    Fragment(FragmentPart),
    /// UDP whose datagrams do not fit.
    Datagrams(DatagramsPart),
}

impl<'a> Segmenter<'a> {
    /// How the packet is cut; `None` if it goes whole.
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// How many of the `fragment_ids` that it was given the packet's fragments take. The next packet is
    /// to be given those that come after them.
    #[inline]
    pub fn fragment_ids(&self) -> u32 {
        match &self.transport {
            TransportPart::Fragment(part) => part.ids_used(),
            TransportPart::Datagrams(part) => part.ids_used(),
            _ => 0,
        }
    }

    /// All segments carry the IPv4 ID of the super-packet (Linux `SKB_GSO_TCP_FIXEDID`), which
    /// `virtio_net_hdr` cannot say. Without it the ID grows by one per segment.
    #[must_use]
    pub fn fixed_id(mut self) -> Self {
        self.ip.fix_id();
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.fix_id();
        }
        self
    }

    /// CWR stays on every segment, as Accurate ECN needs it (Linux `SKB_GSO_TCP_ACCECN`), which
    /// `virtio_net_hdr` cannot say. Without it CWR is on the first segment only, whatever
    /// `VIRTIO_NET_HDR_GSO_ECN` is (Linux `tcp_gso_segment`).
    #[must_use]
    pub fn accecn(mut self) -> Self {
        if let TransportPart::Tcp(tcp) = &mut self.transport {
            tcp.keep_cwr();
            self.settle();
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

    /// Bytes of the longest frame that will come, Ethernet header included; SCTP packets may all be
    /// shorter.
    #[inline]
    pub fn max_segment_len(&self) -> usize {
        let most = match &self.transport {
            TransportPart::Datagrams(part) => return part.max_len(),
            TransportPart::Fragment(part) => part.most(),
            _ => self.gso_size,
        };
        self.header_len + most.min(self.payload.len())
    }

    /// Makes segment `n` (counted from 0) the next one: to go on where a full port stopped.
    #[inline]
    pub fn skip_to(&mut self, n: usize) {
        self.next = n.min(self.gso_segs);
        self.offset = match &self.transport {
            // Chunks have lengths of their own.
            TransportPart::Sctp(sctp) => {
                (0..self.next).fold(0, |offset, _| offset + sctp.bundle(&self.payload[offset..]))
            }
            _ => self.next * self.gso_size,
        };
        self.debug_check();
    }

    /// Writes the headers of the next segment, all checksums final, to the start of `header` and
    /// hands out its payload. Bytes of `header` past `header_len` mean nothing.
    #[inline]
    pub fn next_segment(&mut self, header: &mut [u8; MAX_HEADER_LEN]) -> Option<Segment<'a>> {
        if let Some(payload) = self.full() {
            // A length that is known is copied faster.
            if self.header_len <= CACHE_LINE {
                copy_first::<CACHE_LINE>(header, &self.template);
            } else {
                copy_first::<SHORT>(header, &self.template);
            }
            self.write_full(header, payload);
            self.pass_full();
            return Some(Segment { header_len: self.header_len, payload });
        }
        let piece = self.piece()?;
        self.write_header(&mut header[..piece.header_len], &piece, piece.payload);
        self.pass(&piece);
        Some(Segment { header_len: piece.header_len, payload: piece.payload })
    }

    /// Writes the next segment, headers and payload, to the start of `out`; gives its length, or
    /// `None` after the last. The payload is copied, and the copy summed.
    ///
    /// # Errors
    /// [`Refusal::BufferTooSmall`]; the segment remains the next one. Ask
    /// [`max_segment_len`](Self::max_segment_len) once, before the first.
    #[inline]
    pub fn next_into(&mut self, out: &mut [u8]) -> Result<Option<usize>, Refusal> {
        if let Some(payload) = self.full() {
            let len = self.header_len + payload.len();
            let out = out.get_mut(..len).ok_or(Refusal::BufferTooSmall)?;
            let (header, copy) = out.split_at_mut(self.header_len);
            header.copy_from_slice(&self.template[..self.header_len]);
            copy.copy_from_slice(payload);
            // The copy is in the first-level cache.
            self.write_full(header, copy);
            self.pass_full();
            return Ok(Some(len));
        }
        let Some(piece) = self.piece() else { return Ok(None) };
        let len = piece.header_len + piece.payload.len();
        let out = out.get_mut(..len).ok_or(Refusal::BufferTooSmall)?;
        let (header, payload) = out.split_at_mut(piece.header_len);
        payload.copy_from_slice(piece.payload);
        // The copy is in the first-level cache.
        self.write_header(header, &piece, payload);
        self.pass(&piece);
        Ok(Some(len))
    }

    /// The payload of the next segment, if all that differs between it and others is in
    /// [`write_full`](Self::write_full).
    #[inline]
    fn full(&self) -> Option<&'a [u8]> {
        let is_middle = self.next > 0 && self.next + 1 < self.gso_segs;
        if !is_middle || !self.settled {
            return None;
        }
        self.payload.get(self.offset..self.offset + self.gso_size)
    }

    /// Completes `header`, which is the template's. `payload` are the segment's bytes, wherever they
    /// lie.
    #[inline]
    fn write_full(&self, header: &mut [u8], payload: &[u8]) {
        let sum = checksum::sum_payload(payload);
        self.ip.write_full(header, self.next);
        match &self.transport {
            TransportPart::Tcp(tcp) => tcp.write_full(header, self.offset, sum),
            TransportPart::Udp(udp) => udp.write_full(header, sum),
            _ => {}
        }
    }

    #[inline]
    fn pass_full(&mut self) {
        self.next += 1;
        self.offset += self.gso_size;
        self.debug_check();
    }

    /// Writes what full segments in the middle have in common to the template, which makes these, the
    /// most of them, cheap.
    pub(crate) fn settle(&mut self) {
        if self.header_len > SHORT || self.tunnel.is_some() || self.gso_segs < 3 {
            return;
        }
        let template = &mut self.template[..self.header_len];
        self.ip.settle(template, self.header_len + self.gso_size);
        let l4_len = |at: usize| self.header_len - at + self.gso_size;
        match &mut self.transport {
            TransportPart::Tcp(tcp) => tcp.settle(template, l4_len(tcp.at)),
            TransportPart::Udp(udp) => udp.settle(template, l4_len(udp.at)),
            _ => return,
        }
        self.settled = true;
    }

    /// The next segment's place.
    #[inline]
    fn piece(&self) -> Option<Piece<'a>> {
        if self.next >= self.gso_segs {
            return None;
        }
        if let TransportPart::Datagrams(part) = &self.transport {
            return part.piece(self.next, self.payload);
        }
        let (first, last) = (self.next == 0, self.next + 1 == self.gso_segs);
        let rest = self.payload.get(self.offset..)?;
        let (len, head) = match &self.transport {
            TransportPart::Sctp(sctp) => (sctp.bundle(rest), 0),
            TransportPart::Fragment(part) => {
                (part.len(rest.len(), self.gso_size), part.head(first))
            }
            _ => (self.gso_size.min(rest.len()), 0),
        };
        Some(Piece {
            header_len: self.header_len + head,
            offset: self.offset,
            payload: rest.get(head..len)?,
            first,
            last,
            next_offset: self.offset + len,
        })
    }

    #[inline]
    fn pass(&mut self, piece: &Piece<'_>) {
        self.debug_check_piece(piece);
        self.next += 1;
        self.offset = piece.next_offset;
        self.debug_check();
    }

    /// `payload` are the piece's bytes, wherever they lie.
    #[inline]
    fn write_header(&self, header: &mut [u8], piece: &Piece<'_>, payload: &[u8]) {
        header.copy_from_slice(&self.template[..header.len()]);
        // Which of the packets that IP does not cut.
        let nth = match &self.transport {
            TransportPart::Fragment(part) => return part.write(header, piece),
            TransportPart::Datagrams(part) => match part.whole(self.next) {
                Some(number) => number,
                None => return part.write(header, &self.template, self.next, piece, self.payload),
            },
            _ => self.next,
        };
        let frame_len = header.len() + payload.len();
        self.ip.write(header, nth, frame_len);
        let sum = match &self.transport {
            TransportPart::Sctp(sctp) => return sctp.write(header, payload),
            _ => checksum::sum_payload(payload),
        };
        match &self.transport {
            TransportPart::Tcp(tcp) => tcp.write(header, piece, sum),
            TransportPart::Udp(udp) => udp.write(header, piece, sum),
            TransportPart::Datagrams(part) => part.udp.write(header, piece, sum),
            _ => {}
        }
        if let Some(tunnel) = &self.tunnel {
            tunnel.write(header, self.next, frame_len, sum);
        }
    }
}

/// Copies the first `N` bytes.
#[inline]
fn copy_first<const N: usize>(to: &mut [u8; MAX_HEADER_LEN], from: &[u8; MAX_HEADER_LEN]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk::<N>()) {
        *to = *from;
    }
}
