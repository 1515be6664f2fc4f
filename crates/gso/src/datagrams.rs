//! Cutting a super-packet of UDP (USO) whose datagrams are longer than the MTU: each goes as IP
//! fragments, as the sending host's own IP would have made them of a datagram of that size.
//!
//! Where a frame lies, and all that is in it, follows from its number. A datagram's checksum is summed
//! when its first fragment is made, which has the UDP header.

use wire::{Headers, IPV4_MIN_LEN, IPV6_LEN, Network, checksum, protocol};

use crate::fragment::{
    MORE_FRAGMENTS, V4_CHECKSUM, V4_FLAGS, V4_ID, V4_TOTAL_LEN, V6_FRAGMENT_LEN, V6_PAYLOAD_LEN,
    keep_copied, most_in_last, next_header_at, per_fragment_end,
};
use crate::piece::{MAX_HEADER_LEN, Piece};
use crate::udp::UdpPart;
use crate::{FragmentIds, Refusal, put16};

/// The changing part of the headers of each frame. The template has the headers of a datagram that
/// goes whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramsPart {
    pub(crate) udp: UdpPart,
    ids: FragmentIds,
    /// Where IP begins.
    at: usize,
    /// Where the headers end that every fragment has.
    body_at: usize,
    /// Headers of the datagram that are behind these: the last is that of UDP.
    head: usize,
    /// Where the last header that every fragment has says what comes next, with IPv6.
    next_header_at: Option<usize>,
    /// Bytes of the fragmentable part in all fragments but the last, and most in that.
    size: usize,
    last: usize,
    /// Bytes of payload in all datagrams but the last, and in all together.
    gso_size: usize,
    payload_len: usize,
    /// Fragments of each datagram but the last.
    each: usize,
}

/// One frame's place.
struct Place {
    /// Of the datagram.
    number: usize,
    /// The datagram in the super-packet's payload.
    start: usize,
    len: usize,
    /// Bytes of the fragmentable part before this fragment; `None` if the datagram goes whole.
    offset: Option<usize>,
}

impl DatagramsPart {
    /// For `packet` and its datagrams of `gso_size` bytes, which do not fit `mtu`.
    pub(crate) fn new(
        udp: UdpPart,
        packet: &[u8],
        headers: &Headers,
        (gso_size, mtu): (usize, usize),
        ids: FragmentIds,
    ) -> Result<DatagramsPart, Refusal> {
        let at = headers.network_at;
        let (body_at, next_header_at) = match headers.network {
            Network::Ipv4 { .. } => (headers.transport_at, None),
            _ => {
                let end = per_fragment_end(packet, headers);
                (end, Some(next_header_at(packet, headers, end)))
            }
        };
        let head = headers.payload_at - body_at;
        let extra = if next_header_at.is_some() { V6_FRAGMENT_LEN } else { 0 };
        if headers.payload_at + extra > MAX_HEADER_LEN {
            return Err(Refusal::HeaderTooLong);
        }
        let last = most_in_last(mtu, body_at + extra - at);
        let size = last & !7;
        // The first fragment has all headers (RFC 7112).
        if size < head.max(8) {
            return Err(Refusal::OverMtu);
        }
        let payload_len = headers.payload_len();
        let gso_size = gso_size.min(payload_len);
        let mut part = DatagramsPart {
            udp,
            ids,
            at,
            body_at,
            head,
            next_header_at,
            size,
            last,
            gso_size,
            payload_len,
            each: 1,
        };
        part.each = part.frames(gso_size);
        Ok(part)
    }

    /// Datagrams in the super-packet.
    fn datagrams(&self) -> usize {
        self.payload_len.div_ceil(self.gso_size)
    }

    /// Payload of the last datagram.
    fn last_len(&self) -> usize {
        self.payload_len - (self.datagrams() - 1) * self.gso_size
    }

    /// Bytes that a Fragment header adds to each fragment.
    fn extra(&self) -> usize {
        if self.next_header_at.is_some() { V6_FRAGMENT_LEN } else { 0 }
    }

    /// Whether a datagram of `len` bytes goes whole.
    fn fits(&self, len: usize) -> bool {
        self.head + len <= self.last + self.extra()
    }

    /// Frames that a datagram of `len` bytes becomes.
    fn frames(&self, len: usize) -> usize {
        let body = self.head + len;
        if self.fits(len) { 1 } else { body.saturating_sub(self.last).div_ceil(self.size) + 1 }
    }

