//! Cutting a datagram into IP fragments (RFC 791 section 3.2, RFC 8200 section 4.5; the slides'
//! GSO_UDP4 and GSO_UDP6), as the sending host's own IP would.
//!
//! The transport's checksum covers the whole datagram. It is completed before the first fragment,
//! which has the transport's header in its own; no payload is read after that.

use wire::{Headers, IPV4_MIN_LEN, IPV6_LEN, Malformed, Network, Sum, VirtioNetHdr, checksum};
use wire::{Transport, protocol};

use crate::completion::Completion;
use crate::piece::{MAX_HEADER_LEN, Piece};
use crate::{FragmentIds, Refusal, be16, put16};

/// Longest IP packet, in bytes.
const IP_MAX: usize = 65_535;

pub(crate) const V4_TOTAL_LEN: usize = 2;
pub(crate) const V4_ID: usize = 4;
pub(crate) const V4_FLAGS: usize = 6;
pub(crate) const V4_CHECKSUM: usize = 10;
const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

pub(crate) const V6_PAYLOAD_LEN: usize = 4;
const V6_NEXT_HEADER: usize = 6;
/// Bytes of an IPv6 Fragment header.
pub(crate) const V6_FRAGMENT_LEN: usize = 8;
/// Bits beside offset and M flag.
const V6_RESERVED: u16 = 6;

/// Most bytes of options in an IPv4 header.
const OPTIONS_MAX: usize = 40;
/// An option's bit that says that every fragment has it (RFC 791 section 3.1).
const COPIED: u8 = 0x80;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;

/// The changing part of the headers of each fragment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FragmentPart {
    /// Where IP begins.
    at: usize,
    /// Where the fragmentable part begins in the frames.
    body_at: usize,
    /// Bytes of it that stand with the headers in the first fragment, as its checksum was written.
    head: usize,
    /// Most bytes of it in the last fragment, whose length need not be a multiple of eight.
    last: usize,
    version: Version,
}

#[derive(Clone, Copy, Debug)]
enum Version {
    /// It fits: nothing but its checksum changes.
    Whole,
    V4 {
        /// The packet's own flags and offset; it may be a fragment itself.
        field: u16,
        id: u16,
        /// Sums of the header less what changes: with all options, and with those of later
        /// fragments.
        first: Sum,
        later: Sum,
        /// The options of later fragments: others are replaced by no-operations, as in Linux.
        options: [u8; OPTIONS_MAX],
    },
    V6 {
        /// The packet's own offset and M flag; it may be a fragment itself.
        field: u16,
    },
}

/// What becomes of a packet that is cut by IP.
pub(crate) struct Fragments<'a> {
    pub(crate) part: FragmentPart,
    /// The fragmentable part.
    pub(crate) body: &'a [u8],
    /// Bytes of it in each fragment but the last.
    pub(crate) size: usize,
}

/// Prepares `template` for fragments of `packet` of at most `size` bytes of IP payload each, and
/// of an IP packet of at most `mtu` bytes. The template then holds the headers of the first.
///
/// The ID is the packet's own if it may be fragmented anywhere. IPv6 has none, and one with DF is
/// not to be relied upon (RFC 6864 section 4.1): they get the first of `fragment_ids`. DF is cleared: its sender
/// asked the path not to cut what it sends, and nothing on the path does.
pub(crate) fn prepare<'a>(
    template: &mut [u8; MAX_HEADER_LEN],
    packet: &'a [u8],
    headers: &Headers,
    hdr: &VirtioNetHdr,
    mtu: usize,
    size: usize,
    fragment_ids: FragmentIds,
) -> Result<Fragments<'a>, Refusal> {
    let at = headers.network_at;
    let (body_from, extra) = match headers.network {
        Network::Ipv4 { .. } if reaches_too_far(packet, headers) => return Err(Refusal::Fragment),
        Network::Ipv4 { .. } => (headers.transport_at, 0),
        // It has the header already, and is cut as if it had been sent in smaller fragments.
        Network::Ipv6 { .. } if headers.transport == Transport::Fragment => {
            (v6_fragment_end(packet, headers)?, 0)
        }
        Network::Ipv6 { .. } => (per_fragment_end(packet, headers), V6_FRAGMENT_LEN),
        Network::Other(_) => return Err(Refusal::OverMtu),
    };
    let body = &packet[body_from..headers.end];
    let body_at = body_from + extra;
    let last = most_in_last(mtu, body_at - at).min(size);
    let size = last & !7;
    let head = lay_out(template, packet, headers, hdr, body_from, body_at)?;
    if size < head.max(8) {
        return Err(Refusal::OverMtu);
    }
    let version = match headers.network {
        Network::Ipv4 { .. } => v4(&mut template[at..body_at], fragment_ids),
        _ if extra == 0 => {
            let own = body_at - V6_FRAGMENT_LEN;
            // Reserved bits are sent as zero, whatever they were.
            template[own + 1] = 0;
            let field = be16(template, own + 2);
            Version::V6 { field: field & !V6_RESERVED }
        }
        _ => {
            let next = next_header_at(packet, headers, body_from);
            let fragment = [template[next], 0, 0, 0];
            template[next] = protocol::FRAGMENT;
            template[body_from..body_from + 4].copy_from_slice(&fragment);
            template[body_from + 4..body_at].copy_from_slice(&fragment_ids.nth(0).to_be_bytes());
            Version::V6 { field: 0 }
        }
    };
    Ok(Fragments { part: FragmentPart { at, body_at, head, last, version }, body, size })
}

