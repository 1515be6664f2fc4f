//! An independent verifier of frames: naive, slow, written from the RFCs alone.

/// The 16-bit one's-complement sum of RFC 1071 section 4.1, one word at a time; an odd last byte
/// is the high byte of a word. Bytes that hold their own correct checksum give 0xFFFF.
pub fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The pseudo-header of RFC 9293 section 3.1 (eight bytes of addresses) or RFC 8200 section 8.1
/// (32 bytes).
pub fn pseudo_header(addresses: &[u8], protocol: u8, len: usize) -> Vec<u8> {
    let mut bytes = addresses.to_vec();
    if addresses.len() == 8 {
        bytes.extend([0, protocol]);
        bytes.extend((len as u16).to_be_bytes());
    } else {
        bytes.extend((len as u32).to_be_bytes());
        bytes.extend([0, 0, 0, protocol]);
    }
    bytes
}

/// Checks every length and checksum of an Ethernet frame with up to two VLAN tags: the IPv4
/// header's, and TCP's, UDP's or SCTP's. Frames of other kinds, and fragments past their IP header, pass.
/// Bytes after the IP packet are ignored.
///
/// # Errors
/// What is wrong, in words.
pub fn checksums(frame: &[u8]) -> Result<(), String> {
    let be16 = |at: usize| {
        let bytes = frame.get(at..at + 2).ok_or(format!("frame of {} bytes", frame.len()))?;
        Ok::<_, String>(usize::from(bytes[0]) << 8 | usize::from(bytes[1]))
    };
    let mut at = 12;
    while matches!(be16(at)?, 0x8100 | 0x88a8) && at < 20 {
        at += 4;
    }
    let ip = frame.get(at + 2..).unwrap_or_default();
    match be16(at)? {
        0x0800 => ipv4(ip),
        0x86dd => ipv6(ip),
        _ => Ok(()),
    }
}

fn ipv4(ip: &[u8]) -> Result<(), String> {
    if ip.len() < 20 || ip[0] >> 4 != 4 {
        return Err("no IPv4 header".into());
    }
    let header = usize::from(ip[0] & 15) * 4;
    let total = usize::from(ip[2]) << 8 | usize::from(ip[3]);
    if header < 20 || header > total || total > ip.len() {
        return Err(format!("IPv4 lengths: header {header}, total {total}, there {}", ip.len()));
    }
    if ones_complement_sum(&ip[..header]) != 0xffff {
        return Err("IPv4 header checksum".into());
    }
    let fragment = ip[6] & 0x3f != 0 || ip[7] != 0;
    if fragment { Ok(()) } else { upper_layer(ip[9], &ip[12..20], &ip[header..total]) }
}

fn ipv6(ip: &[u8]) -> Result<(), String> {
    if ip.len() < 40 || ip[0] >> 4 != 6 {
        return Err("no IPv6 header".into());
    }
    let end = 40 + (usize::from(ip[4]) << 8 | usize::from(ip[5]));
    let mut next = ip[6];
    let mut at = 40;
    while matches!(next, 0 | 43 | 60) {
        let header = ip.get(at..at + 2).ok_or("IPv6 extension header past the end")?;
        next = header[0];
        at += 8 + usize::from(header[1]) * 8;
    }
    let rest = ip.get(at..end).ok_or("IPv6 payload length past the end")?;
    if next == 44 { Ok(()) } else { upper_layer(next, &ip[8..40], rest) }
}

fn upper_layer(protocol: u8, addresses: &[u8], bytes: &[u8]) -> Result<(), String> {
    let name = match protocol {
        6 if bytes.len() < 20 => return Err("no TCP header".into()),
        6 => "TCP",
        17 if bytes.len() < 8 => return Err("no UDP header".into()),
        17 if usize::from(bytes[4]) << 8 | usize::from(bytes[5]) != bytes.len() => {
            return Err("UDP length is not the IP payload's".into());
        }
        17 if bytes[6..8] == [0, 0] => {
            let allowed = addresses.len() == 8;
            return if allowed { Ok(()) } else { Err("UDP checksum 0 over IPv6".into()) };
        }
        17 => "UDP",
        132 if bytes.len() < 12 => return Err("no SCTP header".into()),
        132 => return crate::sctp::verify(bytes),
        _ => return Ok(()),
    };
    let whole = [&pseudo_header(addresses, protocol, bytes.len()), bytes].concat();
    match ones_complement_sum(&whole) {
        0xffff => Ok(()),
        sum => Err(format!("{name} checksum: sum {sum:#06x}")),
    }
}
