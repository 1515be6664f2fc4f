//! The packets for the cores by themselves: Ethernet, IP, TCP with timestamps.

use wire::checksum::{self, Sum};
use wire::{Flags, IPV4_MIN_LEN, IPV6_LEN, UDP_LEN};

/// A TCP header with timestamps.
pub(crate) const TCP_LEN: usize = 32;

const DESTINATION_PORT: u16 = 5201;

/// IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ip {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Ip {
    /// The version's number.
    pub const fn number(self) -> u8 {
        match self {
            Ip::V4 => 4,
            Ip::V6 => 6,
        }
    }

    /// Bytes of its header without options.
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Ip::V4 => IPV4_MIN_LEN,
            Ip::V6 => IPV6_LEN,
        }
    }
}

/// The headers in front of `l4_len` bytes of `protocol`, and the sum of the pseudo-header.
pub(crate) fn ethernet_and_ip(ip: Ip, protocol: u8, l4_len: usize) -> (Vec<u8>, Sum) {
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    let pseudo_header = match ip {
        Ip::V4 => {
            bytes.extend([0x08, 0x00]);
            let total = (IPV4_MIN_LEN + l4_len) as u16;
            let mut header = [0; IPV4_MIN_LEN];
            header[0] = 0x45;
            header[2..4].copy_from_slice(&total.to_be_bytes());
            header[6] = 0x40; // DF
            header[8] = 64;
            header[9] = protocol;
            header[12..].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = checksum::sum(&header).complement();
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes.extend(header);
            checksum::pseudo_v4(&header[12..], protocol, l4_len)
        }
        Ip::V6 => {
            bytes.extend([0x86, 0xdd]);
            let mut header = [0; IPV6_LEN];
            header[0] = 0x60;
            header[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
            header[6] = protocol;
            header[7] = 64;
            (header[8], header[23]) = (0xfd, 1);
            (header[24], header[39]) = (0xfd, 2);
            bytes.extend(header);
            checksum::pseudo_v6(&header[8..], protocol, l4_len)
        }
    };
    (bytes, pseudo_header)
}

/// From port 0 with sequence number 0; the checksum is left at 0.
pub(crate) fn tcp_header(flags: Flags) -> [u8; TCP_LEN] {
    let mut tcp = [0; TCP_LEN];
    tcp[2..4].copy_from_slice(&DESTINATION_PORT.to_be_bytes());
    tcp[8..12].copy_from_slice(&1u32.to_be_bytes()); // acknowledgment
    tcp[12] = (TCP_LEN as u8 / 4) << 4;
    tcp[13] = flags.0;
    tcp[14..16].copy_from_slice(&501u16.to_be_bytes()); // window
    tcp[20..24].copy_from_slice(&[1, 1, 8, 10]); // two NOPs, timestamps (RFC 7323 appendix A)
    tcp[24..28].copy_from_slice(&1u32.to_be_bytes());
    tcp[28..32].copy_from_slice(&2u32.to_be_bytes());
    tcp
}

/// From port 0; length and checksum are left at 0.
pub(crate) fn udp_header() -> [u8; UDP_LEN] {
    let mut udp = [0; UDP_LEN];
    udp[2..4].copy_from_slice(&DESTINATION_PORT.to_be_bytes());
    udp
}

/// So many bytes, each of which depends on its offset.
pub(crate) fn payload(len: usize) -> impl Iterator<Item = u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 23) as u8)
}
