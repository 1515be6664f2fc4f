//! A TCP packet read without `wire`, byte by byte, for oracles that must not share its mistakes.

use testkit::verify::{ones_complement_sum, pseudo_header};

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;
pub(crate) const CWR: u8 = 0x80;

/// A TCP packet over IP that is not a fragment, in its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tcp {
    /// Ethernet and tags.
    pub(crate) link: Vec<u8>,
    /// IP with options or extension headers.
    pub(crate) ip: Vec<u8>,
    /// TCP with options.
    pub(crate) tcp: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// What makes a connection: addresses and ports.
pub(crate) type Key = (Vec<u8>, Vec<u8>);

fn be16(b: &[u8], at: usize) -> usize {
    usize::from(b[at]) << 8 | usize::from(b[at + 1])
}

fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(b[at..at + 4].try_into().unwrap())
}

impl Tcp {
    /// `None` for everything else, and for what cannot be walked.
    pub(crate) fn read(frame: &[u8]) -> Option<Tcp> {
        let mut at = 14;
        for _ in 0..2 {
            if frame.len() >= at && matches!(be16(frame, at - 2), 0x8100 | 0x88a8) {
                at += 4;
            }
        }
        let link = frame.get(..at)?.to_vec();
        let rest = &frame[at..];
        let (ip_len, total) = match be16(&link, at - 2) {
            0x0800 => ipv4_lengths(rest)?,
            0x86dd => ipv6_lengths(rest)?,
            _ => return None,
        };
        let (ip, upper) = rest.get(..total)?.split_at_checked(ip_len)?;
        let tcp_len = usize::from(*upper.get(12)? >> 4) * 4;
        if tcp_len < 20 || upper.len() < 20 {
            return None;
        }
        let (tcp, payload) = upper.split_at_checked(tcp_len)?;
        Some(Tcp { link, ip: ip.to_vec(), tcp: tcp.to_vec(), payload: payload.to_vec() })
    }

    /// The packet without Ethernet padding.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [&self.link[..], &self.ip, &self.tcp, &self.payload].concat()
    }

    pub(crate) fn key(&self) -> Key {
        (self.addresses().to_vec(), self.tcp[..4].to_vec())
    }

    /// That of what is sent the other way.
    pub(crate) fn reversed_key(&self) -> Key {
        let (from, to) = self.addresses().split_at(self.addresses().len() / 2);
        ([to, from].concat(), [&self.tcp[2..4], &self.tcp[..2]].concat())
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.ip[0] >> 4 == 6
    }

    fn addresses(&self) -> &[u8] {
        if self.is_v6() { &self.ip[8..40] } else { &self.ip[12..20] }
    }

    pub(crate) fn seq(&self) -> u32 {
        be32(&self.tcp, 4)
    }

    pub(crate) fn ack(&self) -> u32 {
        be32(&self.tcp, 8)
    }

    pub(crate) fn flags(&self) -> u8 {
        self.tcp[13]
    }

    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags() & flags != 0
    }

    pub(crate) fn window(&self) -> usize {
        be16(&self.tcp, 14)
    }

    pub(crate) fn checksum(&self) -> usize {
        be16(&self.tcp, 16)
    }

    pub(crate) fn urgent(&self) -> usize {
        be16(&self.tcp, 18)
    }

    pub(crate) fn options(&self) -> &[u8] {
        &self.tcp[20..]
    }

    /// IPv4 identification.
    pub(crate) fn id(&self) -> Option<u16> {
        (!self.is_v6()).then(|| be16(&self.ip, 4) as u16)
    }

    /// TSval and TSecr, if the options are the twelve bytes of RFC 7323 appendix A.
    pub(crate) fn timestamps(&self) -> Option<(u32, u32)> {
        let options = self.options();
        (options.len() == 12 && options[..4] == [1, 1, 8, 10])
            .then(|| (be32(options, 4), be32(options, 8)))
    }

    pub(crate) fn ip_len(&self) -> usize {
        self.ip.len() + self.tcp.len() + self.payload.len()
    }

    pub(crate) fn header_len(&self) -> usize {
        self.link.len() + self.ip.len() + self.tcp.len()
    }

    /// The IPv4 header checksum field.
    pub(crate) fn ip_checksum(&self) -> Option<usize> {
        (!self.is_v6()).then(|| be16(&self.ip, 10))
    }

    pub(crate) fn ip_checksum_ok(&self) -> bool {
        self.is_v6() || ones_complement_sum(&self.ip) == 0xffff
    }

    /// The folded sum of the pseudo-header.
    pub(crate) fn pseudo_sum(&self) -> u16 {
        let len = self.tcp.len() + self.payload.len();
        ones_complement_sum(&pseudo_header(self.addresses(), 6, len))
    }

    pub(crate) fn tcp_checksum_ok(&self) -> bool {
        let len = self.tcp.len() + self.payload.len();
        let pseudo = pseudo_header(self.addresses(), 6, len);
        ones_complement_sum(&[&pseudo[..], &self.tcp, &self.payload].concat()) == 0xffff
    }
}

/// Header length and total length, if this is IPv4 with TCP, and no fragment.
fn ipv4_lengths(b: &[u8]) -> Option<(usize, usize)> {
    if b.len() < 20 || b[0] >> 4 != 4 {
        return None;
    }
    let (header, total) = (usize::from(b[0] & 15) * 4, be16(b, 2));
    let fragment = be16(b, 6) & 0x3fff != 0;
    (header >= 20 && total >= header && total <= b.len() && b[9] == 6 && !fragment)
        .then_some((header, total))
}

/// The same for IPv6; the header includes extension headers, of which there are at most eight.
fn ipv6_lengths(b: &[u8]) -> Option<(usize, usize)> {
    if b.len() < 40 || b[0] >> 4 != 6 {
        return None;
    }
    let total = 40 + be16(b, 4);
    let (mut next, mut at, mut count) = (b[6], 40, 0);
    while matches!(next, 0 | 43 | 60) {
        let header = b.get(at..at + 2)?;
        next = header[0];
        at += 8 + usize::from(header[1]) * 8;
        count += 1;
    }
    (next == 6 && at <= total && total <= b.len() && count <= 8).then_some((at, total))
}
