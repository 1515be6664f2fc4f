//! An independent reassembler of IP fragments: naive, and written from RFC 791 section 3.2 and RFC 8200
//! section 4.5 alone. It also checks the rules of these for senders of fragments.

use crate::verify::ones_complement_sum;

/// A reassembled datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reassembled {
    /// The IP packet: the first fragment's headers, and all payload. It is still a fragment if the fragments
    /// were made of one.
    pub packet: Vec<u8>,
    /// The identification of all fragments; with IPv4 it has 16 bits.
    pub id: u32,
    /// Number of fragments.
    pub fragments: usize,
}

/// Reassembles IP packets without a link layer: all fragments of one datagram, in order.
///
/// # Errors
/// What is wrong with them, in words: another header length or total length than there are bytes, a
/// header checksum, a gap or an overlap, a length that is no multiple of eight before the last, the
/// more-fragments flag, bits that must be zero, another ID, protocol or address, a datagram of more
/// than 65,535 bytes.
pub fn reassemble<T: AsRef<[u8]>>(packets: &[T]) -> Result<Reassembled, String> {
    let first = packets.first().and_then(|packet| packet.as_ref().first());
    let version = first.ok_or("no fragments")? >> 4;
    let read = match version {
        4 => ipv4,
        6 => ipv6,
        other => return Err(format!("IP version {other}")),
    };
    let parts =
        packets.iter().map(|packet| read(packet.as_ref())).collect::<Result<Vec<_>, _>>()?;
    let (first, last) = (&parts[0], &parts[parts.len() - 1]);
    let mut payload = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        if part.same != first.same {
            return Err(format!("fragment {n} is of another datagram"));
        }
        if part.offset != first.offset + payload.len() {
            return Err(format!("fragment {n} begins at {}, not {}", part.offset, payload.len()));
        }
        if n + 1 < parts.len() && !part.more {
            return Err(format!("fragment {n} has no more-fragments flag"));
        }
        if n + 1 < parts.len() && !part.payload.len().is_multiple_of(8) {
            return Err(format!("fragment {n} has {} bytes", part.payload.len()));
        }
        payload.extend(part.payload);
    }
    if first.offset + payload.len() > 65_535 {
        return Err(format!("a datagram of {} bytes", first.offset + payload.len()));
    }
    let rebuild = if version == 4 { rebuild_ipv4 } else { rebuild_ipv6 };
    let packet = rebuild(first, last, &payload)?;
    Ok(Reassembled { packet, id: first.same.id, fragments: parts.len() })
}

/// The fields that identify a datagram (RFC 791 section 2.3; RFC 8200 section 4.5).
#[derive(PartialEq, Eq)]
struct Same<'a> {
    id: u32,
    addresses: &'a [u8],
    /// IPv4 only: RFC 8200 has it in the first fragment.
    protocol: Option<u8>,
}

struct Part<'a> {
    same: Same<'a>,
    /// In bytes.
    offset: usize,
    more: bool,
    /// The header, up to the fragment's payload.
    header: &'a [u8],
    payload: &'a [u8],
}

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) << 8 | usize::from(bytes[at + 1])
}

fn ipv4(packet: &[u8]) -> Result<Part<'_>, String> {
    if packet.len() < 20 || packet[0] >> 4 != 4 {
        return Err("no IPv4 header".into());
    }
    let header_len = usize::from(packet[0] & 15) * 4;
    if header_len < 20 || header_len > packet.len() || be16(packet, 2) != packet.len() {
        let total = be16(packet, 2);
        return Err(format!("IPv4: header {header_len}, total {total}, there {}", packet.len()));
    }
    let (header, payload) = packet.split_at(header_len);
    if ones_complement_sum(header) != 0xffff {
        return Err("IPv4 header checksum".into());
    }
    let flags = be16(packet, 6);
    if flags & 0x8000 != 0 {
        return Err("IPv4: the flag that must be zero".into());
    }
    Ok(Part {
        same: Same {
            id: be16(packet, 4) as u32,
            addresses: &header[12..20],
            protocol: Some(header[9]),
        },
        offset: (flags & 0x1fff) * 8,
        more: flags & 0x2000 != 0,
        header,
        payload,
    })
}