/// Most bytes of the fragmentable part in a packet's last fragment, behind `header_len` bytes of IP's.
/// Others have a multiple of eight.
pub(crate) fn most_in_last(mtu: usize, header_len: usize) -> usize {
    mtu.min(IP_MAX).saturating_sub(header_len)
}

/// Prepares `template` for `packet` as it is, with its checksum completed. Ethernet padding that the
/// MTU has no room for is left out.
pub(crate) fn whole<'a>(
    template: &mut [u8; MAX_HEADER_LEN],
    packet: &'a [u8],
    headers: &Headers,
    hdr: &VirtioNetHdr,
    mtu: usize,
) -> Result<Fragments<'a>, Refusal> {
    // A few bytes are enough for the headers to be more than nothing.
    let body_at = headers.transport_at.min(MAX_HEADER_LEN);
    let head = lay_out(template, packet, headers, hdr, body_at, body_at)?;
    let end = headers.network_at.saturating_add(mtu).clamp(headers.end, packet.len());
    let body = &packet[body_at..end];
    let size = body.len().max(1);
    let at = headers.network_at;
    let part = FragmentPart { at, body_at, head, last: size, version: Version::Whole };
    Ok(Fragments { part, body, size })
}

/// Copies what stands in front of the first fragment's payload to `template`: the headers up to
/// `body_from`, and from `body_at` on the bytes up to the end of a checksum that was left partial,
/// which is completed. Gives how many these are.
fn lay_out(
    template: &mut [u8; MAX_HEADER_LEN],
    packet: &[u8],
    headers: &Headers,
    hdr: &VirtioNetHdr,
    body_from: usize,
    body_at: usize,
) -> Result<usize, Refusal> {
    let completion = Completion::of(packet, headers, hdr)?;
    // It may lie anywhere, but not in the headers that stand in front.
    let field = match &completion {
        Some(completion) => completion.field.clone(),
        None => body_from..body_from,
    };
    let at = field.start.checked_sub(body_from).ok_or(Refusal::ChecksumPosition)?;
    let head = field.end - body_from;
    let (header, first) = template
        .get_mut(..body_at + head)
        .and_then(|template| template.split_at_mut_checked(body_at))
        .ok_or(Refusal::HeaderTooLong)?;
    header[..body_from].copy_from_slice(&packet[..body_from]);
    first.copy_from_slice(&packet[body_from..body_from + head]);
    if let Some(completion) = completion {
        completion.store(&mut first[at..], packet);
    }
    Ok(head)
}

/// Whether an IPv4 fragment claims a place past the end of the longest datagram.
fn reaches_too_far(packet: &[u8], headers: &Headers) -> bool {
    let offset = usize::from(be16(packet, headers.network_at + V4_FLAGS) & OFFSET) * 8;
    offset + headers.end - headers.transport_at > IP_MAX
}

/// Where an IPv6 packet's own Fragment header ends.
fn v6_fragment_end(packet: &[u8], headers: &Headers) -> Result<usize, Refusal> {
    let at = headers.transport_at;
    let end = at + V6_FRAGMENT_LEN;
    if end > headers.end {
        return Err(Refusal::Malformed(Malformed::Ipv6Extension));
    }
    let offset = usize::from(be16(packet, at + 2) & !7);
    if offset + headers.end - end > IP_MAX {
        return Err(Refusal::Fragment);
    }
    Ok(end)
}

/// Clears in the first fragment's IPv4 header what changes, and makes the later ones' options.
fn v4(header: &mut [u8], fragment_ids: FragmentIds) -> Version {
    let field = be16(header, V4_FLAGS);
    // A fragment already: its ID is that of the others.
    let is_atomic = field & DONT_FRAGMENT != 0 && field & (MORE_FRAGMENTS | OFFSET) == 0;
    let id = if is_atomic { fragment_ids.nth(0) as u16 } else { be16(header, V4_ID) };
    for cleared in [V4_TOTAL_LEN, V4_ID, V4_FLAGS, V4_CHECKSUM] {
        put16(header, cleared, 0);
    }
    let mut options = [0; OPTIONS_MAX];
    let own = &header[IPV4_MIN_LEN..];
    options[..own.len()].copy_from_slice(own);
    let later_options = &mut options[..own.len()];
    keep_copied(later_options);
    let first = checksum::sum(header);
    let later = checksum::sum(&header[..IPV4_MIN_LEN]).plus(checksum::sum(later_options));
    Version::V4 { field: field & (MORE_FRAGMENTS | OFFSET), id, first, later, options }
}