    /// Frames that all become.
    pub(crate) fn count(&self) -> usize {
        (self.datagrams() - 1) * self.each + self.frames(self.last_len())
    }

    /// IDs that they need.
    pub(crate) fn ids_used(&self) -> u32 {
        (self.datagrams() - usize::from(self.fits(self.last_len()))) as u32
    }

    /// Bytes of the longest frame, or a few more: as many as the MTU has room for.
    pub(crate) fn max_len(&self) -> usize {
        self.body_at + self.extra() + self.last
    }

    fn place(&self, n: usize) -> Place {
        let number = n / self.each;
        let start = number * self.gso_size;
        let len = self.gso_size.min(self.payload_len - start);
        let offset = (!self.fits(len)).then(|| n % self.each * self.size);
        Place { number, start, len, offset }
    }

    /// Where frame `n` of all, which there must be, lies in the super-packet's `payload`.
    pub(crate) fn piece<'a>(&self, n: usize, payload: &'a [u8]) -> Option<Piece<'a>> {
        let Place { start, len, offset, .. } = self.place(n);
        let datagram = payload.get(start..start + len)?;
        let Some(offset) = offset else {
            return Some(Piece {
                header_len: self.body_at + self.head,
                offset: 0,
                payload: datagram,
                first: true,
                last: true,
                next_offset: 0,
            });
        };
        let rest = (self.head + len).checked_sub(offset)?;
        let (first, last) = (offset == 0, rest <= self.last);
        let end = offset + if last { rest } else { self.size };
        Some(Piece {
            header_len: self.body_at + self.extra() + if first { self.head } else { 0 },
            offset,
            payload: datagram.get(offset.saturating_sub(self.head)..end - self.head)?,
            first,
            last,
            next_offset: 0,
        })
    }

    /// Which datagram frame `n` is, if it is one that goes whole.
    pub(crate) fn whole(&self, n: usize) -> Option<usize> {
        let Place { number, offset, .. } = self.place(n);
        offset.is_none().then_some(number)
    }

    /// Fills in frame `n`, a fragment; `payload` is the super-packet's.
    pub(crate) fn write(
        &self,
        header: &mut [u8],
        template: &[u8],
        n: usize,
        piece: &Piece<'_>,
        payload: &[u8],
    ) {
        let Place { number, start, len, .. } = self.place(n);
        // Not the packet's own ID with IPv4, though it may be cut on its way: Linux counts the IDs up
        // within a super-packet, and the next of the same socket begins with the second of them
        // (`__ip_make_skb` takes one ID). Fragments of two datagrams must not share one.
        let id = self.ids.nth(number as u32);
        let (per_fragment, rest) = header.split_at_mut(self.body_at);
        per_fragment.copy_from_slice(&template[..self.body_at]);
        let ip_len = self.body_at - self.at + rest.len() + piece.payload.len();
        let (fragment, head) = rest.split_at_mut(self.extra());
        let ip = &mut per_fragment[self.at..];
        match self.next_header_at {
            None => {
                if !piece.first {
                    keep_copied(&mut ip[IPV4_MIN_LEN..]);
                }
                put16(ip, V4_TOTAL_LEN, ip_len as u16);
                put16(ip, V4_ID, id as u16);
                // Without DF: see `fragment::prepare`.
                let more = if piece.last { 0 } else { MORE_FRAGMENTS };
                put16(ip, V4_FLAGS, (piece.offset / 8) as u16 | more);
                put16(ip, V4_CHECKSUM, 0);
                let checksum = checksum::sum(ip).complement();
                put16(ip, V4_CHECKSUM, checksum);
            }
            Some(next) => {
                put16(ip, V6_PAYLOAD_LEN, (ip_len - IPV6_LEN) as u16);
                (fragment[0], fragment[1]) = (per_fragment[next], 0);
                per_fragment[next] = protocol::FRAGMENT;
                put16(fragment, 2, piece.offset as u16 | u16::from(!piece.last));
                fragment[4..].copy_from_slice(&id.to_be_bytes());
            }
        }
        if piece.first {
            head.copy_from_slice(&template[self.body_at..][..self.head]);
            let sum = checksum::sum(&payload[start..start + len]);
            let udp_at = self.udp.at - self.body_at;
            self.udp.write_at(&mut head[udp_at..], len, sum);
        }
    }
}