fn rebuild_ipv4(first: &Part<'_>, last: &Part<'_>, payload: &[u8]) -> Result<Vec<u8>, String> {
    let mut packet = [first.header, payload].concat();
    let len = u16::try_from(packet.len()).map_err(|_| "more than 65,535 bytes")?;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[6] = packet[6] & !0x20 | u8::from(last.more) << 5;
    packet[10..12].fill(0);
    let checksum = !ones_complement_sum(&packet[..first.header.len()]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    Ok(packet)
}

fn ipv6(packet: &[u8]) -> Result<Part<'_>, String> {
    if packet.len() < 40 || packet[0] >> 4 != 6 || 40 + be16(packet, 4) != packet.len() {
        return Err(format!("IPv6: no header, or its length is not {}", packet.len()));
    }
    let (mut next, mut at) = (packet[6], 40);
    while next != 44 {
        let header = packet.get(at..at + 2).ok_or("IPv6: no Fragment header")?;
        if !matches!(next, 0 | 43 | 60) {
            return Err(format!("IPv6: header {next} before the Fragment header"));
        }
        next = header[0];
        at += 8 + usize::from(header[1]) * 8;
    }
    let (header, rest) = packet.split_at_checked(at).ok_or("IPv6: no Fragment header")?;
    let (fragment, payload) = rest.split_at_checked(8).ok_or("IPv6: no Fragment header")?;
    let field = be16(fragment, 2);
    if fragment[1] != 0 || field & 6 != 0 {
        return Err("IPv6: reserved bits of the Fragment header".into());
    }
    Ok(Part {
        same: Same {
            id: u32::from_be_bytes([fragment[4], fragment[5], fragment[6], fragment[7]]),
            addresses: &header[8..40],
            protocol: None,
        },
        offset: field & !7,
        more: field & 1 != 0,
        header: &packet[..at + 8],
        payload,
    })
}

/// "The Next Header field of the last header of the Per-Fragment headers is obtained from the Next
/// Header field of the first fragment's Fragment header." A part of a datagram keeps that.
fn rebuild_ipv6(first: &Part<'_>, last: &Part<'_>, payload: &[u8]) -> Result<Vec<u8>, String> {
    let (headers, fragment) = first.header.split_at(first.header.len() - 8);
    let mut packet = if first.offset == 0 && !last.more {
        let (mut field, mut at) = (6, 40);
        while at < headers.len() {
            field = at;
            at += 8 + usize::from(headers[at + 1]) * 8;
        }
        let mut packet = [headers, payload].concat();
        packet[field] = fragment[0];
        packet
    } else {
        let mut packet = [first.header, payload].concat();
        packet[headers.len() + 3] = fragment[3] & !1 | u8::from(last.more);
        packet
    };
    let len = u16::try_from(packet.len() - 40).map_err(|_| "more than 65,535 bytes")?;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketBuilder;

    /// The packet of `builder`, cut after 16 bytes of IP payload by the builder's own fields.
    fn two(v4: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
        let payload: Vec<u8> = (0..21).collect();
        let of = |payload: &[u8]| {
            let builder = if v4 { PacketBuilder::ip4(253) } else { PacketBuilder::ip6(253) };
            builder.extension(43, 8).dont_fragment(false).payload(payload)
        };
        let parts = [of(&payload[..16]).fragment(0, true), of(&payload[16..]).fragment(16, false)];
        let ip = |builder: &PacketBuilder| builder.build()[14..].to_vec();
        (ip(&of(&payload)), parts.iter().map(ip).collect())
    }

    #[test]
    fn two_fragments_are_reassembled() {
        for v4 in [true, false] {
            let (packet, parts) = two(v4);
            let whole = reassemble(&parts).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((whole.packet, whole.fragments), (packet, 2));
        }
    }

    #[test]
    fn every_wrong_byte_is_an_error() {
        for v4 in [true, false] {
            let (_, parts) = two(v4);
            let fails = |parts: &[Vec<u8>]| reassemble(parts).is_err();
            assert!(fails(&[]) && fails(&[parts[0].clone(), parts[0].clone()]));
            assert!(fails(&[parts[1].clone(), parts[0].clone()]));
            for (part, bytes) in parts.iter().enumerate() {
                let headers = if v4 { 0..20 } else { 40 + 8..40 + 16 };
                for byte in headers {
                    // An IPv6 fragment's next header counts in the first one only; in others it may have any
                    // value.
                    if !v4 && byte == 48 {
                        continue;
                    }
                    let mut wrong = parts.clone();
                    wrong[part][byte] ^= 0x14;
                    assert!(fails(&wrong), "part {part}, byte {byte} of {}", bytes.len());
                }
            }
        }
    }
}