/// Replaces the options that only the first fragment has (Linux `ip_options_fragment`). What
/// follows an option whose length lies stays as it is.
pub(crate) fn keep_copied(options: &mut [u8]) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            END_OF_OPTIONS => return,
            NO_OPERATION => 1,
            _ => match options.get(at + 1) {
                Some(&len @ 2..) => len.into(),
                _ => return,
            },
        };
        let Some(option) = options.get_mut(at..at + len) else { return };
        if kind & COPIED == 0 {
            option.fill(NO_OPERATION);
        }
        at += len;
    }
}

/// Where the headers end that every fragment has: Hop-by-Hop, Routing, and Destination options
/// where they stand before one of these, or, as Linux has it (`ip6_find_1stfragopt`), where there
/// is no Routing header.
pub(crate) fn per_fragment_end(packet: &[u8], headers: &Headers) -> usize {
    let mut end = headers.network_at + IPV6_LEN;
    let mut next = packet[headers.network_at + V6_NEXT_HEADER];
    let mut routed = false;
    while end < headers.transport_at {
        match next {
            protocol::DESTINATION if routed => break,
            protocol::ROUTING => routed = true,
            _ => {}
        }
        next = packet[end];
        end += 8 + usize::from(packet[end + 1]) * 8;
    }
    end
}

/// Where the last of the headers that every fragment has says what comes next.
pub(crate) fn next_header_at(packet: &[u8], headers: &Headers, end: usize) -> usize {
    let mut at = headers.network_at + V6_NEXT_HEADER;
    let mut header = headers.network_at + IPV6_LEN;
    while header < end {
        at = header;
        header += 8 + usize::from(packet[header + 1]) * 8;
    }
    at
}

impl FragmentPart {
    /// Bytes of header in front of a fragment's payload.
    #[inline]
    pub(crate) fn header_len(&self, first: bool) -> usize {
        self.body_at + if first { self.head } else { 0 }
    }

    /// Bytes of the fragmentable part that stand with the headers.
    #[inline]
    pub(crate) fn head(&self, first: bool) -> usize {
        if first { self.head } else { 0 }
    }

    /// How many fragments `body` bytes become, with `size` in each but the last.
    pub(crate) fn count(&self, body: usize, size: usize) -> usize {
        body.saturating_sub(self.last).div_ceil(size) + 1
    }

    /// Bytes that the next fragment has of the `rest`: all of them as soon as they fit (RFC 791
    /// section 3.2), `size` before.
    #[inline]
    pub(crate) fn len(&self, rest: usize, size: usize) -> usize {
        if rest <= self.last { rest } else { size }
    }

    /// IDs of the caller's that the fragments take.
    #[inline]
    pub(crate) fn ids_used(&self) -> u32 {
        u32::from(!matches!(self.version, Version::Whole))
    }

    /// Most bytes of the fragmentable part in one fragment.
    #[inline]
    pub(crate) fn most(&self) -> usize {
        self.last
    }

    /// Fills in one fragment; `header` begins with Ethernet and ends where the payload begins.
    #[inline]
    pub(crate) fn write(&self, header: &mut [u8], piece: &Piece<'_>) {
        let frame_len = header.len() + piece.payload.len();
        let units = (piece.offset / 8) as u16;
        match &self.version {
            Version::Whole => {}
            Version::V4 { field, id, first, later, options } => {
                let ip = &mut header[self.at..self.body_at];
                let sum = if piece.first { *first } else { *later };
                if !piece.first {
                    let own = ip.len() - IPV4_MIN_LEN;
                    ip[IPV4_MIN_LEN..].copy_from_slice(&options[..own]);
                }
                let len = (frame_len - self.at) as u16;
                let field = (field + units) | if piece.last { 0 } else { MORE_FRAGMENTS };
                put16(ip, V4_TOTAL_LEN, len);
                put16(ip, V4_ID, *id);
                put16(ip, V4_FLAGS, field);
                let sum = sum.plus_word(len).plus_word(*id).plus_word(field);
                put16(ip, V4_CHECKSUM, sum.complement());
            }
            Version::V6 { field } => {
                let len = frame_len - self.at - IPV6_LEN;
                put16(header, self.at + V6_PAYLOAD_LEN, len as u16);
                let field = (field + (units << 3)) | u16::from(!piece.last);
                put16(header, self.body_at - V6_FRAGMENT_LEN + 2, field);
            }
        }
    }
}
